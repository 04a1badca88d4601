package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func whole() Trial {
	return Trial{
		Scenario: "steady", Column: "cp", Round: 1, Length: 1e7, Agreed: -1, Ended: 11e6, Took: 2e7, Cores: 2,
		Nodes:      []Node{{Name: "node1"}, {Name: "node2"}},
		Faults:     []Fault{{Kind: scenario.Kill, Nodes: []int{1}, From: 10, To: 20, Ready: 30, Kills: []Kill{{At: 10, Node: 1}}}},
		Series:     []Series{{Operation: Heartbeat, Node: 1, Bins: []Bin{{Number: 3, Done: 2, NotFound: 1, Refused: 1, Latencies: []int64{5, 2, 900, 1}}}}},
		Clients:    []Client{{Operation: Heartbeat, Calls: 3, Answered: 3}},
		Sealed:     []Sealed{{ID: "s", Writes: []SealWrite{{Outcome: Done, Called: -5, Returned: 9}, {Cancel: true, Outcome: Unknown, Called: 9, Returned: math.MaxInt64}}}},
		Forgotten:  []Forgotten{{ID: "i", At: 9, Last: 4}},
		Machine:    []Health{{At: 1, Busy: 5e15, Own: 3, Due: 3, Late: 1}},
		History:    []Call{{Key: "k", Action: Look, Outcome: NotFound, Called: 5, Returned: 6}},
		Lists:      []List{{Node: 1, Asked: -5, Answered: 5}},
		Sightings:  []Sighting{{To: 1, Way: ByRead, Delay: -1}},
		Departures: []Departure{{ID: "i", Gone: -1}},
		Evictions:  []Eviction{{ID: "i"}},
		Leaders:    []Leader{{Leader: -1}},
		Usage:      []Usage{{Node: 1, Memory: 5}},
		Ending:     []Ending{{Node: 0, Sealed: []int{1}, Watched: 9}, {Node: 1, Failed: "gone"}},
	}
}

func TestTrialIsCheckedForWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		alter func(*Trial)
		want  string // empty if nothing is wrong
	}{
		{func(*Trial) {}, ""},
		{func(t *Trial) { *t = Trial{Round: 1, Length: 1, Failed: "node2 did not start"} }, ""},
		{func(t *Trial) { t.Round = 0 }, "round: 0; want 1 or more"},
		{func(t *Trial) { t.Length = 0 }, "length_us: 0; want more than 0"},
		{func(t *Trial) { t.Ended = math.MaxInt64 }, "settled_us: 9223372036854775807 µs; want at most a day"},
		{func(t *Trial) { t.Cores = -1 }, "cores: it counts -1"},
		{func(t *Trial) { t.Faults[0].To = 9 }, "faults[0]: it took -1 µs"},
		{func(t *Trial) { t.Faults[0].Nodes[0] = 2 }, "faults[0]: there is no node number 2"},
		{func(t *Trial) { t.Faults[0].Kills[0].Node = -1 }, "faults[0]: there is no node number -1"},
		{func(t *Trial) { t.Series[0].Operation = "dance" }, `series[0]: there is no operation "dance"`},
		{func(t *Trial) { t.Series[0].Bins[0].Number = -1 }, "series[0]: bin -1; want one from 0 on, within a day"},
		{func(t *Trial) { t.Series[0].Bins[0].Number = 1e9 }, "series[0]: bin 1000000000; want"},
		{func(t *Trial) { t.Series[0].Bins[0].Refused = -1 }, "series[0]: it counts -1"},
		{func(t *Trial) { t.Series[0].Bins[0].Latencies[0] = -5 }, "series[0]: it took -5 µs"},
		{func(t *Trial) { t.Series[0].Bins[0].Latencies[0] = math.MaxInt64 }, "series[0]: it took 9223372036854775807 µs"},
		{func(t *Trial) { t.Series[0].Bins[0].Latencies[1] = 7 }, "series[0]: bin 3 has 3 answers, and the latencies of 8"},
		{func(t *Trial) { t.Clients[0].Answered = 4 }, "clients[0]: it counts -1"},
		{func(t *Trial) { t.Clients[0].Home = 2 }, "clients[0]: there is no node number 2"},
		{func(t *Trial) { t.Sealed[0].Writes = nil }, "sealed[0]: it was written 0 times; want once or twice"},
		{func(t *Trial) { t.Sealed[0].Writes[0].Returned = math.MaxInt64 }, `sealed[0]: it was never answered, but its outcome is "done"`},
		{func(t *Trial) { t.Sealed[0].Writes[0].Returned = -9 }, "sealed[0]: it took -4 µs"},
		{func(t *Trial) { t.Forgotten[0].At = longest + 1 }, "forgotten[0]: 86400000001 µs; want at most a day"},
		{func(t *Trial) { t.Machine[0].Late = -1 }, "machine[0]: it counts -1"},
		{func(t *Trial) { t.History[0].Action = "hop" }, `history[0]: there is no action "hop"`},
		{func(t *Trial) { t.History[0].Outcome = "z" }, `history[0]: there is no outcome "z"`},
		{func(t *Trial) { t.History[0].Version = -1 }, "history[0]: it counts -1; want 0 or more"},
		{func(t *Trial) { t.History[0].Returned = 0 }, "history[0]: it took -5 µs"},
		{func(t *Trial) { t.Lists[0].Answered = -6 }, "lists[0]: it took -1 µs"},
		{func(t *Trial) { t.Lists[0].Ghosts = -1 }, "lists[0]: it counts -1"},
		{func(t *Trial) { t.Sightings[0].Delay = -2 }, "sightings[0]: it took -1 µs"},
		{func(t *Trial) { t.Sightings[0].Way = "dream" }, `sightings[0]: there is no way "dream"`},
		{func(t *Trial) { t.Departures[0].Node = 2 }, "departures[0]: there is no node number 2"},
		{func(t *Trial) { t.Evictions[0].Node = 2 }, "evictions[0]: there is no node number 2"},
		{func(t *Trial) { t.Leaders[0].Leader = 2 }, "leaders[0]: there is no node number 2"},
		{func(t *Trial) { t.Usage[0].Memory = -5 }, "usage[0]: it counts -5"},
		{func(t *Trial) { t.Ending[1].Node = 0 }, "ending[1]: it is the second one of node number 0"},
		{func(t *Trial) { t.Ending[0].Watched = -1 }, "ending[0]: it counts -1"},
	} {
		one := whole()
		c.alter(&one)
		err := one.Check()
		if c.want == "" {
			expect.OK(t, err)
			continue
		}
		expect.ErrorSays(t, err, "the trial of steady in the column cp, round ", "names:")
		expect.ErrorSays(t, err, c.want, "says:")
	}
}

