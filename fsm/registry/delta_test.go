package registry

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestDeltaShowsAChangeFor180To210Seconds(t *testing.T) {
	tests := []struct {
		changed int64 // lease clock
		shown   int64 // still at
		gone    int64 // from
	}{
		{0, 209_999, 210_000},
		{1, 209_999, 210_000},
		{29_999, 209_999, 210_000},
		{30_000, 239_999, 240_000},
	}
	for _, tt := range tests {
		for _, removed := range []bool{false, true} {
			t.Run(fmt.Sprintf("changed at %d, removed %t", tt.changed, removed), func(t *testing.T) {
				g := newRig(t)
				g.now.Lease = tt.changed
				g.register(instance(orders1, Up, 100))
				if removed {
					g.client(Cancel{orders1})
				}
				g.now.Lease = tt.shown
				g.Advance(g.now)
				got := len(g.View().Delta().Leases)
				expect.That(t, got == 1, "at %d: %d entries, want 1", tt.shown, got)
				g.now.Lease = tt.gone
				g.Advance(g.now)
				got = len(g.View().Delta().Leases)
				expect.That(t, got == 0, "at %d: %d entries, want none", tt.gone, got)
			})
		}
	}
}

func TestDeltaListsByApplicationRemovedLast(t *testing.T) {
	g := newRig(t)
	a, b, c := Key{"ORDERS", "a"}, Key{"ORDERS", "b"}, Key{"ORDERS", "c"}
	for _, key := range []Key{c, b, a, orders1, billing1} {
		g.register(instance(key, Up, 100))
	}
	g.client(Cancel{a})
	g.client(Cancel{billing1})
	g.client(SetOverride{Key: b, Status: Down})
	g.client(Cancel{orders1})
	g.register(instance(orders1, Up, 100)) // there once only, and live
	d := g.View().Delta()
	var keys []Key
	var actions []Action
	for _, l := range d.Leases {
		keys, actions = append(keys, l.Key()), append(actions, l.Action)
	}
	wantKeys(t, "delta", keys, billing1, b, c, orders1, a)
	want := "[DELETED MODIFIED ADDED ADDED DELETED]"
	expect.That(t, fmt.Sprint(actions) == want, "actions %v, want %s", actions, want)
	if want := "DOWN_1_UP_2_"; d.HashCode != want || g.View().HashCode() != want {
		t.Errorf("hash %s, want that of the whole registry, %s", d.HashCode, want)
	}
}

func TestDeltaHasNoHeartbeats(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	for range 10 {
		g.pass(30_000)
		g.client(Renew{Key: orders1, LastDirty: 100})
	}
	d := g.View().Delta()
	expect.That(t, len(d.Leases) == 0, "got %v, want none", d.Leases)
}

// A client that has any full answer of the window and applies the delta has the present content.
func TestDeltaOnAnyFullAnswerOfTheWindowGivesThePresentOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		answers := []*View{r.View()}
		for _, s := range drawSteps.Draw(t, "steps") {
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.take(r, now)
			v := r.View()
			for _, old := range answers {
				if now.Lease-old.Stamp().Lease <= deltaWindow {
					checkDelta(t, old, v)
				}
			}
			answers = append(answers, v)
		}
	})
}

func checkDelta(t *rapid.T, old, now *View) {
	content := contentOf(old)
	delta := now.Delta()
	seen := map[Key]bool{}
	for _, l := range delta.Leases {
		if seen[l.Key()] {
			t.Fatalf("%s is in the delta twice", l.Key())
		}
		seen[l.Key()] = true
		switch l.Action {
		case ActionAdded, ActionModified:
			content[l.Key()] = shown{l.Instance, l.Changed}
		case ActionDeleted:
			delete(content, l.Key())
		default:
			t.Fatalf("%s has the action %q", l.Key(), l.Action)
		}
	}
	if want := contentOf(now); !maps.Equal(content, want) {
		t.Fatalf("full of %d and delta of %d: got %v, want %v", old.Index(), now.Index(), content, want)
	}
	if delta.HashCode != now.HashCode() {
		t.Fatalf("hash %s, want %s", delta.HashCode, now.HashCode())
	}
	if previous := old.Delta().Version; delta.Version < previous ||
		(delta.Version == previous) != (old.Index() == now.Index() && old.DeltaStep() == now.DeltaStep()) {
		t.Fatalf("version %d after %d, from index %d step %d to %d, %d",
			delta.Version, previous, old.Index(), old.DeltaStep(), now.Index(), now.DeltaStep())
	}
}

// shown is what readers see of a lease: what the registry knows of an override can change without it.
type shown struct {
	instance *Instance
	changed  Index
}

func contentOf(v *View) map[Key]shown {
	content := make(map[Key]shown, v.Len())
	for l := range v.Leases() {
		content[l.Key()] = shown{l.Instance, l.Changed}
	}
	return content
}
