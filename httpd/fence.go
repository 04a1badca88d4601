package httpd

import (
	"net/http"
	"slices"
	"strconv"
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

// fenceHeader has the token of the acquisition that holds; 0: nobody holds.
const fenceHeader = "X-Rollcall-Fence"

func labelFence(header http.Header, token kv.Index) {
	header.Set(fenceHeader, strconv.FormatUint(uint64(token), 10))
}

// fencedBy are the parameters that name what was acquired, if it is not the key that is written.
var fencedBy = []struct {
	param string
	kind  kv.Kind
}{{"fence-key", kv.Key}, {"fence-lock", kv.Lock}, {"fence-semaphore", kv.Semaphore}}

// fenceFor reads the acquisition that must last, or a write of key has no effect; nil: it need not.
func (q *query) fenceFor(key string) *kv.Fence {
	token, given := q.number("fence")
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(token)}
	names := 0
	for _, by := range fencedBy {
		if name, named := q.lookup(by.param); named {
			fence.Kind, fence.Name = by.kind, name
			names++
		}
	}
	switch {
	case names > 1:
		q.refuse("fence-key, fence-lock and fence-semaphore name what was acquired: give one of them")
	case names == 1 && !given:
		q.refuse("fence must be given with fence-key, fence-lock or fence-semaphore: the token of the acquisition")
	case !given:
		return nil
	}
	return fence
}
