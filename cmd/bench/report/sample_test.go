package report

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// second is a second of a trial.
const second = trial.Micros(1_000_000)

// sampleLength is the length of the sample's trials.
const sampleLength = 15 * second

// sample returns a comparison that looks like a real one, made up from a seed: three columns, three rounds, six
// scenarios.
func sample() *trial.Comparison {
	return made(scenario.Columns()[:3], 3, "steady", "leader-killed", "partition-minority", "instances-die-tenth", "idle", "heartbeats-1000", "heartbeats-20000")
}

// small returns the part of it that tests need that change it.
func small() *trial.Comparison {
	return made(scenario.Columns()[:3], 1, "steady", "leader-killed", "partition-minority")
}

// judgedSample is the sample's report, made once. No test changes it.
var judgedSample = sync.OnceValue(func() *Report { return New(sample()) })

// made returns a comparison of some columns in the named built-in scenarios, or in all of them if none is named.
func made(columns []scenario.Column, rounds int, names ...string) *trial.Comparison {
	c := &trial.Comparison{
		Version: "0.9.0", Date: "2026-01-02",
		Machine: trial.Machine{CPU: "Sample CPU @ 2.5 GHz", Cores: 4, Memory: "16 GB", Disk: "ext4 on an SSD", Sync: "1.2 ms for a durable write", Kernel: "Linux 6.1", Go: "go1.26.0"},
		Plan: trial.Plan{
			Seed: 7, Quick: true, Rounds: rounds, Datacenters: 1, Length: sampleLength, Columns: columns,
			LeftOut: []string{"dc-link-cut did not run: it needs two datacenters."}, Timeout: 2 * second, Took: 112 * second,
		},
	}
	builtin, err := scenario.Builtin()
	if err != nil {
		panic(err)
	}
	for _, s := range builtin {
		if len(names) > 0 && !slices.Contains(names, s.Name) || s.Datacenters > 1 {
			continue
		}
		if s.Name == "leader-killed" {
			gap := scenario.Span(time.Second)
			s.Limits = map[string]scenario.Limits{"cp": {WriteGap: &gap}, "ap": {MayLose: true}}
		}
		c.Scenarios = append(c.Scenarios, s)
		for _, column := range columns {
			for round := range column.RoundsOf(s, rounds) {
				c.Trials = append(c.Trials, newSketch(s, column, round+1).trial())
			}
		}
	}
	return c
}

// sketch makes one trial up.
type sketch struct {
	t        *trial.Trial
	s        scenario.Scenario
	c        scenario.Column
	kind     scenario.Kind
	struck   []int
	from, to trial.Micros // of the first fault; both 0 if none
	quiet    trial.Micros // end of the time from the fault's start on in which no node of mode cp accepts writes
	healed   trial.Micros
}

func newSketch(s scenario.Scenario, c scenario.Column, round int) *sketch {
	k := &sketch{s: s, c: c}
	k.t = &trial.Trial{
		Scenario: s.Name, Column: c.Name, Round: round, Seed: 7, Length: sampleLength, Ended: 19 * second, Cores: 4,
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}},
	}
	for number, f := range s.Faults {
		injected := trial.Fault{Kind: f.Kind, From: trial.Of(f.At.In(sampleLength.Duration())), Text: string(f.Kind) + " of " + f.Nodes + f.Instances}
		injected.To = injected.From + trial.Of(f.For.In(sampleLength.Duration()))
		if f.Nodes != "" {
			injected.Nodes, _ = scenario.Select(f.Nodes, scenario.Places(1), 0)
		}
		if f.Instances != "" {
			injected.Count, _ = scenario.Share(f.Instances, s.Load.Instances)
		}
		if f.Kind == scenario.Kill || f.Kind == scenario.Lose {
			for n := range max(f.Times, 1) {
				injected.Kills = append(injected.Kills, trial.Kill{At: injected.From + trial.Micros(n)*second*6/10, Node: injected.Nodes[0]})
			}
		}
		if number == 0 {
			k.kind, k.struck, k.from, k.to = f.Kind, injected.Nodes, injected.From, injected.To
		}
		k.t.Faults = append(k.t.Faults, injected)
	}
	k.healed = k.to + second*trial.Micros(4+round)/10
	if len(k.struck) == 1 && k.struck[0] == 0 && k.kind != scenario.SlowDisk {
		k.quiet = k.from + second*trial.Micros(18+round)/10
	}
	if len(k.struck) > 1 && k.kind == scenario.Kill {
		k.quiet = k.to + second
	}
	return k
}

