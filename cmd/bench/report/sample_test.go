package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// second is a second of a trial.
const second = trial.Micros(1_000_000)

// sampleLength is that of the trials of the sample.
const sampleLength = 15 * second

// sample is a comparison as a real one looks, made up from a seed: steady state three times, the leader killed and
// instances dead with it, a partition; in both modes.
func sample() *trial.Comparison {
	load := scenario.Load{
		Instances: 300, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second), Registers: 5, Writes: 60, Reads: 150,
		Fetches: 5, Deltas: 20, Watchers: 6, Sightings: 4, OwnKeys: 12,
	}
	gap := scenario.Span(time.Second)
	c := &trial.Comparison{
		Version: "0.9.0", Date: "2026-01-02",
		Machine: trial.Machine{CPU: "Sample CPU @ 2.5 GHz", Cores: 4, Memory: "16 GB", Disk: "ext4 on an SSD", Sync: "1.2 ms for a durable write", Kernel: "Linux 6.1", Go: "go1.26.0"},
		Plan: trial.Plan{
			Seed: 7, Quick: true, Repeat: 1, Datacenters: 1, Length: sampleLength, Modes: []scenario.Mode{scenario.CP, scenario.AP},
			LeftOut: []string{"dc-link-cut did not run: it needs two datacenters."}, Timeout: 2 * second, Took: 112 * second,
		},
		Scenarios: []scenario.Scenario{
			{Name: "steady", Title: "Steady state", About: "Nothing fails. What each mode costs and how fresh its answers are when all is well.", Quick: true, Datacenters: 1, Rounds: 3, Load: load},
			{
				Name: "leader-killed", Title: "Leader killed", About: "The leader ends by SIGKILL under load, and a tenth of the instances die with it.", Datacenters: 1, Rounds: 1, Load: load,
				Faults: []scenario.Fault{{Kind: scenario.Kill, Nodes: "leader"}, {Kind: scenario.Die, Instances: "10%"}},
				Limits: map[scenario.Mode]scenario.Limits{scenario.CP: {WriteGap: &gap}},
			},
			{
				Name: "partition-minority", Title: "Partition, minority", About: "One node, together with its clients, loses every link to the other two and gets them back.", Datacenters: 1, Rounds: 1, Load: load,
				Faults: []scenario.Fault{{Kind: scenario.Isolate, Nodes: "follower"}},
			},
		},
	}
	for round := 1; round <= 3; round++ {
		for _, s := range c.Scenarios {
			for _, mode := range []scenario.Mode{scenario.CP, scenario.AP} {
				if round <= s.Rounds {
					c.Trials = append(c.Trials, newSketch(s.Name, mode, round).trial())
				}
			}
		}
	}
	return c
}

// judgedSample is the sample's report, made once. Nobody changes it.
var judgedSample = sync.OnceValue(func() *Report { return New(sample()) })

// sketch makes one trial up.
type sketch struct {
	*rand.Rand
	t        *trial.Trial
	from, to trial.Micros // of the fault; both 0: none
	quiet    trial.Micros // until when nobody answers in mode cp, from the fault's begin on
	healed   trial.Micros
}

func newSketch(name string, mode scenario.Mode, round int) *sketch {
	s := &sketch{Rand: rand.New(rand.NewPCG(uint64(len(name))<<8|uint64(len(mode)+int(mode[0])), uint64(round)))}
	s.t = &trial.Trial{
		Scenario: name, Mode: mode, Round: round, Seed: 7, Length: sampleLength, Settled: 19 * second,
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}},
	}
	switch name {
	case "leader-killed":
		s.from, s.to, s.quiet, s.healed = 3_750_000, 9_750_000, 6_100_000, 10_600_000
		s.t.Faults = []trial.Fault{
			{Kind: scenario.Kill, Text: "leader node1 killed", Nodes: []int{0}, From: s.from, To: s.to, Ready: 10_100_000},
			{Kind: scenario.Die, Text: "30 instances died", From: 4 * second, To: 4 * second, Count: 30},
		}
	case "partition-minority":
		s.from, s.to, s.healed = 3_750_000, 10_500_000, 11_900_000
		s.t.Faults = []trial.Fault{{Kind: scenario.Isolate, Text: "node3 isolated", Nodes: []int{2}, From: s.from, To: s.to}}
	}
	return s
}

