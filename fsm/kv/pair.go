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
	Session     string // the holder, or ""
	LockIndex   uint64 // how often it was acquired by a new holder
	CreateIndex Index
	ModifyIndex Index
	// Fence is the Index of the last acquisition, which the holder keeps when it writes or acquires again; 0 if the
	// key was never acquired. It holds while the pair has a Session. A key that is written again within a day after
	// its deletion keeps it.
	Fence Index
	By    string // the principal that wrote it last; "" if nobody asked for one, or below level 3
}

func (p *Pair) Fields(c *codec.Codec) {
	c.Lasting(&p.Key) // outlives its value, which is most of the record
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

// pairWeight is roughly how many bytes a pair takes besides its key and value, in memory and in results.
const pairWeight = 128

// Weight returns roughly how many bytes a pair takes.
func (p *Pair) Weight() int { return pairWeight + len(p.Key) + len(p.Value) + len(p.By) }

// withoutValue returns a copy in the form for a transaction whose caller knows the value.
func (p *Pair) withoutValue() *Pair {
	c := *p
	c.Value = nil
	return &c
}

// holder returns the session that holds a key, or "" if no session does or the key is absent (p is nil).
func holder(p *Pair) string {
	if p == nil {
		return ""
	}
	return p.Session
}

// modified returns a key's ModifyIndex, or 0 if the key is absent (p is nil).
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
