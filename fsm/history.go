package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// appendHistory encodes what is remembered of an instance; version 1 remembered nothing.
func appendHistory(dst []byte, version byte, events []registry.Event) []byte {
	if version < 2 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(events)))
	for _, e := range events {
		dst = appendEvent(dst, e)
	}
	return dst
}

func (d *decoder) history() registry.History {
	if d.format < 2 {
		return registry.History{}
	}
	n := d.count(9) // an event's fields
	if n > registry.EventsKept {
		d.fail("%d events of an instance, want at most %d", n, registry.EventsKept)
		return registry.History{}
	}
	events := make([]registry.Event, n)
	for i := range events {
		events[i] = d.event()
	}
	return registry.HistoryOf(events)
}

func appendEvent(dst []byte, e registry.Event) []byte {
	dst = append(appendStamp(dst, e.At), byte(e.Kind))
	dst = append(appendUint32(dst, e.Times), byte(e.Status))
	dst = appendInt64(appendOrigin(dst, e.Origin), e.For)
	return appendAct(dst, e.By)
}

func (d *decoder) event() registry.Event {
	return registry.Event{
		At:     d.stamp(),
		Kind:   d.eventKind(),
		Times:  d.uint32(),
		Status: d.status(),
		Origin: d.origin(),
		For:    d.int64(),
		By:     d.act(),
	}
}

func (d *decoder) eventKind() registry.EventKind {
	last := lastEvent
	if d.format < 3 {
		last = lastEventOfVersion2
	}
	return registry.EventKind(d.enum(last, "event"))
}