func (s *sketch) trial() trial.Trial {
	s.series()
	s.history()
	s.lists()
	s.sightings()
	s.departures()
	s.servers()
	s.ending()
	return *s.t
}

func (s *sketch) cp() bool { return s.t.Mode == scenario.CP }

func (s *sketch) during(at trial.Micros) bool { return at >= s.from && at < s.to }

// cut reports whether a node is on the smaller side of a partition at that time.
func (s *sketch) cut(node int, at trial.Micros) bool {
	return s.t.Scenario == "partition-minority" && node == 2 && s.during(at)
}

// outcome is what clients of a node get.
func (s *sketch) outcome(node int, at trial.Micros) trial.Outcome {
	switch {
	case s.cp() && s.cut(node, at):
		return trial.Refused
	case s.cp() && at >= s.from && at < s.quiet:
		return [...]trial.Outcome{trial.Refused, trial.Unreached, trial.Unknown}[s.IntN(3)]
	case !s.cp() && s.t.Scenario == "leader-killed" && node == 0 && at >= s.from && at < s.from+second/4:
		return trial.Unreached
	}
	return trial.Done
}

// latency is about as long as real ones are, in µs, with a tail.
func (s *sketch) latency(o trial.Operation, at trial.Micros) int64 {
	typical := 600.0
	if s.cp() {
		typical = 1800
	}
	if o.Writes() && s.cp() {
		typical = 3200
	}
	if s.cp() && at >= s.quiet && at < s.quiet+second/2 && s.quiet > 0 {
		typical = 400_000
	}
	long := typical * (0.7 + s.ExpFloat64()*0.5)
	step := int64(1)
	for ; long/float64(step) >= 100; step *= 2 {
	}
	return int64(long) / step * step
}

func (s *sketch) series() {
	perBin := map[trial.Operation]float64{trial.Heartbeat: 10, trial.Register: 1.2, trial.Cancel: 0.8, trial.Read: 5, trial.Fetch: 0.17, trial.Delta: 0.7}
	for _, o := range trial.Operations {
		for node := range s.t.Nodes {
			series := trial.Series{Operation: o, Node: node}
			for n := range int(sampleLength / (second / 10)) {
				count := int(perBin[o] + s.Float64())
				if b := s.bin(o, node, n, count); count > 0 {
					series.Bins = append(series.Bins, b)
				}
			}
			s.t.Series = append(s.t.Series, series)
		}
	}
}

func (s *sketch) bin(o trial.Operation, node, number, count int) trial.Bin {
	b := trial.Bin{Number: number}
	latencies := map[int64]int64{}
	at := trial.Micros(number) * second / 10
	for range count {
		switch s.outcome(node, at) {
		case trial.Done:
			b.Done++
			latencies[s.latency(o, at)]++
		case trial.Refused:
			b.Refused++
		case trial.Unreached:
			b.Unreached++
		case trial.Unknown:
			b.Unknown++
		}
	}
	var values []int64
	for latency := range latencies {
		values = append(values, latency)
	}
	slices.Sort(values)
	for _, latency := range values {
		b.Latencies = append(b.Latencies, latency, latencies[latency])
	}
	return b
}

// update is one write that took effect.
type update struct {
	version int64
	at      trial.Micros
	home    int
}

