package rollcallpeer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// maxJudged bounds the senders of which judgements are kept: the state knows as many at most.
const maxJudged = 1000

// judgements are what this node found of the clocks of messages, of senders that were ever late or refused.
type judgements struct {
	mu sync.Mutex
	of map[senderName]judgement
}

// senderName is a sender in a datacenter; "": the own one.
type senderName struct{ datacenter, name string }

type judgement struct {
	late          int64 // ms, of the last message
	lates, refuse uint64
}

// note keeps what was found of a message.
func (j *judgements) note(view *registry.View, from senderName, late int64, ahead bool) {
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
func (j *judgements) room(view *registry.View) bool {
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

func (j *judgements) get(of senderName) judgement {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of[of]
}

// forget forgets what was found of a sender, in whatever datacenter.
func (j *judgements) forget(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for of := range j.of {
		if of.name == name {
			delete(j.of, of)
		}
	}
}

// Senders are the servers whose clocks are known, by datacenter and name.
func (r *Receiver) Senders() []api.PeerSender {
	v := r.side.View()
	now := r.now(v).Lease
	at := map[senderName]int{}
	senders := []api.PeerSender{} // JSON shows an empty list, not null
	for _, s := range v.Senders() {
		name, heard := senderName{s.DC, s.Name}, max(0, now-s.Heard.Lease)
		if i, ok := at[name]; ok { // another incarnation
			senders[i].HeardMS = min(senders[i].HeardMS, heard)
			continue
		}
		at[name] = len(senders)
		found := r.judgements.get(name)
		senders = append(senders, api.PeerSender{
			Sender: s.Name, Datacenter: cmp.Or(s.DC, r.side.Datacenter), HeardMS: heard,
			LateMS: found.late, Late: found.lates, Refused: found.refuse,
		})
	}
	slices.SortFunc(senders, func(a, b api.PeerSender) int {
		return cmp.Or(cmp.Compare(a.Datacenter, b.Datacenter), cmp.Compare(a.Sender, b.Sender))
	})
	return senders
}

// Forget forgets what is known of a sender's clock, so that its next message counts as its first. With
// consensus the whole datacenter forgets it, else this node. Errors: wire.ErrMalformed, ErrUnknownSender, or
// registry.Service's.
func (r *Receiver) Forget(ctx context.Context, sender string, by registry.Act) error {
	if !wire.ValidName(sender) {
		return fmt.Errorf("%w: %q cannot be a sender: its name has 1 to %d bytes and no control characters", wire.ErrMalformed, wire.Clip(sender), wire.MaxName)
	}
	results, err := r.side.Service.Apply(ctx, registry.FromClient, registry.ForgetSender{Sender: sender, By: by})
	if err != nil {
		return fmt.Errorf("forget sender %s: %w", sender, err)
	}
	if results[0].Outcome == registry.NotFound {
		return fmt.Errorf("%w: nothing was heard of %q", ErrUnknownSender, sender)
	}
	r.judgements.forget(sender)
	return nil
}
