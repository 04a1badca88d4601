package httpd

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// fence is GET /v1/rollcall/fence/{key}: whether the acquisition with the token index lasts, by session or,
// if none is given, by whomever. It is linearizable: what it says was so after it was asked.
func (c *call) fence() (any, error) {
	name := c.rest()
	if name == "" {
		return nil, badRequest("name what was acquired: /v1/rollcall/fence/NAME")
	}
	token, given := c.number("index")
	if !given {
		c.refuse("index must be given: the token of the acquisition, as in " + fenceHeader)
	}
	kind, session := c.kind(), c.text("session")
	if c.err != nil {
		return nil, c.err
	}
	v, _, err := look(c.r.Context(), c.Handler, c.config.Coordination.View, registry.Linearizable)
	if err != nil {
		return nil, err
	}
	holds, now := v.Holds(kv.Fence{Kind: kind, Name: name, Index: kv.Index(token)}, strings.ToLower(session))
	labelFence(c.w.Header(), now)
	return api.FenceState{Kind: kindWords[kind], Name: name, Holds: holds, Fence: uint64(now)}, nil
}

// kind reads kind; a key if it is not given.
func (q *query) kind() kv.Kind {
	word, given := q.lookup("kind")
	if !given {
		return kv.Key
	}
	at := slices.Index(kindWords[:], word)
	if at < 0 {
		q.refuse("kind must be one of key, lock, semaphore")
	}
	return kv.Kind(max(at, 0))
}
