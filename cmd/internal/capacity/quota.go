package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
)

// Quota bounds what is kept beside instances.
type Quota struct {
	StateBytes int64 `key:"limits.state-bytes" default:"1073741824" min:"1" help:"most bytes, about, that keys, sessions, locks with their queues, records of deleted keys, remembered results and nodes of the catalog may take; above it what adds gets 507, and all else goes on"`
	Sessions   int   `key:"limits.sessions" default:"100000" min:"1" help:"mode cp: most sessions; a new one above it gets 507"`
	Share      int   `key:"limits.principal-share" default:"50" min:"0" max:"100" help:"mode cp, with access control: percent of limits.sessions and of limits.state-bytes that one principal may have; what it adds beyond that gets 507, and all else goes on; 0: no share is less than all"`
	Nodes      int   `key:"limits.nodes" default:"100000" min:"1" help:"most nodes in the catalog; a new one above it gets 507"`
}

// quota holds a node to the limits. It reads a copy of the state: operations that are under way meanwhile may go beyond
// them.
type quota struct {
	limits       *atomic.Pointer[Quota]
	service      registry.Service
	coordination httpd.Coordination // nil: there is none
	figures      figures
}

// figures count what level 3 refuses by why, and what it will.
type figures struct{ refused, wouldRefuse *prometheus.CounterVec }

// Why something is refused that only level 3 refuses.
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
		counters("rollcall_additions_refused_total", "What clients wanted to add and level 3 refuses, by reason: a name with characters that are not seen, or the share of a principal."),
		counters("rollcall_additions_would_refuse_total", "What clients added and level 3, or auth.mode on, will refuse, by the same reasons."),
	}
}

// errShare is of what is beyond a principal's share.
var errShare = fmt.Errorf("%w for more of one principal", registry.ErrFull)

// judge refuses something, or counts it if it is not refused yet.
func (q quota) judge(refuses bool, why string, err error) error {
	if !refuses {
		q.figures.wouldRefuse.WithLabelValues(why).Inc()
		return nil
	}
	return err
}

// checkName refuses something new, if there is any, by its name, from level 3 on.
func (q quota) checkName(level byte, n named) error {
	if n == (named{}) {
		return nil
	}
	return q.judge(level >= 3, byName, fmt.Errorf("%w: the new %s %q has characters that are not seen, and looks like another", registry.ErrName, n.kind, n.name))
}

// checkRegistry refuses a registration by a new name, or beyond the limits.
func (q quota) checkRegistry(ctx context.Context, op registry.Op, read registry.Consistency) error {
	v, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	if err := q.checkName(v.Level(), hiding(v, op)); err != nil {
		return err
	}
	return q.checkCatalog(ctx, op, read)
}

// sure makes a check by this node's copy of the state. If that refuses, it may lack what is there already: then the newest
// state decides, which costs a round trip in this case alone.
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

// checkBytes refuses an operation that adds when keys, sessions, locks and nodes take too many bytes already.
func (q quota) checkBytes(ctx context.Context, read registry.Consistency) error {
	catalog, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	bytes := int64(catalog.CatalogBytes())
	if q.coordination != nil {
		keys, err := q.coordination.View(ctx, read)
		if err != nil {
			return err
		}
		bytes += int64(keys.Bytes())
	}
	limits := q.limits.Load()
	if bytes < limits.StateBytes {
		return nil
	}
	return fmt.Errorf("%w: keys, sessions, locks, nodes and remembered results take %d bytes, and limits.state-bytes is %d; what is there can be read, renewed and removed", registry.ErrFull, bytes, limits.StateBytes)
}

// checkCatalog refuses a registration that would add a node beyond their limit, or make one larger beyond the limit of
// bytes.
func (q quota) checkCatalog(ctx context.Context, op registry.Op, read registry.Consistency) error {
	catalog, ok := op.(registry.RegisterCatalog)
	if !ok {
		return nil
	}
	v, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	if limits := q.limits.Load(); catalog.Node != nil && v.NodeCount() >= limits.Nodes {
		if _, exists := v.Node(catalog.Node.Name); !exists {
			return fmt.Errorf("%w: the catalog has %d nodes, and limits.nodes is %d; those that are there can be registered again and removed", registry.ErrFull, v.NodeCount(), limits.Nodes)
		}
	}
	if v.CatalogGrowth(catalog) <= 0 {
		return nil
	}
	return q.checkBytes(ctx, read)
}

