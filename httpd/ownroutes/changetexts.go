package ownroutes

import (
	"sync"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// changeTexts are newest changes as watchers get them: each is encoded once for all of them, which ask at about the same time.
// One that another has taken the place of is encoded for its reader.
type changeTexts [1024]atomic.Pointer[changeText]

// changeText is a change in a history, and its text as soon as that is asked for.
type changeText struct {
	epoch  string
	change registry.Change
	encode func() []byte
}

// of returns the text of a change, which its reader must not write.
func (t *changeTexts) of(epoch string, c registry.Change) []byte {
	place := &t[uint64(c.Index)%uint64(len(t))]
	found := place.Load()
	if found == nil || found.epoch != epoch || found.change != c {
		made := &changeText{epoch, c, sync.OnceValue(func() []byte { return appendChange(nil, epoch, c) })}
		if !place.CompareAndSwap(found, made) { // another reader was faster, of the same change most likely
			if other := place.Load(); other.epoch == epoch && other.change == c {
				made = other
			}
		}
		found = made
	}
	return found.encode()
}
