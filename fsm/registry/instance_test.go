package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestUpdateMetadataMerges(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{"zone", "a"}, {"version", "1.10"}}
	g.register(in)
	g.pass(5000)
	res := g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{"color", "blue"}, {"zone", "b"}}})
	expect.That(t, res.Outcome == Done && res.Index == 2, "got %+v, want Done with index 2", res)
	l := g.lease(orders1)
	expect.Slice(t, l.Instance.Metadata, []Pair{{"zone", "b"}, {"version", "1.10"}, {"color", "blue"}}, "got")
	expect.Slice(t, in.Metadata, []Pair{{"zone", "a"}, {"version", "1.10"}}, "the instance that was given was written:")
	expect.That(t, l.Action == ActionModified && l.Instance.LastDirty == 101 && l.Registered == 1 && l.RenewedAt == g.now,
		"got %+v of dirty %d, want MODIFIED, 101, the lease of before, renewed now", l, l.Instance.LastDirty)
}

func TestMetadataSurvivesPeersAndYieldsToTheClientsNextChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100)) // by a clock far behind the server's
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{"color", "blue"}}})
	res := g.peer(Register{instance(orders1, Up, 100)})
	expect.That(t, res.Outcome == KeptExisting, "a peer's copy of before: %+v, want KeptExisting", res)
	got := g.lease(orders1).Instance.Meta("color")
	expect.That(t, got == "blue", "color %q after a peer's copy of before, want blue", got)
	if res := g.client(Renew{Key: orders1, LastDirty: 100}); res.Outcome != Done {
		t.Errorf("the client's heartbeat: %+v, want Done", res)
	}
	g.register(instance(orders1, Down, 105))
	expect.Equal(t, g.status(orders1), Down, "the client's next change:")
}

func TestUpdateMetadataThatChangesNothingRenewsOnly(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{"zone", "a"}}
	g.register(in)
	g.pass(5000)
	for _, pairs := range [][]Pair{nil, {{"zone", "a"}}} {
		res := g.client(UpdateMetadata{Key: orders1, Pairs: pairs})
		expect.That(t, res == (Result{}), "%v: %+v, want Done without an index", pairs, res)
	}
	if l := g.lease(orders1); l.Instance != in || g.View().LastRenewal(l) != g.now {
		t.Errorf("got %+v renewed at %v, want the instance of before, renewed now", l.Instance, g.View().LastRenewal(l))
	}
}
