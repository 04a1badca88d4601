package registry

import (
	"slices"
	"strings"
)

// pastLimit is how long a chain of events may become before it is cut to eventsKept.
const pastLimit = 2 * eventsKept

// past is an instance's newest event and those before it. It is immutable, so that readers may look
// at it while the next event is put in front; an event costs one small allocation.
type past struct {
	before *past
	at     Stamp
	lasted int64 // Event.For
	who    *who  // nil: a client that said no more
	times  uint32
	kind   EventKind
	status Status
	depth  uint8 // of the chain
}

// who caused an event.
type who struct {
	origin Origin
	by     Act
}

// pastOf is the past with these events, oldest first. Their strings are copied, because they may come
// out of a buffer with much else in it.
func pastOf(events []Event) *past {
	var p *past
	for _, e := range cloneEvents(events) {
		p = p.link(e)
	}
	return p
}

// with returns the past after one more event.
func (p *past) with(e Event) *past {
	switch {
	case p == nil:
		return p.link(e)
	case p.repeatedBy(e):
		e.Times += p.times
		return p.before.link(e)
	case p.depth == pastLimit:
		p = pastOf(p.events())
	}
	return p.link(e)
}

// link puts an event in front.
func (p *past) link(e Event) *past {
	n := &past{before: p, at: e.At, lasted: e.For, times: e.Times, kind: e.Kind, status: e.Status, depth: 1}
	if p != nil {
		n.depth = p.depth + 1
	}
	if w := (who{e.Origin, e.By}); w != (who{}) {
		n.who = &w
	}
	return n
}

// repeatedBy says whether an event tells the same once more. How late a renewal comes is different
// each time.
func (p *past) repeatedBy(e Event) bool {
	before := p.event()
	return before.Kind == e.Kind && before.Status == e.Status && before.Origin == e.Origin && before.By == e.By &&
		(before.For == e.For || e.Kind == EventRenewedLate)
}

func (p *past) event() Event {
	e := Event{At: p.at, Kind: p.kind, Times: p.times, Status: p.status, For: p.lasted}
	if p.who != nil {
		e.Origin, e.By = p.who.origin, p.who.by
	}
	return e
}

// events are the last ones, oldest first.
func (p *past) events() []Event { return p.appendTo(nil) }

// appendTo appends the last events, oldest first.
func (p *past) appendTo(dst []Event) []Event {
	n := p.length()
	dst = slices.Grow(dst, n)[:len(dst)+n]
	for i := range n {
		dst[len(dst)-1-i] = p.event()
		p = p.before
	}
	return dst
}

// length is the number of events that are remembered.
func (p *past) length() int {
	if p == nil {
		return 0
	}
	return min(int(p.depth), eventsKept)
}

// cloneEvents copies events with their strings.
func cloneEvents(events []Event) []Event {
	events = slices.Clone(events)
	for i := range events {
		events[i].Origin.DC = strings.Clone(events[i].Origin.DC)
		events[i].By = events[i].By.clone()
	}
	return events
}
