package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The kinds of log entries. Never renumber one.
const (
	entryWrite     = 1
	entryEstablish = 2
)

// AppendWrite appends the encoding of a log entry that applies batches (as AppendBatch encoded
// them) in order. Tenure is the time since the leadership was established, in ms: unlike the lease
// clock it goes on while its leader is paused or alone. Without batches the entry is a tick: it only
// moves the clocks.
func AppendWrite(dst []byte, stamp registry.Stamp, tenure int64, batches ...[]byte) []byte {
	dst = append(dst, formatVersion, entryWrite)
	dst = appendInt64(appendStamp(dst, stamp), tenure)
	dst = binary.AppendUvarint(dst, uint64(len(batches)))
	for _, b := range batches {
		dst = appendBytes(dst, b)
	}
	return dst
}

// Establish is the first entry of a leadership.
type Establish struct {
	Node    string // server id of the leader
	Cluster string // cluster id; the first one stays
	// Settings decide how leases end from here on; nil: as before. A Threshold above the whole is the
	// whole.
	Settings *registry.Settings
}

// AppendEstablish appends the encoding of an Establish entry.
func AppendEstablish(dst []byte, e Establish) []byte {
	dst = append(dst, formatVersion, entryEstablish)
	dst = appendString(appendString(dst, e.Node), e.Cluster)
	if e.Settings == nil {
		return append(dst, 0)
	}
	return appendSettings(append(dst, 1), *e.Settings)
}

// entry is a decoded log entry: an Establish, or else a Write.
type entry struct {
	establish *Establish
	stamp     registry.Stamp
	tenure    int64
	batches   []batch
}

func parseEntry(b []byte) (entry, error) {
	d := decoder{b: b}
	d.version()
	var e entry
	switch kind := d.byte(); {
	case d.err != nil:
	case kind == entryWrite:
		e.stamp, e.tenure = d.stamp(), d.int64()
		e.batches = d.batches()
	case kind == entryEstablish:
		e.establish = d.establish()
	default:
		d.fail("entry of unknown kind %d", kind)
	}
	if err := d.end(); err != nil {
		return entry{}, err
	}
	return e, nil
}

func (d *decoder) establish() *Establish {
	e := &Establish{Node: d.string(), Cluster: d.string()}
	if d.bool() {
		s := d.settings()
		e.Settings = &s
	}
	return e
}

func (d *decoder) batches() []batch {
	n := d.count(2) // a length and a version
	if n == 0 {
		return nil
	}
	batches := make([]batch, n)
	for i := range batches {
		b := d.bytes()
		if d.err != nil {
			return nil
		}
		var err error
		if batches[i], err = parseBatch(b); err != nil {
			d.err = fmt.Errorf("batch %d: %w", i, err)
			return nil
		}
	}
	return batches
}
