package verdict

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// crowded is a trial in which everything happened more than once, so that an order of maps would show.
func crowded(mode scenario.Mode) *trial.Trial {
	t := &trial.Trial{
		Mode: mode, Length: 3000 * ms, Ended: 4000 * ms, Nodes: six,
		Faults: []trial.Fault{{Kind: scenario.Kill, Nodes: []int{4, 1}, From: 500 * ms, To: 900 * ms}},
		Usage:  usage(),
	}
	for i := range 40 {
		node, at := i%6, trial.Micros(i)
		t.Series = append(t.Series, trial.Series{Operation: trial.Operations[i%6], Node: node, Bins: []trial.Bin{answers(i, int64(i)), refusals(i + 3)}})
		t.Lists = append(t.Lists, trial.List{Node: node, Asked: at * 97 * ms, Ghosts: i, Missing: i % 3, Back: []string{fmt.Sprint("back", i%7)}})
		t.Sightings = append(t.Sightings, trial.Sighting{From: i % 5, To: node, Way: trial.Ways[i%5], Delay: at * ms})
		t.Departures = append(t.Departures, trial.Departure{ID: fmt.Sprint(i % 9), Node: node, Gone: at * ms})
		t.Leaders = append(t.Leaders, trial.Leader{At: at * 10 * ms, Node: node, Leader: node - 1, Term: uint64(i)})
		t.Replicator = append(t.Replicator, trial.Replication{At: at * ms, Node: node, Accepted: float64(i) * 0.1, Sent: 1 / float64(i+1)})
		w, l := write(int64(i+1), 20*at, 20*at+5), look(int64(i), 20*at+7, 20*at+9)
		w.Key, l.Key = fmt.Sprint("own-", i%4), fmt.Sprint("own-", i%4)
		w.Client, l.Client, l.Node = i%4, 10+i%3, node
		t.History = append(t.History, w, l)
	}
	for node := range 6 {
		t.Ending = append(t.Ending, trial.Ending{
			Node: node, Keys: map[string]int64{"own-0": int64(node), "own-1": 1, "own-2": int64(node % 2)},
			Missing: []string{fmt.Sprint("m", node), fmt.Sprint("m", node%2)}, Revived: []string{fmt.Sprint("r", node)},
		})
	}
	return t
}

func TestJudgeIsTheSameEachTime(t *testing.T) {
	for _, mode := range []scenario.Mode{scenario.CP, scenario.AP} {
		want := Judge(crowded(mode), scenario.Scenario{})
		for range 30 {
			need.Deep(t, Judge(crowded(mode), scenario.Scenario{}), want, "mode %s: first\n%+v\nthen", mode, want)
		}
	}
}

func TestVerdictsSurviveJSON(t *testing.T) {
	want := Judge(crowded(scenario.CP), scenario.Scenario{})
	text := need.Got(json.Marshal(want))(t)
	var got Verdict
	need.OK(t, json.Unmarshal(text, &got))
	expect.Deep(t, got, want, "written as JSON and read again a verdict is")
}

