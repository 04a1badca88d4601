package report

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// second is a second of a trial.
const second = trial.Micros(1_000_000)

// sampleLength is that of the trials of the sample.
const sampleLength = 15 * second

// sample is a comparison as a real one looks, made up from a seed: three columns, three rounds, six scenarios.
func sample() *trial.Comparison {
	return made(scenario.Columns()[:3], 3, "steady", "leader-killed", "partition-minority", "instances-die-tenth", "idle", "heartbeats-1000", "heartbeats-20000")
}

// small is as much of it as tests need that change it.
func small() *trial.Comparison {
	return made(scenario.Columns()[:3], 1, "steady", "leader-killed", "partition-minority")
}

// judgedSample is the sample's report, made once. No test changes it.
var judgedSample = sync.OnceValue(func() *Report { return New(sample()) })

// TestMakeReportToLookAt writes a report of all columns and all scenarios into a directory, for eyes.
func TestMakeReportToLookAt(t *testing.T) {
	dir := os.Getenv("ROLLCALL_SAMPLE_REPORT")
	if dir == "" {
		t.Skip("ROLLCALL_SAMPLE_REPORT names no directory to write to")
	}
	need.OK(t, New(made(scenario.Columns(), 5)).Write(dir))
}

// made is a comparison of some columns in some of the scenarios that come with the program; none named: all.
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
	*rand.Rand
	t        *trial.Trial
	s        scenario.Scenario
	c        scenario.Column
	kind     scenario.Kind
	struck   []int
	from, to trial.Micros // of the first fault; both 0: none
	quiet    trial.Micros // until when no node of mode cp takes writes, from the fault's begin on
	healed   trial.Micros
}

func newSketch(s scenario.Scenario, c scenario.Column, round int) *sketch {
	k := &sketch{Rand: rand.New(rand.NewPCG(uint64(len(s.Name))<<16|uint64(len(c.Name))<<8|uint64(c.Name[0]), uint64(round))), s: s, c: c}
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
	k.healed = k.to + trial.Micros(float64(second)*(0.4+k.Float64()))
	if len(k.struck) == 1 && k.struck[0] == 0 && k.kind != scenario.SlowDisk {
		k.quiet = k.from + trial.Micros(float64(second)*(1.8+k.Float64()))
	}
	if len(k.struck) > 1 && k.kind == scenario.Kill {
		k.quiet = k.to + second
	}
	return k
}

func (s *sketch) trial() trial.Trial {
	s.series()
	s.health()
	s.servers()
	if !s.s.HeartbeatsOnly() {
		s.history()
		s.lists()
		s.sightings()
		s.departures()
		s.seal()
	}
	s.ending()
	return *s.t
}

func (s *sketch) cp() bool { return s.c.Mode == scenario.CP }

func (s *sketch) during(at trial.Micros) bool { return at >= s.from && at < s.to }

// cut reports whether a node is on the smaller side of a partition at that time.
func (s *sketch) cut(node int, at trial.Micros) bool {
	return s.kind == scenario.Isolate && slices.Contains(s.struck, node) && s.during(at)
}

// killed reports whether a node is down.
func (s *sketch) killed(node int, at trial.Micros) bool {
	stops := s.kind == scenario.Kill || s.kind == scenario.Lose || s.kind == scenario.Pause
	return stops && slices.Contains(s.struck, node) && at >= s.from && (at < s.to || s.kind == scenario.Lose)
}

// outcome is what clients of a node get.
func (s *sketch) outcome(o trial.Operation, node int, at trial.Micros) trial.Outcome {
	stale := s.c.Name == "cp-stale" && (o.Reads() || o == trial.ProbeRead)
	switch {
	case len(s.struck) == 3 && s.killed(node, at):
		return trial.Unreached
	case s.cp() && s.cut(node, at) && !stale:
		return trial.Refused
	case s.cp() && at >= s.from && at < s.quiet && !stale:
		return [...]trial.Outcome{trial.Refused, trial.Unreached, trial.Unknown}[s.IntN(3)]
	case s.killed(node, at) && at < s.from+second/4:
		return trial.Unreached
	}
	return trial.Done
}