func (s *sketch) trial() trial.Trial {
	var sealed []int
	s.series()
	s.health()
	s.servers()
	if !s.s.HeartbeatsOnly() {
		s.history()
		s.lists()
		s.sightings()
		s.departures()
		sealed = s.seal()
	}
	s.ending(sealed)
	return *s.t
}

func (s *sketch) cp() bool { return s.c.Mode == scenario.CP }

func (s *sketch) during(at trial.Micros) bool { return at >= s.from && at < s.to }

func (s *sketch) cut(node int, at trial.Micros) bool {
	return s.kind == scenario.Isolate && slices.Contains(s.struck, node) && s.during(at)
}

func (s *sketch) killed(node int, at trial.Micros) bool {
	stops := s.kind == scenario.Kill || s.kind == scenario.Lose || s.kind == scenario.Pause
	return stops && slices.Contains(s.struck, node) && at >= s.from && (at < s.to || s.kind == scenario.Lose)
}

// outcome returns what clients of a node get.
func (s *sketch) outcome(o trial.Operation, node int, at trial.Micros) trial.Outcome {
	stale := s.c.Name == "cp-stale" && (o.Reads() || o == trial.ProbeRead)
	switch {
	case len(s.struck) == 3 && s.killed(node, at):
		return trial.Unreached
	case s.cp() && s.cut(node, at) && !stale:
		return trial.Refused
	case s.cp() && at >= s.from && at < s.quiet && !stale:
		return [...]trial.Outcome{trial.Refused, trial.Unreached, trial.Unknown}[node]
	case s.killed(node, at) && at < s.from+second/4:
		return trial.Unreached
	}
	return trial.Done
}

// latency returns how long each successful call takes, in µs.
func (s *sketch) latency(o trial.Operation, at trial.Micros) int64 {
	switch {
	case s.cp() && s.quiet > 0 && at >= s.quiet && at < s.quiet+second/2:
		return 400_000
	case s.cp() && s.kind == scenario.SlowDisk && s.during(at):
		return 40_000
	case s.cp() && o.Writes():
		return 3200 + 64*int64(s.t.Round)
	}
	return map[string]int64{"eureka": 1520, "ap": 600, "ap-always": 2400}[s.c.Name] + 64*int64(s.t.Round)
}

func (s *sketch) series() {
	for _, o := range trial.Operations {
		if o != trial.Heartbeat && s.s.HeartbeatsOnly() {
			continue
		}
		for node := range s.t.Nodes {
			series, client := trial.Series{Operation: o, Node: node}, trial.Client{Operation: o, Home: node}
			for n := range int(sampleLength / (second / 10)) {
				if o != trial.Heartbeat && n%2 > 0 {
					continue
				}
				at, b := trial.Micros(n)*second/10, trial.Bin{Number: n}
				outcome := s.outcome(o, node, at)
				*b.Count(outcome) = 5
				client.Calls++
				if outcome == trial.Done {
					b.Latencies = []int64{s.latency(o, at), 5}
					client.Answered++
				} else {
					client.Gap += second / 10
				}
				series.Bins = append(series.Bins, b)
			}
			s.t.Series = append(s.t.Series, series)
			if o.Reads() || o.Writes() {
				s.t.Clients = append(s.t.Clients, client)
			}
		}
	}
}

func (s *sketch) health() {
	for at := second; at <= sampleLength+second; at += second {
		h := trial.Health{At: at, Busy: at * 13 / 10, Own: at * 12 / 10, Due: 900, Sync: 1200}
		if s.t.Scenario == "heartbeats-20000" && s.c.Name != "ap" {
			h.Late = 300
		}
		s.t.Machine = append(s.t.Machine, h)
	}
}

