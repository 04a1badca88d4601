package codec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// The nodes of these tests write a level below what this program reads, as nodes of the previous version do.
const before = Newest - 1

var start = time.UnixMilli(1_700_000_000_000)

func node(name string, newest byte) NodeReads {
	return NodeReads{Name: name, Known: true, Reads: Reads{Version: fmt.Sprint("v", newest), Oldest: min(before, 1), Newest: newest, Since: start.UnixMilli(), Writes: before}}
}

func TestTheLevelRisesWhenAllNodesHaveReadTheNextOneForLongEnough(t *testing.T) {
	upgraded := []NodeReads{node("n1", Newest), node("n2", Newest)}
	lagging := []NodeReads{node("n1", Newest), node("n2", before)}
	silent := []NodeReads{node("n1", Newest), {Name: "n2", Reads: upgraded[1].Reads}}
	fresh := slices.Clone(upgraded)
	for i := range fresh {
		fresh[i].Fresh = true
	}
	freshOrSilent := []NodeReads{fresh[0], {Name: "n2"}}
	type look struct {
		at    time.Duration // since start
		nodes []NodeReads
		want  bool
	}
	for name, tc := range map[string]struct {
		rise  LevelRise
		looks []look
	}{
		"not before the nodes have been seen so for 30 s": {LevelRise{LevelPolicy: LevelPolicy{Finalize: FinalizeAuto}}, []look{{0, upgraded, false}, {29 * time.Second, upgraded, false}, {30 * time.Second, upgraded, true}}},
		"not before its time":                             {LevelRise{LevelPolicy: LevelPolicy{FinalizeAuto, time.Hour}}, []look{{0, upgraded, false}, {59 * time.Minute, upgraded, false}, {time.Hour, upgraded, true}}},
		"the 30 s begin anew":                             {LevelRise{LevelPolicy: LevelPolicy{Finalize: FinalizeAuto}}, []look{{0, upgraded, false}, {20 * time.Second, silent, false}, {30 * time.Second, upgraded, false}, {60 * time.Second, upgraded, true}}},
		"never while a node lags":                         {LevelRise{LevelPolicy: LevelPolicy{Finalize: FinalizeAuto}}, []look{{0, lagging, false}, {time.Hour, lagging, false}}},
		"never by itself":                                 {LevelRise{LevelPolicy: LevelPolicy{Finalize: FinalizeManual}}, []look{{0, upgraded, false}, {time.Hour, upgraded, false}}},
		"at once where no node has written anything":      {LevelRise{LevelPolicy: LevelPolicy{FinalizeManual, time.Hour}, Fresh: true}, []look{{0, freshOrSilent, false}, {time.Second, fresh, true}}},
		"one node alone began with nothing":               {LevelRise{LevelPolicy: LevelPolicy{FinalizeManual, time.Hour}, Fresh: true}, []look{{0, upgraded, false}, {time.Hour, upgraded, false}}},
		"fresh a month ago, beside one that lagged":       {LevelRise{LevelPolicy: LevelPolicy{FinalizeManual, time.Hour}, Fresh: true}, []look{{0, lagging, false}, {720 * time.Hour, fresh, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range tc.looks {
				expect.Equal(t, tc.rise.Observe(start.Add(l.at), before, l.nodes), l.want, "after %v:", l.at)
			}
		})
	}
	var r LevelRise
	expect.That(t, !r.Observe(start, Newest, upgraded), "it rose beyond the newest level")
}

func TestNewNodesRiseAtOnceToWhatAllOfThemRead(t *testing.T) {
	nodes := []NodeReads{node("n1", Newest), node("n2", Newest)}
	for i := range nodes {
		nodes[i].Fresh = true
	}
	r := LevelRise{LevelPolicy: LevelPolicy{FinalizeManual, time.Hour}, Fresh: true}
	for level := byte(Oldest); level < Newest; level++ {
		expect.That(t, r.Observe(start, level, nodes), "they stay at level %d, and read %d", level, Newest)
	}
}

func TestAnOperatorIsToldWhyTheLevelCannotRise(t *testing.T) {
	upgraded := []NodeReads{node("n1", Newest)}
	for name, tc := range map[string]struct {
		now   byte
		nodes []NodeReads
		after time.Duration // since they were first seen
		want  string        // "": nothing
	}{
		"it can":          {before, upgraded, 30 * time.Second, ""},
		"too soon":        {before, upgraded, 29 * time.Second, "for 30s"},
		"an old node":     {before, append(upgraded[:1:1], node("n2", before)), time.Hour, fmt.Sprint("n2 runs v", before)},
		"a silent node":   {before, append(upgraded[:1:1], NodeReads{Name: "n3"}), time.Hour, "n3 cannot be asked"},
		"nothing is left": {Newest, upgraded, time.Hour, "nothing to finalize"},
	} {
		r := LevelRise{LevelPolicy: LevelPolicy{Finalize: FinalizeManual}}
		r.Observe(start, tc.now, tc.nodes)
		err := r.Finalizable(start.Add(tc.after), tc.now, tc.nodes)
		expect.That(t, (err == nil) == (tc.want == "") && (err == nil || strings.Contains(err.Error(), tc.want)), "%s: got %v, want %q", name, err, tc.want)
	}
}

func TestHeaderIsReadAsItWasWritten(t *testing.T) {
	want := Reads{Version: "v1.2 (with words)", Oldest: 1, Newest: 3, Since: 1_700_000_000_000, Writes: 2, Fresh: true}
	got, ok := ParseReads(want.String())
	expect.That(t, ok && got == want, "got %+v, %v, want %+v", got, ok, want)
	for _, text := range []string{"", "0 1", "0 1 1 1 1", "0 0 1 1 0 v", "0 2 1 1 0 v", "0 1 0 1 0 v", "0 1 1 256 0 v", "0 x 1 1 0 v", "0 1 1 1 x v", "2 1 1 1 0 v"} {
		_, ok := ParseReads(text)
		expect.That(t, !ok, "%q was read", text)
	}
}

func TestRefusalNamesTheNodesOrTheCommand(t *testing.T) {
	for want, nodes := range map[string][]NodeReads{
		fmt.Sprint("; n2 runs v", before): {node("n1", Newest), node("n2", before)},
		"rollcall upgrade finalize":       {node("n1", Newest)},
	} {
		got := LevelRefusal(nodes, Newest)
		expect.That(t, strings.Contains(got, want), "got %q, want %q in it", got, want)
	}
}

func TestAClusterWritesWhatItsNewestNodeDoes(t *testing.T) {
	raised := node("n2", Newest)
	raised.Writes = Newest
	for name, tc := range map[string]struct {
		nodes []NodeReads
		want  byte
	}{
		"none has applied the entry":  {[]NodeReads{node("n1", Newest)}, before},
		"another one has":             {[]NodeReads{node("n1", Newest), raised}, Newest},
		"a node that cannot be asked": {[]NodeReads{{Name: "n2"}}, before},
	} {
		expect.Equal(t, WrittenLevel(before, tc.nodes), tc.want, "%s: the cluster writes", name)
	}
}
