package verdict

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// answers is a bin whose calls were all answered after so many milliseconds.
func answers(number int, millis ...int64) trial.Bin {
	b := trial.Bin{Number: number, Done: len(millis)}
	for _, m := range millis {
		b.Latencies = append(b.Latencies, m*1000, 1)
	}
	return b
}

func refusals(number int) trial.Bin { return trial.Bin{Number: number, Refused: 1} }

func TestCallsOfAddsBinsOfTheWantedSeries(t *testing.T) {
	series := []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{
			{Number: 0, Done: 98, NotFound: 1, Refused: 2, Unreached: 3, Unknown: 4, Latencies: []int64{1000, 97, 5000, 1, 9000, 1}},
		}},
		{Operation: trial.Register, Node: 1, Bins: []trial.Bin{{Number: 3, Done: 1, Latencies: []int64{20000, 1}}}},
		{Operation: trial.Fetch, Node: 0, Bins: []trial.Bin{answers(0, 7)}},
	}
	v := Judge(&trial.Trial{Length: 10_000_000, Series: series}, ap, scenario.Scenario{})
	want := map[trial.Outcome]int{trial.Done: 99, trial.NotFound: 1, trial.Refused: 2, trial.Unreached: 3, trial.Unknown: 4}
	w := v.Writes
	expect.That(t, maps.Equal(w.Outcomes, want) && w.Count == 109 && w.PerSecond == 10 && w.Success == 100.0/109,
		"writes are %+v, want 109 calls, 100 of them answered, 10 a second: %v", w, want)
	expect.Equal(t, w.Latency, (Spread{Count: 100, P50: 0.001, P90: 0.001, P99: 0.009, P999: 0.02, Max: 0.02}), "the writes' latency is")
	got := v.Operations[trial.Heartbeat].Latency.Max
	expect.That(t, got == 0.009, "the slowest heartbeat took %v s, want 0.009", got)
	_, ok := v.Operations[trial.Cancel]
	expect.That(t, !ok && v.Reads.Count == 1, "operations are %v with %d reads, want no cancel and 1 read", v.Operations, v.Reads.Count)
}

func TestCallsAfterTheLoadCountForNothingButTheEndOfAGap(t *testing.T) {
	one := &trial.Trial{Length: 1000 * ms, Nodes: three, Series: []trial.Series{
		{Operation: trial.Heartbeat, Bins: []trial.Bin{answers(8, 1), refusals(9), refusals(10), answers(11, 70, 70), answers(900, 5)}},
		{Operation: trial.Fetch, Bins: []trial.Bin{answers(8, 1), refusals(9)}},
	}, Faults: []trial.Fault{{Kind: scenario.Kill, Nodes: []int{0}, From: 500 * ms, To: 800 * ms, Ready: 2500 * ms}}}
	v := Judge(one, stock, noLimits)
	for name, w := range map[string]Calls{"writes": v.Writes, "heartbeats": v.Operations[trial.Heartbeat]} {
		expect.That(t, w.Count == 2 && w.PerSecond == 1 && w.Success == 0.5 && w.Latency.Max == 0.001, "%s are %+v, want two, one answered, after 1 ms", name, w)
		expect.That(t, w.LongestGap == 0.3 && !w.OpenGap, "the gap of %s is %v s, open %t; want 0.3 s, ended by the answer after the load", name, w.LongestGap, w.OpenGap)
	}
	expect.That(t, v.Reads.LongestGap == 0.1 && v.Reads.OpenGap, "the gap of reads is %v s, open %t; want 0.1 s, open", v.Reads.LongestGap, v.Reads.OpenGap)
	expect.Equal(t, v.Losses.Heartbeats.Of, 1, "heartbeats that could be forgotten:")
	d := v.During[0].Writes
	expect.That(t, d.Count == 2 && d.PerSecond == 2 && d.Late == 0, "during the fault writes are %+v, want two in half a second", d)
}

