package replicas

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
	"github.com/seed-20419f34/rollcall/internal/measure"
)

func TestDigestsAreDueAtTheFirstEntryOfAMinute(t *testing.T) {
	for _, tt := range []struct {
		before, after int64
		due           bool
	}{
		{0, 59_999, false}, {59_999, 60_000, true}, {60_000, 60_000, false}, {60_000, 119_999, false}, {60_000, 1_700_000_000_000, true},
		{60_000, 59_999, true}, // the wall clock of another leader
	} {
		expect.Equal(t, Due(tt.before, tt.after), tt.due, "from %d to %d:", tt.before, tt.after)
	}
}

func TestDigestsOfEqualStatesAreEqualAndTheNewestStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m := NewDigests(panics()), fsm.NewMachine()
		ctx, cancel := context.WithCancel(t.Context())
		froze := 0
		freeze := func() *fsm.Snapshot { froze++; return m.Snapshot() }
		d.Make(freeze)
		d.Make(freeze)
		expect.Equal(t, froze, 1, "while a digest is being made, states frozen:")
		go d.Run(ctx)
		for range 2 * kept {
			synctest.Wait()
			d.Make(freeze)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		newest := d.Newest()
		expect.That(t, len(newest) == kept && newest[0].Age == time.Second && newest[0].Sum() == newest[kept-1].Sum() && len(newest[0].Parts) == len(fsm.DigestParts()),
			"got %+v, want %d equal ones", newest, kept)
		cancel()
		synctest.Wait()
	})
}

func panics() *measure.Panics {
	return measure.NewPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// A state that cannot be frozen or digested costs only that digest.
func TestDigestThatCannotBeMadeIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, m := NewDigests(panics()), fsm.NewMachine()
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
	node := func(name string, digests ...Digest) Node { return Node{Name: name, Digests: digests} }
	gone := func(name string) Node { return Node{Name: name, Failed: true} }
	parts := fsm.DigestParts()
	later := at(7, 0) // from a version with one more part
	later.Parts = append(later.Parts, 1)
	for _, tt := range []struct {
		name    string
		nodes   []Node
		verdict Verdict
		index   uint64
		differ  string // names and parts
	}{
		{"no node", nil, Undecided, 0, ""},
		{"no digest", []Node{node("a"), node("b")}, Undecided, 0, ""},
		{"one node", []Node{node("a", at(7, 0))}, Equal, 7, ""},
		{"three equal", []Node{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(7, 0))}, Equal, 7, ""},
		{"one is late", []Node{node("a", at(7, 0), at(9, 0)), node("b", at(7, 0), at(9, 0)), node("c", at(7, 0))}, Equal, 7, ""},
		{"the newest that all have", []Node{node("a", at(7, 0, 1), at(9, 0)), node("b", at(7, 0), at(9, 0))}, Equal, 9, ""},
		{"one has none of it", []Node{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(5, 0))}, Undecided, 7, ""},
		{"one is away", []Node{node("a", at(7, 0)), node("b", at(7, 0)), gone("c")}, Undecided, 7, ""},
		{"one is of another version", []Node{node("a", at(7, 0)), node("b", at(7, 0)), node("c", later)}, Undecided, 7, ""},
		{"old ones", []Node{node("a", at(7, oldest+1)), node("b", at(7, 0))}, Undecided, 7, ""},
		{"the minority of three", []Node{node("a", at(7, 0)), node("b", at(7, 0, 1, 3)), node("c", at(7, 0))}, Differ, 7, "b:" + parts[1] + "+" + parts[3]},
		{"two nodes", []Node{node("a", at(7, 0)), node("b", at(7, 0, 2))}, Differ, 7, "a:" + parts[2] + " b:" + parts[2]},
		{"two of three", []Node{node("a", at(7, 0)), node("b", at(7, 0, 2)), gone("c")}, Differ, 7, "a:" + parts[2] + " b:" + parts[2]},
		{"two of four, against two", []Node{node("a", at(7, 0)), node("b", at(7, 0)), node("c", at(7, 0, 0)), node("d", at(7, 0, 0))}, Differ, 7, "a:header b:header c:header d:header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Compare(tt.nodes)
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
