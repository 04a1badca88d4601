package store

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Partly is the error of a call of which so many operations took effect already: "no" would be wrong.
func Partly(done int, err error) error {
	if done == 0 {
		return err
	}
	return fmt.Errorf("%d operations took effect, of those after them: %w (%v)", done, registry.ErrUnknownOutcome, err)
}

// MaxOpBytes is how large one operation may be.
const MaxOpBytes = 1 << 20

// SizeOf is the encoded size of an item, or a little more.
func SizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok { // the most frequent one costs nothing
		return 44 + len(r.Key.App) + len(r.Key.ID) + len(item.Origin.DC)
	}
	return fsm.Size(item)
}
