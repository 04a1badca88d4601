package httpd

import (
	"net/http"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

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
