package verdict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The columns that verdicts are given in.
var cp, ap, stock = column("cp"), column("ap"), column("eureka")

// noLimits is a scenario that states nothing.
var noLimits scenario.Scenario

func column(text string) scenario.Column {
	c, err := scenario.FindColumn(text)
	if err != nil {
		panic(err)
	}
	return c
}

// crowded returns a trial where everything happened more than once, so that map order would show.
func crowded() *trial.Trial {
	t := &trial.Trial{
		Length: 3000 * ms, Ended: 4000 * ms, Nodes: six,
		Faults: []trial.Fault{{Kind: scenario.Kill, Nodes: []int{4, 1}, From: 500 * ms, To: 900 * ms, Kills: []trial.Kill{{At: 500 * ms, Node: 4}, {At: 500 * ms, Node: 1}}}},
		Usage:  usage(),
	}
	for i := range 40 {
		node, at := i%6, trial.Micros(i)
		t.Series = append(t.Series, trial.Series{Operation: trial.Operations[i%7], Node: node, Bins: []trial.Bin{answers(i, int64(i)), refusals(i + 3)}})
		t.Lists = append(t.Lists, trial.List{Node: node, Asked: at * 97 * ms, Ghosts: i, Missing: i % 3, Back: []string{fmt.Sprint("back", i%7)}})
		t.Sightings = append(t.Sightings, trial.Sighting{From: i % 5, To: node, Way: trial.Ways[i%5], Delay: at * ms})
		t.Departures = append(t.Departures, trial.Departure{ID: fmt.Sprint(i % 9), Node: node, Gone: at * ms})
		t.Leaders = append(t.Leaders, trial.Leader{At: at * 10 * ms, Node: node, Leader: node - 1, Term: uint64(i)})
		t.Clients = append(t.Clients, trial.Client{Operation: trial.Operations[i%5], Home: node, Calls: 10 + i, Answered: 5 + i%7, Gap: at * ms})
		t.Sealed = append(t.Sealed, trial.Sealed{ID: fmt.Sprint("s", i), Writes: []trial.SealWrite{sealWrite(2 * at)}})
		t.Forgotten = append(t.Forgotten, trial.Forgotten{ID: fmt.Sprint("f", i%6), Node: node, At: at * 30 * ms, Last: at * 20 * ms})
		w, l := write(int64(i+1), 20*at, 20*at+5), look(int64(i), 20*at+7, 20*at+9)
		w.Key, l.Key = fmt.Sprint("own-", i%4), fmt.Sprint("own-", i%4)
		w.Client, l.Client, l.Node = i%4, 10+i%3, node
		t.History = append(t.History, w, l)
	}
	for node := range 6 {
		t.Ending = append(t.Ending, trial.Ending{
			Node: node, Keys: map[string]int64{"own-0": int64(node), "own-1": 1, "own-2": int64(node % 2)},
			Missing: []string{fmt.Sprint("m", node), fmt.Sprint("m", node%2)}, Revived: []string{fmt.Sprint("r", node)},
			Sealed: make([]int, len(t.Sealed)),
		})
	}
	return t
}

func TestJudgeIsTheSameEachTime(t *testing.T) {
	for _, c := range scenario.Columns() {
		want := Judge(crowded(), c, scenario.Scenario{})
		for range 30 {
			need.Deep(t, Judge(crowded(), c, scenario.Scenario{}), want, "column %s: first\n%+v\nthen", c.Name, want)
		}
	}
}

// healthy returns looks at a machine of two processors during 10 s: every second all processes use 1 s, and this
// program 0.8 s.
func healthy() []trial.Health {
	var looks []trial.Health
	for second := range trial.Micros(12) {
		looks = append(looks, trial.Health{
			At: second * 1000 * ms, Busy: 5000*ms + second*1000*ms, Own: second * 800 * ms, Due: 100, Late: 1, Worst: 60 * ms, Sync: 2 * ms,
		})
	}
	return looks
}