func TestLongestGap(t *testing.T) {
	for _, c := range []struct {
		name string
		bins []trial.Bin
		want float64
		open bool
	}{
		{"none while every bin has an answer", []trial.Bin{answers(0, 1), answers(1, 1), answers(2, 1)}, 0, false},
		{"the bins whose calls were refused", []trial.Bin{answers(0, 1), refusals(1), refusals(2), refusals(3), answers(4, 1)}, 0.3, false},
		{"begins and ends where calls were due", []trial.Bin{answers(0, 1), refusals(5), refusals(8), answers(20, 1)}, 0.4, false},
		{"not of bins in which nothing was due", []trial.Bin{answers(0, 1), answers(50, 1)}, 0, false},
		{"the longest, not the last", []trial.Bin{refusals(0), refusals(1), answers(2, 1), refusals(3), answers(4, 1)}, 0.2, false},
		{"until the first late answer, though all succeed", []trial.Bin{answers(0, 1), answers(1, 2000), answers(2, 1900), answers(21, 1)}, 2, false},
		{"ended by an answer to an older call", []trial.Bin{answers(0, 330), refusals(1), refusals(2), refusals(3), refusals(4)}, 0.3, false},
		{"ended by an answer where nothing was due", []trial.Bin{answers(0, 330), refusals(1), refusals(2), refusals(5)}, 0.3, false},
		{"goes on to the end", []trial.Bin{answers(0, 1), refusals(1), refusals(2)}, 0.2, true},
		{"ended, and as long as one that goes on to the end", []trial.Bin{refusals(0), answers(1, 1), refusals(2)}, 0.1, true},
		{"ended, and longer than one that goes on to the end", []trial.Bin{refusals(0), refusals(1), answers(2, 1), refusals(3)}, 0.2, false},
		{"goes on beyond the load until the first answer", []trial.Bin{answers(97, 1), refusals(98), refusals(99), refusals(100), answers(101, 1)}, 0.3, false},
		{"not one that begins after the load", []trial.Bin{answers(99, 1), refusals(100), refusals(101), answers(102, 1)}, 0, false},
		{"over the bins of several series, in any order", []trial.Bin{refusals(3), answers(2, 1), refusals(2), answers(5, 1), refusals(4)}, 0.2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gaps{end: 10_000 * ms}
			for _, b := range c.bins {
				g.add(b)
			}
			got, open := g.longest()
			expect.That(t, got == c.want && open == c.open, "the longest gap of %v is %v s, open %t; want %v s, open %t", c.bins, got, open, c.want, c.open)
		})
	}
}

func TestSpreadsAreOfTheNearestRank(t *testing.T) {
	values := make([]float64, 0, 1000)
	counts := make(buckets)
	for i := 1000; i > 0; i-- {
		values = append(values, float64(i)*1e-6)
		counts[int64(i)]++
	}
	want := Spread{Count: 1000, P50: 500e-6, P90: 900e-6, P99: 990e-6, P999: 999e-6, Max: 1000e-6}
	for i, v := range values {
		values[i] = float64(int64(v*1e6+0.5)) / 1e6
	}
	expect.Equal(t, spreadOf(values), want, "the spread of 1 to 1000 µs is")
	expect.Equal(t, counts.spread(), want, "the spread of the buckets of 1 to 1000 µs is")
	expect.Equal(t, spreadOf([]float64{3}), (Spread{Count: 1, P50: 3, P90: 3, P99: 3, P999: 3, Max: 3}), "the spread of one value is")
}

const ms trial.Micros = 1000

// three are the nodes of a datacenter.
var three = []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}}

// six are the nodes of two datacenters.
var six = append(slices.Clone(three), trial.Node{Name: "node4", Datacenter: "dc2"}, trial.Node{Name: "node5", Datacenter: "dc2"}, trial.Node{Name: "node6", Datacenter: "dc2"})