// latency is about as long as real ones are, in µs, with a tail.
func (s *sketch) latency(o trial.Operation, at trial.Micros) int64 {
	typical := map[string]float64{"eureka": 1500, "ap": 600, "ap-always": 2400, "cp": 1800, "cp-stale": 1800}[s.c.Name]
	if o.Writes() && s.cp() {
		typical = 3200
	}
	if s.kind == scenario.SlowDisk && s.during(at) && s.cp() {
		typical = 40_000
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
	perBin := map[trial.Operation]float64{trial.Heartbeat: 10, trial.Register: 1.2, trial.Cancel: 0.8, trial.ProbeWrite: 2, trial.ProbeRead: 5, trial.Fetch: 0.5, trial.Delta: 0.7}
	for _, o := range trial.Operations {
		if o != trial.Heartbeat && s.s.HeartbeatsOnly() {
			continue
		}
		for node := range s.t.Nodes {
			series := trial.Series{Operation: o, Node: node}
			for n := range int(sampleLength / (second / 10)) {
				count := int(perBin[o] + s.Float64())
				if b := s.bin(o, node, n, count); count > 0 {
					series.Bins = append(series.Bins, b)
				}
			}
			s.t.Series = append(s.t.Series, series)
			s.client(o, node)
		}
	}
}

func (s *sketch) bin(o trial.Operation, node, number, count int) trial.Bin {
	b := trial.Bin{Number: number}
	latencies := map[int64]int64{}
	at := trial.Micros(number) * second / 10
	for range count {
		outcome := s.outcome(o, node, at)
		*b.Count(outcome)++
		if outcome == trial.Done {
			latencies[s.latency(o, at)]++
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

// client is what one client of a node saw.
func (s *sketch) client(o trial.Operation, node int) {
	if !stock(o) {
		return
	}
	c := trial.Client{Operation: o, Home: node, Gap: trial.Micros(s.latency(o, 0) * 4)}
	for at := trial.Micros(0); at < sampleLength; at += second {
		c.Calls++
		if s.outcome(o, node, at) == trial.Done {
			c.Answered++
		} else {
			c.Gap += second
		}
	}
	s.t.Clients = append(s.t.Clients, c)
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

// update is one write that took effect.
type update struct {
	version int64
	at      trial.Micros
	home    int
}

// history has one writer for each key, and readers at all nodes that see, in mode cp, what is newest, and otherwise what
// has come to their node.
func (s *sketch) history() {
	for key := range 12 {
		var writes []update
		name := fmt.Sprintf("own-%d", key)
		version := int64(0)
		for at := trial.Micros(key) * 10_000; at < sampleLength; at += 200_000 + trial.Micros(s.IntN(8000)) {
			version++
			c := trial.Call{Key: name, Client: key, Node: key % 3, Action: trial.Write, Version: version, Outcome: s.outcome(trial.ProbeWrite, key%3, at), Called: at, Returned: at + 2000}
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
		c := trial.Call{Key: name, Client: 100 + node*20 + key, Node: node, Action: trial.Look, Outcome: s.outcome(trial.ProbeRead, node, at), Called: at, Returned: at + 1500}
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
	switch {
	case s.c.Name == "cp" || s.cp() && !s.cut(node, w.at) || node == w.home:
		return w.at
	case s.cut(node, w.at) || s.cut(w.home, w.at):
		return s.healed - second/2
	case s.c.System == scenario.Eureka:
		return w.at + second + trial.Micros(s.t.Round)*10_000
	}
	return w.at + 30_000
}

func (s *sketch) lists() {
	for at := trial.Micros(0); at < s.t.Ended; at += second / 10 {
		for node := range s.t.Nodes {
			s.t.Lists = append(s.t.Lists, s.list(node, at+trial.Micros(node)*1000))
		}
	}
}

func (s *sketch) list(node int, at trial.Micros) trial.List {
	l := trial.List{Node: node, Asked: at, Answered: at + 4000, Listed: 300}
	apart := s.kind == scenario.Isolate && at >= s.from && at < s.healed
	switch {
	case s.killed(node, at), s.c.Name == "cp" && s.cut(node, at):
		return trial.List{Node: node, Asked: at, Answered: at + 4000, Failed: true, Missing: 300}
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
	if s.kind == scenario.Die && at > s.from && at < s.from+4*second+trial.Micros(node)*second/5 {
		l.Ghosts += s.t.Faults[0].Count
	}
	return l
}

func (s *sketch) sightings() {
	slow := map[trial.Way]float64{trial.ByRead: 1, trial.ByStale: 1.5, trial.ByList: 4, trial.ByDelta: 6, trial.ByWatch: 2}
	for at := second / 10; at < sampleLength; at += second / 4 {
		from := s.IntN(3)
		if s.outcome(trial.Register, from, at) != trial.Done {
			continue
		}
		for to := range s.t.Nodes {
			for _, way := range trial.Ways {
				if s.c.System == scenario.Eureka && (way == trial.ByWatch || way == trial.ByStale) {
					continue
				}
				s.t.Sightings = append(s.t.Sightings, trial.Sighting{From: from, To: to, Way: way, Acked: at, Delay: s.delay(from, to, way, slow[way], at)})
			}
		}
	}
}

func (s *sketch) delay(from, to int, way trial.Way, slow float64, at trial.Micros) trial.Micros {
	if from == to || s.cp() && way == trial.ByRead {
		return 0
	}
	typical := 12_000.0
	switch {
	case s.cp():
		typical = 1500
	case s.c.System == scenario.Eureka:
		typical = 900_000
	}
	delay := trial.Micros(slow * typical * (0.3 + s.ExpFloat64()))
	if s.cut(from, at) || s.cut(to, at) {
		delay += s.healed - at
	}
	return delay
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
	if s.kind != scenario.Die {
		return
	}
	for i := range s.t.Faults[0].Count {
		last := s.from - trial.Micros(s.IntN(1_000_000))
		for node := range s.t.Nodes {
			gone := last + 3*second + trial.Micros(s.IntN(1_200_000))
			if s.c.System == scenario.Eureka || s.t.Faults[0].Count > 100 {
				gone = -1
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: fmt.Sprintf("instance-%d", i), Last: last, Node: node, Gone: gone})
		}
	}
}

// seal makes instances that are written once or twice; ending says what is left of them.
func (s *sketch) seal() {
	for i := range 150 {
		at := trial.Micros(i) * second / 10
		node := i % 3
		if s.outcome(trial.Register, node, at) != trial.Done {
			continue
		}
		sealed := trial.Sealed{ID: fmt.Sprintf("sealed-%d", i), Writes: []trial.SealWrite{{Node: node, Outcome: trial.Done, Called: at, Returned: at + 2000}}}
		if i%3 > 0 {
			sealed.Writes = append(sealed.Writes, trial.SealWrite{Cancel: i%3 == 1, Node: node, Outcome: trial.Done, Called: at + second, Returned: at + second + 2000})
		}
		s.t.Sealed = append(s.t.Sealed, sealed)
	}
	if s.c.System == scenario.Eureka && s.kind == scenario.Kill {
		for i := range 10 + s.IntN(5) {
			s.t.Forgotten = append(s.t.Forgotten, trial.Forgotten{At: s.to + second/2, ID: fmt.Sprintf("instance-%d", i), Last: s.from - second/2})
		}
	}
}

// kept are the versions in which the sealed instances are listed at the end: what a killed node had not told yet is lost
// where a column answers before it tells.
func (s *sketch) kept() []int {
	var versions []int
	for _, sealed := range s.t.Sealed {
		last := sealed.Writes[len(sealed.Writes)-1]
		version := len(sealed.Writes)
		if last.Cancel {
			version = 0
		}
		careless := s.kind == scenario.Kill && (s.c.Name == "ap" || s.c.System == scenario.Eureka)
		if age := s.from - last.Returned; careless && slices.Contains(s.struck, last.Node) && age > 0 && age < second*7/10 {
			version = map[bool]int{true: 1, false: version - 1}[last.Cancel]
		}
		versions = append(versions, version)
	}
	return versions
}

// servers are the leaders, the replicators' reports, and what the processes used.
func (s *sketch) servers() {
	if s.cp() {
		s.leaders()
	}
	rate := rateOf(s.s)
	cpu := map[string]float64{"cp": 60e-6, "cp-stale": 60e-6, "ap": 25e-6, "ap-always": 50e-6, "eureka": 90e-6}[s.c.Name]*rate + 0.004 + 0.0002*s.Float64()
	written := map[string]float64{"cp": 120, "cp-stale": 120, "ap": 80, "ap-always": 140, "eureka": 0.5}[s.c.Name]*rate + 300
	if rate > 3000 {
		cpu *= 0.8
	}
	memory := map[string]int64{"eureka": 280e6}[s.c.Name] + 38e6
	for at := trial.Micros(-2 * second); at < s.t.Ended; at += second {
		for node := range s.t.Nodes {
			passed := float64(at+3*second) / float64(second)
			u := trial.Usage{At: at, Node: node, CPU: trial.Micros(passed * cpu * 1e6 / 3), Memory: memory, Written: int64(passed * written), Stored: 1e6, Sent: int64(passed * rate * 90), Renewals: int64(passed * rate)}
			if at > -2*second {
				u.Instances, u.Memory = s.s.Load.Instances, memory+int64(s.s.Load.Instances)*3000
			}
			s.t.Usage = append(s.t.Usage, u)
			if s.c.Mode == scenario.AP && !s.s.HeartbeatsOnly() {
				s.t.Replicator = append(s.t.Replicator, s.replication(node, at, passed))
			}
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

func (s *sketch) replication(node int, at trial.Micros, passed float64) trial.Replication {
	r := trial.Replication{At: at, Node: node, Accepted: passed * 200, Merged: passed * 20, Sent: passed * 180, Batch: float64(20 + s.IntN(30)), Queued: float64(s.IntN(8)), LagChanges: float64(s.IntN(5)), LagSeconds: 0.02}
	if s.during(at) && len(s.struck) > 0 {
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
		if s.kind == scenario.Lose && slices.Contains(s.struck, node) {
			continue
		}
		e := trial.Ending{Node: node, Keys: keys, Sealed: s.kept()}
		if s.c.Streams() {
			e.Watched = s.t.Ended
		}
		s.t.Ending = append(s.t.Ending, e)
	}
}
