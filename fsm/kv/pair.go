package kv

import (
	"bytes"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Entry is a key with its value. Immutable.
type Entry struct {
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
}

// Fields walks a pair.
func (e *Entry) Fields(c *codec.Codec) {
	c.Lasting(&e.Key) // lives on when its value, which is most of the record, was replaced
	c.Bytes(&e.Value)
	c.Uint64(&e.Flags)
	c.Lasting(&e.Session)
	c.Uint64(&e.LockIndex)
	codec.Uint(c, &e.CreateIndex)
	codec.Uint(c, &e.ModifyIndex)
	codec.Uint(c, &e.Fence)
}

// entryWeight is what a pair takes beside its key and value, in bytes, about: in memory and in results.
const entryWeight = 128

// Weight is what a pair takes, in bytes, about.
func (e *Entry) Weight() int { return entryWeight + len(e.Key) + len(e.Value) }

// withoutValue returns a copy as a transaction returns it where the caller knows the value.
func (e *Entry) withoutValue() *Entry {
	c := *e
	c.Value = nil
	return &c
}

// holder is the session that holds a key; "": none does, or the key is absent (e is nil).
func holder(e *Entry) string {
	if e == nil {
		return ""
	}
	return e.Session
}

// modified is a key's ModifyIndex; 0: the key is absent (e is nil).
func modified(e *Entry) Index {
	if e == nil {
		return 0
	}
	return e.ModifyIndex
}

// cloneBytes copies a value; an empty one is nil.
func cloneBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}
