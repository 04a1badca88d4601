package verdict

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The columns that verdicts are given in.
var cp, ap, stock = column("cp"), column("ap"), column("eureka")

// noLimits is a scenario that says nothing.
var noLimits scenario.Scenario

func column(text string) scenario.Column {
	c, err := scenario.FindColumn(text)
	if err != nil {
		panic(err)
	}
	return c
}

// crowded is a trial in which everything happened more than once, so that an order of maps would show.
func crowded() *trial.Trial {
	t := &trial.Trial{
		Length: 3000 * ms, Ended: 4000 * ms, Nodes: six,
		Faults: []trial.Fault{{Kind: scenario.Kill, Nodes: []int{4, 1}, From: 500 * ms, To: 900 * ms, Kills: []trial.Kill{{At: 500 * ms, Node: 4}, {At: 500 * ms, Node: 1}}}},
		Usage:  usage(),
	}
	for i := range 40 {
		node, at := i%6, trial.Micros(i)
		t.Series = append(t.Series, trial.Series{Operation: trial.Operations[i%7], Node: node, Bins: []trial.Bin{answers(i, int64(i)), refusals(i + 3)}})
		t.Lists = append(t.Lists, trial.List{Node: node, Asked: at * 97 * ms, Ghosts: i, Missing: i % 3, Back: []string{fmt.Sprint("back", i%7)}})
		t.Sightings = append(t.Sightings, trial.Sighting{From: i % 5, To: node, Way: trial.Ways[i%5], Delay: at * ms})
		t.Departures = append(t.Departures, trial.Departure{ID: fmt.Sprint(i % 9), Node: node, Gone: at * ms})
		t.Leaders = append(t.Leaders, trial.Leader{At: at * 10 * ms, Node: node, Leader: node - 1, Term: uint64(i)})
		t.Replicator = append(t.Replicator, trial.Replication{At: at * ms, Node: node, Accepted: float64(i) * 0.1, Sent: 1 / float64(i+1)})
		t.Clients = append(t.Clients, trial.Client{Operation: trial.Operations[i%5], Home: node, Calls: 10 + i, Answered: 5 + i%7, Gap: at * ms})
		t.Sealed = append(t.Sealed, trial.Sealed{ID: fmt.Sprint("s", i), Writes: []trial.SealWrite{sealWrite(2 * at)}})
		t.Forgotten = append(t.Forgotten, trial.Forgotten{ID: fmt.Sprint("f", i%6), Node: node, At: at * 30 * ms, Last: at * 20 * ms})
		w, l := write(int64(i+1), 20*at, 20*at+5), look(int64(i), 20*at+7, 20*at+9)
		w.Key, l.Key = fmt.Sprint("own-", i%4), fmt.Sprint("own-", i%4)
		w.Client, l.Client, l.Node = i%4, 10+i%3, node
		t.History = append(t.History, w, l)
	}
	for node := range 6 {
		t.Ending = append(t.Ending, trial.Ending{
			Node: node, Keys: map[string]int64{"own-0": int64(node), "own-1": 1, "own-2": int64(node % 2)},
			Missing: []string{fmt.Sprint("m", node), fmt.Sprint("m", node%2)}, Revived: []string{fmt.Sprint("r", node)},
			Sealed: make([]int, len(t.Sealed)),
		})
	}
	return t
}

func TestJudgeIsTheSameEachTime(t *testing.T) {
	for _, c := range scenario.Columns() {
		want := Judge(crowded(), c, scenario.Scenario{})
		for range 30 {
			need.Deep(t, Judge(crowded(), c, scenario.Scenario{}), want, "column %s: first\n%+v\nthen", c.Name, want)
		}
	}
}
