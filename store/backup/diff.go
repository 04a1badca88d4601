package backup

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Difference lists how two snapshots differ in one kind of record, each list in ascending order.
type Difference struct {
	Added   []string // only in the second
	Removed []string // only in the first
	Changed []string
}

// Differences lists how two snapshots differ. It ignores renewals, indexes and times.
type Differences struct {
	Instances, Nodes, Keys, Sessions, Permits Difference
	Roles, Tokens, Revoked, AuthMode          Difference
}

// Diff compares two snapshots.
func Diff(first, second *kv.Image) Differences {
	return Differences{
		Instances: compare(first.Instances, second.Instances, instanceName, sameInstance),
		Nodes:     compare(first.Nodes, second.Nodes, func(n *catalog.Node) string { return n.Name }, sameNode),
		Keys:      compare(first.Pairs, second.Pairs, func(p *kv.Pair) string { return p.Key }, samePair),
		Sessions:  compare(first.Sessions, second.Sessions, func(s *kv.Session) string { return s.ID }, func(a, b *kv.Session) bool { return true }),
		Permits:   compare(first.Permits, second.Permits, permitName, samePermits),
		Roles: compare(first.Access.Roles, second.Access.Roles, func(r *access.Role) string { return r.Name },
			func(a, b *access.Role) bool { return a.String() == b.String() }),
		Tokens: compare(first.Access.Tokens, second.Access.Tokens, func(t *access.Token) string { return t.Accessor }, sameToken),
		Revoked: compare(first.Access.Revoked, second.Access.Revoked, func(accessor string) string { return accessor },
			func(_, _ string) bool { return true }),
		AuthMode: compare([]access.Mode{first.Access.Mode}, []access.Mode{second.Access.Mode}, func(access.Mode) string { return "auth.mode" },
			func(a, b access.Mode) bool { return a == b }),
	}
}

func compare[T any](first, second []T, name func(T) string, same func(a, b T) bool) (d Difference) {
	before := make(map[string]T, len(first))
	for _, one := range first {
		before[name(one)] = one
	}
	for _, one := range second {
		old, there := before[name(one)]
		switch {
		case !there:
			d.Added = append(d.Added, name(one))
		case !same(old, one):
			d.Changed = append(d.Changed, name(one))
		}
		delete(before, name(one))
	}
	for _, one := range first {
		if _, left := before[name(one)]; left {
			d.Removed = append(d.Removed, name(one))
		}
	}
	for _, list := range [][]string{d.Added, d.Removed, d.Changed} {
		slices.Sort(list)
	}
	return d
}

func instanceName(s registry.Saved) string {
	key := s.Instance.Key()
	return key.App + "/" + key.ID
}

// sameInstance compares only what clients and operators set.
func sameInstance(a, b registry.Saved) bool {
	return a.Instance.Fingerprint() == b.Instance.Fingerprint() && a.Instance.Status == b.Instance.Status && a.Owner == b.Owner &&
		a.Overridden == b.Overridden && a.QuarantineFor > 0 == (b.QuarantineFor > 0) && a.Permanent == b.Permanent && sameService(a.Service, b.Service)
}

func sameService(a, b *catalog.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Node == b.Node && a.SameRegistration(b) && sameChecks(a.Checks, b.Checks)
}

func sameNode(a, b *catalog.Node) bool {
	return a.ID == b.ID && a.Address == b.Address && slices.Equal(a.Tagged, b.Tagged) && slices.Equal(a.Meta, b.Meta) && sameChecks(a.Checks, b.Checks)
}

// sameChecks compares checks, ignoring their indexes and times.
func sameChecks(a, b []*catalog.Check) bool {
	return slices.EqualFunc(a, b, func(a, b *catalog.Check) bool { return bytes.Equal(checkBytes(a), checkBytes(b)) })
}

