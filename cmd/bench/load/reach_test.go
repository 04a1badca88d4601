package load

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

func TestASplitDividesNodesAndTheirClients(t *testing.T) {
	for _, tc := range []struct {
		name   string
		splits [][]int
		home   int
		want   []int // of 4
	}{
		{name: "no split", home: 2, want: []int{2, 3, 0, 1}},
		{name: "inside", splits: [][]int{{1, 2}}, home: 2, want: []int{2, 1}},
		{name: "outside", splits: [][]int{{1, 2}}, home: 0, want: []int{0, 3}},
		{name: "twice cut off", splits: [][]int{{1, 2}, {2}}, home: 2, want: []int{2}},
		{name: "left behind", splits: [][]int{{1, 2}, {2}}, home: 1, want: []int{1}},
		{name: "outside of both", splits: [][]int{{1, 2}, {2}}, home: 3, want: []int{3, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Reach
			for _, nodes := range tc.splits {
				r.Split(nodes)
			}
			if got := r.From(tc.home, 4); !slices.Equal(got, tc.want) {
				t.Errorf("clients of %d reach %v, want %v", tc.home, got, tc.want)
			}
			r.Join()
			if got := r.From(tc.home, 4); len(got) != 4 {
				t.Errorf("after the join clients of %d reach %v, want all four", tc.home, got)
			}
		})
	}
}

func TestASplitTakesTheAnswersOfCallsThatCrossIt(t *testing.T) {
	for _, tc := range []struct {
		name    string
		nodes   []int // that are cut off
		outcome trial.Outcome
	}{
		{name: "crossing", nodes: []int{0}, outcome: trial.Unknown},
		{name: "on the same side", nodes: []int{0, 1}, outcome: trial.Done},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked, goOn := make(chan struct{}), make(chan struct{})
			s := standIn(t, func(http.ResponseWriter, *http.Request) {
				close(asked)
				<-goOn
			})
			c := newCaller(t, time.Hour, refuses(t), addrOf(s), answers(t, 200))
			ended := make(chan answer, 1)
			go func() { ended <- c.call(t.Context(), readRequest, false) }()
			<-asked
			c.load.Reach.Split(tc.nodes)
			if tc.outcome == trial.Done {
				close(goOn)
			} else {
				defer close(goOn)
			}
			select {
			case a := <-ended:
				if a.outcome != tc.outcome || a.node != 1 {
					t.Errorf("%s, asked node %d last, want %s and 1", a.outcome, a.node, tc.outcome)
				}
			case <-time.After(30 * time.Second):
				t.Error("the call still waits for its answer after 30 s")
			}
		})
	}
}

func TestWhatASplitTookIsAskedAgainAfterTheJoin(t *testing.T) {
	c := newCaller(t, time.Minute, refuses(t), answers(t, 200))
	c.load.Reach.Split([]int{0})
	if a := c.call(t.Context(), readRequest, false); a.outcome != trial.Unreached || a.node != 0 {
		t.Errorf("cut off: %s, asked node %d last, want %s and 0", a.outcome, a.node, trial.Unreached)
	}
	c.load.Reach.Join()
	if a := c.call(t.Context(), readRequest, false); a.outcome != trial.Done || a.node != 1 {
		t.Errorf("joined: %s of node %d, want %s of 1", a.outcome, a.node, trial.Done)
	}
}
