package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// appendHistory encodes what is remembered of an instance.
func appendHistory(dst []byte, events []registry.Event) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(events)))
	for _, e := range events {
		dst = appendEvent(dst, e)
	}
	return dst
}

func (d *decoder) history() registry.History {
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
	return registry.EventKind(d.enum(lastEvent, "event"))
}