func TestTrialIsValidIfTheMachineCarriedIt(t *testing.T) {
	use := func(busy, own trial.Micros) func(*trial.Trial) { // of every second
		return func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Busy, t.Machine[i].Own = trial.Micros(i)*busy, trial.Micros(i)*own
			}
		}
	}
	unlooked := []string{"nothing says whether the machine carried it: it was not looked at all the time"}
	for _, c := range []struct {
		name  string
		alter func(*trial.Trial)
		want  []string
	}{
		{"a good one", func(*trial.Trial) {}, nil},
		{"no looks at all", func(t *trial.Trial) { t.Machine = nil }, unlooked},
		{"no looks during the load", func(t *trial.Trial) { t.Machine = t.Machine[:1] }, unlooked},
		{"one look during a short load", func(t *trial.Trial) { t.Length, t.Machine = 2000*ms, t.Machine[1:2] }, unlooked},
		{"a long time without a look", func(t *trial.Trial) { t.Machine = slices.Delete(t.Machine, 4, 7) }, unlooked},
		{"three seconds without a look", func(t *trial.Trial) { t.Machine = slices.Delete(t.Machine, 4, 6) }, nil},
		{"no look in the end", func(t *trial.Trial) { t.Machine = t.Machine[:7] }, unlooked},
		{"no look in the beginning", func(t *trial.Trial) { t.Machine = t.Machine[4:] }, unlooked},
		{"a machine of unknown size", func(t *trial.Trial) { t.Cores = 0 }, unlooked},
		{"a late load", func(t *trial.Trial) { t.Machine[5].Late, t.Machine[6].Worst = 20, 2500*ms },
			[]string{"the load was late: 2.7 % of the calls began more than 50ms after they were due, the worst 2.5 s"}},
		{"no processor left while a server starts again", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Busy = trial.Micros(i+max(i-3, 0)) * 1000 * ms
				t.Machine[i].Own = t.Machine[i].Busy
			}
			t.Faults = []trial.Fault{{From: 3000 * ms, To: 3500 * ms, Ready: 20000 * ms}}
		}, nil},
		{"no processor left before a server starts again, either", func(t *trial.Trial) {
			use(2000*ms, 2000*ms)(t)
			t.Faults = []trial.Fault{{From: 3000 * ms, To: 7500 * ms, Ready: 20000 * ms}}
		}, []string{"the processors were exhausted in 6 of 6 seconds"}},
		{"late though nothing was due", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 3
			}
		}, []string{"nothing says whether the machine carried it: of no call it is known when it began"}},
		{"calls of which none was due", func(t *trial.Trial) {
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 0
			}
		}, []string{"nothing says whether the machine carried it: of no call it is known when it began"}},
		{"no call at all", func(t *trial.Trial) {
			t.Series = nil
			for i := range t.Machine {
				t.Machine[i].Due, t.Machine[i].Late = 0, 0
			}
		}, nil},
		{"a counter that runs backwards", func(t *trial.Trial) { t.Machine[5].Busy = 0 },
			[]string{"nothing says whether the machine carried it: a counter of what the processors did ran backwards"}},
		{"late after the load", func(t *trial.Trial) {
			t.Machine = append(t.Machine, trial.Health{At: 12_000 * ms, Due: 1000, Late: 1000, Sync: 900 * ms})
		}, nil},
		{"exhausted processors", use(1950*ms, 1800*ms), []string{"the processors were exhausted in 10 of 10 seconds"}},
		{"processors that are just not", use(1930*ms, 1800*ms), nil},
		{"exhausted for half of the time", func(t *trial.Trial) {
			for i := range t.Machine {
				used := trial.Micros(min(i, 6)) * 2000 * ms
				t.Machine[i].Busy, t.Machine[i].Own = used, used
			}
		}, nil},
		{"other programs", use(1400*ms, 1000*ms), []string{"others used 20 % of the processors"}},
		{"servers", func(t *trial.Trial) {
			use(1400*ms, 1000*ms)(t)
			for second := range trial.Micros(12) {
				t.Usage = append(t.Usage, trial.Usage{Node: 1, At: second * 1000 * ms, CPU: 9000*ms + second*400*ms})
			}
		}, nil},
		{"servers that ended and began again", func(t *trial.Trial) {
			use(1400*ms, 1000*ms)(t)
			for second := range trial.Micros(12) {
				t.Usage = append(t.Usage, trial.Usage{Node: 1, At: second * 1000 * ms, CPU: (second%6 + 1) * 400 * ms})
			}
		}, nil},
		{"a disk that stalls", func(t *trial.Trial) { t.Machine[9].Sync = 501 * ms }, []string{"the disk stalled: a durable write took 0.5 s"}},
		{"everything at once", func(t *trial.Trial) {
			use(1990*ms, 1000*ms)(t)
			t.Machine[3].Late, t.Machine[3].Sync = 50, 2000*ms
		}, []string{
			"the load was late: 5.5 % of the calls began more than 50ms after they were due, the worst 0.06 s",
			"the processors were exhausted in 10 of 10 seconds", "others used 50 % of the processors",
			"the disk stalled: a durable write took 2 s",
		}},
		{"a trial that was not completed", func(t *trial.Trial) { t.Failed, t.Machine = "node2 did not start", nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			altered := sound()
			c.alter(altered)
			expect.Slice(t, Judge(altered, stock, noLimits).Invalid, c.want, "reasons are")
		})
	}
}

