package membership

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
)

func TestDigestsAreDueAtTheFirstEntryOfAMinute(t *testing.T) {
	for _, tt := range []struct {
		before, after int64
		due           bool
	}{
		{0, 59_999, false}, {59_999, 60_000, true}, {60_000, 60_000, false}, {60_000, 119_999, false}, {60_000, 1_700_000_000_000, true},
		{60_000, 59_999, true}, // the wall clock of another leader
	} {
		expect.Equal(t, DigestsDue(tt.before, tt.after), tt.due, "from %d to %d:", tt.before, tt.after)
	}
}

func TestDigestsOfEqualStatesAreEqualAndTheNewestStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m := NewDigests(quietPanics()), fsm.NewMachine()
		ctx, cancel := context.WithCancel(t.Context())
		froze := 0
		freeze := func() *fsm.Snapshot { froze++; return m.Snapshot() }
		d.Make(freeze)
		d.Make(freeze)
		expect.Equal(t, froze, 1, "while a digest is being made, states frozen:")
		go d.Run(ctx)
		for range 2 * digestsKept {
			synctest.Wait()
			d.Make(freeze)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		newest := d.Newest()
		expect.That(t, len(newest) == digestsKept && newest[0].Age == time.Second && newest[0].Sum() == newest[digestsKept-1].Sum() && len(newest[0].Parts) == len(fsm.DigestParts()),
			"got %+v, want %d equal ones", newest, digestsKept)
		cancel()
		synctest.Wait()
	})
}

func quietPanics() *store.Panics {
	return store.NewPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// A state that cannot be frozen or digested costs only that digest.
func TestDigestThatCannotBeMadeIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m := NewDigests(quietPanics()), fsm.NewMachine()
		ctx, cancel := context.WithCancel(t.Context())
		go d.Run(ctx)
		for _, freeze := range []func() *fsm.Snapshot{
			func() *fsm.Snapshot { panic("planted") },
			func() *fsm.Snapshot { return nil }, // has no digest
		} {
			d.Make(freeze)
			synctest.Wait()
			expect.Equal(t, len(d.Newest()), 0, "digests")
		}
		d.Make(m.Snapshot)
		synctest.Wait()
		expect.Equal(t, len(d.Newest()), 1, "digests after one that could be made")
		cancel()
		synctest.Wait()
	})
}

// at returns a digest at an index. Its parts equal those of the other digests, except for the given ones.
func at(index uint64, age time.Duration, others ...int) Digest {
	d := Digest{Digest: fsm.Digest{Index: index, Parts: make([]uint64, len(fsm.DigestParts()))}, Age: age}
	for _, p := range others {
		d.Parts[p] = 1
	}
	return d
}

func TestCompareNamesWhoDiffersAndWhatCouldNotBeCompared(t *testing.T) {
	node := func(name string, digests ...Digest) replica { return replica{Name: name, Digests: digests} }
	gone := func(name string) replica { return replica{Name: name, Failed: true} }
	parts := fsm.DigestParts()
	later := at(7, 0) // from a version with one more part
	later.Parts = append(later.Parts, 1)
	for _, tt := range []struct {
		name    string
		nodes   []replica
		verdict Verdict
		index   uint64
		differ  string // names and parts
	}{
		{"no node", nil, VerdictUndecided, 0, ""},
		{"no digest", []replica{node("a"), node("b")}, VerdictUndecided, 0, ""},
		{"one node", []replica{node("a", at(7, 0))}, verdictEqual, 7, ""},
		{"three equal", []replica{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(7, 0))}, verdictEqual, 7, ""},
		{"one is late", []replica{node("a", at(7, 0), at(9, 0)), node("b", at(7, 0), at(9, 0)), node("c", at(7, 0))}, verdictEqual, 7, ""},
		{"the newest that all have", []replica{node("a", at(7, 0, 1), at(9, 0)), node("b", at(7, 0), at(9, 0))}, verdictEqual, 9, ""},
		{"one has none of it", []replica{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(5, 0))}, VerdictUndecided, 7, ""},
		{"one is away", []replica{node("a", at(7, 0)), node("b", at(7, 0)), gone("c")}, VerdictUndecided, 7, ""},
		{"one is of another version", []replica{node("a", at(7, 0)), node("b", at(7, 0)), node("c", later)}, VerdictUndecided, 7, ""},
		{"old ones", []replica{node("a", at(7, oldestDigest+1)), node("b", at(7, 0))}, VerdictUndecided, 7, ""},
		{"the minority of three", []replica{node("a", at(7, 0)), node("b", at(7, 0, 1, 3)), node("c", at(7, 0))}, verdictDiffer, 7, "b:" + parts[1] + "+" + parts[3]},
		{"two nodes", []replica{node("a", at(7, 0)), node("b", at(7, 0, 2))}, verdictDiffer, 7, "a:" + parts[2] + " b:" + parts[2]},
		{"two of three", []replica{node("a", at(7, 0)), node("b", at(7, 0, 2)), gone("c")}, verdictDiffer, 7, "a:" + parts[2] + " b:" + parts[2]},
		{"two of four, against two", []replica{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(7, 0, 0)), node("d", at(7, 0, 0))}, verdictDiffer, 7, "a:header b:header c:header d:header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := compareReplicas(tt.nodes)
			var differ []string
			for _, n := range c.Nodes {
				if len(n.Differs) > 0 {
					differ = append(differ, n.Name+":"+strings.Join(n.Differs, "+"))
					expect.That(t, strings.Contains(n.String(), strings.Join(n.Differs, ", ")), "it is said: %s", n)
				}
			}
			expect.That(t, c.Verdict == tt.verdict && c.Index == tt.index && strings.Join(differ, " ") == tt.differ,
				"got %s at %d, %v, want %s at %d, %s", c.Verdict, c.Index, differ, tt.verdict, tt.index, tt.differ)
		})
	}
}
