package kv

import (
	"hash/fnv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Once performs an operation unless one with the same key was performed within OnceFor. A repetition gets the result
// of the first one (except for Result.Index, which is 0: nothing changes again), and another operation under the same
// key is refused. The id of a CreateSession may differ.
type Once struct {
	Key string // from Idempotency-Key, at most MaxOnceKey bytes
	Op  Op     // not a Once
}

func (Once) kind() byte { return 11 }

func (op Once) fields(c *codec.Codec) Once {
	c.String(&op.Key)
	simple.Fields(c, &op.Op)
	return op
}

func (op Once) needs(v *registry.View) []access.Need { return op.Op.needs(v) }

// apply performs the operation, or returns the result of the one already performed under the same key. That takes no
// Index again.
func (op Once) apply(s *State, at At) Result {
	hash, key := hashOf(op.Op), op.Key
	if at.By != "" {
		key = at.By + "\x00" + key // which no other principal can have
	}
	if kept, ok := s.kept.byKey[key]; ok {
		if kept.Hash != hash {
			return Result{Refusal: "idempotency key \"" + op.Key + "\" was used for another operation"}
		}
		res := kept.Result
		res.Index = 0
		return res
	}
	res := s.perform(at, op.Op)
	if res.Excess == TooBusy || res.Excess == Crowded { // it was not performed, and may still be
		return res
	}
	s.kept.add(&KeptResult{Key: strings.Clone(key), At: s.lease, Hash: hash, Result: res.Kept(MaxKeptRead)})
	return res
}

// hashOf returns equal hashes for two operations that ask for the same: a 64-bit FNV-1a hash of their encoding at the
// lowest level of the formats that has all of them, whatever the level of the state and the newest that the program
// reads, because the hash is part of the state. The id of a new session is left out: it is drawn anew when the caller
// tries again.
func hashOf(op Op) uint64 {
	if create, ok := op.(CreateSession); ok {
		create.ID = ""
		op = create
	}
	needs := codec.Needer()
	Operations.Fields(&needs, &op)
	c := codec.Writer(nil, needs.Need())
	Operations.Fields(&c, &op)
	h := fnv.New64a()
	h.Write(c.Written())
	return h.Sum64()
}