func TestCallThatTookLessThanNothingIsFoundInAFile(t *testing.T) {
	one := whole()
	need.OK(t, json.Unmarshal([]byte(`[["k",1,0,"l",3,"d",4,-5]]`), &one.History))
	expect.ErrorSays(t, one.Check(), "history[0]: it took -5 µs", "says:")
}

func TestComparisonIsCheckedForTrialsThatItDoesNotDescribe(t *testing.T) {
	lease := func(l time.Duration) scenario.Scenario {
		return scenario.Scenario{Name: "steady", Load: scenario.Load{Instances: 5, Lease: scenario.Span(l)}}
	}
	again, strange, other, wrong := whole(), whole(), whole(), whole()
	strange.Column, other.Scenario, wrong.Round, wrong.Cores = "cpp", "stedy", 2, -1
	c := Comparison{Plan: Plan{Columns: scenario.Columns()}, Scenarios: []scenario.Scenario{lease(time.Second)}, Trials: []Trial{whole()}}
	expect.OK(t, c.Check())
	c.Trials, c.Scenarios = append(c.Trials, again, strange, other, wrong), []scenario.Scenario{lease(0)}
	err := c.Check()
	for _, want := range []string{
		"scenario steady: load.lease: 5 instances with a lease of 0s",
		"the trial of steady in the column cp, round 1: round: there are two trials of it",
		"the trial of steady in the column cpp, round 1: column: the comparison does not describe it",
		"the trial of stedy in the column cp, round 1: scenario: the comparison does not describe it",
		"the trial of steady in the column cp, round 2: cores: it counts -1; want 0 or more",
	} {
		expect.ErrorSays(t, err, want, "says:")
	}
}

