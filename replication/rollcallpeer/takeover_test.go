package rollcallpeer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// judging judges the calls of a peer that may or may not take over, and records what was refused or counted, and what
// was taken.
func judging(mode access.Mode, may bool, refused, taken *[]string) access.Judge {
	add := func(to *[]string, text string) {
		if to != nil {
			*to = append(*to, text)
		}
	}
	return access.Judge{
		Mode: mode,
		Refuses: func(n access.Need) error {
			if n.Verb != access.Takeover {
				return nil
			}
			add(refused, map[bool]string{true: "would deny ", false: "denied "}[mode == access.LogOnly || n.Counted]+n.String())
			return errors.New("refused")
		},
		Allows:  func(n access.Need) bool { return n.Verb != access.Takeover || may },
		Records: func(_ access.Need, name string) { add(taken, name) },
	}
}

// seizure is an item of dc1 about an instance of dc2, which has the client's copy of time 5, and an override of
// nobody.
type seizure struct {
	name   string
	item   registry.Op
	status int  // of the result without the right
	with   int  // of the result with it, or where it is not asked for; 0 for the same
	taken  bool // with it, a living instance changes
	word   string
}

func seizures() []seizure {
	replica := func(id string, dirty int64, change func(*registry.Replica)) registry.Op {
		op := registry.Replica{Instance: peertest.Instance("ORDERS", id, dirty), Life: 1}
		if change != nil {
			change(&op)
		}
		return op
	}
	const here = "dc2"
	return []seizure{
		{"a newer registration", replica("1", 6, nil), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"an older one", replica("1", 4, nil), resultOlder, 0, false, ""},
		{"the same", replica("1", 5, nil), resultDone, 0, false, ""},
		{"a later life", replica("1", 1, func(op *registry.Replica) { op.Life = 2 }), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"an override", replica("1", 5, func(op *registry.Replica) {
			op.Owner, op.Edit, op.Overridden = here, 1, registry.OutOfService
		}), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"a quarantine", replica("1", 5, func(op *registry.Replica) { op.Owner, op.Edit, op.QuarantineFor = here, 1, 1000 }), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"metadata", replica("1", 6, func(op *registry.Replica) { op.Owner = here }), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"one without a lease", replica("1", 6, func(op *registry.Replica) { op.Permanent = true }), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"in the place of one without a lease", replica("permanent", 6, nil), resultHeld, resultDone, true, "a client renews it in dc2"},
		{"a cancel", registry.Remove{Key: ordersID("1"), Kind: registry.Canceled, Life: 1, LastDirty: 5}, resultOlder, resultDone, true, ""},
		{"a cancel far ahead", registry.Remove{Key: ordersID("1"), Kind: registry.Canceled, Life: 5000, LastDirty: 5}, resultHeld, resultDone, true, "a client renews it in dc2"},
		{"of a life before its own, far ahead", replica("1", 5, func(op *registry.Replica) { op.Owner, op.Life, op.Age = here, 5000, 3_600_000 }), resultHeld, resultOlder, true, "a client renews it in dc2"},
		{"a cancel of an older one", registry.Remove{Key: ordersID("1"), Kind: registry.Canceled, Life: 1, LastDirty: 4}, resultOlder, 0, false, ""},
		{"an eviction", registry.Remove{Key: ordersID("1"), Kind: registry.Evicted, Life: 1, LastDirty: 5}, resultOlder, 0, false, ""},
		{"a renewal", registry.Renew{Key: ordersID("1"), Life: 1, LastDirty: 5}, resultDone, 0, false, ""},
		{"a renewal of a newer one", registry.Renew{Key: ordersID("1"), Life: 1, LastDirty: 6}, resultHeld, resultMissing, false, "a client renews it in dc2"},
		{"a new one", replica("new", 1, nil), resultDone, 0, false, ""},
		{"a new one without a lease", replica("new", 1, func(op *registry.Replica) { op.Permanent = true }), resultDone, 0, false, ""},
		{"a new one as dc2's own", replica("new", 1, func(op *registry.Replica) { op.Owner = here }), Invalid, resultDone, true, "as this datacenter's own"},
		{"an absurd life", replica("new", 1, func(op *registry.Replica) { op.Life = registry.MaxLives + 1 }), Invalid, resultDone, true, "to skip more than 16777216 lives"},
		{"absurd edits", replica("new", 1, func(op *registry.Replica) { op.Edit = registry.MaxLives + 1 }), Invalid, resultDone, true, "to skip more than"},
		{"an absurd life of a living one", replica("1", 6, func(op *registry.Replica) { op.Life = registry.MaxLives + 2 }), Invalid, resultDone, true, "to skip more than"},
		{"a cancel of an absurd life", registry.Remove{Key: ordersID("2"), Kind: registry.Canceled, Life: registry.MaxLives + 1}, Invalid, resultDone, true, "to skip more than"},
		{"one of a client that is silent", replica("silent", 6, nil), resultDone, 0, false, ""},
		{"a cancel of one of a client that is silent", registry.Remove{Key: ordersID("silent"), Kind: registry.Canceled, Life: 1, LastDirty: 5}, resultDone, 0, false, ""},
	}
}

