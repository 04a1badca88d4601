package kv

import "github.com/seed-20419f34/rollcall/fsm/codec"

// Permits is a lock or semaphore, as readers see it, that a session holds or waits for, or that a lock-delay blocks.
// Immutable.
type Permits struct {
	Kind        Kind // Lock or Semaphore
	Name        string
	Limit       uint32   // 1 for a lock
	Holders     []Holder // in the order of acquisition
	Queue       []Waiter // in the order of future grants
	Delays      []int64  // ends of lock-delays (lease clock, ms), ascending; each keeps one permit back
	ModifyIndex Index
}

func (p *Permits) Fields(c *codec.Codec) {
	p.Kind.fields(c)
	c.Lasting(&p.Name)
	c.Uint32(&p.Limit)
	codec.List(c, &p.Holders, 5, (*Holder).fields)
	codec.List(c, &p.Queue, 4, (*Waiter).fields)
	codec.List(c, &p.Delays, 1, func(until *int64, c *codec.Codec) { c.Int64(until) })
	codec.Uint(c, &p.ModifyIndex)
}

// Holder holds a permit.
type Holder struct {
	Session string
	Fence   Index // token: the Index of the acquisition
	Since   int64 // lease clock, ms
	Wall    int64 // the same moment, ms since the epoch
	Value   []byte
}

func (h *Holder) fields(c *codec.Codec) {
	c.Lasting(&h.Session)
	codec.Uint(c, &h.Fence)
	c.Int64(&h.Since)
	c.Int64(&h.Wall)
	c.Bytes(&h.Value)
}

// Waiter waits for a permit.
type Waiter struct {
	Session string
	Since   int64 // lease clock, ms
	Until   int64 // lease clock, ms: the end of its wait
	Value   []byte
}

func (w *Waiter) fields(c *codec.Codec) {
	c.Lasting(&w.Session)
	c.Int64(&w.Since)
	c.Int64(&w.Until)
	c.Bytes(&w.Value)
}