func TestEncodingOfFrequentRecordsIsAnArray(t *testing.T) {
	cases := []struct {
		name  string
		value any
		want  string
	}{
		{"a call", Rows[Call]{{"own-3", 12, 1, Look, 7, NotFound, 14_123_456, 14_124_268}}, `[["own-3",12,1,"l",7,"f",14123456,812]]`},
		{"an unanswered call", Rows[Call]{{"shared-1", 2, 0, Write, 9, Unknown, 100, math.MaxInt64}}, `[["shared-1",2,0,"w",9,"u",100,-1]]`},
		{"a list", Rows[List]{{Node: 2, Asked: 100, Answered: 350, Listed: 300, Ghosts: 1, Missing: 2, Behind: 3, Unhealed: 4}}, `[[2,100,250,false,300,1,2,3,4]]`},
		{"a list with what is back", Rows[List]{{Asked: 100, Answered: 350, Back: []string{"a", "b"}}}, `[[0,100,250,false,0,0,0,0,0,["a","b"]]]`},
		{"a failed list", Rows[List]{{Node: 1, Asked: -5, Answered: 5, Failed: true}}, `[[1,-5,10,true,0,0,0,0,0]]`},
		{"a sighting", Rows[Sighting]{{0, 2, ByStale, 1000, -1}}, `[[0,2,"stale read",1000,-1]]`},
		{"a list that did not come, whose reader misses all", Rows[List]{{Node: 1, Asked: 5, Answered: 9, Failed: true, Missing: 7}}, `[[1,5,4,true,0,0,7,0,0]]`},
		{"a client", Rows[Client]{{Fetch, 2, 30, 29, 1_500_000, true}}, `[["fetch",2,30,29,1500000,true]]`},
		{"a write of a sealed instance", Rows[SealWrite]{{Node: 1, Outcome: Done, Called: 100, Returned: 350}}, `[[false,1,"d",false,100,250]]`},
		{"its cancel", Rows[SealWrite]{{Cancel: true, Node: 2, Outcome: Refused, Doubtful: true, Called: -5, Returned: 5}}, `[[true,2,"r",true,-5,10]]`},
		{"one that was never answered", Rows[SealWrite]{{Outcome: Unknown, Called: 100, Returned: math.MaxInt64}}, `[[false,0,"u",false,100,-1]]`},
		{"a sealed instance", Sealed{ID: "s", Writes: []SealWrite{{Outcome: NotFound, Called: 1, Returned: 2}}}, `{"id":"s","writes":[[false,0,"f",false,1,1]]}`},
		{"a departure", Rows[Departure]{{"i-1", true, 1000, 2, 3000}}, `[["i-1",true,1000,2,3000]]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, err := json.Marshal(c.value)
			need.That(t, err == nil && string(text) == c.want, "encoded: %s, %v; want %s", text, err, c.want)
			back := reflect.New(reflect.TypeOf(c.value))
			need.OK(t, json.Unmarshal(text, back.Interface()))
			expect.Deep(t, back.Elem().Interface(), c.value, "decoded:")
		})
	}
}

func TestTrialKeepsItsRecordsAsArrays(t *testing.T) {
	want := whole()
	text := need.Got(json.Marshal(want))(t)
	for _, records := range []string{"clients", "history", "lists", "sightings", "departures", "writes"} {
		expect.That(t, bytes.Contains(text, fmt.Appendf(nil, "%q:[[", records)), "%s are no arrays in %s", records, text)
	}
	var got Trial
	need.OK(t, json.Unmarshal(text, &got))
	expect.Deep(t, got, want, "decoded:")
}

func TestEncodingKeepsEveryActionAndOutcome(t *testing.T) {
	var want, got Rows[Call]
	for _, action := range []Action{Write, Remove, Look} {
		for _, outcome := range Outcomes {
			want = append(want, Call{Key: "k", Action: action, Outcome: outcome})
		}
	}
	need.OK(t, json.Unmarshal(need.Got(json.Marshal(want))(t), &got))
	expect.Deep(t, got, want, "decoded:")
}

func TestDecodingRefusesAnArrayOfAnotherLength(t *testing.T) {
	for _, c := range []struct {
		text string
		into any
		want string
	}{
		{`[["k",1,2]]`, new(Rows[Call]), "not 8"},
		{`[["k",1,2,"l",3,"d",4,5,6]]`, new(Rows[Call]), "not 8"},
		{`[["fetch",1,2,3]]`, new(Rows[Client]), "not 6"},
		{`[[false,1,"d",false,100]]`, new(Rows[SealWrite]), "not 6"},
	} {
		expect.ErrorSays(t, json.Unmarshal([]byte(c.text), c.into), c.want, "%s read as %T:", c.text, c.into)
	}
}

func TestColumnIsFoundByItsNameAndPromisesNothingIfItIsUnknown(t *testing.T) {
	described := need.Got(scenario.FindColumn("mine=ap"))(t)
	c := &Comparison{Plan: Plan{Columns: append(scenario.Columns(), described)}}
	expect.Equal(t, c.Column("mine").Mode, scenario.AP, "mode of mine:")
	expect.Equal(t, c.Column("eureka").System, scenario.Eureka, "system of eureka:")
	unknown := c.Column("gone")
	expect.That(t, unknown.Name == "gone" && unknown.Title == "gone" && !unknown.Promises(), "an unknown column is %+v, want one that promises nothing", unknown)
}
