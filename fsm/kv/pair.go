package kv

import (
	"bytes"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Pair is a key with its value. Immutable.
type Pair struct {
	Key         string
	Value       []byte
	Flags       uint64
	Session     string // the holder; "": none
	LockIndex   uint64 // how often it was acquired by a new holder
	CreateIndex Index
	ModifyIndex Index
	// Fence is the Index of the last acquisition, which the holder's writes and acquiring again leave
	// as it is; 0: it was never acquired. It holds while there is a Session. A key that is written again
	// within a day after its deletion keeps it.
	Fence Index
	By    string // the name of the principal that wrote it last; "": none was asked for, or below level 3
}

// Fields walks a pair.
func (p *Pair) Fields(c *codec.Codec) {
	c.Lasting(&p.Key) // lives on when its value, which is most of the record, was replaced
	c.Bytes(&p.Value)
	c.Uint64(&p.Flags)
	c.Lasting(&p.Session)
	c.Uint64(&p.LockIndex)
	codec.Uint(c, &p.CreateIndex)
	codec.Uint(c, &p.ModifyIndex)
	codec.Uint(c, &p.Fence)
	if c.Since(3, false) { // below level 3 a pair is nobody's
		c.Lasting(&p.By)
	}
}

// pairWeight is what a pair takes beside its key and value, in bytes, about: in memory and in results.
const pairWeight = 128

// Weight is what a pair takes, in bytes, about.
func (p *Pair) Weight() int { return pairWeight + len(p.Key) + len(p.Value) + len(p.By) }

// withoutValue returns a copy as a transaction returns it where the caller knows the value.
func (p *Pair) withoutValue() *Pair {
	c := *p
	c.Value = nil
	return &c
}

// holder is the session that holds a key; "": none does, or the key is absent (p is nil).
func holder(p *Pair) string {
	if p == nil {
		return ""
	}
	return p.Session
}

// modified is a key's ModifyIndex; 0: the key is absent (p is nil).
func modified(p *Pair) Index {
	if p == nil {
		return 0
	}
	return p.ModifyIndex
}

// cloneBytes copies a value; an empty one is nil.
func cloneBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}
