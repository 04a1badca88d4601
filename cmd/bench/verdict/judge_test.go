package verdict

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// sound returns a trial of 10 s where everything was asked and answered, and nothing is wrong.
func sound() *trial.Trial {
	t := &trial.Trial{
		Length: 10_000 * ms, Ended: 11_000 * ms, Cores: 2, Nodes: three,
		Faults:  []trial.Fault{{Kind: scenario.Isolate, Nodes: []int{1}, From: 2000 * ms, To: 4000 * ms}},
		Sealed:  []trial.Sealed{{ID: "sealed-0", Writes: []trial.SealWrite{sealWrite(0)}}},
		History: []trial.Call{write(1, 0, 1), look(1, 4, 5), write(2, 6, 7), look(2, 8, 9)},
		Machine: healthy(),
	}
	for _, o := range []trial.Operation{trial.Heartbeat, trial.Fetch} {
		s := trial.Series{Operation: o}
		for number := range 100 {
			s.Bins = append(s.Bins, answers(number, 1))
		}
		t.Series = append(t.Series, s)
	}
	for node := range three {
		t.Lists = append(t.Lists, trial.List{Node: node, Asked: 4500 * ms})
		t.Ending = append(t.Ending, trial.Ending{Node: node, Keys: map[string]int64{"own-1": 2}, Sealed: []int{1}, Watched: 10_000 * ms})
	}
	for node := range three {
		t.Lists = append(t.Lists, trial.List{Node: node, Asked: 0})
	}
	t.Departures = []trial.Departure{{ID: "a", Last: 1000 * ms, Gone: 4000 * ms}}
	return t
}

// strict returns limits of every kind, which the sound trial keeps.
func strict() scenario.Limits {
	second := new(scenario.Span(time.Second))
	return scenario.Limits{
		WriteGap: second, ReadGap: second, WriteSuccess: new(0.99), ReadSuccess: new(0.99), Converged: second,
		FalseEvictions: new(0), Removal: new(scenario.Span(3 * time.Second)),
	}
}

// brokenBy returns the limits that a trial breaks in a column, without the column's name.
func brokenBy(t *trial.Trial, c scenario.Column, l scenario.Limits) []Broken {
	s := scenario.Scenario{Limits: map[string]scenario.Limits{c.Name: l}, Load: scenario.Load{Instances: 1, Reads: 1, Writes: 1, Lease: scenario.Span(3 * time.Second)}}
	// Histories that the checker can decide take microseconds.
	found := judge(t, c, s, 50*time.Millisecond).Broken
	for i := range found {
		found[i].Limit = found[i].Limit[len(c.Name)+len(": "):]
	}
	return found
}

func TestSoundTrialBreaksNoLimit(t *testing.T) {
	for _, c := range scenario.Columns() {
		expect.Slice(t, brokenBy(sound(), c, strict()), nil, "%s: broken are", c.Name)
		expect.Slice(t, Invalid(sound()), nil, "%s: reasons are", c.Name)
	}
}

const (
	converge  = "nodes converge, and no update is lost against the rule"
	judgeable = "losses can be judged"
	evicted   = "false-evictions at most 0"

	untold   = "undecided: a node's stream of changes was read for less than half of the time"
	unjudged = "undecided: 0 of 1 claims on sealed instances judged, a silent node may refute the others"
)

// undecidable returns a history of a key that the checker does not decide soon: many calls of unknown outcome, and a
// look at what nobody wrote.
func undecidable() []trial.Call {
	calls := []trial.Call{write(1, 0, 1)}
	for i := range trial.Micros(40) {
		version := int64(2 + 2*i)
		calls = append(calls, of(write(version, 2+i, 3+i), trial.Unknown), of(remove(version+1, 2+i, 3+i), trial.Unknown))
	}
	return append(calls, look(999, 9000, 9001))
}