// living gives dc2 an instance whose client renews it, one that only dc1 renews, and one without a lease.
func living(t *testing.T, b *site, level byte) {
	t.Helper()
	b.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(level) })
	b.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 5)}, registry.Register{Instance: peertest.Instance("ORDERS", "silent", 5)})
	_ = need.Got(b.Memory.Apply(t.Context(), registry.Origin{Kind: registry.LocalPeer}, registry.Replica{Instance: peertest.Instance("ORDERS", "permanent", 5), Life: 1, Permanent: true}))(t)
	for range 4 {
		b.Pass(30 * time.Second)
		b.Perform(t, registry.Renew{Key: ordersID("1")})
		_ = need.Got(b.Memory.Apply(t.Context(), registry.Origin{Kind: registry.RemoteDC, DC: "dc1"}, registry.Renew{Key: ordersID("silent"), Life: 1, LastDirty: 5}))(t)
	}
}

// If callers are authenticated, a peer needs the right to take over for what it does to a living instance: without it
// nothing changes, and the reply says why. Nothing else that it sends needs it.
func TestPeerNeedsTheRightToTakeOver(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  access.Mode
		may   bool
		level byte
		word  string // what is counted
	}{
		{"without it", access.On, false, 3, "denied "}, {"with it", access.On, true, 3, ""}, {"in mode log-only", access.LogOnly, false, 3, "would deny "},
		{"in mode off", access.Off, false, 3, ""}, {"below level 3", access.On, false, 2, "would deny "},
	} {
		for _, s := range seizures() {
			t.Run(c.name+"/"+s.name, func(t *testing.T) {
				a, b := twoDatacenters(t)
				b.Receiver.side.Refusals = link.NewRefusals(nil, slog.New(slog.DiscardHandler))
				living(t, b, c.level)
				before := *b.lease(t, "1")
				var refused, taken []string
				ctx := access.Judged(t.Context(), judging(c.mode, c.may, &refused, &taken))
				var reply Reply
				need.OK(t, Decode(need.Got(b.Receive(ctx, write(a.only().head(), s.item)))(t), &reply))
				got := reply.Results[0]
				enforced, seizes := c.word == "denied ", s.taken || s.status == resultHeld
				want := s.status
				if !enforced && s.with != 0 {
					want = s.with
				}
				expect.That(t, got.Status == want && (!enforced || strings.Contains(got.Error, s.word)), "the result: %+v, want %d %q", got, want, s.word)
				key, _ := registry.KeyOf(s.item)
				counted, took := []string(nil), []string(nil)
				if seizes && c.word != "" && (enforced || s.taken) {
					counted = []string{c.word + "peer dc1 takeover"}
				}
				if s.taken && !enforced && c.mode != access.Off {
					took = []string{key.String()}
				}
				expect.Slice(t, refused, counted, "counted")
				expect.Slice(t, taken, took, "in the audit")
				after, ok := b.Newest().Find(ordersID("1"))
				if enforced {
					need.That(t, ok, "the living instance is gone")
					outlived := s.item == any(registry.Remove{Key: ordersID("1"), Kind: registry.Canceled, Life: 1, LastDirty: 5})
					expect.That(t, after.Instance == before.Instance && after.Owner == "" && after.Edit == before.Edit && after.Quarantine == nil && (after.Life == before.Life) == !outlived,
						"the living instance has become %+v of %+v", after, after.Instance)
					_, there := b.Newest().Find(ordersID("new"))
					expect.That(t, !there || s.status == resultDone, "an instance was entered that is refused")
					expect.Equal(t, len(b.Receiver.side.Refusals.List()) == 1, seizes, "named as refused: %v;", b.Receiver.side.Refusals.List())
				}
			})
		}
	}
}

