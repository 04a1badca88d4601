package fsm

import (
	"cmp"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The kinds of log entries. Never renumber one.
const (
	entryWrite     = 1
	entryEstablish = 2
	entryRaise     = 3
)

// AppendWrite appends the encoding, at a level, of a log entry that applies batches (encoded by AppendBatch) in
// order. Tenure is the time since the leadership was established, in ms: unlike the lease clock, it goes on while its
// leader is paused or alone. Without batches the entry is a tick: it only moves the clocks.
func AppendWrite(dst []byte, level byte, stamp registry.Stamp, tenure int64, batches ...[]byte) []byte {
	return (&entry{stamp: stamp, tenure: tenure, encoded: batches}).append(dst, level)
}

// Establish is the first entry of a leadership.
type Establish struct {
	Node    string // server id of the leader
	Cluster string // cluster id; the first one stays
	// Level is the level of a new cluster, decided by its first Establish; later ones do not change it.
	Level byte
	// Settings decide how leases end from now on; nil changes nothing. A Threshold above the whole counts as the
	// whole.
	Settings *registry.Settings
}

func (e *Establish) fields(c *codec.Codec) {
	c.String(&e.Node)
	c.String(&e.Cluster)
	c.Byte(&e.Level) // which may be one that this program does not read, where it has no effect
	c.Confirm(e.Level != 0)
	codec.Optional(c, &e.Settings, (*registry.Settings).Fields)
}

// AppendEstablish appends the encoding of an Establish entry at a level, the entry's own if that is 0.
func AppendEstablish(dst []byte, level byte, e Establish) []byte {
	e.Level = cmp.Or(e.Level, level)
	return (&entry{establish: &e}).append(dst, level)
}

// AppendRaise appends the encoding, at a level, of an entry that raises the level of the cluster: later entries are
// written at the new one.
func AppendRaise(dst []byte, level, to byte) []byte { return (&entry{raise: to}).append(dst, level) }

// entry is a log entry: an Establish, a Raise, or else a Write.
type entry struct {
	establish *Establish
	raise     byte // the new level; 0: the entry is not a Raise
	stamp     registry.Stamp
	tenure    int64
	encoded   [][]byte // when writing: the batches
	batches   []batch  // when reading
}

func (e *entry) append(dst []byte, level byte) []byte {
	c := codec.Writer(dst, level)
	e.fields(&c)
	return c.Written()
}

func parseEntry(b []byte) (entry, error) {
	c := codec.Reader(b)
	var e entry
	e.fields(&c)
	if err := c.End(); err != nil {
		return entry{}, err
	}
	return e, nil
}

func (e *entry) fields(c *codec.Codec) {
	c.Version()
	kind := byte(entryWrite)
	switch {
	case e.establish != nil:
		kind = entryEstablish
	case e.raise != 0:
		kind = entryRaise
	}
	c.Byte(&kind)
	switch {
	case c.Err() != nil:
	case kind == entryWrite:
		e.stamp.Fields(c)
		c.Int64(&e.tenure)
		e.walkBatches(c)
	case kind == entryEstablish:
		codec.Ptr(c, &e.establish).fields(c)
	case kind == entryRaise:
		c.Level(&e.raise)
	default:
		c.Fail("entry of unknown kind %d", kind)
	}
}

func (e *entry) walkBatches(c *codec.Codec) {
	n := c.Count(len(e.encoded), 2) // a length and a version
	if c.Reading() && n > 0 {
		e.batches = make([]batch, n)
	}
	for i := range n {
		if !c.Reading() {
			c.Bytes(&e.encoded[i])
			continue
		}
		b := c.Raw()
		if c.Err() != nil {
			return
		}
		var err error
		if e.batches[i], err = parseBatch(b); err != nil {
			c.Stop(fmt.Errorf("batch %d: %w", i, err))
			return
		}
	}
}