func checkBytes(check *catalog.Check) []byte {
	c := *check
	c.CreateIndex, c.ModifyIndex, c.CriticalSince = 0, 0, 0
	w := codec.Writer(nil, codec.Newest)
	c.Fields(&w)
	return w.Written()
}

func samePair(a, b *kv.Pair) bool {
	return a.Flags == b.Flags && a.Session == b.Session && bytes.Equal(a.Value, b.Value)
}

func permitName(p *kv.Permits) string {
	kind := "lock"
	if p.Kind == kv.Semaphore {
		kind = "semaphore"
	}
	return kind + " " + p.Name
}

func samePermits(a, b *kv.Permits) bool {
	return a.Limit == b.Limit && slices.EqualFunc(a.Holders, b.Holders, func(a, b kv.Holder) bool { return a.Session == b.Session })
}

func sameToken(a, b *access.Token) bool {
	return a.Name == b.Name && slices.Equal(a.Roles, b.Roles) && a.App == b.App && slices.Equal(a.Secrets, b.Secrets) && a.Expires == b.Expires
}

// Plan says what restoring a snapshot would do to a state, without doing it (see kv.Restore).
type Plan struct {
	Instances       []string // restored
	InstancesStayed int      // in the snapshot but left as they are, because they are registered now
	InstancesNewer  int      // registered now and not in the snapshot: left as they are, too
	Nodes           []string // restored
	KeysWritten     []string
	KeysDeleted     []string
	SessionsEnded   []string
}

// PlanOf computes the plan of a restore. Of op, only the fields that select what is restored count.
func PlanOf(saved, now *kv.Image, op kv.Restore) (p Plan) {
	// sessions; ends has only those whose keys are deleted with them
	goesOn, ends := map[string]bool{}, map[string]bool{}
	for _, s := range now.Sessions {
		goesOn[s.ID] = op.KeysOnly || op.KeepSessions
		ends[s.ID] = !goesOn[s.ID] && s.Behavior == kv.DeleteKeys
	}
	if !op.KeysOnly {
		d := Diff(now, saved)
		p.Instances, p.Nodes = d.Instances.Added, d.Nodes.Added
		p.InstancesStayed = len(saved.Instances) - len(p.Instances)
		p.InstancesNewer = len(now.Instances) - p.InstancesStayed
		if !op.KeepSessions {
			for _, s := range now.Sessions {
				p.SessionsEnded = append(p.SessionsEnded, s.ID)
			}
		}
	}
	var gone []string
	held := map[string]bool{} // by sessions that go on
	left := slices.DeleteFunc(slices.Clone(now.Pairs), func(pair *kv.Pair) bool {
		held[pair.Key] = goesOn[pair.Session]
		if ends[pair.Session] {
			gone = append(gone, pair.Key)
		}
		return ends[pair.Session]
	})
	pairs := pairsUnder(kv.Lasting(saved, func(session string) bool { return goesOn[session] }), op.Prefix)
	d := compare(pairsUnder(left, op.Prefix), pairs, func(p *kv.Pair) string { return p.Key },
		func(a, b *kv.Pair) bool { return a.Flags == b.Flags && bytes.Equal(a.Value, b.Value) })
	p.KeysWritten = slices.Sorted(slices.Values(append(d.Added, d.Changed...)))
	p.KeysDeleted = slices.DeleteFunc(append(d.Removed, gone...), func(key string) bool { return held[key] || slices.Contains(d.Added, key) })
	slices.Sort(p.KeysDeleted)
	return p
}

// pairsUnder returns the pairs whose keys have a prefix. pairs must be sorted by key.
func pairsUnder(pairs []*kv.Pair, prefix string) []*kv.Pair {
	from, _ := slices.BinarySearchFunc(pairs, prefix, func(p *kv.Pair, prefix string) int { return cmp.Compare(p.Key, prefix) })
	to := from
	for to < len(pairs) && strings.HasPrefix(pairs[to].Key, prefix) {
		to++
	}
	return pairs[from:to]
}
