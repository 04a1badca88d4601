package verdict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// operations sums up the calls of each operation that was called during the load.
func operations(t *trial.Trial) map[trial.Operation]Calls {
	found := make(map[trial.Operation]Calls)
	for _, o := range trial.Operations {
		calls := duringTheLoad(t, func(s trial.Series) bool { return s.Operation == o })
		if calls.Count > 0 {
			found[o] = calls
		}
	}
	return found
}

// duringTheLoad sums up the calls of the wanted series. Calls that were due after the load only matter as the end of a
// gap: how long they go on differs between the columns.
func duringTheLoad(t *trial.Trial, wanted func(trial.Series) bool) Calls {
	c := callsOf(t.Series, t.Length.Seconds(), wanted, dueIn(t))
	g := gaps{end: t.Length}
	for _, s := range t.Series {
		for _, b := range s.Bins {
			if wanted(s) {
				g.add(b)
			}
		}
	}
	c.LongestGap, c.OpenGap = g.longest()
	return c
}

// dueIn returns a filter for bins that begin before the load's end.
func dueIn(t *trial.Trial) func(trial.Bin) bool {
	return func(b trial.Bin) bool { return binStart(b) < t.Length }
}

// callsOf sums up the calls of the wanted series that were due in the wanted bins, over a length in seconds.
func callsOf(series []trial.Series, length float64, wanted func(trial.Series) bool, within func(trial.Bin) bool) Calls {
	c := Calls{Outcomes: make(map[trial.Outcome]int), Success: 1}
	latencies := make(buckets)
	g := gaps{end: endless}
	for _, s := range series {
		if !wanted(s) {
			continue
		}
		for _, b := range s.Bins {
			if within(b) {
				c.add(b)
				latencies.add(b)
				g.add(b)
			}
		}
	}
	if c.Count > 0 {
		c.Success = float64(c.answered()) / float64(c.Count)
	}
	if length > 0 {
		c.PerSecond = float64(c.answered()) / length
	}
	c.Latency = latencies.spread()
	c.LongestGap, _ = g.longest() // a gap is open where the wanted bins end, which means nothing
	return c
}

// answered counts the calls whose clients got what they asked for.
func (c *Calls) answered() int { return c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] }

func (c *Calls) add(b trial.Bin) {
	for _, outcome := range trial.Outcomes {
		if count := *b.Count(outcome); count > 0 {
			c.Outcomes[outcome] += count
			c.Count += count
		}
	}
}

func (b buckets) add(from trial.Bin) {
	for latency, count := range from.Pairs() {
		b[trial.Micros(latency).Seconds()] += count
	}
}

// gaps finds the times when no client got an answer, by bins. A gap begins with the first bin where a call was due and
// no answer came, whenever the answered call was due, and ends with the last bin before the next answer where a call
// was due or waited for that answer. A bin where no call was due and none waited does not count.
type gaps struct {
	end  trial.Micros
	bins []gapBin // by number
}

type gapBin struct {
	due      bool
	answered bool // an answer came in this bin
	waited   int  // the last bin in which an answer came to a call that was due in this one
}

