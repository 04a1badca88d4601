package rollcallpeer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Senders returns the servers whose clocks are known, by datacenter and name.
func (r *Receiver) Senders() []api.PeerSender {
	v := r.side.View()
	now := r.now(v).Lease
	at := map[senderName]int{}
	senders := []api.PeerSender{} // JSON shows an empty list, not null
	for _, s := range v.Senders() {
		name, heard := senderName{s.DC, s.Name}, max(0, now-s.LastMessage.Lease)
		if i, ok := at[name]; ok { // another incarnation
			senders[i].HeardMS = min(senders[i].HeardMS, heard)
			continue
		}
		at[name] = len(senders)
		found := r.clockRecords.get(name)
		senders = append(senders, api.PeerSender{
			Sender: s.Name, Datacenter: cmp.Or(s.DC, r.side.Datacenter), HeardMS: heard,
			LateMS: found.late, Late: found.lates, Refused: found.refused, Principal: s.Principal,
		})
	}
	slices.SortFunc(senders, func(a, b api.PeerSender) int {
		return cmp.Or(cmp.Compare(a.Datacenter, b.Datacenter), cmp.Compare(a.Sender, b.Sender))
	})
	return senders
}

// Forget forgets what is known of a sender's clock and who owns its name, so that its next message counts as its
// first. With consensus the whole datacenter forgets it, otherwise this node. Errors: wire.ErrMalformed,
// ErrUnknownSender, or registry.Service's.
func (r *Receiver) Forget(ctx context.Context, sender string, by registry.Act) error {
	if !validName(sender) {
		return fmt.Errorf("%w: %q cannot be a sender: its name has 1 to %d bytes and no control characters", ErrMalformed, clip(sender), maxName)
	}
	results, err := registry.Unrevoked(r.side.Service.Apply(ctx, registry.FromClient, registry.ForgetSender{Sender: sender, By: by}))
	if err != nil {
		return fmt.Errorf("forget sender %s: %w", sender, err)
	}
	if results[0].Outcome == registry.NotFound {
		return fmt.Errorf("%w: nothing was heard from %q", ErrUnknownSender, sender)
	}
	r.clockRecords.mu.Lock()
	defer r.clockRecords.mu.Unlock()
	maps.DeleteFunc(r.clockRecords.of, func(of senderName, _ clockRecord) bool { return of.name == sender })
	return nil
}
