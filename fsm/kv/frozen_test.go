package kv

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A state that goes on from a snapshot has the results of one that never stopped.
func TestThawedStateGoesOnAsTheFrozenOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lived := newLife()
		for range steps(t, "steps before") {
			drawStep.Draw(t, "step").perform(lived)
		}
		frozen := lived.state.Freeze()
		state := need.Got(Thaw(frozen, lived.state.catalog))(t)
		thawed := *lived
		thawed.state = state
		need.Deep(t, state.Freeze(), frozen, "thawed and frozen again:")
		lived.state.Touched()
		for range steps(t, "steps after") {
			s := drawStep.Draw(t, "step")
			got, want := s.perform(&thawed), s.perform(lived)
			need.That(t, reflect.DeepEqual(got, want), "%+v: the thawed state results in %+v, the other one %+v", s, got, want)
			need.Deep(t, thawed.state.Due(thawed.now, 10), lived.state.Due(lived.now, 10), "%+v: due in the thawed state are", s)
			need.Deep(t, thawed.state.Touched(), lived.state.Touched(), "%+v: the thawed state wakes", s)
			if got, want := describe(thawed.state.View()), describe(lived.state.View()); got != want {
				t.Fatalf("%+v: the thawed state shows\n%s\nthe other one\n%s", s, got, want)
			}
			need.Equal(t, thawed.state.NeedsClock(), lived.state.NeedsClock(), "%+v: the thawed state needs the clock:", s)
		}
		need.Deep(t, thawed.state.Freeze(), lived.state.Freeze(), "in the end the thawed state is")
	})
}

func TestFrozenStateStaysAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife()
		for range steps(t, "steps before") {
			drawStep.Draw(t, "step").perform(l)
		}
		frozen := l.state.Freeze()
		copied := need.Got(Thaw(frozen, l.state.catalog))(t)
		view := l.state.View()
		before := describe(view)
		for range steps(t, "steps after") {
			drawStep.Draw(t, "step").perform(l)
		}
		need.Deep(t, copied.Freeze(), frozen, "the frozen state became\n%+v, want", frozen)
		need.Equal(t, describe(view), before, "the view became")
	})
}

// describe is what a view shows, but for what is live.
func describe(v *View) string {
	var b strings.Builder
	pairs, index, _ := v.List("")
	for _, e := range pairs {
		fmt.Fprintf(&b, "%+v delayed until %d\n", *e, v.Delayed(e.Key))
	}
	for s := range v.Sessions() {
		fmt.Fprintf(&b, "%+v holds %v\n", *s, slices.Collect(v.Held(s.ID)))
	}
	for _, prefix := range []string{"a", "a/", "b"} {
		_, index, _ := v.List(prefix)
		fmt.Fprintf(&b, "%s: %d, delayed until %d\n", prefix, index, v.Delayed(prefix))
	}
	fmt.Fprintf(&b, "keys %d at %d, sessions at %d, all at %d, lease clock %d\n", v.Len(), index, v.SessionIndex(), v.Index(), v.Lease())
	return b.String()
}