// checkCoordination refuses an operation that adds beyond the limits of bytes, of sessions or of nodes.
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
	if err := q.checkName(v.Registry.Level(), hidingIn(v, op)); err != nil || !growsCoordination(v, op) {
		return err
	}
	if err := q.checkBytes(ctx, read); err != nil {
		return err
	}
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	limits := q.limits.Load()
	_, session := op.(kv.CreateSession)
	if err := q.checkShare(ctx, v, session); err != nil {
		return err
	}
	if session && v.SessionCount() >= limits.Sessions {
		return fmt.Errorf("%w: there are %d sessions, and limits.sessions is %d; those that are there can be renewed and destroyed", registry.ErrFull, v.SessionCount(), limits.Sessions)
	}
	return nil
}

// checkShare refuses a session, or what takes bytes, beyond the share of its sender.
func (q quota) checkShare(ctx context.Context, v *kv.View, session bool) error {
	limits, by, mode := q.limits.Load(), access.SenderOf(ctx).Name, access.ModeOf(ctx)
	if limits.Share == 0 || by == "" || mode == access.Off {
		return nil
	}
	use := v.Use(by)
	what, has, most := "bytes of keys and sessions", int64(use.Bytes), share(limits.StateBytes, limits.Share)
	if has < most && session {
		what, has, most = "sessions", int64(use.Sessions), share(int64(limits.Sessions), limits.Share)
	}
	if has < most {
		return nil
	}
	return q.judge(mode == access.On && v.Registry.Level() >= 3, byShare, fmt.Errorf(
		"%w: %s has %d %s, and its share is %d (limits.principal-share, %d percent); what is there can be read, renewed and removed", errShare, by, has, what, most, limits.Share))
}

// Used is what a principal has of a limit, by its key.
type Used struct {
	Limit, Principal string
	Used             int64
}

// Largest returns the principals that have most of each limit, those with more than half of their share, so many at most.
func (q *Quota) Largest(v *kv.View, most int) (all []Used) {
	for limit, of := range map[string]func(kv.Use) (has, share int64){
		"limits.sessions":    func(u kv.Use) (int64, int64) { return int64(u.Sessions), share(int64(q.Sessions), q.Share) },
		"limits.state-bytes": func(u kv.Use) (int64, int64) { return int64(u.Bytes), share(q.StateBytes, q.Share) },
	} {
		var large []Used
		for principal, use := range v.Uses() {
			if has, most := of(use); q.Share > 0 && has > most/2 {
				large = append(large, Used{limit, principal, has})
			}
		}
		slices.SortFunc(large, func(a, b Used) int { return cmp.Compare(b.Used, a.Used) })
		all = append(all, large[:min(len(large), most)]...)
	}
	return all
}

// share is a part of a limit, at least 1.
func share(limit int64, percent int) int64 {
	return max(1, int64(float64(limit)/100*float64(percent)))
}

// growsCoordination says whether an operation may add to what is kept. A session that acquires again what it holds or
// waits for adds nothing.
func growsCoordination(v *kv.View, op kv.Op) bool {
	if acquire, ok := op.(kv.AcquirePermit); ok {
		return !v.HoldsOrWaits(acquire.Kind, acquire.Name, acquire.Session)
	}
	return addsKeys(op)
}

// addsKeys says whether an operation creates a session, or writes or acquires a key.
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

// registrations are those of nodes, services and checks in a transaction.
func registrations(op kv.Op) (all []registry.RegisterCatalog) {
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	txn, _ := op.(kv.Txn)
	for _, each := range txn.Ops {
		if each.Catalog != nil && each.Catalog.Register != nil {
			all = append(all, *each.Catalog.Register)
		}
	}
	return all
}
