package kv

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestIndexOfWhatIsRead(t *testing.T) {
	r := newRig(t)
	check := func(what string, got, want Index) {
		t.Helper()
		expect.Equal(t, got, want, "%s has index", what)
	}
	list := func(prefix string) Index {
		_, index, _ := r.View().List(prefix)
		_, keys, _ := r.View().Keys(prefix, "/")
		check("the list of the keys under "+prefix, keys, index)
		return index
	}
	get := func(key string) Index {
		_, index := r.View().Get(key)
		return index
	}
	check("an absent key at the beginning", get("a"), 1)
	check("all keys at the beginning", list(""), 1)
	check("the sessions at the beginning", r.View().SessionIndex(), 1)

	for _, key := range []string{"a/1", "a/2", "b"} {
		r.yes(set(key, "1")) // 100, 101, 102
	}
	r.session(s1) // 103
	check("a key", get("a/1"), 100)
	check("an absent key", get("c"), 102)
	check("a prefix", list("a/"), 101)
	check("a prefix without keys", list("c"), 102)
	check("all keys", list(""), 102)
	check("the sessions", r.View().SessionIndex(), 103)

	r.yes(del("a/2")) // 104
	check("a prefix after its newest key went", list("a/"), 104)
	check("a longer prefix", list("a/1"), 100)
	check("a prefix of what went alone", list("a/2"), 104)
	check("an absent key", get("a/2"), 104)
	check("another key", get("b"), 102)

	r.yes(set("b", "2")) // 105
	r.Advance(r.now + deletionsFor)
	check("a prefix after the deletion was forgotten", list("a/"), 104)
	check("a prefix of what went alone", list("a/2"), 105)
	check("an absent key", get("a/2"), 105)
}

func TestDeletionsAreForgottenAfterADay(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	r.yes(del("a"))
	deleted := r.now
	r.Advance(deleted + deletionsFor - 1)
	n := len(r.Freeze().Deletions)
	need.That(t, n == 1, "%d records of deletions within a day, want 1", n)
	r.Advance(deleted + deletionsFor)
	f := r.Freeze()
	expect.That(t, len(f.Deletions) <= 0 && f.Pruned == 101,
		"%d records after a day, the newest that was forgotten is %d, want none and 101", len(f.Deletions), f.Pruned)
}

func TestOldestDeletionsAreForgottenFirst(t *testing.T) {
	r := newRig(t)
	r.yes(set("first", "1"))
	r.yes(del("first"))
	for i := range deletionsLimit {
		r.Apply(r.at(), set(fmt.Sprint("k/", i), "")) // without a view of each
		r.next++
	}
	tree := r.yes(KeyOp{Verb: DeleteTree, Key: "k/"}).Index
	f := r.Freeze()
	expect.That(t, len(f.Deletions) == deletionsLimit && f.Pruned == 101 && f.Deletions[0].Index == tree && !slices.ContainsFunc(f.Deletions, func(d Deletion) bool { return d.Key == "first" }),
		"%d records, first key %q, the newest that was forgotten is %d; want %d, and the oldest one gone", len(f.Deletions), f.Deletions[0].Key, f.Pruned, deletionsLimit)
}

// Whatever happens, the index of a question grows when the answer changes, and never goes back.
func TestNoIndexGoesBack(t *testing.T) {
	prefixes := []string{"", "a", "a/", "a/b", "b"}
	rapid.Check(t, func(t *rapid.T) {
		l := newLife()
		seen := make(map[string]Index)
		answers := make(map[string]string)
		// ask notes the answer to a question and its index.
		ask := func(question, answer string, index Index) {
			need.That(t, index >= max(seen[question], 1), "%s: the index went from %d to %d", question, seen[question], index)
			if before, ok := answers[question]; ok && answer != before && index == seen[question] {
				t.Fatalf("%s: the answer changed from %s to %s at index %d", question, before, answer, index)
			}
			seen[question], answers[question] = index, answer
		}
		for range steps(t, "steps") {
			drawStep.Draw(t, "step").take(l)
			v := l.state.View()
			for _, prefix := range prefixes {
				entries, index, _ := v.List(prefix)
				var all []string
				for _, e := range entries {
					all = append(all, fmt.Sprintf("%+v", *e))
				}
				ask("list "+prefix, strings.Join(all, ", "), index)
				_, keys, _ := v.Keys(prefix, "/")
				ask("keys "+prefix, "", keys)
				if prefix == "" {
					continue
				}
				e, index := v.Get(prefix)
				ask("get "+prefix, fmt.Sprintf("%+v", e), index)
			}
			var sessions []string
			for s := range v.Sessions() {
				sessions = append(sessions, s.ID)
			}
			ask("sessions", strings.Join(sessions, ","), v.SessionIndex())
		}
	})
}
