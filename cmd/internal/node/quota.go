package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// quota holds a node to the limits. It reads a copy of the state: concurrent operations may exceed them.
type quota struct {
	limits       *atomic.Pointer[config.Quota]
	service      registry.Service
	coordination consul.Coordination // may be nil
	figures      figures
}

// figures count what level 3 refuses, and what it would refuse, by reason.
type figures struct{ refused, wouldRefuse *prometheus.CounterVec }

// Reasons for refusals that only level 3 makes.
const byName, byShare = "name", "share"

func newFigures(reg prometheus.Registerer) figures {
	counters := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
		reg.MustRegister(c)
		for _, why := range []string{byName, byShare} {
			c.WithLabelValues(why)
		}
		return c
	}
	return figures{
		counters("rollcall_additions_refused_total", "Additions that level 3 refused, by reason: a name with invisible characters, or the principal's share."),
		counters("rollcall_additions_would_refuse_total", "Additions that were accepted but that level 3, or auth.mode on, will refuse, by the same reasons."),
	}
}

// errShare refuses what exceeds a principal's share.
var errShare = fmt.Errorf("%w for more of one principal", registry.ErrFull)

// judge refuses something, or counts it if it is not refused yet.
func (q quota) judge(refuses bool, why string, err error) error {
	if !refuses {
		q.figures.wouldRefuse.WithLabelValues(why).Inc()
		return nil
	}
	return err
}

// checkNames refuses what an operation creates because of its name, from level 3 on.
func (q quota) checkNames(level byte, made names) error {
	for _, n := range made {
		if order.HasInvisible(n.name) {
			return q.judge(level >= registry.Level3, byName, fmt.Errorf("%w: the new %s %q has characters that are not seen, and looks like another", registry.ErrName, n.kind, n.name))
		}
	}
	return nil
}

// sure makes a check against this node's copy of the state. If that refuses, the copy may lack something that exists
// already: then the newest state decides, which costs a round trip in this case alone.
func (q quota) sure(check func(registry.Consistency) error) error {
	err := check(registry.Stale)
	if errors.Is(err, registry.ErrFull) || errors.Is(err, registry.ErrName) {
		if newest := check(registry.Linearizable); !errors.Is(newest, registry.ErrNotOffered) {
			err = newest
		}
	}
	switch {
	case errors.Is(err, registry.ErrName):
		q.figures.refused.WithLabelValues(byName).Inc()
	case errors.Is(err, errShare):
		q.figures.refused.WithLabelValues(byShare).Inc()
	}
	return err
}

// checkBytes refuses what adds to a state that has reached the limit; keys is nil without coordination.
func (q quota) checkBytes(catalog *registry.View, keys *kv.View) error {
	bytes, most := int64(catalog.CatalogBytes()), q.limits.Load().StateBytes
	if keys != nil {
		bytes += int64(keys.Bytes())
	}
	if bytes < most {
		return nil
	}
	return fmt.Errorf("%w: keys, sessions, locks, nodes and remembered results take %d bytes, and limits.state-bytes is %d; what is there can be read, renewed and removed", registry.ErrFull, bytes, most)
}

// checkRegistry refuses a registration because of a new name, or beyond the limits on nodes or bytes.
func (q quota) checkRegistry(ctx context.Context, op registry.Op, read registry.Consistency) error {
	v, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	if err := q.checkNames(v.Level(), namesIn(v, op)); err != nil {
		return err
	}
	given, ok := op.(registry.RegisterCatalog)
	if !ok {
		return nil
	}
	if limits := q.limits.Load(); given.Node != nil && v.NodeCount() >= limits.Nodes {
		if _, exists := v.Node(given.Node.Name); !exists {
			return fmt.Errorf("%w: the catalog has %d nodes, and limits.nodes is %d; those that are there can be registered again and removed", registry.ErrFull, v.NodeCount(), limits.Nodes)
		}
	}
	if v.CatalogGrowth(given) <= 0 {
		return nil
	}
	var keys *kv.View
	if q.coordination != nil {
		if keys, err = q.coordination.View(ctx, read); err != nil {
			return err
		}
	}
	return q.checkBytes(v, keys)
}

