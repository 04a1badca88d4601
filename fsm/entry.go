package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// entryVersion is the newest. An Establish with settings has it (those before version 4 had version 2);
// everything else has version 1. So the state of a cluster is of the newest version from its leader's
// first entry on, and not only from the first operation that needs it.
const entryVersion = 4

// The kinds of log entries. Never renumber one.
const (
	entryWrite     = 1
	entryEstablish = 2
)

// AppendWrite appends the encoding of a log entry that applies batches (as AppendBatch encoded
// them) in order. Without batches it is a tick: it only moves the lease clock.
func AppendWrite(dst []byte, stamp registry.Stamp, batches ...[]byte) []byte {
	dst = append(dst, 1, entryWrite)
	dst = appendStamp(dst, stamp)
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
	if e.Settings == nil {
		return appendEstablish(dst, 1, e)
	}
	return appendSettings(appendEstablish(dst, entryVersion, e), *e.Settings)
}

// appendEstablish appends what stands before the settings.
func appendEstablish(dst []byte, version byte, e Establish) []byte {
	dst = append(dst, version, entryEstablish)
	return appendString(appendString(dst, e.Node), e.Cluster)
}

// entry is a decoded log entry: an Establish, or else a Write.
type entry struct {
	establish *Establish
	stamp     registry.Stamp
	batches   []batch
	version   byte // the newest of anything in it
}

func parseEntry(b []byte) (entry, error) {
	d := decoder{b: b}
	d.version(entryVersion)
	e := entry{version: d.format}
	switch kind := d.byte(); {
	case d.err != nil:
	case kind == entryWrite:
		d.lowest(1)
		e.stamp = d.stamp()
		e.batches = d.batches()
		for _, b := range e.batches {
			e.version = max(e.version, b.version)
		}
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
	if d.format == 3 {
		d.fail("Establish of version 3, which no node writes")
	}
	e := &Establish{Node: d.string(), Cluster: d.string()}
	if d.format > 1 {
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
