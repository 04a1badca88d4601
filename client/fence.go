package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// CheckFence asks whether an acquisition lasts, by session or, if that is "", by whomever. The answer
// is true of a moment between question and answer; a Write that carries the fence is safer.
func (c *Client) CheckFence(ctx context.Context, f kv.Fence, session string) (FenceState, error) {
	q := url.Values{"index": {fenceText(f)}, "kind": {kindName(f.Kind)}}
	if session != "" {
		q.Set("session", session)
	}
	var state FenceState
	a, err := c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "rollcall", "fence", f.Name}, query: q})
	if err == nil {
		err = a.decode(&state)
	}
	if err != nil {
		return FenceState{}, fmt.Errorf("check the fence of %s %q: %w", kindName(f.Kind), f.Name, err)
	}
	return state, nil
}

// setFence adds to the query of a write of a key the acquisition that must last.
func setFence(q url.Values, key string, f kv.Fence) {
	q.Set("fence", fenceText(f))
	if f.Kind != kv.Key || f.Name != key {
		q.Set("fence-"+kindName(f.Kind), f.Name)
	}
}

func fenceText(f kv.Fence) string { return strconv.FormatUint(uint64(f.Index), 10) }