// checkCoordination refuses an operation because of a new name, or one that adds beyond the limits on bytes, sessions
// or nodes, or beyond the share of its sender.
func (q quota) checkCoordination(ctx context.Context, op kv.Op, read registry.Consistency) error {
	for _, given := range registrations(op) {
		if err := q.checkRegistry(ctx, given, read); err != nil {
			return err
		}
	}
	v, err := q.coordination.View(ctx, read)
	if err != nil {
		return err
	}
	if err := q.checkNames(v.Registry.Level(), namesOf(v, op)); err != nil || !growsCoordination(v, op) {
		return err
	}
	if err := q.checkBytes(v.Registry, v); err != nil {
		return err
	}
	_, session := op.(kv.CreateSession)
	if err := q.checkShare(ctx, v, session); err != nil {
		return err
	}
	if most := q.limits.Load().Sessions; session && v.SessionCount() >= most {
		return fmt.Errorf("%w: there are %d sessions, and limits.sessions is %d; those that are there can be renewed and destroyed", registry.ErrFull, v.SessionCount(), most)
	}
	return nil
}

// sharedLimit is a limit that each principal has a share of.
type sharedLimit struct {
	key, what string
	most      int64
	has       func(kv.Use) int
}

// sharesOf returns a principal's parts of the limits on bytes and on sessions, at least 1.
func sharesOf(q *config.Quota) [2]sharedLimit {
	share := func(limit int64) int64 { return max(1, int64(float64(limit)/100*float64(q.Share))) }
	return [...]sharedLimit{
		{"limits.state-bytes", "bytes of keys and sessions", share(q.StateBytes), func(u kv.Use) int { return u.Bytes }},
		{"limits.sessions", "sessions", share(int64(q.Sessions)), func(u kv.Use) int { return u.Sessions }},
	}
}

// checkShare refuses a session, or what takes bytes, beyond the share of its sender.
func (q quota) checkShare(ctx context.Context, v *kv.View, session bool) error {
	limits, by, mode := q.limits.Load(), access.SenderOf(ctx).Name, access.ModeOf(ctx)
	if limits.Share == 0 || by == "" || mode == access.Off {
		return nil
	}
	for _, l := range sharesOf(limits) {
		if has := int64(l.has(v.Use(by))); has >= l.most && (session || l.key != "limits.sessions") {
			return q.judge(mode == access.On && v.Registry.Level() >= registry.Level3, byShare, fmt.Errorf("%w: %s has %d %s, and its share is %d (limits.principal-share, %d percent); what is there can be read, renewed and removed", errShare, by, has, l.what, l.most, limits.Share))
		}
	}
	return nil
}

// principalUse is what a principal uses of a limit, by its key.
type principalUse struct {
	Limit, Principal string
	Used             int64
}

// largestUses returns, for each limit, at most most principals: those that use most, beyond half of their share.
func largestUses(q *config.Quota, v *kv.View, most int) (all []principalUse) {
	if q.Share == 0 {
		return nil
	}
	for _, l := range sharesOf(q) {
		var large []principalUse
		for principal, use := range v.Uses() {
			if has := int64(l.has(use)); has > l.most/2 {
				large = append(large, principalUse{l.key, principal, has})
			}
		}
		slices.SortFunc(large, func(a, b principalUse) int { return cmp.Compare(b.Used, a.Used) })
		all = append(all, large[:min(len(large), most)]...)
	}
	return all
}

// growsCoordination reports whether an operation may add to what is stored. A session that acquires again what it
// holds or waits for adds nothing.
func growsCoordination(v *kv.View, op kv.Op) bool {
	if acquire, ok := op.(kv.AcquirePermit); ok {
		return !v.HoldsOrWaits(acquire.Kind, acquire.Name, acquire.Session)
	}
	return addsKeys(op)
}

// addsKeys reports whether an operation creates a session, or writes or acquires a key.
func addsKeys(op kv.Op) bool {
	switch op := op.(type) {
	case kv.Once:
		return addsKeys(op.Op)
	case kv.CreateSession:
		return true
	case kv.KeyOp:
		return op.Verb == kv.Set || op.Verb == kv.CAS || op.Verb == kv.Acquire
	case kv.Txn:
		for _, each := range op.Ops {
			if each.Key != nil && addsKeys(*each.Key) {
				return true
			}
		}
	}
	return false
}

// registrations returns the registrations of nodes, services and checks in a transaction.
func registrations(op kv.Op) (all []registry.RegisterCatalog) {
	txn, _ := op.(kv.Txn)
	for _, each := range txn.Ops {
		if each.Catalog != nil && each.Catalog.Register != nil {
			all = append(all, *each.Catalog.Register)
		}
	}
	return all
}
