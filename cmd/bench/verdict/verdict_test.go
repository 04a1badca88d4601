package verdict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// crowded is a trial in which everything happened more than once, so that an order of maps would show.
func crowded(mode scenario.Mode) *trial.Trial {
	t := &trial.Trial{
		Mode: mode, Length: 3000 * ms, Settled: 4000 * ms, Nodes: six,
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
			if got := Judge(crowded(mode), scenario.Scenario{}); !reflect.DeepEqual(got, want) {
				t.Fatalf("mode %s: first\n%+v\nthen\n%+v", mode, want, got)
			}
		}
	}
}

func TestVerdictsSurviveJSON(t *testing.T) {
	want := Judge(crowded(scenario.CP), scenario.Scenario{})
	text := need.Got(json.Marshal(want))(t)
	var got Verdict
	need.OK(t, json.Unmarshal(text, &got))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("written as JSON and read again a verdict is\n%+v, want\n%+v", got, want)
	}
}
