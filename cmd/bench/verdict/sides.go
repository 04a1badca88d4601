package verdict

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// sides are what the clients of the struck nodes, and those of the others, saw during each fault that struck nodes.
func sides(t *trial.Trial, watched keys) []Side {
	found := []Side{}
	homes := homesOf(t)
	for number, f := range t.Faults {
		if len(f.Nodes) == 0 {
			continue
		}
		struck := slices.Sorted(slices.Values(f.Nodes))
		others := slices.DeleteFunc(numbers(len(t.Nodes)), func(n int) bool { return slices.Contains(struck, n) })
		for _, nodes := range [][]int{struck, others} {
			if len(nodes) > 0 {
				s := side(t, watched, homes, nodes, stretchOf(f, t.Length))
				s.Fault, s.Struck = number, slices.Contains(struck, nodes[0])
				found = append(found, s)
			}
		}
	}
	return found
}

// during is what all clients saw during each fault.
func during(t *trial.Trial, watched keys) []Side {
	found := []Side{}
	homes := homesOf(t)
	for number, f := range t.Faults {
		s := side(t, watched, homes, numbers(len(t.Nodes)), stretchOf(f, t.Length))
		s.Fault = number
		found = append(found, s)
	}
	return found
}

// storms are what all clients saw during each storm of a scenario.
func storms(t *trial.Trial, s scenario.Scenario, watched keys) []Side {
	found := []Side{}
	homes := homesOf(t)
	for number, storm := range s.Storms {
		from := trial.Of(storm.At.In(t.Length.Duration()))
		during := stretch{from, from + trial.Of(storm.For.In(t.Length.Duration()))}
		found = append(found, side(t, watched, homes, numbers(len(t.Nodes)), during))
		found[number].Fault = number
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
func (s stretch) bin(b trial.Bin) bool { return s.holds(begin(b) + trial.Of(trial.BinLength)/2) }

func begin(b trial.Bin) trial.Micros { return trial.Micros(b.Number) * trial.Of(trial.BinLength) }

func side(t *trial.Trial, watched keys, homes map[int]int, nodes []int, during stretch) Side {
	length := (during.to - during.from).Seconds()
	reads := func(s trial.Series) bool { return !s.Operation.Writes() && slices.Contains(nodes, s.Node) }
	writes := func(s trial.Series) bool { return s.Operation.Writes() && slices.Contains(nodes, s.Node) }
	found := Side{
		Nodes:  nodes,
		Reads:  callsOf(t.Series, length, reads, during.bin),
		Writes: callsOf(t.Series, length, writes, during.bin),
		Staleness: watched.staleness(func(c trial.Call) bool {
			return during.holds(c.Called) && slices.Contains(nodes, homes[c.Client])
		}),
		NoWrites: noWrites(t.Series, writes, during),
	}
	found.Reads.Late, found.Writes.Late = late(t.Series, reads, during), late(t.Series, writes, during)
	return found
}

// prompt is the longest latency of calls that nobody kept waiting.
const prompt = 20 * time.Millisecond

// inTime counts the answers of a bin that came before the stretch was over, and those that came later, which were kept
// waiting until then. What was not prompt counts as late unless the bin says that it was not: it may have been due
// at the bin's end, and have taken 1 % longer.
func (s stretch) inTime(b trial.Bin) (inTime, late int) {
	bin := trial.Of(trial.BinLength)
	for latency, count := range pairs(b) {
		if took := trial.Micros(latency); took > trial.Of(prompt) && begin(b)+bin+took+took/100 > s.to {
			late += count
		}
	}
	return b.Done + b.NotFound - late, late
}

// late counts the calls that were due in a stretch, and answered only when it was over.
func late(series []trial.Series, wanted func(trial.Series) bool, during stretch) int {
	count := 0
	for _, s := range series {
		for _, b := range s.Bins {
			if wanted(s) && during.bin(b) {
				_, late := during.inTime(b)
				count += late
			}
		}
	}
	return count
}

// noWrites is Side.NoWrites.
func noWrites(series []trial.Series, wanted func(trial.Series) bool, during stretch) float64 {
	var answered, due trial.Micros // ends of the last bins; 0: none
	for _, s := range series {
		for _, b := range s.Bins {
			if !wanted(s) || !during.bin(b) {
				continue
			}
			end := begin(b) + trial.Of(trial.BinLength)
			due = max(due, end)
			if inTime, _ := during.inTime(b); inTime > 0 {
				answered = max(answered, end)
			}
		}
	}
	if answered == due {
		return -1
	}
	return max(answered-during.from, 0).Seconds()
}

// homesOf finds the home of each client of the history: the node that it asked most before the first fault, or if it
// asked none then, in the whole trial. Of several the first one.
func homesOf(t *trial.Trial) map[int]int {
	calm := func(c trial.Call) bool { return len(t.Faults) == 0 || c.Called < t.Faults[0].From }
	homes := mostAsked(t.History, always)
	maps.Copy(homes, mostAsked(t.History, calm))
	return homes
}

func mostAsked(calls []trial.Call, wanted func(trial.Call) bool) map[int]int {
	asked := make(map[int]map[int]int) // by client and node
	for _, c := range calls {
		if !wanted(c) {
			continue
		}
		if asked[c.Client] == nil {
			asked[c.Client] = make(map[int]int)
		}
		asked[c.Client][c.Node]++
	}
	homes := make(map[int]int)
	for client, byNode := range asked {
		homes[client] = most(byNode)
	}
	return homes
}

// most is the number that was counted most often; of several the smallest.
func most(counts map[int]int) int {
	sorted := sortedKeys(counts)
	best := sorted[0]
	for _, n := range sorted {
		if counts[n] > counts[best] {
			best = n
		}
	}
	return best
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }
