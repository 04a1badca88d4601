package rollcallpeer

import (
	"maps"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// tooLate is by how much (ms) a message may be older than the newest of its sender before that sender starts another
// incarnation. No message is in transit for that long: the newer one did not come from this sender, or its clock went
// back.
const tooLate = 60_000

// maxClockRecords bounds the senders in clockRecords, as the state bounds its own.
const maxClockRecords = 1000

// clockRecords records what this node found out about the clocks in messages, for senders that were ever late or
// refused.
type clockRecords struct {
	mu sync.Mutex
	of map[senderName]clockRecord
}

// senderName is a sender in a datacenter, or in this one if that is "".
type senderName struct{ datacenter, name string }

// clockRecord is what was found out about one sender.
type clockRecord struct {
	late           int64  // of the last message, in ms
	lates, refused uint64 // numbers of messages
}

// record records what was found out about a message.
func (c *clockRecords) record(view *registry.View, from senderName, late int64, ahead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.of[from]
	if !known && late <= tooLate && !ahead {
		return
	}
	if !known && len(c.of) >= maxClockRecords { // drop the records of senders that the state no longer has
		inState := map[senderName]bool{}
		for _, s := range view.Senders() {
			inState[senderName{s.DC, s.Name}] = true
		}
		maps.DeleteFunc(c.of, func(name senderName, _ clockRecord) bool { return !inState[name] })
		if len(c.of) >= maxClockRecords {
			return
		}
	}
	found.late = late
	if late > tooLate {
		found.lates++
	}
	if ahead {
		found.refused++
	}
	c.of[from] = found
}

func (c *clockRecords) get(of senderName) clockRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[of]
}
