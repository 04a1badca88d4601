package httpd

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// maxShownHeld bounds the sessions and the locks on the front page, each.
const maxShownHeld = 50

// coordinationFacts are sessions, locks and semaphores on the front page.
type coordinationFacts struct {
	Sessions, Keys int
	Holding        []holdingSession // those that hold something
	MoreHolding    int
	Permits        []heldPermits
	MorePermits    int
}

// holdingSession is a session that holds something.
type holdingSession struct {
	ID, Name, Age string
	EndsIn        string // empty: it does not end by itself
	Holds         string
}

// heldPermits is a lock or semaphore in use.
type heldPermits struct {
	Kind, Name, Holders string
	Limit               uint32
	Waiting, Delays     int
}

// coordinationNow is what this node has of sessions and locks; nil without consensus.
func (h *Handler) coordinationNow(ctx context.Context) (*coordinationFacts, error) {
	if h.config.Coordination == nil {
		return nil, nil
	}
	v, err := h.config.Coordination.View(ctx, registry.Stale)
	if err != nil {
		return nil, err
	}
	facts := &coordinationFacts{Keys: v.Len()}
	now := h.coordinationClock(v)
	for s := range v.Sessions() {
		facts.Sessions++
		facts.addSession(v, now, s)
	}
	for _, k := range permitKinds {
		facts.addPermits(v.AllPermits(k.kind))
	}
	return facts, nil
}

func (f *coordinationFacts) addSession(v *kv.View, now int64, s *kv.Session) {
	shown := showSession(v, now, s)
	if len(shown.Holds) == 0 {
		return
	}
	if len(f.Holding) == maxShownHeld {
		f.MoreHolding++
		return
	}
	row := holdingSession{ID: s.ID, Name: s.Name, Age: shownSpan(shown.AgeMS), Holds: shownHolds(shown.Holds)}
	if shown.EndsInMS != 0 {
		row.EndsIn = shownSpan(shown.EndsInMS)
	}
	f.Holding = append(f.Holding, row)
}

// shownHolds names a few of what a session holds.
func shownHolds(holds []api.Acquisition) string {
	const few = 5
	var names []string
	for _, hold := range holds[:min(len(holds), few)] {
		names = append(names, hold.Kind+" "+hold.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(holds) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (f *coordinationFacts) addPermits(all iter.Seq[*kv.Permits]) {
	for p := range all {
		if len(f.Permits) == maxShownHeld {
			f.MorePermits++
			continue
		}
		row := heldPermits{Kind: kindWords[p.Kind], Name: p.Name, Limit: p.Limit, Waiting: len(p.Queue), Delays: len(p.Delays)}
		for i, holder := range p.Holders {
			if i > 0 {
				row.Holders += ", "
			}
			row.Holders += holder.Session
		}
		f.Permits = append(f.Permits, row)
	}
}
