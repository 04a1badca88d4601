package rollcallpeer

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// maxStored bounds (bytes) the instances that go back with a reply: what does not fit is found by the next
// comparison.
const maxStored = maxMessage / 2

// resultMaker makes results with what is stored here, as long as there is room in the reply.
type resultMaker struct {
	level   byte // level of the reply
	view    *registry.View
	now     int64 // lease clock, ms
	left    int   // bytes
	asked   []registry.Op
	held    string                            // why an item is held
	records map[registry.Key]registry.Removal // for what was asked about; nil until looked up
}

// record returns the record of an instance's removal. The first call looks up everything that was asked about,
// because that is a walk over all records.
func (e *resultMaker) record(key registry.Key) (rec registry.Removal, ok bool) {
	if e.records == nil {
		e.records = make(map[registry.Key]registry.Removal)
		asked := make(map[registry.Key]bool)
		for _, op := range e.asked {
			if key, ok := registry.KeyOf(op); ok {
				asked[key] = true
			}
		}
		for rec := range e.view.Removals() {
			if key := rec.Lease.Key(); asked[key] {
				e.records[key] = rec
			}
		}
	}
	rec, ok = e.records[key]
	return rec, ok
}

// resultOf returns the result of an item.
func (e *resultMaker) resultOf(op registry.Op, outcome registry.Outcome) result {
	if outcome == registry.Panicked {
		return result{Status: resultFailed, Error: "it panicked, which is a defect; the log of the node that was sent it has the stack"}
	}
	key, ok := registry.KeyOf(op)
	if !ok {
		return result{Status: resultDone} // an operator's act, which fits the state here or does not
	}
	switch outcome {
	case registry.NotFound:
		if _, ok := op.(registry.Remove); ok {
			return result{Status: resultDone} // nothing is there, which is what it asks for
		}
		return result{Status: resultMissing, Error: "not registered here"}
	case registry.Newer:
		return result{Status: resultMissing, Error: "an older one is stored here"}
	case registry.Older:
		if l, ok := e.view.Find(key); ok {
			return result{Status: resultOlder, Stored: e.stored(e.view.ReplicaOf(l, e.now))}
		}
		return e.removed(key)
	case registry.Held:
		return e.heldBack(key)
	case registry.Refused:
		return e.removed(key)
	case link.TooLarge:
		return result{Status: Invalid, Error: "larger than an operation may be"}
	case link.Unreadable:
		return result{Status: Invalid, Error: "the leader here runs another version and does not know it"}
	}
	return result{Status: resultDone}
}

// heldBack returns the result if a client renews the instance here, and the sender may not take it over. At a lower
// level than the one that introduced it, an older program is told nothing that it would act on.
func (e *resultMaker) heldBack(key registry.Key) result {
	if e.level < registry.Level3 {
		return result{Status: resultOlder, Error: e.held}
	}
	result := result{Status: resultHeld, Error: e.held, Again: offerLatest.Milliseconds()}
	if l, ok := e.view.Find(key); ok && !l.Permanent {
		result.Again = max(e.view.LivesUntil(l)-e.now, 0)
	}
	return result
}

// removed returns the result if the instance was removed, or its lease has ended.
func (e *resultMaker) removed(key registry.Key) result {
	rec, ok := e.record(key)
	if !ok {
		return result{Status: resultGone, Error: "its lease has ended"}
	}
	return result{Status: resultGone, Stored: e.stored(e.view.RemoveOf(rec, e.now))}
}

// stored returns what is stored here, if there is room for it.
func (e *resultMaker) stored(op registry.Op) Item {
	item := ItemOf(e.level, op)
	if item.Size() > e.left {
		return Item{}
	}
	e.left -= item.Size()
	return item
}