// history has one writer for each key, and readers at all nodes that see, in mode cp, what is newest, and in mode ap
// what has come to their node.
func (s *sketch) history() {
	for key := range 12 {
		var writes []update
		name := fmt.Sprintf("own-%d", key)
		version := int64(0)
		for at := trial.Micros(key) * 10_000; at < sampleLength; at += 200_000 + trial.Micros(s.IntN(8000)) {
			version++
			c := trial.Call{Key: name, Client: key, Node: key % 3, Action: trial.Write, Version: version, Outcome: s.outcome(key%3, at), Called: at, Returned: at + 2000}
			if c.Outcome == trial.Unknown {
				c.Outcome = trial.Refused
			}
			if c.Outcome == trial.Done {
				writes = append(writes, update{version, at + 1000, key % 3})
			}
			s.t.History = append(s.t.History, c)
		}
		s.looks(name, key, writes)
	}
	slices.SortStableFunc(s.t.History, func(a, b trial.Call) int { return int(a.Called - b.Called) })
}

func (s *sketch) looks(name string, key int, writes []update) {
	for at := 300_000 + trial.Micros(key)*1000; at < sampleLength; at += 75_000 + trial.Micros(s.IntN(10_000)) {
		node := s.IntN(3)
		c := trial.Call{Key: name, Client: 100 + node*20 + key, Node: node, Action: trial.Look, Outcome: s.outcome(node, at), Called: at, Returned: at + 1500}
		if c.Outcome == trial.Done {
			for _, w := range writes {
				if s.arrival(w, node) <= at+700 {
					c.Version = w.version
				}
			}
		}
		s.t.History = append(s.t.History, c)
	}
}

// arrival is when a node knows of a write.
func (s *sketch) arrival(w update, node int) trial.Micros {
	if s.cp() || node == w.home {
		return w.at
	}
	if s.cut(node, w.at) || s.cut(w.home, w.at) {
		return s.healed - second/2
	}
	return w.at + 30_000
}

func (s *sketch) lists() {
	for at := trial.Micros(0); at < s.t.Settled; at += second / 10 {
		for node := range s.t.Nodes {
			s.t.Lists = append(s.t.Lists, s.list(node, at+trial.Micros(node)*1000))
		}
	}
}

func (s *sketch) list(node int, at trial.Micros) trial.List {
	l := trial.List{Node: node, Asked: at, Answered: at + 4000, Listed: 300}
	apart := s.t.Scenario == "partition-minority" && at >= s.from && at < s.healed
	switch {
	case s.t.Scenario == "leader-killed" && node == 0 && s.during(at), s.cp() && s.cut(node, at):
		return trial.List{Node: node, Asked: at, Answered: at + 4000, Failed: true}
	case apart && !s.cp():
		grown := int(min(at-s.from, s.to-s.from) / (second / 2))
		l.Behind, l.Missing, l.Ghosts = 8+s.IntN(3), grown, grown/2
		if at >= s.to {
			l.Unhealed = grown * int(s.healed-at) / int(s.healed-s.to)
		}
	case apart && node == 2 && at >= s.to:
		l.Unhealed = 12 * int(s.healed-at) / int(s.healed-s.to)
	case !s.cp():
		l.Behind = s.IntN(2)
	}
	if s.t.Scenario == "leader-killed" && at > 4*second && at < 8*second+trial.Micros(node)*second/5 {
		l.Ghosts += 30
	}
	return l
}

func (s *sketch) sightings() {
	slow := map[trial.Way]float64{trial.ByRead: 1, trial.ByStale: 1.5, trial.ByList: 4, trial.ByDelta: 6, trial.ByWatch: 2}
	for at := second / 10; at < sampleLength; at += second / 4 {
		from := s.IntN(3)
		if s.outcome(from, at) != trial.Done {
			continue
		}
		for to := range s.t.Nodes {
			for _, way := range trial.Ways {
				delay := trial.Micros(slow[way] * 1500 * (0.2 + s.ExpFloat64()))
				if !s.cp() {
					delay = trial.Micros(slow[way] * 12_000 * (0.3 + s.ExpFloat64()))
				}
				if s.cp() && way == trial.ByRead {
					delay = 0
				}
				if (s.cut(from, at) || s.cut(to, at)) && from != to {
					delay += s.healed - at
				}
				if from == to {
					delay = 0
				}
				s.t.Sightings = append(s.t.Sightings, trial.Sighting{From: from, To: to, Way: way, Acked: at, Delay: delay})
			}
		}
	}
}

