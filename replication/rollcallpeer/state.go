package rollcallpeer

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// State writes everything, for the start-up copy of a node that says which datacenter it belongs to: a head that says
// how many items follow, the instances, and the records of removals, each in a frame of its own. Errors before the
// first byte: ErrStranger; registry.ErrNoLeader while this node is not ready itself.
func (r *Receiver) State(ctx context.Context, datacenter string, w io.Writer) error {
	if _, err := r.originOf(ctx, datacenter, ""); err != nil {
		return err
	}
	if datacenter != r.side.Datacenter {
		return fmt.Errorf("datacenter %q: %w: only nodes of %s copy the state", clip(datacenter), ErrStranger, r.side.Datacenter)
	}
	health := r.side.Service.Health()
	if !health.Ready {
		return fmt.Errorf("%s is not ready: %w", r.side.Node, registry.ErrNoLeader)
	}
	view := r.side.View()
	head := headOf(&r.side, health.Clock)
	head.Incarnation = 0 // a server that knows it can speak in this node's name
	head.Heard = heard(&r.side, view, health.Clock)
	s := stateWriter{ctx: ctx, w: w, level: r.side.Writes()}
	s.write(&State{Head: head, Items: count(view.All()) + count(view.Removals())})
	for l := range view.All() {
		if !s.item(view.ReplicaOf(l, health.Clock)) {
			return s.err
		}
	}
	for rec := range view.Removals() {
		if !s.item(view.RemoveOf(rec, health.Clock)) {
			return s.err
		}
	}
	return s.err
}

// stateWriter writes frames until one fails.
type stateWriter struct {
	ctx   context.Context
	w     io.Writer
	level byte // of the formats
	frame []byte
	err   error
}

func (s *stateWriter) write(b Body) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err == nil {
		s.frame = appendFrame(s.frame[:0], s.level, b)
		_, s.err = s.w.Write(s.frame)
	}
}

func (s *stateWriter) item(op registry.Op) bool {
	item := ItemOf(s.level, op)
	s.write(&item)
	return s.err == nil
}

func count[T any](all iter.Seq[T]) (n int) {
	for range all {
		n++
	}
	return n
}