// history has a key at each node, which its writer changes five times a second. Readers at all nodes see, in mode cp,
// the newest version, and otherwise the one that has reached their node.
func (s *sketch) history() {
	for home := range s.t.Nodes {
		key, newest, older := fmt.Sprintf("own-%d", home), int64(0), int64(0)
		for n := range sampleLength / (second / 5) {
			at := n * second / 5
			w := trial.Call{Key: key, Client: home, Node: home, Action: trial.Write, Version: int64(n) + 1, Called: at, Returned: at + 2000}
			if w.Outcome = s.outcome(trial.ProbeWrite, home, at); w.Outcome == trial.Unknown {
				w.Outcome = trial.Refused
			}
			if w.Outcome == trial.Done {
				older, newest = newest, w.Version
			}
			at += 10_000
			l := trial.Call{Key: key, Client: 100 + int(n)%3, Node: int(n) % 3, Action: trial.Look, Called: at, Returned: at + 1500}
			if l.Outcome = s.outcome(trial.ProbeRead, l.Node, at); l.Outcome == trial.Done {
				l.Version = newest
				if s.c.Name != "cp" && l.Node != home && int(n)%5 <= s.t.Round && older > 0 {
					l.Version = older
				}
			}
			s.t.History = append(s.t.History, w, l)
		}
	}
	slices.SortStableFunc(s.t.History, func(a, b trial.Call) int { return int(a.Called - b.Called) })
}

func (s *sketch) lists() {
	for at := trial.Micros(0); at < s.t.Ended; at += second / 2 {
		for node := range s.t.Nodes {
			l := trial.List{Node: node, Asked: at, Answered: at + 4000, Listed: 300}
			apart := s.kind == scenario.Isolate && at >= s.from && at < s.healed
			switch {
			case s.killed(node, at), s.c.Name == "cp" && s.cut(node, at):
				l.Failed, l.Missing = true, 300
			case apart && !s.cp():
				l.Behind, l.Missing, l.Ghosts = 9, 4, 2
				if at >= s.to {
					l.Unhealed = 4
				}
			case s.kind == scenario.Die && at > s.from && at < s.from+4*second:
				l.Ghosts = s.t.Faults[0].Count
			}
			s.t.Lists = append(s.t.Lists, l)
		}
	}
}

func (s *sketch) sightings() {
	for at := second / 10; at < sampleLength; at += second {
		from := int(at/second) % 3
		if s.outcome(trial.Register, from, at) != trial.Done {
			continue
		}
		for to := range s.t.Nodes {
			for n, way := range trial.Ways {
				if s.c.System == scenario.Eureka && (way == trial.ByWatch || way == trial.ByStale) {
					continue
				}
				delay := trial.Micros(0)
				if from != to {
					delay = trial.Micros(n+1) * 1500
				}
				if s.cut(from, at) || s.cut(to, at) {
					delay += s.healed - at
				}
				s.t.Sightings = append(s.t.Sightings, trial.Sighting{From: from, To: to, Way: way, Acked: at, Delay: delay})
			}
		}
	}
}

func (s *sketch) departures() {
	left := func(id string, canceled bool, last, took trial.Micros) {
		for node := range s.t.Nodes {
			gone := last + took
			if took < 0 {
				gone = -1
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: id, Canceled: canceled, Last: last, Node: node, Gone: gone})
		}
	}
	for i := range 14 {
		if at := trial.Micros(i) * second; !s.during(at) && at >= s.quiet {
			left(fmt.Sprintf("passing-%d", i), true, at, trial.Micros(2000+1000*i))
		}
	}
	if s.kind != scenario.Die {
		return
	}
	for i := range s.t.Faults[0].Count {
		took := 3*second + trial.Micros(i)*10_000
		if s.c.System == scenario.Eureka {
			took = -1
		}
		left(fmt.Sprintf("instance-%d", i), false, s.from, took)
	}
}

