package httpd

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Coordination is what Consul's API, and our own of sessions, locks and semaphores, need of a node
// beyond the registry. Only a node with consensus has it.
type Coordination interface {
	kv.Service
	// WatchCatalog begins to wait for a change of an application (upper case; "": of any), of a node or of
	// a check; see registry.Watchers.Join.
	WatchCatalog(app string) (woken <-chan struct{}, leave func())
	// RaftAddresses are the node-to-node addresses of the leader ("": none is known) and of all voters,
	// sorted.
	RaftAddresses() (leader string, all []string)
}

// coordinate performs one operation on sessions, keys or locks, or fails soon if there is no leader: our own
// clients then go to another node.
func (h *Handler) coordinate(ctx context.Context, op kv.Op) (kv.Result, error) {
	return theOnly(h.config.Coordination.Apply(ctx, op))
}

// persist is coordinate that waits for a leader as long as Consul's clients need it.
func (h *Handler) persist(ctx context.Context, op kv.Op) (kv.Result, error) {
	return theOnly(untilLeader(ctx, func(ctx context.Context) ([]kv.Result, error) {
		return h.config.Coordination.Apply(ctx, op)
	}))
}

func theOnly(results []kv.Result, err error) (kv.Result, error) {
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

// newUUID draws a random UUID (RFC 9562, version 4), in lower case.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
