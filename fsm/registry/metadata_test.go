package registry

import (
	"slices"
	"testing"
)

func TestUpdateMetadataMerges(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{"zone", "a"}, {"version", "1.10"}}
	g.register(in)
	g.pass(5000)
	res := g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{"color", "blue"}, {"zone", "b"}}})
	if res.Outcome != Done || res.Index != 2 {
		t.Errorf("got %+v, want Done with index 2", res)
	}
	l := g.lease(orders1)
	if want := []Pair{{"zone", "b"}, {"version", "1.10"}, {"color", "blue"}}; !slices.Equal(l.Instance.Metadata, want) {
		t.Errorf("got %v, want %v", l.Instance.Metadata, want)
	}
	if want := []Pair{{"zone", "a"}, {"version", "1.10"}}; !slices.Equal(in.Metadata, want) {
		t.Errorf("the instance that was given was written: %v", in.Metadata)
	}
	if l.Action != ActionModified || l.Instance.LastDirty != 101 || l.Registered != 1 || l.RenewedAt != g.now {
		t.Errorf("got %+v of dirty %d, want MODIFIED, 101, the lease of before, renewed now", l, l.Instance.LastDirty)
	}
}

func TestMetadataSurvivesPeersAndYieldsToTheClientsNextChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100)) // by a clock far behind the server's
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{"color", "blue"}}})
	if res := g.peer(Register{instance(orders1, Up, 100)}); res.Outcome != KeptExisting {
		t.Errorf("a peer's copy of before: %+v, want KeptExisting", res)
	}
	if got := g.lease(orders1).Instance.Meta("color"); got != "blue" {
		t.Errorf("color %q after a peer's copy of before, want blue", got)
	}
	if res := g.client(Renew{Key: orders1, LastDirty: 100}); res.Outcome != Done {
		t.Errorf("the client's heartbeat: %+v, want Done", res)
	}
	g.register(instance(orders1, Down, 105))
	if got := g.status(orders1); got != Down {
		t.Errorf("the client's next change: %s, want DOWN", got)
	}
}

func TestUpdateMetadataThatChangesNothingRenewsOnly(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.Metadata = []Pair{{"zone", "a"}}
	g.register(in)
	g.pass(5000)
	for _, pairs := range [][]Pair{nil, {{"zone", "a"}}} {
		if res := g.client(UpdateMetadata{Key: orders1, Pairs: pairs}); res != (Result{}) {
			t.Errorf("%v: %+v, want Done without an index", pairs, res)
		}
	}
	if l := g.lease(orders1); l.Instance != in || g.View().LastRenewal(l) != g.now {
		t.Errorf("got %+v renewed at %v, want the instance of before, renewed now", l.Instance, g.View().LastRenewal(l))
	}
}