// answers returns a bin whose calls were all answered after the given milliseconds.
func answers(number int, millis ...int64) trial.Bin {
	b := trial.Bin{Number: number, Done: len(millis)}
	for _, m := range millis {
		b.Latencies = append(b.Latencies, m*1000, 1)
	}
	return b
}

func refusals(number int) trial.Bin { return trial.Bin{Number: number, Refused: 1} }

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
	d := v.Windows[0].Writes
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
	thousand := spans{-1: 2}
	for i := range trial.Micros(1000) {
		thousand[i+1]++
	}
	expect.Equal(t, thousand.spread(), Spread{Count: 1000, Never: 2, P50: 500e-6, P90: 900e-6, P99: 990e-6, P999: 999e-6, Max: 1000e-6}, "the spread of 1 to 1000 µs is")
	expect.Equal(t, spans{3e6: 7}.spread(), Spread{Count: 7, P50: 3, P90: 3, P99: 3, P999: 3, Max: 3}, "the spread of one value is")
	expect.Equal(t, spans{-1: 1}.spread(), Spread{Never: 1}, "the spread of what never happened is")
}

const ms trial.Micros = 1000

// three are the nodes of a datacenter.
var three = []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}}

// six are the nodes of two datacenters.
var six = append(slices.Clone(three), trial.Node{Name: "node4", Datacenter: "dc2"}, trial.Node{Name: "node5", Datacenter: "dc2"}, trial.Node{Name: "node6", Datacenter: "dc2"})

func TestResponsesAfterTheFaultAreLate(t *testing.T) {
	trial1 := &trial.Trial{
		Length: 2000 * ms, Nodes: three,
		Faults: []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 500 * ms, To: 1000 * ms}},
		Series: []trial.Series{{Operation: trial.Heartbeat, Node: 1, Bins: []trial.Bin{
			answers(5, 1), refusals(6), answers(7, 500, 198), answers(9, 20, 21),
		}}},
	}
	got := Judge(trial1, cp, scenario.Scenario{}).Windows[0]
	expect.That(t, got.Writes.Count == 6 && got.Writes.Late == 2,
		"%d of %d writes were answered late, want 2 of 6: due from 0.7 s on and answered after 500 ms, not 198 ms, due from 0.9 s on and answered after 21 ms, not 20 ms", got.Writes.Late, got.Writes.Count)
	expect.Slice(t, got.Nodes, []int{1}, "nodes:")
}

func TestStormsAreCutOutOfTheTrial(t *testing.T) {
	storm := scenario.Storm{At: scenario.Moment{Percent: 50}, For: scenario.Moment{Fixed: 200 * time.Millisecond}}
	trial1 := &trial.Trial{Length: 1000 * ms, Nodes: three, Series: []trial.Series{
		{Operation: trial.Fetch, Bins: []trial.Bin{answers(4, 1), answers(5, 1), answers(6, 1), answers(7, 1)}},
	}}
	v := Judge(trial1, cp, scenario.Scenario{Storms: []scenario.Storm{storm}})
	expect.That(t, len(v.Windows) == 1 && v.Windows[0].Reads.Count == 2 && len(v.Windows[0].Nodes) == 3, "windows are %+v, want one with the 2 reads of 0.5 s to 0.7 s, of all nodes", v.Windows)
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
		expect.Equal(t, cost(&trial.Trial{Length: 3000 * ms, Usage: usage()}, c.s), Cost{}, "%s: the cost is", c.name)
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
