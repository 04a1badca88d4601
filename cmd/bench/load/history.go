package load

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// History keeps every call on the watched keys. The zero value is empty. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	calls []pastCall
}

// pastCall is a call that has ended, or whose client has stopped waiting.
type pastCall struct {
	key              string
	version          int64
	client, node     int32
	action           trial.Action
	outcome          trial.Outcome
	called, returned time.Time
}

// add keeps a call. Without a history it does nothing.
func (h *History) add(c pastCall) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// Calls returns the calls in the order of their times, relative to began. Calls without a response return at the end
// of time (math.MaxInt64) if their outcome is trial.Unknown.
func (h *History) Calls(began time.Time) []trial.Call {
	h.mu.Lock()
	past := slices.Clone(h.calls)
	h.mu.Unlock()
	calls := make([]trial.Call, len(past))
	for i, c := range past {
		calls[i] = c.since(began)
	}
	slices.SortStableFunc(calls, func(a, b trial.Call) int { return cmp.Compare(a.Called, b.Called) })
	return calls
}

func (c pastCall) since(began time.Time) trial.Call {
	returned := trial.Since(began, c.returned)
	if c.outcome == trial.Unknown {
		returned = math.MaxInt64
	}
	return trial.Call{
		Key: c.key, Client: int(c.client), Node: int(c.node), Action: c.action, Version: c.version, Outcome: c.outcome,
		Called: trial.Since(began, c.called), Returned: returned,
	}
}
