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

// fenceParam reads the acquisition that must last, or a write has no effect; nil: it need not.
func fenceParam(query, key string) (*kv.Fence, error) {
	token, ok, err := numberParam(query, "fence")
	if err != nil {
		return nil, err
	}
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(token)}
	names := 0
	for _, by := range fencedBy {
		name, named, err := param(query, by.param)
		if err != nil {
			return nil, err
		}
		if named {
			fence.Kind, fence.Name = by.kind, name
			names++
		}
	}
	switch {
	case names > 1:
		return nil, badRequest("fence-key, fence-lock and fence-semaphore name what was acquired: give one of them")
	case names == 1 && !ok:
		return nil, badRequest("fence must be given with fence-key, fence-lock or fence-semaphore: the token of the acquisition")
	case !ok:
		return nil, nil
	}
	return fence, nil
}