func TestThawRefusesASnapshotThatLies(t *testing.T) {
	// lived has a bit of everything.
	lived := func(t *testing.T) Frozen {
		r := newRig(t)
		r.session(s1, ttl(30_000), lockDelay(2000))
		r.session(s2)
		for _, key := range []string{"deleted", "deleted too", "held"} {
			r.yes(acquire(key, s2))
		}
		r.yes(set("free", ""))
		r.yes(del("deleted"))
		r.pass(10)
		r.yes(del("deleted too"))
		r.yes(acquire("delayed", s1))
		r.yes(acquire("delayed too", s1))
		r.yes(DestroySession{s1})
		r.session(s1)
		r.yes(Once{"x", set("free", "1")})
		r.yes(Once{"y", set("free", "2")})
		return r.Freeze()
	}
	tests := []struct {
		lie  func(f *Frozen)
		want string
	}{
		{func(f *Frozen) { f.KeysIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.SessionsIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.PermitsIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.Pruned = f.KeysIndex + 1 }, "was dropped"},
		{func(f *Frozen) { f.Established = f.Lease + 1 }, "was established"},

		{func(f *Frozen) { f.Sessions[1] = f.Sessions[0] }, "is not after"},
		{func(f *Frozen) { f.Sessions[1].Session.ID = strings.ToUpper(s3) }, "is not after"},
		{func(f *Frozen) { f.Sessions[1].Session.ID += "X" }, "not in lower case"},
		{func(f *Frozen) { f.Sessions[0].Session.CreateIndex = 0 }, "created at 0"},
		{func(f *Frozen) { f.Sessions[0].Session.ModifyIndex = f.SessionsIndex + 1 }, "modified at"},
		{func(f *Frozen) { f.Sessions[0].Session.CreateIndex = f.Sessions[1].Session.CreateIndex }, "by one operation"},
		{func(f *Frozen) { f.Sessions[0].Session.TTL = -1 }, "negative"},
		{func(f *Frozen) { f.Sessions[0].Renewed = f.Lease + 1 }, "renewed at"},
		{func(f *Frozen) { f.Sessions[0].Renewed = f.Sessions[0].Session.CreatedAt - 1 }, "renewed at"},

		{func(f *Frozen) { f.Pairs[1] = f.Pairs[0] }, "is not after"},
		{func(f *Frozen) { f.Pairs[0].Key = "" }, "without a name"},
		{func(f *Frozen) { f.Pairs[0].CreateIndex = 0 }, "created at 0"},
		{func(f *Frozen) { f.Pairs[0].ModifyIndex = f.KeysIndex + 1 }, "modified at"},
		{func(f *Frozen) { f.Pairs[0].Fence = f.Pairs[0].ModifyIndex + 1 }, "acquired at"},
		{func(f *Frozen) { heldPair(f).LockIndex = 0 }, "never acquired"},
		{func(f *Frozen) { heldPair(f).Fence = 0 }, "never acquired"},
		{func(f *Frozen) { heldPair(f).Session = s3 }, "which is not there"},

		{func(f *Frozen) { f.Deletions[0], f.Deletions[1] = f.Deletions[1], f.Deletions[0] }, "is not after"},
		{func(f *Frozen) { f.Deletions[1].Key = "held" }, "the key is there"},
		{func(f *Frozen) { f.Deletions[0].Key = "" }, "no name"},
		{func(f *Frozen) { f.Deletions[0].Index = 0 }, "index 0"},
		{func(f *Frozen) { f.Deletions[0].Index = f.KeysIndex + 1 }, "is not in"},
		{func(f *Frozen) { f.Pruned = f.Deletions[0].Index + 1 }, "is not in"},
		{func(f *Frozen) { f.Deletions[0].Fence = f.Deletions[0].Index + 1 }, "acquired at"},
		{func(f *Frozen) { f.Deletions[0].At = f.Lease + 1 }, "deleted at"},
		{func(f *Frozen) { f.Deletions[0].At, f.Deletions[1].At = f.Deletions[1].At, f.Deletions[0].At }, "has the lower index"},
		{func(f *Frozen) { f.Deletions = make([]Deletion, deletionsLimit+1) }, "records of deletions"},

		{func(f *Frozen) { f.Delays[1] = f.Delays[0] }, "is not after"},
		{func(f *Frozen) { f.Delays[0].Key = "" }, "is not after"},
		{func(f *Frozen) { f.Delays[0].Until = f.Lease + 60_001 }, "too far"},

		{func(f *Frozen) { f.Kept[1].Key = f.Kept[0].Key }, "there twice"},
		{func(f *Frozen) { f.Kept[1].At = f.Lease + 1 }, "out of order"},
		{func(f *Frozen) { f.Kept[0].At = f.Kept[1].At + 1 }, "out of order"},
		{func(f *Frozen) { f.Kept[0].Result.Index = f.Index + 1 }, "the last change was"},
		{func(f *Frozen) { f.Kept = make([]KeptResult, OnceLimit+1) }, "kept results"},
	}
	for _, test := range tests {
		f := lived(t)
		need.OKf(t, expect.Err(Thaw(f, checks{})), "the truth")
		test.lie(&f)
		_, err := Thaw(f, checks{})
		expect.That(t, err != nil && strings.Contains(err.Error(), test.want), "thawed with error %v, want one that says %q", err, test.want)
	}
}

// heldPair is the pair of a frozen state that is held.
func heldPair(f *Frozen) *Pair {
	for _, e := range f.Pairs {
		if e.Session != "" {
			return e
		}
	}
	panic("no key is held")
}