func TestBrokenNamesTheLimitsThatWereNotKept(t *testing.T) {
	span := func(d time.Duration) *scenario.Span { s := scenario.Span(d); return &s }
	share := func(f float64) *float64 { return &f }
	none := 0
	stale := []trial.Call{write(1, 0, 1), look(0, 4, 5)}
	gap := []trial.Series{{Operation: trial.Heartbeat, Bins: []trial.Bin{answers(0, 1), refusals(1), refusals(2), refusals(3), answers(4, 1)}}}
	reads := []trial.Series{{Operation: trial.Read, Bins: gap[0].Bins}}
	cut := []trial.Fault{{Kind: scenario.Isolate, From: 100 * ms, To: 200 * ms}}
	for _, c := range []struct {
		name   string
		mode   scenario.Mode
		trial  trial.Trial
		limits scenario.Limits
		want   []Broken
	}{
		{"a failed trial", scenario.CP, trial.Trial{Failed: "node2 did not start", Series: gap}, scenario.Limits{WriteGap: span(0)},
			[]Broken{{"cp: the trial is completed", "node2 did not start"}}},
		{"cp promises linearizable histories", scenario.CP, trial.Trial{History: stale}, scenario.Limits{}, []Broken{{"cp: histories are linearizable",
			"a read found no registration of own-1 at node2, asked at 0.004 s and answered at 0.005 s, though version 1 had been acknowledged at 0.001 s by node1"}}},
		{"ap does not", scenario.AP, trial.Trial{History: stale}, scenario.Limits{}, nil},
		{"ap promises convergence", scenario.AP, trial.Trial{History: stale, Ending: ends(1, 0, 1)}, scenario.Limits{},
			[]Broken{{"ap: nodes converge, and no update is lost against the rule", "of own-1, node1 and node3 hold version 1, node2 holds no registration"}}},
		{"cp promises that by its histories", scenario.CP, trial.Trial{Ending: ends(1, 0, 1)}, scenario.Limits{}, nil},
		{"nothing is lost", scenario.CP, trial.Trial{Ending: []trial.Ending{{Missing: []string{"a", "b", "c", "d"}}}}, scenario.Limits{},
			[]Broken{{"cp: nothing is lost", "4 instances (a, b, c, …) not listed by some node at the end, though acknowledged and alive"}}},
		{"nothing is revived", scenario.CP, trial.Trial{Lists: []trial.List{{Back: []string{"a"}}}}, scenario.Limits{},
			[]Broken{{"cp: nothing is revived", "1 instance (a) listed after the acknowledged cancel"}}},
		{"what may be lost", scenario.AP, trial.Trial{History: []trial.Call{write(1, 0, 1)}, Ending: ends(0, 0, 0), Lists: []trial.List{{Back: []string{"a"}}}}, scenario.Limits{MayLose: true}, nil},
		{"nodes that differ have not just lost", scenario.AP, trial.Trial{History: []trial.Call{write(1, 0, 1)}, Ending: ends(1, 0, 1)}, scenario.Limits{MayLose: true},
			[]Broken{{"ap: nodes converge, and no update is lost against the rule", "of own-1, node1 and node3 hold version 1, node2 holds no registration"}}},
		{"what may not be lost", scenario.AP, trial.Trial{History: []trial.Call{write(1, 0, 1)}, Ending: ends(0, 0, 0)}, scenario.Limits{},
			[]Broken{{"ap: nodes converge, and no update is lost against the rule", "every node holds no registration of own-1, though version 1 had been acknowledged at 0.001 s by node1"}}},
		{"gaps", scenario.AP, trial.Trial{Series: gap}, scenario.Limits{WriteGap: span(200 * time.Millisecond), ReadGap: span(0)},
			[]Broken{{"ap: write-gap at most 200ms", "0.3 s"}}},
		{"gaps of just as long are allowed", scenario.AP, trial.Trial{Series: append(gap, reads...)},
			scenario.Limits{WriteGap: span(300 * time.Millisecond), ReadGap: span(300 * time.Millisecond)}, nil},
		{"shares", scenario.CP, trial.Trial{Series: append(gap, reads...)}, scenario.Limits{WriteSuccess: share(0.4), ReadSuccess: share(0.99)},
			[]Broken{{"cp: read-success at least 0.99", "0.4"}}},
		{"convergence that takes too long", scenario.CP, trial.Trial{Faults: cut, Lists: []trial.List{{Asked: 300 * ms, Unhealed: 1}, {Asked: 1700 * ms}}},
			scenario.Limits{Converged: span(time.Second)}, []Broken{{"cp: converged at most 1s", "1.5 s"}}},
		{"convergence that does not come", scenario.CP, trial.Trial{Faults: cut, Lists: []trial.List{{Asked: 300 * ms, Unhealed: 1}}},
			scenario.Limits{Converged: span(time.Second)}, []Broken{{"cp: converged at most 1s", "not within the trial"}}},
		{"false evictions", scenario.AP, trial.Trial{Evictions: []trial.Eviction{{ID: "a", Alive: true}}}, scenario.Limits{FalseEvictions: &none},
			[]Broken{{"ap: false-evictions at most 0", "1"}}},
		{"removal that takes too long", scenario.AP, trial.Trial{Departures: []trial.Departure{{ID: "a", Gone: 3000 * ms}}}, scenario.Limits{Removal: span(2 * time.Second)},
			[]Broken{{"ap: removal at most 2s", "3 s"}}},
		{"removal that does not come", scenario.AP, trial.Trial{Departures: []trial.Departure{{ID: "a", Gone: -1}, {ID: "b", Gone: 1}}}, scenario.Limits{Removal: span(2 * time.Second)},
			[]Broken{{"ap: removal at most 2s", "1 of 2 were listed until the end"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.trial.Mode, c.trial.Nodes = c.mode, three
			other := scenario.CP
			if c.mode == other {
				other = scenario.AP
			}
			s := scenario.Scenario{Limits: map[scenario.Mode]scenario.Limits{c.mode: c.limits, other: {WriteSuccess: share(2)}}}
			expect.Slice(t, Judge(&c.trial, s).Broken, c.want, "broken limits are")
		})
	}
}
