package rollcallpeer

import (
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// tooLate is by how much (ms) a message may be older than the newest of its sender before that sender
// starts another incarnation. No message is on its way for as long: what is newer was not said by this sender, or
// its clock went back.
const tooLate = 60_000

// maxClockRecords bounds the senders of which clockRecords are kept: the state knows as many at most.
const maxClockRecords = 1000

// clockRecords are what this node found of the clocks of messages, of senders that were ever late or refused.
type clockRecords struct {
	mu sync.Mutex
	of map[senderName]clockRecord
}

// senderName is a sender in a datacenter; "": this one.
type senderName struct{ datacenter, name string }

// clockRecord is of one sender.
type clockRecord struct {
	late           int64  // ms, of the last message
	lates, refused uint64 // messages
}

// record keeps what was found of a message.
func (c *clockRecords) record(view *registry.View, from senderName, late int64, ahead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.of[from]
	if !known && late <= tooLate && !ahead {
		return
	}
	if !known && !c.makeRoom(view) {
		return
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

// makeRoom drops the records of senders that the state no longer has, if there are too many. It is false if
// no room was found. c.mu is held.
func (c *clockRecords) makeRoom(view *registry.View) bool {
	if len(c.of) < maxClockRecords {
		return true
	}
	known := map[senderName]bool{}
	for _, s := range view.Senders() {
		known[senderName{s.DC, s.Name}] = true
	}
	for name := range c.of {
		if !known[name] {
			delete(c.of, name)
		}
	}
	return len(c.of) < maxClockRecords
}

func (c *clockRecords) get(of senderName) clockRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[of]
}

// drop drops what was found of a sender, in whatever datacenter.
func (c *clockRecords) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := range c.of {
		if of.name == name {
			delete(c.of, of)
		}
	}
}
