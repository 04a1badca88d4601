package load

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

func TestAHistoryIsInTheOrderOfTheCallsAndEndsNeverWhereNobodyKnows(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	h := new(History)
	h.add(pastCall{key: "own-1", version: 3, client: 4, node: 1, action: trial.Look, outcome: trial.Done, called: at(20), returned: at(21)})
	h.add(pastCall{key: "own-0", version: 2, client: 5, node: 2, action: trial.Remove, outcome: trial.Unknown, called: at(10), returned: at(2010)})
	h.add(pastCall{key: "own-0", version: 1, client: 5, node: 2, action: trial.Write, outcome: trial.Refused, called: at(-5), returned: at(1)})
	want := []trial.Call{
		{Key: "own-0", Version: 1, Client: 5, Node: 2, Action: trial.Write, Outcome: trial.Refused, Called: -5000, Returned: 1000},
		{Key: "own-0", Version: 2, Client: 5, Node: 2, Action: trial.Remove, Outcome: trial.Unknown, Called: 10_000, Returned: math.MaxInt64},
		{Key: "own-1", Version: 3, Client: 4, Node: 1, Action: trial.Look, Outcome: trial.Done, Called: 20_000, Returned: 21_000},
	}
	if got := h.Calls(began); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
