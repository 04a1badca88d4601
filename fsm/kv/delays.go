package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Delay is the lock-delay of a key.
type Delay struct {
	Key   string
	Until int64 // lease clock, ms
}

func (d *Delay) Fields(c *codec.Codec) {
	c.Lasting(&d.Key)
	c.Int64(&d.Until)
}

// delayWeight is roughly how many bytes a lock-delay takes besides its key.
const delayWeight = 128

// delays are the lock-delays of keys, at most one per key, whether or not the key exists.
type delays struct {
	until order.Map[string, int64] // by key: lease clock, ms
	ends  order.Schedule[string]   // the same keys by time; nil in views
	bytes int                      // of all, see delayWeight
}

// share returns a copy for views.
func (d *delays) share() delays { return delays{until: d.until.Copy(), bytes: d.bytes} }

// copy returns a copy that can be written.
func (d *delays) copy() delays {
	c := d.share()
	c.ends = d.ends.Copy()
	return c
}

// set keeps a key from being acquired until a time (lease clock, ms), whatever kept it before.
func (d *delays) set(key string, until int64) {
	d.remove(key)
	d.until.Set(key, until)
	d.bytes += delayWeight + len(key)
	d.ends.Set(until, key)
}

// remove drops the lock-delay of a key, if it has one.
func (d *delays) remove(key string) {
	if until, ok := d.until.Delete(key); ok {
		d.bytes -= delayWeight + len(key)
		d.ends.Delete(until, key)
	}
}

// end returns when (lease clock, ms) the lock-delay that blocks a key at a moment ends, or 0 if nothing blocks it.
func (d *delays) end(key string, lease int64) int64 {
	if until, ok := d.until.Get(key); ok && lease < until {
		return until
	}
	return 0
}