// dc1 still owes what it was refused, and offers it again when the lease at dc2 has ended; until then no comparison
// sends it, in either direction.
func TestSenderKeepsWhatIsHeld(t *testing.T) {
	a, b := twoDatacenters(t)
	now := func(s *site) *link.Refusals { return link.NewRefusals(nil, slog.New(slog.DiscardHandler)) }
	on := func() string { return "on" }
	b.Receiver.side.Refusals, b.only().env.Refusals, a.only().env.Owed = now(b), now(b), now(a)
	b.only().env.Refusals = b.Receiver.side.Refusals
	b.only().env.AuthMode = on
	a.only().env.Refused = func(key registry.Key, fact, why string) { a.only().env.Owed.Record(key, fact, "", why) }
	b.judge = judging(access.On, false, nil, nil)
	b.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(registry.Level3) })
	register := func(s *site, dirty int64) {
		s.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", dirty)})
	}
	register(b, 5)
	b.deliverChanges(t, 0)
	at := a.Newest().Index()
	register(a, 6)
	a.deliverChanges(t, at)
	held := a.only().env.Owed.List()
	need.That(t, len(held) == 1 && held[0].ID == "1" && held[0].Until > held[0].Last+60_000, "owed: %+v, want one for about a lease", held)
	for _, s := range []*site{a, b} { // b's is older than a's, and a replies with what it has
		for range 2 {
			both(a, b, 20*time.Second)
			b.Perform(t, registry.Renew{Key: ordersID("1")})
			d, tasks, err := s.only().Compare(t.Context(), true)
			need.OK(t, err)
			s.deliver(t, tasks...)
			if s == a {
				expect.That(t, len(tasks) == 0 && len(d.Items) == 1 && d.Items[0].What == copyContested, "%s found %+v, and sends %v", s.side.Node, d, tasks)
			}
		}
	}
	_, tasks, err := b.only().Compare(t.Context(), true)
	need.OK(t, err)
	expect.Equal(t, len(tasks), 0, "tasks of a comparison of what the peer's reply was refused about")
	expect.That(t, a.lease(t, "1").Instance.LastDirty == 6 && b.lease(t, "1").Instance.LastDirty == 5, "each side is to serve its own client's")

	a.only().env.Owed.Hold(ordersID("1"), "register", "", "held", 0)
	a.only().offer()
	expect.That(t, len(a.tasks) == 1 && a.tasks[0].Facts == link.Registered, "what is due is offered as %+v", a.tasks)
	a.tasks = nil
	b.Pass(2 * time.Minute) // its client is silent
	a.Perform(t, registry.Renew{Key: ordersID("1")})
	a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Registered})
	l := b.lease(t, "1")
	expect.That(t, l.Instance.LastDirty == 6 && l.Owner == "dc1" && len(a.only().env.Owed.List()) == 0, "after the lease has ended b has %+v, and owed is %v", l, a.only().env.Owed.List())
}

// A sender of an older version is told something that it ignores.
func TestSenderBelowTheLevelIsToldAsBefore(t *testing.T) {
	a, b := twoDatacenters(t)
	living(t, b, registry.Level3)
	ctx := access.Judged(t.Context(), judging(access.On, false, nil, nil))
	m := Message{Head: a.only().head(), Items: []Item{ItemOf(2, registry.Replica{Instance: peertest.Instance("ORDERS", "1", 6), Life: 1})}}
	var reply Reply
	need.OK(t, Decode(need.Got(b.Receive(ctx, Encode(2, &m)))(t), &reply))
	got := reply.Results[0]
	expect.That(t, got.Status == resultOlder && got.Stored.Op == nil, "got %+v, want 409 and nothing", got)
}

// A message cannot itself decide that it yields, or does not.
func TestReceiverDecidesWhoYields(t *testing.T) {
	a, b := twoDatacenters(t)
	living(t, b, registry.Level3)
	for _, may := range []bool{false, true} {
		ctx := access.Judged(context.Background(), judging(access.On, may, nil, nil))
		var reply Reply
		op := registry.Replica{Instance: peertest.Instance("ORDERS", "1", 6), Life: 1, Yields: may}
		need.OK(t, Decode(need.Got(b.Receive(ctx, write(a.only().head(), op)))(t), &reply))
		expect.Equal(t, reply.Results[0].Status, map[bool]int{false: resultHeld, true: resultDone}[may], "with the right: %v; status", may)
	}
}