// Each of these is the raw file of a sound trial with one thing altered: what was not asked, not answered or not
// decided counts as broken just as what is wrong.
func TestAlteredTrialsBreakALimit(t *testing.T) {
	silent := func(t *trial.Trial) { t.Ending[2] = trial.Ending{Node: 2, Failed: "no answer"} }
	for _, c := range []struct {
		name  string
		alter func(*trial.Trial)
		want  []Broken // for every column that promises anything
		cp    []Broken // additional ones of cp, before the others
	}{
		{"a silent node at the end", silent, []Broken{
			{converge, "2 of 3 nodes gave an answer at the end"}, {answering, "node3 did not"}, {judgeable, unjudged}, {evicted, untold}}, nil},
		{"a node that was not asked at the end", func(t *trial.Trial) { t.Ending = t.Ending[1:] }, []Broken{
			{converge, "2 of 3 nodes gave an answer at the end"}, {answering, "node1 did not"}, {judgeable, unjudged}, {evicted, untold}}, nil},
		{"a node that was asked twice at the end", func(t *trial.Trial) { t.Ending = append(t.Ending, t.Ending[0]) }, []Broken{
			{converge, "2 of 3 nodes gave an answer at the end"}, {answering, "node1 did not"}, {judgeable, unjudged}}, nil},
		{"a node that the trial does not know", func(t *trial.Trial) { t.Nodes = t.Nodes[:2] }, []Broken{
			{answering, "undecided: it has 2 nodes in 1 datacenters, and should have 3 in each of 1"}}, nil},
		{"nodes of another datacenter", func(t *trial.Trial) { t.Nodes = six }, []Broken{
			{converge, "3 of 6 nodes gave an answer at the end"}, {answering, "node4, node5, node6 did not"},
			{answering, "undecided: it has 6 nodes in 2 datacenters, and should have 3 in each of 1"}, {judgeable, unjudged},
			{reviving, "undecided: a node gave no list during the load"}, {"converged at most 1s", "not within the trial"}, {evicted, untold}}, nil},
		{"no node was asked at the end", func(t *trial.Trial) { t.Ending = nil }, []Broken{
			{converge, "0 of 3 nodes gave an answer at the end"}, {answering, "node1, node2, node3 did not"}, {judgeable, unjudged}, {evicted, untold}}, nil},
		{"nodes that differ", func(t *trial.Trial) { t.Ending[1].Keys = map[string]int64{"own-1": 1} }, []Broken{
			{converge, "own-1 differs: version 2 at node1, node3; version 1 at node2"}}, nil},
		{"nodes that lost an update", func(t *trial.Trial) {
			for i := range t.Ending {
				t.Ending[i].Keys = map[string]int64{"own-1": 1}
			}
		}, []Broken{{converge, "every node holds version 1 of own-1, though version 2 had been acknowledged"}}, nil},
		{"a history that is not linearizable", func(t *trial.Trial) { t.History = append(t.History, look(1, 10, 11)) }, nil,
			[]Broken{{Linearizable, "no single copy explains the calls on own-1"}}},
		{"a history that the checker cannot decide", func(t *trial.Trial) { t.History = undecidable() }, nil,
			[]Broken{{Linearizable, "undecided: the checker ran out of time"}}},
		{"a key that was never read", func(t *trial.Trial) {
			t.History = []trial.Call{write(1, 0, 1), write(2, 6, 7), of(look(1, 8, 9), trial.Refused)}
		}, nil,
			[]Broken{{Linearizable, "undecided: 1 instance (own-1) written, and never read"}}},
		{"a read of what nobody wrote", func(t *trial.Trial) {
			t.History = append(t.History, look(7, 10, 11))
			t.History[4].Key = "own-9"
		}, nil, []Broken{{Linearizable, "no single copy explains the calls on own-9"}}},

		{"a registration that is lost", func(t *trial.Trial) { t.Ending[1].Sealed = []int{0} }, []Broken{
			{converge, "some nodes list the instance sealed-0, others do not, or in another version"},
			{"no registration is lost", "1 instance (sealed-0) not listed by some node at the end, though acknowledged and never written again"}}, nil},
		{"an update that is lost", func(t *trial.Trial) { t.Sealed[0].Writes = append(t.Sealed[0].Writes, sealWrite(1000)) }, []Broken{
			{"no update is lost", "1 instance (sealed-0) in an older version at some node at the end, though the newer one was acknowledged"}}, nil},
		{"a cancel that is undone", func(t *trial.Trial) { t.Sealed[0].Writes = append(t.Sealed[0].Writes, sealCancel(1000)) }, []Broken{
			{"no cancel is undone", "1 instance (sealed-0) listed by some node at the end, though the cancel was acknowledged"}}, nil},
		{"sealed instances of which nothing is known", func(t *trial.Trial) { t.Sealed[0].Writes[0].Outcome = trial.Unknown }, []Broken{
			{judgeable, "of 1 sealed instances the outcome of none is known"}}, nil},
		{"a node that was not asked for the sealed instances", func(t *trial.Trial) { t.Ending[0].Sealed = nil }, []Broken{
			{judgeable, "node1 was asked for 0 of 1 sealed instances"}}, nil},
		{"an instance that is forgotten", func(t *trial.Trial) { t.Forgotten = []trial.Forgotten{{ID: "f", Last: 6000 * ms, At: 7000 * ms}} }, []Broken{
			{"no living instance is forgotten", "1 instance (f) answered 404 within the lease after the last acknowledged heartbeat"}}, nil},
		{"instances that are lost at the end", func(t *trial.Trial) {
			for i := range t.Ending {
				t.Ending[i].Missing = []string{"a", "b", "c", "d"}
			}
		}, []Broken{{"nothing is lost", "4 instances (a, b, c, …) not listed by some node at the end, though acknowledged and alive"}}, nil},
		{"an instance that is revived", func(t *trial.Trial) { t.Lists[0].Back = []string{"a"} }, []Broken{
			{"nothing is revived", "1 instance (a) listed after the acknowledged cancel"}}, nil},

		{"no lists", func(t *trial.Trial) { t.Lists = nil }, []Broken{
			{reviving, "undecided: a node gave no list during the load"}, {"converged at most 1s", "not within the trial"}}, nil},
		{"no fault that ended", func(t *trial.Trial) { t.Faults = nil }, []Broken{{"converged at most 1s", nothing}}, nil},
		{"convergence that takes too long", func(t *trial.Trial) { t.Lists[1].Asked = 5500 * ms }, []Broken{{"converged at most 1s", "1.5 s"}}, nil},
		{"convergence that does not come", func(t *trial.Trial) { t.Lists[1].Unhealed = 1 }, []Broken{{"converged at most 1s", "not within the trial"}}, nil},
		{"a node that gives no list after the fault", func(t *trial.Trial) { t.Lists[2].Asked = 3000 * ms }, []Broken{{"converged at most 1s", "not within the trial"}}, nil},
		{"no write", func(t *trial.Trial) { t.Series = t.Series[1:] }, []Broken{
			{living, "undecided: no heartbeat was answered"}, {"write-gap at most 1s", nothing}, {"write-success at least 0.99", nothing}}, nil},
		{"no read", func(t *trial.Trial) { t.Series = t.Series[:1] }, []Broken{{"read-gap at most 1s", nothing}, {"read-success at least 0.99", nothing}}, nil},
		{"a gap in the writes", func(t *trial.Trial) {
			for i := 20; i < 31; i++ {
				t.Series[0].Bins[i] = trial.Bin{Number: i, Refused: 1}
			}
		}, []Broken{{"write-gap at most 1s", "1.1 s"}, {"write-success at least 0.99", "0.89"}}, nil},
		{"no stream of changes that was read", func(t *trial.Trial) { t.Ending[1].Watched = 0 }, []Broken{
			{evicted, untold}}, nil},
		{"a false eviction", func(t *trial.Trial) { t.Evictions = []trial.Eviction{{ID: "e", Alive: true}} }, []Broken{{"false-evictions at most 0", "1"}}, nil},
		{"no removal", func(t *trial.Trial) { t.Departures = nil }, []Broken{{"removal at most 3s", nothing}}, nil},
		{"a removal that takes too long", func(t *trial.Trial) { t.Departures[0].Gone = 5000 * ms }, []Broken{{"removal at most 3s", "4 s"}}, nil},
		{"a removal that does not come", func(t *trial.Trial) { t.Departures = append(t.Departures, trial.Departure{ID: "b", Gone: -1}) }, []Broken{
			{"removal at most 3s", "1 of 2 were listed until the end"}}, nil},
		{"a trial that was not completed", func(t *trial.Trial) { t.Failed = "node2 did not start"; t.Series = nil }, []Broken{{Completed, "node2 did not start"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, column := range scenario.Columns() {
				if !column.Promises() {
					continue
				}
				altered := sound()
				c.alter(altered)
				want := slices.Clone(c.want)
				if column.Linearizable() {
					want = append(slices.Clone(c.cp), want...)
				}
				if c.name == "a history that the checker cannot decide" { // its lost versions are nobody's
					altered.Ending[0].Keys, altered.Ending[1].Keys, altered.Ending[2].Keys = nil, nil, nil
				}
				expect.Slice(t, brokenBy(altered, column, strict()), want, "%s: broken are", column.Name)
			}
		})
	}
}

func TestColumnThatPromisesNothingBreaksNothing(t *testing.T) {
	altered := sound()
	altered.Ending[2] = trial.Ending{Node: 2, Failed: "no answer"}
	altered.Ending[1] = trial.Ending{Node: 1, Missing: []string{"a"}, Revived: []string{"b"}, Sealed: []int{0}}
	altered.History, altered.Series, altered.Faults = append(altered.History, look(1, 10, 11)), nil, nil
	altered.Evictions = []trial.Eviction{{ID: "e", Alive: true}}
	expect.That(t, len(brokenBy(altered, cp, strict())) > 5, "the trial is not wrong enough")
	for _, c := range []scenario.Column{stock, {Name: "unknown"}} {
		expect.Slice(t, brokenBy(altered, c, strict()), nil, "%s: broken are", c.Name)
	}
	altered.Failed = "node2 did not start"
	expect.Slice(t, brokenBy(altered, stock, strict()), nil, "of a trial that was not completed:")
}

func TestWhatMayBeLostIsNoBrokenPromise(t *testing.T) {
	allow := scenario.Limits{MayLose: true}
	lost := func() *trial.Trial {
		t := sound()
		for i := range t.Ending {
			t.Ending[i].Keys, t.Ending[i].Sealed = nil, []int{0}
		}
		t.Lists[0].Back = []string{"a"}
		t.Forgotten = []trial.Forgotten{{ID: "f", Last: 6000 * ms, At: 7000 * ms}}
		return t
	}
	expect.Slice(t, brokenBy(lost(), ap, allow), nil, "broken are")
	expect.Equal(t, len(brokenBy(lost(), ap, scenario.Limits{})), 4, "without leave that many are broken:")

	differs := lost()
	differs.Ending[0].Sealed, differs.History = []int{1}, nil
	expect.Slice(t, brokenBy(differs, ap, allow), []Broken{{converge, "some nodes list the instance sealed-0, others do not, or in another version"}}, "of nodes that differ:")
	silent := lost()
	silent.Ending = silent.Ending[1:]
	expect.Slice(t, brokenBy(silent, ap, allow), []Broken{{answering, "node1 did not"}}, "of a silent node, where another one refutes what it may hold:")
	silent = sound()
	silent.Ending = silent.Ending[1:]
	expect.Slice(t, brokenBy(silent, ap, allow), []Broken{{converge, "2 of 3 nodes gave an answer at the end"}, {answering, "node1 did not"}, {judgeable, unjudged}},
		"of a silent node, where the others lost nothing:")
}

func TestNodeWithoutConsensusMayNotKnowWhatItDidNotHear(t *testing.T) {
	for _, c := range []struct {
		name    string
		column  scenario.Column
		kind    scenario.Kind
		at      trial.Micros // ms
		allowed bool
	}{
		{"while another node stands still", ap, scenario.Pause, 2000, true},
		{"when it has just gone on", ap, scenario.Pause, 3999, true},
		{"when it has gone on for a second", ap, scenario.Pause, 4000, false},
		{"before", ap, scenario.Pause, 1499, false},
		{"while nodes are cut off", ap, scenario.Isolate, 2000, true},
		{"while datacenters are", ap, scenario.CutLink, 2000, false},
		{"while disks are slow", ap, scenario.SlowDisk, 2000, false},
		{"with consensus", cp, scenario.Pause, 2000, false},
	} {
		tr := sound()
		tr.Faults = []trial.Fault{{Kind: c.kind, Nodes: []int{0}, From: 1500 * ms, To: 3000 * ms}}
		tr.Forgotten = []trial.Forgotten{{ID: "f", Last: (c.at - 100) * ms, At: c.at * ms}}
		broken := slices.ContainsFunc(brokenBy(tr, c.column, scenario.Limits{}), func(b Broken) bool { return b.Limit == living })
		expect.Equal(t, broken, !c.allowed, "%s: a broken limit is", c.name)
		lease := scenario.Scenario{Load: scenario.Load{Lease: scenario.Span(3 * time.Second)}}
		expect.Equal(t, factsOf(tr).losses(lease).Heartbeats.Count, 1, "%s: the figure is", c.name)
	}
}

func TestSealedInstancesMustTellOfEveryKindOfLoss(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64 // per second, of 10 s
		sealed []trial.Sealed
		want   string
	}{
		{"none where none is due", 0.05, nil, ""},
		{"none", 1, nil, "undecided: no sealed instance is known"},
		{"none of a kind where few are due", 1, []trial.Sealed{{ID: "a", Writes: []trial.SealWrite{sealWrite(0)}}}, ""},
		{"none of a kind", 3, []trial.Sealed{
			{ID: "a", Writes: []trial.SealWrite{sealWrite(0)}}, {ID: "b", Writes: []trial.SealWrite{sealWrite(0), sealWrite(1)}},
		}, "undecided: of 2 sealed instances none tells of cancels"},
	} {
		altered := sound()
		altered.Sealed = c.sealed
		for i := range altered.Ending {
			altered.Ending[i].Sealed = []int{1, 2}[:len(c.sealed)]
		}
		s := scenario.Scenario{Load: scenario.Load{Sealed: c.rate}}
		var want []Broken
		if c.want != "" {
			want = []Broken{{"cp: " + judgeable, c.want}}
		}
		expect.Slice(t, Judge(altered, cp, s).Broken, want, "%s: broken are", c.name)
	}
}