func (g *gaps) add(b trial.Bin) {
	if b.Number < 0 {
		return
	}
	*g.at(b.Number) = gapBin{due: true, answered: g.at(b.Number).answered, waited: g.at(b.Number).waited}
	for latency := range b.Pairs() {
		length := trial.BinLength.Microseconds()
		came := int((int64(b.Number)*length + length/2 + latency) / length)
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
	return (time.Duration(longest) * trial.BinLength).Seconds(), first >= 0 && last == longest
}

// windows are what the clients of the struck nodes saw during each fault, or all clients if it struck no node, and
// what all clients saw during each storm.
func windows(t *trial.Trial, s scenario.Scenario, watched keys) []Window {
	found := []Window{}
	all := numbers(len(t.Nodes))
	for _, f := range t.Faults {
		nodes := all
		if len(f.Nodes) > 0 {
			nodes = slices.Sorted(slices.Values(f.Nodes))
		}
		found = append(found, window(t, watched, nodes, stretchOf(f, t.Length)))
	}
	for _, storm := range s.Storms {
		from := trial.Of(storm.At.In(t.Length.Duration()))
		found = append(found, window(t, watched, all, stretch{from, from + trial.Of(storm.For.In(t.Length.Duration()))}))
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

// stretch is the time of a fault or a storm.
type stretch struct{ from, to trial.Micros }

func stretchOf(f trial.Fault, length trial.Micros) stretch {
	if f.To == f.From {
		return stretch{f.From, max(length, f.From)}
	}
	return stretch{f.From, max(f.To, f.Ready)}
}

func (s stretch) holds(m trial.Micros) bool { return s.from <= m && m < s.to }

// bin reports whether most of a bin lies in the stretch.
func (s stretch) bin(b trial.Bin) bool { return s.holds(binStart(b) + trial.Of(trial.BinLength)/2) }

func binStart(b trial.Bin) trial.Micros { return startOf(b.Number) }

func startOf(bin int) trial.Micros { return trial.Micros(bin) * trial.Of(trial.BinLength) }

func window(t *trial.Trial, watched keys, nodes []int, during stretch) Window {
	load := stretch{during.from, min(during.to, max(t.Length, during.from))} // a fault may outlast it
	calls := func(wanted func(trial.Operation) bool) Calls {
		of := func(s trial.Series) bool { return wanted(s.Operation) && slices.Contains(nodes, s.Node) }
		c := callsOf(t.Series, (load.to - load.from).Seconds(), of, load.bin)
		c.Late = late(t.Series, of, load, during)
		return c
	}
	return Window{
		Nodes: nodes, Reads: calls(trial.Operation.Reads), Writes: calls(trial.Operation.Writes),
		Staleness: watched.staleness(func(c trial.Call) bool {
			return during.holds(c.Called) && slices.Contains(nodes, c.Node) // watching clients stay with a node
		}),
	}
}

// prompt is the longest latency of calls that no fault kept waiting.
const prompt = 20 * time.Millisecond

// late counts the calls that were due in a stretch, and answered only when another one was over. An answer that was
// not prompt counts as late unless the bin shows that it was not: it may have been due at the bin's end, and have
// taken 1 % longer.
func late(series []trial.Series, wanted func(trial.Series) bool, due, during stretch) int {
	late := 0
	for _, s := range series {
		for _, b := range s.Bins {
			if !wanted(s) || !due.bin(b) {
				continue
			}
			for latency, count := range b.Pairs() {
				took := trial.Micros(latency)
				if took > trial.Of(prompt) && binStart(b)+trial.Of(trial.BinLength)+took+took/100 > during.to {
					late += count
				}
			}
		}
	}
	return late
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }

// grown returns how much a counter grew over its samples, in their order. A counter that went back restarted at 0.
func grown[T any, N int64 | float64 | trial.Micros](samples []T, counter func(T) N) N {
	var sum N
	for i := 1; i < len(samples); i++ {
		before, now := counter(samples[i-1]), counter(samples[i])
		if now < before {
			before = 0
		}
		sum += now - before
	}
	return sum
}

// inOrder returns the samples of each node by time, node by node: sums of floats depend on their order.
func inOrder[T any](nodes map[int][]T, at func(T) trial.Micros) [][]T {
	var sorted [][]T
	for _, node := range sortedKeys(nodes) {
		of := slices.Clone(nodes[node])
		slices.SortStableFunc(of, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
		sorted = append(sorted, of)
	}
	return sorted
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

// usageByNode returns the samples of each node by time, node by node.
func usageByNode(usage []trial.Usage) [][]trial.Usage {
	nodes := make(map[int][]trial.Usage)
	for _, u := range usage {
		nodes[u.Node] = append(nodes[u.Node], u)
	}
	return inOrder(nodes, func(u trial.Usage) trial.Micros { return u.At })
}

// fewestForMemory is how many instances it takes to distinguish their memory from what a process takes meanwhile
// anyway.
const fewestForMemory = 1000

// cost returns what the servers spent during a load of heartbeats alone: from each node's last sample before its
// start, or the first one after it, to the last one of the load.
func cost(t *trial.Trial, s scenario.Scenario) Cost {
	all := usageByNode(t.Usage)
	if len(all) == 0 || !s.HeartbeatsOnly() {
		return Cost{}
	}
	var c Cost
	if spent := spentBy(all, t.Length); spent.took > 0 {
		took := spent.took.Seconds()
		c.CPU = spent.cpu.Seconds() / took
		c.Written = float64(spent.written) / took / float64(len(all))
		c.Sent = float64(spent.sent) / took
		c.Renewals = float64(spent.renewals) / took
	}
	if s.Load.Instances >= fewestForMemory {
		c.MemoryPerInstances = memoryPerInstances(all, s.Load.Instances)
	}
	for _, of := range all {
		if of = duringLoad(of, t.Length); len(of) > 0 { // later the nodes are asked what they hold
			last := of[len(of)-1]
			c.Memory += float64(last.Memory) / float64(len(all))
			c.Disk += float64(last.Stored)
		}
	}
	return c
}

// spent is what all nodes used in a time.
type spent struct {
	cpu, took     trial.Micros // took is the longest time of any node
	written, sent int64
	renewals      int64 // of the whole cluster
}

func spentBy(nodes [][]trial.Usage, length trial.Micros) spent {
	var sum spent
	for _, of := range nodes {
		of = duringLoad(of, length)
		if len(of) == 0 {
			continue
		}
		sum.cpu += grown(of, func(u trial.Usage) trial.Micros { return u.CPU })
		sum.written += grown(of, func(u trial.Usage) int64 { return u.Written })
		sum.sent += grown(of, func(u trial.Usage) int64 { return u.Sent })
		sum.took = max(sum.took, of[len(of)-1].At-of[0].At)
		sum.renewals = max(sum.renewals, of[len(of)-1].Renewals-of[0].Renewals)
	}
	return sum
}

// duringLoad returns the samples from the last one before the load, if there is one, until its end.
func duringLoad(samples []trial.Usage, length trial.Micros) []trial.Usage {
	first, last := 0, len(samples)
	for i, u := range samples {
		if u.At <= 0 {
			first = i
		}
		if u.At > length {
			last = i
			break
		}
	}
	return samples[min(first, last):last]
}

// memoryPerInstances compares, for each node, the last sample without instances with the first one with all of them.
// It returns 0 without such samples.
func memoryPerInstances(nodes [][]trial.Usage, instances int) float64 {
	var sum float64
	var count int
	for _, of := range nodes {
		full := slices.IndexFunc(of, func(u trial.Usage) bool { return u.Instances > 0 && u.Instances >= instances })
		if full < 0 {
			continue
		}
		for i := full - 1; i >= 0; i-- {
			if of[i].Instances == 0 {
				sum += float64(of[full].Memory-of[i].Memory) / float64(of[full].Instances) * 1000
				count++
				break
			}
		}
	}
	if count == 0 {
		return 0
	}
	return max(sum/float64(count), 0)
}
