package verdict

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

const ms trial.Micros = 1000

// three are the nodes of a datacenter.
var three = []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}}

// six are the nodes of two datacenters.
var six = append(slices.Clone(three), trial.Node{Name: "node4", Datacenter: "dc2"}, trial.Node{Name: "node5", Datacenter: "dc2"}, trial.Node{Name: "node6", Datacenter: "dc2"})

func TestSidesAreTheClientsOfStruckNodesAndTheOthers(t *testing.T) {
	trial1 := &trial.Trial{
		Mode: scenario.AP, Length: 2000 * ms, Nodes: three,
		Faults: []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 500 * ms, To: 1000 * ms}},
		Series: []trial.Series{
			{Operation: trial.Heartbeat, Node: 1, Bins: []trial.Bin{answers(4, 1), answers(5, 1), refusals(6), refusals(9), answers(10, 1)}},
			{Operation: trial.Heartbeat, Node: 2, Bins: []trial.Bin{answers(5, 1), answers(9, 1, 2)}},
			{Operation: trial.Read, Node: 1, Bins: []trial.Bin{answers(7, 1)}},
		},
		History: []trial.Call{
			{Key: "own-0", Client: 7, Node: 1, Action: trial.Write, Version: 1, Outcome: trial.Done, Called: 0, Returned: 10 * ms},
			{Key: "own-0", Client: 8, Node: 0, Action: trial.Write, Version: 2, Outcome: trial.Done, Called: 20 * ms, Returned: 30 * ms},
			{Key: "own-0", Client: 7, Node: 0, Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 600 * ms, Returned: 610 * ms},
			{Key: "own-0", Client: 8, Node: 0, Action: trial.Look, Version: 2, Outcome: trial.Done, Called: 700 * ms, Returned: 710 * ms},
			{Key: "own-0", Client: 7, Node: 1, Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 1600 * ms, Returned: 1610 * ms},
		},
	}
	v := Judge(trial1, scenario.Scenario{})
	if len(v.Sides) != 2 {
		t.Fatalf("%d sides, want 2: %+v", len(v.Sides), v.Sides)
	}
	struck, others := v.Sides[0], v.Sides[1]
	if !struck.Struck || !slices.Equal(struck.Nodes, []int{1}) || struck.Writes.Count != 3 || struck.Writes.PerSecond != 2 || struck.Reads.Count != 1 {
		t.Errorf("the struck side is %+v, want node 1 with 3 writes, 2 answered a second, 1 read", struck)
	}
	if struck.NoWrites != 0.1 {
		t.Errorf("writes stopped %v s after the fault's begin, want 0.1", struck.NoWrites)
	}
	if struck.Staleness.Reads != 1 || struck.Staleness.Stale != 1 {
		t.Errorf("the struck side's staleness is %+v, want 1 stale read of 1: client 7 is at home at node 1", struck.Staleness)
	}
	if others.Struck || !slices.Equal(others.Nodes, []int{0, 2}) || others.Writes.Count != 3 || others.NoWrites != -1 || others.Staleness.Stale != 0 {
		t.Errorf("the other side is %+v, want nodes 0 and 2 with 3 writes, all answered, nothing stale", others)
	}
	if d := v.During[0]; d.Writes.Count != 6 || d.Staleness.Reads != 2 {
		t.Errorf("during the fault there were %d writes and %d looks, want 6 and 2", d.Writes.Count, d.Staleness.Reads)
	}
}

func TestAnswersAfterTheFaultAreLate(t *testing.T) {
	trial1 := &trial.Trial{
		Mode: scenario.CP, Length: 2000 * ms, Nodes: three,
		Faults: []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 500 * ms, To: 1000 * ms}},
		Series: []trial.Series{{Operation: trial.Heartbeat, Node: 1, Bins: []trial.Bin{
			answers(5, 1), refusals(6), answers(7, 500, 198), answers(9, 20, 21),
		}}},
	}
	got := Judge(trial1, scenario.Scenario{}).Sides[0]
	if got.Writes.Count != 6 || got.Writes.Late != 2 {
		t.Errorf("%d of %d writes were answered late, want 2 of 6: due from 0.7 s on and answered after 500 ms, not 198 ms, due from 0.9 s on and answered after 21 ms, not 20 ms", got.Writes.Late, got.Writes.Count)
	}
	trial1.Series[0].Bins = []trial.Bin{answers(5, 1), refusals(6), answers(7, 500), answers(9, 130)}
	if got := Judge(trial1, scenario.Scenario{}).Sides[0].NoWrites; got != 0.1 {
		t.Errorf("writes stopped %v s after the fault's begin, want 0.1: later answers were late", got)
	}
}

func TestStretchOfAFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault trial.Fault
		want  stretch
	}{
		{"until it is undone", trial.Fault{From: 2, To: 5}, stretch{2, 5}},
		{"until the restarted nodes can serve", trial.Fault{From: 2, To: 5, Ready: 7}, stretch{2, 7}},
		{"to the end of the load without an end", trial.Fault{From: 2, To: 2}, stretch{2, 9}},
	} {
		if got := stretchOf(c.fault, 9); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestStormsAreCutOutOfTheTrial(t *testing.T) {
	storm := scenario.Storm{At: scenario.Moment{Percent: 50}, For: scenario.Moment{Fixed: 200 * time.Millisecond}}
	trial1 := &trial.Trial{Length: 1000 * ms, Nodes: three, Series: []trial.Series{
		{Operation: trial.Fetch, Bins: []trial.Bin{answers(4, 1), answers(5, 1), answers(6, 1), answers(7, 1)}},
	}}
	v := Judge(trial1, scenario.Scenario{Storms: []scenario.Storm{storm}})
	if len(v.Storms) != 1 || v.Storms[0].Reads.Count != 2 {
		t.Errorf("storms are %+v, want one with the 2 reads of 0.5 s to 0.7 s", v.Storms)
	}
}