func TestHeartbeatsThatTheMachineDidNotCarryBreakPromisesOnly(t *testing.T) {
	s := scenario.Scenario{Load: scenario.Load{Instances: 1}, Limits: map[string]scenario.Limits{"cp": {WriteSuccess: new(0.99)}}}
	altered := sound()
	altered.Faults, altered.Series[0].Bins[3] = nil, trial.Bin{Number: 3, Refused: 9}
	altered.Ending[2] = trial.Ending{Node: 2, Failed: "no answer"}
	altered.Ending[1].Sealed = []int{0}
	promises := []Broken{
		{"cp: " + converge, "some nodes list the instance sealed-0, others do not, or in another version"},
		{"cp: no registration is lost", "1 instance (sealed-0) not listed by some node at the end, though acknowledged and never written again"},
		{"cp: " + answering, "node3 did not"},
	}
	expect.Slice(t, Judge(altered, cp, s).Broken, append(slices.Clone(promises), Broken{"cp: write-success at least 0.99", "0.9167"}), "broken are")
	altered.Machine = nil
	expect.Slice(t, Judge(altered, cp, s).Broken, promises, "of a trial that is not valid:")
}

func TestLimitsAreThoseOfTheColumnOrElseOfItsMode(t *testing.T) {
	s := scenario.Scenario{Limits: map[string]scenario.Limits{"ap": {ReadSuccess: new(0.9)}, "ap-always": {ReadSuccess: new(2.0)}}}
	for name, want := range map[string][]Broken{
		"ap": nil, "mine=ap": nil, "cp": nil, "ap-always": {{"ap-always: read-success at least 2", "1"}},
	} {
		expect.Slice(t, Judge(sound(), column(name), s).Broken, want, "%s: broken are", name)
	}
}

func TestLostNodeIsExcusedEverywhere(t *testing.T) {
	for name, ending := range map[string][]trial.Ending{
		"not asked":            nil,
		"asked without answer": {{Node: 1, Failed: "connection refused"}},
	} {
		lost := sound()
		lost.Faults = append(lost.Faults, trial.Fault{Kind: scenario.Lose, Nodes: []int{1}, From: 5000 * ms, To: 5000 * ms})
		lost.Ending = append(slices.Delete(lost.Ending, 1, 2), ending...)
		lost.Lists = slices.DeleteFunc(lost.Lists, func(l trial.List) bool { return l.Node == 1 })
		for _, c := range []scenario.Column{cp, ap} {
			expect.Slice(t, brokenBy(lost, c, strict()), nil, "%s, %s: broken are", name, c.Name)
		}
		v := Judge(lost, cp, scenario.Scenario{Load: scenario.Load{Reads: 1}})
		expect.That(t, v.Told && v.Converged.Result == OK && v.Healing[0].Seconds == 0.5, "%s: told %t, %+v, %+v", name, v.Told, v.Converged, v.Healing)
	}
}