func (s *sketch) departures() {
	for i := range 60 {
		at := second/5 + trial.Micros(i)*second/4
		if s.during(at) || at < s.quiet {
			continue
		}
		for node := range s.t.Nodes {
			delay := trial.Micros(2000 + s.IntN(20_000))
			if !s.cp() {
				delay += trial.Micros(s.IntN(120_000))
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: fmt.Sprintf("passing-%d", i), Canceled: true, Last: at, Node: node, Gone: at + delay})
		}
	}
	if s.t.Scenario != "leader-killed" {
		return
	}
	for i := range 30 {
		last := 3*second + trial.Micros(s.IntN(1_000_000))
		for node := range s.t.Nodes {
			gone := last + 3*second + trial.Micros(s.IntN(1_200_000))
			if s.cp() {
				gone += 2 * second
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: fmt.Sprintf("instance-%d", i), Last: last, Node: node, Gone: gone})
		}
	}
}

// servers are the leaders, the replicators' reports, and what the processes used.
func (s *sketch) servers() {
	if s.cp() {
		s.leaders()
	}
	for at := trial.Micros(-second); at < s.t.Settled; at += second {
		for node := range s.t.Nodes {
			passed := float64(at+second) / float64(second)
			if !s.cp() {
				s.t.Replicator = append(s.t.Replicator, s.replication(node, at, passed))
			}
			rate := map[bool]float64{true: 0.11, false: 0.06}[s.cp()]
			s.t.Usage = append(s.t.Usage, trial.Usage{
				At: at, Node: node, CPU: trial.Micros(passed * rate * 1e6), Memory: 38e6 + int64(passed*2e5), Written: int64(passed * 3e5 * rate * 10), Stored: 1e6 + int64(passed*1e5),
				Sent: int64(passed * 2e5), Instances: 300, Renewals: int64(passed * 300),
			})
		}
	}
}

func (s *sketch) leaders() {
	for node := range s.t.Nodes {
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: trial.Micros(node) * 1000, Node: node, Leader: 0, Term: 2})
	}
	switch s.t.Scenario {
	case "leader-killed":
		for node, at := range []trial.Micros{s.from, s.from + second*3/2, s.from + second*3/2} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: -1, Term: 2})
		}
		for node, at := range []trial.Micros{s.to + second/3, s.quiet, s.quiet + 1000} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: 1, Term: 3})
		}
	case "partition-minority":
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: s.from + second, Node: 2, Leader: -1, Term: 2}, trial.Leader{At: s.healed, Node: 2, Leader: 0, Term: 2})
	}
	slices.SortStableFunc(s.t.Leaders, func(a, b trial.Leader) int { return int(a.At - b.At) })
}

func (s *sketch) replication(node int, at trial.Micros, passed float64) trial.Replication {
	r := trial.Replication{At: at, Node: node, Accepted: passed * 200, Merged: passed * 20, Sent: passed * 180, Batch: float64(20 + s.IntN(30)), Queued: float64(s.IntN(8)), LagChanges: float64(s.IntN(5)), LagSeconds: 0.02}
	if s.during(at) && len(s.t.Faults[0].Nodes) > 0 {
		apart := (at - s.from).Seconds()
		r.Queued, r.LagChanges, r.LagSeconds, r.Errors = 60*apart, 80*apart, apart, 10*apart
	}
	return r
}

func (s *sketch) ending() {
	keys := map[string]int64{}
	for _, c := range s.t.History {
		if c.Action == trial.Write && c.Outcome == trial.Done {
			keys[c.Key] = max(keys[c.Key], c.Version)
		}
	}
	for node := range s.t.Nodes {
		s.t.Ending = append(s.t.Ending, trial.Ending{Node: node, Keys: keys})
	}
}