func TestSidesAreTheClientsOfStruckNodesAndTheOthers(t *testing.T) {
	trial1 := &trial.Trial{
		Length: 2000 * ms, Nodes: three,
		Faults: []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 500 * ms, To: 1000 * ms}},
		Series: []trial.Series{
			{Operation: trial.Heartbeat, Node: 1, Bins: []trial.Bin{answers(4, 1), answers(5, 1), refusals(6), refusals(9), answers(10, 1)}},
			{Operation: trial.Heartbeat, Node: 2, Bins: []trial.Bin{answers(5, 1), answers(9, 1, 2)}},
			{Operation: trial.Fetch, Node: 1, Bins: []trial.Bin{answers(7, 1)}},
		},
		History: []trial.Call{
			{Key: "own-0", Client: 7, Node: 1, Action: trial.Write, Version: 1, Outcome: trial.Done, Called: 0, Returned: 10 * ms},
			{Key: "own-0", Client: 8, Node: 0, Action: trial.Write, Version: 2, Outcome: trial.Done, Called: 20 * ms, Returned: 30 * ms},
			{Key: "own-0", Client: 7, Node: 0, Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 600 * ms, Returned: 610 * ms},
			{Key: "own-0", Client: 8, Node: 0, Action: trial.Look, Version: 2, Outcome: trial.Done, Called: 700 * ms, Returned: 710 * ms},
			{Key: "own-0", Client: 7, Node: 1, Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 1600 * ms, Returned: 1610 * ms},
		},
	}
	v := Judge(trial1, cp, scenario.Scenario{})
	need.That(t, len(v.Sides) == 2, "%d sides, want 2: %+v", len(v.Sides), v.Sides)
	struck, others := v.Sides[0], v.Sides[1]
	expect.That(t, struck.Struck && slices.Equal(struck.Nodes, []int{1}) && struck.Writes.Count == 3 && struck.Writes.PerSecond == 2 && struck.Reads.Count == 1,
		"the struck side is %+v, want node 1 with 3 writes, 2 answered a second, 1 read", struck)
	expect.That(t, struck.NoWrites == 0.1, "writes stopped %v s after the fault's begin, want 0.1", struck.NoWrites)
	expect.That(t, struck.Staleness.Reads == 1 && struck.Staleness.Stale == 1,
		"the struck side's staleness is %+v, want 1 stale read of 1: client 7 is at home at node 1", struck.Staleness)
	expect.That(t, !others.Struck && slices.Equal(others.Nodes, []int{0, 2}) && others.Writes.Count == 3 && others.NoWrites == -1 && others.Staleness.Stale == 0,
		"the other side is %+v, want nodes 0 and 2 with 3 writes, all answered, nothing stale", others)
	d := v.During[0]
	expect.That(t, d.Writes.Count == 6 && d.Staleness.Reads == 2,
		"during the fault there were %d writes and %d looks, want 6 and 2", d.Writes.Count, d.Staleness.Reads)
}

func TestResponsesAfterTheFaultAreLate(t *testing.T) {
	trial1 := &trial.Trial{
		Length: 2000 * ms, Nodes: three,
		Faults: []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 500 * ms, To: 1000 * ms}},
		Series: []trial.Series{{Operation: trial.Heartbeat, Node: 1, Bins: []trial.Bin{
			answers(5, 1), refusals(6), answers(7, 500, 198), answers(9, 20, 21),
		}}},
	}
	got := Judge(trial1, cp, scenario.Scenario{}).Sides[0]
	expect.That(t, got.Writes.Count == 6 && got.Writes.Late == 2,
		"%d of %d writes were answered late, want 2 of 6: due from 0.7 s on and answered after 500 ms, not 198 ms, due from 0.9 s on and answered after 21 ms, not 20 ms", got.Writes.Late, got.Writes.Count)
	trial1.Series[0].Bins = []trial.Bin{answers(5, 1), refusals(6), answers(7, 500), answers(9, 130)}
	expect.Equal(t, Judge(trial1, cp, scenario.Scenario{}).Sides[0].NoWrites, 0.1, "later answers were late: seconds without writes after the fault's begin:")
}

func TestStormsAreCutOutOfTheTrial(t *testing.T) {
	storm := scenario.Storm{At: scenario.Moment{Percent: 50}, For: scenario.Moment{Fixed: 200 * time.Millisecond}}
	trial1 := &trial.Trial{Length: 1000 * ms, Nodes: three, Series: []trial.Series{
		{Operation: trial.Fetch, Bins: []trial.Bin{answers(4, 1), answers(5, 1), answers(6, 1), answers(7, 1)}},
	}}
	v := Judge(trial1, cp, scenario.Scenario{Storms: []scenario.Storm{storm}})
	expect.That(t, len(v.Storms) == 1 && v.Storms[0].Reads.Count == 2, "storms are %+v, want one with the 2 reads of 0.5 s to 0.7 s", v.Storms)
}

