package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// statePath is the endpoint of the start-up copy.
const statePath = messagePath + "/state"

// stateLine is a line of the state after the first, which is a messageHead: an item, or the end.
type stateLine struct {
	wireItem
	End   bool `json:"end,omitempty"`
	Items int  `json:"items,omitempty"` // before the end
}

// State writes everything, for the start-up copy of a node of the own datacenter that names itself: a
// head, the instances, the records of removals, and an end without which it is not complete, each on
// a line of its own. Errors before the first byte: ErrStranger; registry.ErrNoLeader while this node
// is not ready itself.
func (r *Replicator) State(ctx context.Context, datacenter string, w io.Writer) error {
	if _, err := r.originOf(datacenter, ""); err != nil {
		return err
	}
	if datacenter != r.config.Datacenter {
		return fmt.Errorf("datacenter %q: %w that copies the state, those are the nodes of %s", clip(datacenter), ErrStranger, r.config.Datacenter)
	}
	health := r.config.Service.Health()
	if !health.Ready {
		return fmt.Errorf("%s is not ready: %w", r.config.Node, registry.ErrNoLeader)
	}
	view, err := r.config.Service.View(ctx, registry.Stale)
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	head := headOf(r.config, health.Clock)
	head.Incarnation = 0 // whoever knows it can speak in this node's name
	head.Heard = heard(r.config, view, health.Clock)
	s := stateWriter{ctx: ctx, lines: json.NewEncoder(w)}
	s.lines.SetEscapeHTML(false)
	s.write(head)
	s.instances(view, health.Clock)
	s.write(stateLine{End: true, Items: s.items})
	return s.err
}

// stateWriter writes lines until one fails.
type stateWriter struct {
	ctx   context.Context
	lines *json.Encoder
	items int
	err   error
}

func (s *stateWriter) write(line any) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err == nil {
		s.err = s.lines.Encode(line)
	}
}

func (s *stateWriter) item(item wireItem) bool {
	s.write(&item)
	s.items++
	return s.err == nil
}

// instances writes the live instances, then the records of removals.
func (s *stateWriter) instances(view *registry.View, now int64) {
	for l := range view.All() {
		if !s.item(replicaItem(view.ReplicaOf(l, now))) {
			return
		}
	}
	for rec := range view.Removals() {
		if !s.item(removeItem(view.RemoveOf(rec, now))) {
			return
		}
	}
}
