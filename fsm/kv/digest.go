package kv

import (
	"hash/fnv"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// digestOf tells whether two operations ask for the same: a 64-bit FNV-1a hash of how they are written at level 1 of
// the formats, whatever the level of the state is, because it is part of the state. The id of a new session is left
// out: it is drawn anew when the caller tries again.
func digestOf(op Op) uint64 {
	if create, ok := op.(CreateSession); ok {
		create.ID = ""
		op = create
	}
	c := codec.Writer(nil, 1)
	Walk(&c, &op)
	h := fnv.New64a()
	h.Write(c.Written())
	return h.Sum64()
}