func TestReplicatorCountersBeginAgainWithTheProcess(t *testing.T) {
	got := replicator([]trial.Replication{
		{At: 0, Accepted: 100, Sent: 90, Batch: 3, LagSeconds: 1},
		{At: 1000 * ms, Accepted: 110, Sent: 95, Batch: 7},
		{At: 2000 * ms, Accepted: 4, Sent: 2, LagChanges: 12},
		{At: 3000 * ms, Accepted: 5, Sent: 5, Batch: 2},
		{At: 1000 * ms, Node: 1, Accepted: 50, Dropped: 1},
		{At: 2000 * ms, Node: 1, Accepted: 51, Dropped: 3, Errors: 2, Merged: 6},
	})
	want := Replicator{Tasks: 10 + 4 + 1 + 1, Merged: 6, Dropped: 2, Sent: 5 + 2 + 3, Errors: 2, Batch: 7, LagChanges: 12, LagSeconds: 1}
	expect.Equal(t, got, want, "the replicators did")
}

func usage() []trial.Usage {
	return []trial.Usage{
		{At: -2000 * ms, Node: 0, CPU: 1000 * ms, Memory: 10e6, Instances: 0},
		{At: -500 * ms, Node: 0, CPU: 1500 * ms, Memory: 12e6, Instances: 1000},
		{At: 0, Node: 0, CPU: 2000 * ms, Memory: 12e6, Written: 100, Sent: 10, Instances: 1000, Renewals: 500},
		{At: 0, Node: 1, CPU: 3000 * ms, Memory: 20e6, Written: 200, Sent: 20, Instances: 1000, Renewals: 500},
		{At: 2000 * ms, Node: 0, CPU: 3000 * ms, Memory: 14e6, Written: 1100, Sent: 4010, Stored: 5, Instances: 1000, Renewals: 2500},
		{At: 2000 * ms, Node: 1, CPU: 4000 * ms, Memory: 22e6, Written: 1200, Sent: 20, Stored: 6, Instances: 1000, Renewals: 2500},
		{At: 9000 * ms, Node: 0, CPU: 9000 * ms, Memory: 16e6, Stored: 7, Instances: 1000, Renewals: 9000},
	}
}

func TestCostIsThatOfTheLoad(t *testing.T) {
	trial1 := &trial.Trial{Length: 3000 * ms, Usage: usage()}
	heartbeats := scenario.Scenario{Load: scenario.Load{Instances: 1000}}
	got := Judge(trial1, cp, heartbeats).Cost
	want := Cost{
		Renewals: 1000, MemoryPerInstances: 2e6,
		CPU: 1, Memory: 18e6, Disk: 11, Written: 500, Sent: 2000,
	}
	expect.Equal(t, got, want, "the cost is")
}

func TestCostIsOfHeartbeatsOnly(t *testing.T) {
	for _, c := range []struct {
		name string
		s    scenario.Scenario
	}{
		{"others read", scenario.Scenario{Load: scenario.Load{Instances: 1000, Reads: 1}}},
		{"others are sealed", scenario.Scenario{Load: scenario.Load{Sealed: 1}}},
		{"others watch", scenario.Scenario{Load: scenario.Load{Watchers: 1}}},
		{"something fails", scenario.Scenario{Faults: []scenario.Fault{{}}}},
	} {
		got := cost(&trial.Trial{Length: 3000 * ms, Usage: usage()}, c.s)
		expect.Equal(t, got, Cost{}, "%s: the cost is", c.name)
	}
}

func TestWorstIsOfTheWorstClientOfEachOperation(t *testing.T) {
	v := Judge(&trial.Trial{Clients: []trial.Client{
		{Operation: trial.Heartbeat, Calls: 10, Answered: 9, Gap: 100 * ms},
		{Operation: trial.Heartbeat, Calls: 10, Answered: 10, Gap: 2500 * ms},
		{Operation: trial.Heartbeat, Calls: 4, Answered: 3, Gap: 200 * ms},
		{Operation: trial.Heartbeat}, // it never called
		{Operation: trial.Fetch, Calls: 2, Gap: 3000 * ms, Open: true},
		{Operation: trial.Fetch, Calls: 2, Answered: 2, Gap: 1000 * ms},
		{Operation: trial.Delta, Calls: 2, Answered: 2},
		{Operation: trial.ProbeRead, Calls: 2},
	}}, stock, noLimits)
	expect.Deep(t, v.Worst, map[trial.Operation]Worst{
		trial.Heartbeat: {Clients: 3, Success: 0.75, Gap: 2.5}, trial.Fetch: {Clients: 2, Gap: 3, Open: true}, trial.Delta: {Clients: 1, Success: 1},
	}, "the worst are")
}
