package verdict

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// ends are the ends of nodes that hold such versions of own-1.
func ends(versions ...int64) []trial.Ending {
	var found []trial.Ending
	for node, v := range versions {
		e := trial.Ending{Node: node, Keys: map[string]int64{}}
		if v != 0 {
			e.Keys["own-1"] = v
		}
		found = append(found, e)
	}
	return found
}

func TestConvergence(t *testing.T) {
	for _, c := range []struct {
		name   string
		calls  []trial.Call
		ending []trial.Ending
		result Result
		differ []string
		lost   []string
		text   string
	}{
		{"all hold the last write", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"all lack what was canceled", []trial.Call{write(1, 0, 1), remove(2, 2, 3)}, ends(0, 0, 0), OK, nil, nil, ""},
		{"one node differs", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(2, 1, 2), Violated, []string{"own-1"}, nil,
			"of own-1, node1 and node3 hold version 2, node2 holds version 1"},
		{"one node lacks it", []trial.Call{write(1, 0, 1)}, ends(1, 1, 0), Violated, []string{"own-1"}, nil,
			"of own-1, node1 and node2 hold version 1, node3 holds no registration"},
		{"an update is lost", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(1, 1, 1), Violated, nil, []string{"own-1"},
			"every node holds version 1 of own-1, though version 2 had been acknowledged at 0.003 s by node1"},
		{"a canceled one is back", []trial.Call{write(1, 0, 1), remove(2, 2, 3)}, ends(1, 1, 1), Violated, nil, []string{"own-1"},
			"every node holds version 1 of own-1, though its cancel (version 2) had been acknowledged at 0.003 s by node1"},
		{"the last write of unknown outcome may be there", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"or not", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown)}, ends(1, 1, 1), OK, nil, nil, ""},
		{"of several writers the greatest version stays", []trial.Call{write(2, 0, 1), write(1, 2, 3)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"a node that cannot be asked leaves it open", []trial.Call{write(1, 0, 1)}, append(ends(1, 1), trial.Ending{Node: 2, Failed: "no answer"}),
			Undecided, nil, nil, "2 of 3 nodes could be asked at the end"},
		{"a node that cannot be asked excuses no other", []trial.Call{write(1, 0, 1)}, append(ends(1, 0), trial.Ending{Node: 2, Failed: "no answer"}),
			Violated, []string{"own-1"}, nil, "of own-1, node1 holds version 1, node2 holds no registration"},
		{"without ends nothing is known", []trial.Call{write(1, 0, 1)}, nil, Undecided, nil, nil, "0 of 3 nodes could be asked at the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := convergence(&trial.Trial{Nodes: three, Ending: c.ending}, keysOf(c.calls))
			if got.Result != c.result || !slices.Equal(got.Differ, c.differ) || !slices.Equal(got.Lost, c.lost) || got.Text != c.text {
				t.Errorf("got %+v, want %s, differ %v, lost %v, %q", got, c.result, c.differ, c.lost, c.text)
			}
		})
	}
}
