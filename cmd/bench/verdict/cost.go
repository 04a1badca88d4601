package verdict

import (
	"cmp"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// grown is by how much a counter grew over its samples, in their order. A counter that went back began again at 0.
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

// replicator sums up the samples of all nodes, from the first one of each.
func replicator(samples []trial.Replication) Replicator {
	var r Replicator
	nodes := make(map[int][]trial.Replication)
	for _, s := range samples {
		nodes[s.Node] = append(nodes[s.Node], s)
		r.Batch = max(r.Batch, s.Batch)
		r.LagChanges = max(r.LagChanges, s.LagChanges)
		r.LagSeconds = max(r.LagSeconds, s.LagSeconds)
	}
	for _, of := range inOrder(nodes, func(s trial.Replication) trial.Micros { return s.At }) {
		r.Tasks += grown(of, func(s trial.Replication) float64 { return s.Accepted })
		r.Merged += grown(of, func(s trial.Replication) float64 { return s.Merged })
		r.Dropped += grown(of, func(s trial.Replication) float64 { return s.Dropped })
		r.Sent += grown(of, func(s trial.Replication) float64 { return s.Sent })
		r.Errors += grown(of, func(s trial.Replication) float64 { return s.Errors })
	}
	return r
}

// inOrder are the samples of each node by their times, node by node: sums of floats depend on their order.
func inOrder[T any](nodes map[int][]T, at func(T) trial.Micros) [][]T {
	var sorted [][]T
	for _, node := range sortedKeys(nodes) {
		of := slices.Clone(nodes[node])
		slices.SortStableFunc(of, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
		sorted = append(sorted, of)
	}
	return sorted
}

// cost is what the servers spent during the load: from each node's last sample before its begin, or the first one
// after it, to the last one.
func cost(t *trial.Trial, s scenario.Scenario) Cost {
	nodes := make(map[int][]trial.Usage)
	for _, u := range t.Usage {
		nodes[u.Node] = append(nodes[u.Node], u)
	}
	all := inOrder(nodes, func(u trial.Usage) trial.Micros { return u.At })
	if len(all) == 0 {
		return Cost{}
	}
	var c Cost
	spent := spentBy(all, t.Length)
	if spent.took > 0 {
		c.CPU = spent.cpu.Seconds() / spent.took.Seconds()
		c.Written = float64(spent.written) / spent.took.Seconds()
		c.Sent = float64(spent.sent) / spent.took.Seconds()
	}
	if heartbeatsOnly(s) {
		c.MemoryPerInstances = memoryPerInstances(all, s.Load.Instances)
	}
	if spent.renewals > 0 && heartbeatsOnly(s) {
		thousands := float64(spent.renewals) / 1000
		c.CPUPerRenewals = spent.cpu.Seconds() / thousands
		c.BytesPerRenewals = float64(spent.sent) / thousands
		c.DiskPerRenewals = float64(spent.written) / thousands
	}
	for _, of := range all {
		last := of[len(of)-1]
		c.Memory += float64(last.Memory) / float64(len(all))
		c.Disk += float64(last.Stored)
	}
	return c
}

// spent is what all nodes used in a time.
type spent struct {
	cpu, took     trial.Micros // took: of the node with the longest time
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

// duringLoad are the samples from the last one before the load, if there is one, until its end.
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

// heartbeatsOnly reports whether nothing but heartbeats is sent, and nothing happens: only then the cost is that of
// the heartbeats, and the memory that of the instances.
func heartbeatsOnly(s scenario.Scenario) bool {
	l := s.Load
	return l.Registers+l.Writes+l.Reads+l.Fetches+l.Deltas+l.Sightings == 0 && l.Watchers == 0 && len(s.Storms)+len(s.Faults) == 0
}

// memoryPerInstances compares, of each node, the last sample without instances with the first one with all of them.
// 0: there are none such.
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
