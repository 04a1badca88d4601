package verdict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// stretch is a part of a trial.
type stretch struct{ from, to trial.Micros }

func (s stretch) holds(m trial.Micros) bool { return s.from <= m && m < s.to }

// bin reports whether most of a bin lies in the stretch.
func (s stretch) bin(b trial.Bin) bool { return s.holds(startOf(b.Number) + halfBin) }

const (
	binLength = trial.Micros(trial.BinLength / time.Microsecond)
	halfBin   = binLength / 2
)

func startOf(bin int) trial.Micros { return trial.Micros(bin) * binLength }

// wholeLoad has every bin that begins before the load's end.
func wholeLoad(t *trial.Trial) stretch { return stretch{0, t.Length + halfBin} }

// operations sums up the calls of each operation that was called during the load.
func operations(t *trial.Trial) map[trial.Operation]Calls {
	found := make(map[trial.Operation]Calls)
	for _, o := range trial.Operations {
		calls := duringTheLoad(t, func(of trial.Operation) bool { return of == o })
		if calls.Count > 0 {
			found[o] = calls
		}
	}
	return found
}

// duringTheLoad sums up the calls of the wanted operations. Calls that were due after the load only matter as the end
// of a gap: how long they go on differs between the columns.
func duringTheLoad(t *trial.Trial, wanted func(trial.Operation) bool) Calls {
	return callsOf(t, func(s trial.Series) bool { return wanted(s.Operation) }, wholeLoad(t), endless)
}

// prompt is the longest latency of calls that no fault kept waiting.
const prompt = 20 * time.Millisecond

// callsOf sums up the calls of the wanted series that were due in a stretch of the load. over is when the fault or
// storm of a window was over, or endless for the whole load, whose gaps end with the first answer, even after it. An
// answer that was not prompt counts as late unless its bin shows that it was not: the call may have been due at the
// bin's end, and have taken 1 % longer.
func callsOf(t *trial.Trial, wanted func(trial.Series) bool, due stretch, over trial.Micros) Calls {
	c := Calls{Outcomes: make(map[trial.Outcome]int), Success: 1}
	latencies, g := make(spans), gaps{end: t.Length}
	for _, s := range t.Series {
		if !wanted(s) {
			continue
		}
		for _, b := range s.Bins {
			if due.bin(b) || over == endless {
				g.add(b)
			}
			if !due.bin(b) {
				continue
			}
			c.Count += b.Due()
			for _, outcome := range trial.Outcomes {
				if count := *b.Count(outcome); count > 0 {
					c.Outcomes[outcome] += count
				}
			}
			for micros, count := range b.Pairs() {
				took := trial.Micros(micros)
				latencies[took] += count
				if took > trial.Of(prompt) && startOf(b.Number)+binLength+took+took/100 > over {
					c.Late += count
				}
			}
		}
	}
	answered := float64(c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound])
	if c.Count > 0 {
		c.Success = answered / float64(c.Count)
	}
	if length := (min(due.to, t.Length) - due.from).Seconds(); length > 0 {
		c.PerSecond = answered / length
	}
	c.Latency = latencies.spread()
	c.LongestGap, c.OpenGap = g.longest()
	c.OpenGap = c.OpenGap && over == endless // that a gap is open where a window ends means nothing
	return c
}

// gaps finds the times when no client got an answer, by bins. A gap begins with the first bin where a call was due and
// no answer came, whenever the answered call was due, and ends with the last bin before the next answer where a call
// was due or waited for that answer. A bin where no call was due and none waited does not count.
type gaps struct {
	end  trial.Micros // a gap begins before it
	bins []gapBin     // by number
}

type gapBin struct {
	due      bool
	answered bool // an answer came in this bin
	waited   int  // the last bin in which an answer came to a call that was due in this one
}

func (g *gaps) add(b trial.Bin) {
	g.at(b.Number).due = true
	for latency := range b.Pairs() {
		came := int((startOf(b.Number) + halfBin + trial.Micros(latency)) / binLength)
		g.at(came).answered = true
		due := g.at(b.Number)
		due.waited = max(due.waited, came)
	}
}

func (g *gaps) at(number int) *gapBin {
	for len(g.bins) <= number {
		g.bins = append(g.bins, gapBin{})
	}
	return &g.bins[number]
}

// longest returns the longest gap in seconds, and whether no answer ended it: then that is only its minimum.
func (g *gaps) longest() (length float64, open bool) {
	longest, first, waited := 0, -1, -1
	last := 0 // the length of the gap that began first
	for number, b := range g.bins {
		waited = max(waited, b.waited)
		switch {
		case b.answered:
			first = -1
		case first < 0 && b.due && startOf(number) < g.end:
			first, last = number, 1
		case first >= 0 && (b.due || number <= waited):
			last = number - first + 1
		}
		longest = max(longest, last)
	}
	return startOf(longest).Seconds(), first >= 0 && last == longest
}

// windows are what the clients of the struck nodes saw during each fault, or all clients if it struck no node, and
// what all clients saw during each storm.
func windows(t *trial.Trial, s scenario.Scenario, looks []agedLook) []Window {
	found := []Window{}
	add := func(nodes []int, during stretch) {
		due := stretch{during.from, min(during.to, max(t.Length, during.from))} // a fault may outlast the load
		calls := func(wanted func(trial.Operation) bool) Calls {
			return callsOf(t, func(s trial.Series) bool { return wanted(s.Operation) && slices.Contains(nodes, s.Node) }, due, during.to)
		}
		found = append(found, Window{
			Nodes: nodes, Reads: calls(trial.Operation.Reads), Writes: calls(trial.Operation.Writes),
			Staleness: stalenessOf(looks, func(c trial.Call) bool {
				return during.holds(c.Called) && slices.Contains(nodes, c.Node) // watching clients stay with a node
			}),
		})
	}
	for _, f := range t.Faults {
		nodes := numbers(len(t.Nodes))
		if len(f.Nodes) > 0 {
			nodes = slices.Sorted(slices.Values(f.Nodes))
		}
		add(nodes, stretchOf(f, t.Length))
	}
	for _, storm := range s.Storms {
		from := trial.Of(storm.At.In(t.Length.Duration()))
		add(numbers(len(t.Nodes)), stretch{from, from + trial.Of(storm.For.In(t.Length.Duration()))})
	}
	return found
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// stretchOf returns the time of a fault: until what it had stopped could serve again.
func stretchOf(f trial.Fault, length trial.Micros) stretch {
	if f.To == f.From {
		return stretch{f.From, max(length, f.From)}
	}
	return stretch{f.From, max(f.To, f.Ready)}
}

// worst returns what the worst client of each operation of stock clients saw.
func worst(clients []trial.Client) map[trial.Operation]Worst {
	found := make(map[trial.Operation]Worst)
	for _, c := range clients {
		if c.Calls == 0 || !c.Operation.Writes() && !c.Operation.Reads() {
			continue
		}
		w, ok := found[c.Operation]
		if !ok {
			w.Success = 1
		}
		w.Clients++
		w.Success = min(w.Success, float64(c.Answered)/float64(c.Calls))
		if gap := c.Gap.Seconds(); gap >= w.Gap {
			w.Gap, w.Open = gap, c.Open
		}
		found[c.Operation] = w
	}
	return found
}

// fewestForMemory is how many instances it takes to distinguish their memory from what a process takes meanwhile
// anyway.
const fewestForMemory = 1000

// cost returns what the servers spent during a load of heartbeats alone: from each node's last sample before its
// start, or the first one after it, to the last one of the load. Later the nodes are asked what they hold.
func cost(t *trial.Trial, s scenario.Scenario) Cost {
	all := usageByNode(t.Usage)
	if len(all) == 0 || !s.HeartbeatsOnly() {
		return Cost{}
	}
	var c Cost
	var cpu, written, sent, renewals int64 // renewals are of the whole cluster
	took := trial.Micros(0)                // the longest time of any node
	for _, of := range all {
		if of = duringLoad(of, t.Length); len(of) == 0 {
			continue
		}
		first, last := of[0], of[len(of)-1]
		cpu += grown(of, func(u trial.Usage) int64 { return int64(u.CPU) })
		written += grown(of, func(u trial.Usage) int64 { return u.Written })
		sent += grown(of, func(u trial.Usage) int64 { return u.Sent })
		took, renewals = max(took, last.At-first.At), max(renewals, last.Renewals-first.Renewals)
		c.Memory += float64(last.Memory) / float64(len(all))
		c.Disk += float64(last.Stored)
	}
	if seconds := took.Seconds(); seconds > 0 {
		c.CPU = trial.Micros(cpu).Seconds() / seconds
		c.Written = float64(written) / seconds / float64(len(all))
		c.Sent, c.Renewals = float64(sent)/seconds, float64(renewals)/seconds
	}
	if s.Load.Instances >= fewestForMemory {
		c.MemoryPerInstances = memoryPerInstances(all, s.Load.Instances)
	}
	return c
}

// usageByNode returns the samples of each node by time, node by node: sums of floats depend on their order.
func usageByNode(usage []trial.Usage) [][]trial.Usage {
	nodes := make(map[int][]trial.Usage)
	for _, u := range usage {
		nodes[u.Node] = append(nodes[u.Node], u)
	}
	var all [][]trial.Usage
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		slices.SortStableFunc(nodes[node], func(a, b trial.Usage) int { return cmp.Compare(a.At, b.At) })
		all = append(all, nodes[node])
	}
	return all
}

// grown returns how much a counter grew over the samples of a node. A counter that went back restarted at 0.
func grown(samples []trial.Usage, counter func(trial.Usage) int64) (sum int64) {
	for i := 1; i < len(samples); i++ {
		before, now := counter(samples[i-1]), counter(samples[i])
		if now < before {
			before = 0
		}
		sum += now - before
	}
	return sum
}

// duringLoad returns the samples from the last one before the load, if there is one, until its end.
func duringLoad(samples []trial.Usage, length trial.Micros) []trial.Usage {
	after := func(at trial.Micros) int {
		n := slices.IndexFunc(samples, func(u trial.Usage) bool { return u.At > at })
		if n < 0 {
			return len(samples)
		}
		return n
	}
	return samples[max(after(0)-1, 0):after(length)]
}

// memoryPerInstances compares, for each node, the last sample without instances with the first one with all of them.
// It returns 0 without such samples.
func memoryPerInstances(nodes [][]trial.Usage, instances int) float64 {
	sum, count := 0.0, 0
	for _, of := range nodes {
		full := slices.IndexFunc(of, func(u trial.Usage) bool { return u.Instances > 0 && u.Instances >= instances })
		for i := full - 1; i >= 0; i-- {
			if of[i].Instances == 0 {
				sum += float64(of[full].Memory-of[i].Memory) / float64(of[full].Instances) * 1000
				count++
				break
			}
		}
	}
	return max(sum/float64(max(count, 1)), 0)
}