// seal makes instances that are written once or twice, and their listed versions at the end: what a
// killed node had not passed on yet is lost where a column answers before it does.
func (s *sketch) seal() (versions []int) {
	careless := s.kind == scenario.Kill && (s.c.Name == "ap" || s.c.System == scenario.Eureka)
	for i := range 150 {
		at, node, version := trial.Micros(i)*second/10, i%3, 1
		if s.outcome(trial.Register, node, at) != trial.Done {
			continue
		}
		sealed := trial.Sealed{ID: fmt.Sprintf("sealed-%d", i), Writes: []trial.SealWrite{{Node: node, Outcome: trial.Done, Called: at, Returned: at + 2000}}}
		if second := at + second; i%2 > 0 {
			sealed.Writes = append(sealed.Writes, trial.SealWrite{Cancel: i%4 == 1, Node: node, Outcome: trial.Done, Called: second, Returned: second + 2000})
			version = map[bool]int{true: 0, false: 2}[i%4 == 1]
		}
		if age := s.from - sealed.Writes[len(sealed.Writes)-1].Returned; careless && slices.Contains(s.struck, node) && age > 0 && age < second/2 {
			version = map[int]int{0: 1, 1: 0, 2: 1}[version]
		}
		s.t.Sealed, versions = append(s.t.Sealed, sealed), append(versions, version)
	}
	if s.c.System == scenario.Eureka && s.kind == scenario.Kill {
		s.t.Forgotten = []trial.Forgotten{{At: s.to + second/2, ID: "instance-0", Last: s.from - second/2}}
	}
	return versions
}

// servers makes up the leaders, and what the processes used.
func (s *sketch) servers() {
	if s.cp() {
		s.leaders()
	}
	rate := float64(s.s.Load.Instances) / s.s.Load.Heartbeat.Duration().Seconds()
	for at := trial.Micros(-2 * second); at < s.t.Ended; at += second {
		for node := range s.t.Nodes {
			passed := float64(at+3*second) / float64(second)
			u := trial.Usage{At: at, Node: node, CPU: trial.Micros(passed * (rate*20 + 4000)), Memory: 38e6, Written: int64(passed * (rate*100 + 300)), Stored: 1e6, Sent: int64(passed * rate * 90), Renewals: int64(passed * rate)}
			if at > -2*second {
				u.Instances, u.Memory = s.s.Load.Instances, 38e6+int64(s.s.Load.Instances)*3000
			}
			s.t.Usage = append(s.t.Usage, u)
		}
	}
}

func (s *sketch) leaders() {
	for node := range s.t.Nodes {
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: trial.Micros(node) * 1000, Node: node, Leader: 0, Term: 2})
	}
	switch {
	case s.quiet > 0:
		for node, at := range []trial.Micros{s.from, s.from + second*3/2, s.from + second*3/2} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: -1, Term: 2})
		}
		for node, at := range []trial.Micros{s.to + second/3, s.quiet, s.quiet + 1000} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: 1, Term: 3})
		}
	case s.kind == scenario.Isolate:
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: s.from + second, Node: s.struck[0], Leader: -1, Term: 2}, trial.Leader{At: s.healed, Node: s.struck[0], Leader: 0, Term: 2})
	}
	slices.SortStableFunc(s.t.Leaders, func(a, b trial.Leader) int { return int(a.At - b.At) })
}

func (s *sketch) ending(sealed []int) {
	keys := map[string]int64{}
	for _, c := range s.t.History {
		if c.Action == trial.Write && c.Outcome == trial.Done {
			keys[c.Key] = max(keys[c.Key], c.Version)
		}
	}
	for node := range s.t.Nodes {
		if s.kind == scenario.Lose && slices.Contains(s.struck, node) {
			continue
		}
		e := trial.Ending{Node: node, Keys: keys, Sealed: sealed}
		if s.c.Streams() {
			e.Watched = s.t.Ended
		}
		s.t.Ending = append(s.t.Ending, e)
	}
}
