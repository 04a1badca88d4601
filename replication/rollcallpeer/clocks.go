package rollcallpeer

import (
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// tooLate is by how much (ms) a message may be older than the newest of its sender before that one begins
// another incarnation. No message is on its way for as long: what is newer was not said by this sender, or
// its clock went back.
const tooLate = 60_000

// maxJudged bounds the senders of which clockRecords are kept: the state knows as many at most.
const maxJudged = 1000

// clockRecords are what this node found of the clocks of messages, of senders that were ever late or refused.
type clockRecords struct {
	mu sync.Mutex
	of map[senderName]clockRecord
}

// senderName is a sender in a datacenter; "": the own one.
type senderName struct{ datacenter, name string }

type clockRecord struct {
	late          int64 // ms, of the last message
	lates, refuse uint64
}

// note keeps what was found of a message.
func (j *clockRecords) record(view *registry.View, from senderName, late int64, ahead bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found, known := j.of[from]
	if !known && late <= tooLate && !ahead {
		return
	}
	if !known && !j.room(view) {
		return
	}
	found.late = late
	if late > tooLate {
		found.lates++
	}
	if ahead {
		found.refuse++
	}
	j.of[from] = found
}

// room makes room for another sender, in the place of those that the state has forgotten. j.mu is held.
func (j *clockRecords) room(view *registry.View) bool {
	if len(j.of) < maxJudged {
		return true
	}
	known := map[senderName]bool{}
	for _, s := range view.Senders() {
		known[senderName{s.DC, s.Name}] = true
	}
	for name := range j.of {
		if !known[name] {
			delete(j.of, name)
		}
	}
	return len(j.of) < maxJudged
}

func (j *clockRecords) get(of senderName) clockRecord {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of[of]
}

// forget forgets what was found of a sender, in whatever datacenter.
func (j *clockRecords) forget(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for of := range j.of {
		if of.name == name {
			delete(j.of, of)
		}
	}
}
