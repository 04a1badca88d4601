package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A node answered an old version after a newer one had been acknowledged, while a cancel was under way.
func TestWhatNoCopyExplainsIsShownCallByCall(t *testing.T) {
	call := func(client int, action trial.Action, version int64, outcome trial.Outcome, called, returned trial.Micros) trial.Call {
		return trial.Call{Key: "own-1", Client: client, Node: client % 2, Action: action, Version: version, Outcome: outcome, Called: called, Returned: returned}
	}
	stale := trial.Trial{
		Scenario: "cut", Mode: scenario.CP, Round: 1, Nodes: []trial.Node{{Name: "node1"}, {Name: "node|2"}},
		History: []trial.Call{
			call(0, trial.Write, 1, trial.Done, 1000, 2000), call(0, trial.Write, 2, trial.Done, 3000, 4000),
			call(3, trial.Look, 1, trial.Done, 5000, 6000), call(2, trial.Look, 2, trial.Done, 7000, 8000),
			call(0, trial.Remove, 3, trial.Unknown, 4500, math.MaxInt64),
		},
	}
	r := New(&trial.Comparison{Scenarios: []scenario.Scenario{{Name: "cut", Title: "Cut", Rounds: 1}}, Plan: trial.Plan{Modes: []scenario.Mode{scenario.CP}}, Trials: []trial.Trial{stale}})
	var md, page bytes.Buffer
	need.OK(t, r.writeMarkdown(&md))
	need.OK(t, r.writeHTML(&page))
	for _, want := range []string{
		"CP, round 1: the shortest prefix of the history of own-1 that no single copy explains (4 calls; the last 4 are shown",
		"| 0.003 s | 0.004 s | 0 | node1 | register version 2: done |\n",
		"| 0.005 s | 0.006 s | 3 | node\\|2 | **read: version 1** |\n",
		"|  | 0 | node1 | cancel, version 3: unknown |\n",
	} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("the summary has not %q:\n%s", want, md.String())
		}
	}
	if want := "<b>read: version 1 ← cannot be explained</b>"; !strings.Contains(page.String(), want) {
		t.Errorf("the page has not %q", want)
	}
	if later := "read: version 2"; strings.Contains(md.String(), later) {
		t.Errorf("the summary has %q, which came later", later)
	}
}
