package httpd

import (
	"context"
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// coordinate performs one operation on sessions, keys or locks, or fails soon if there is no leader: our own
// clients then go to another node.
func (h *Handler) coordinate(ctx context.Context, op kv.Op) (kv.Result, error) {
	results, err := h.config.Coordination.Apply(ctx, op)
	if err != nil {
		return kv.Result{}, writeOutcome(err)
	}
	return results[0], nil
}

// persist is coordinate that waits for a leader as long as Consul's clients need it.
func (h *Handler) persist(ctx context.Context, op kv.Op) (kv.Result, error) {
	results, err := untilLeader(ctx, func(ctx context.Context) ([]kv.Result, error) {
		return h.config.Coordination.Apply(ctx, op)
	})
	if err != nil {
		return kv.Result{}, writeOutcome(err)
	}
	return results[0], nil
}

// once makes op one that is performed once, if the call has an Idempotency-Key.
func (c *call) once(op kv.Op) kv.Op {
	keys := c.r.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return op
	}
	if key := keys[0]; key != "" && len(key) <= kv.MaxOnceKey {
		return kv.Once{Key: key, Op: op}
	}
	c.refuse("Idempotency-Key must have 1 to %d bytes", kv.MaxOnceKey)
	return op
}
