package httpd

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ownRead answers a read of sessions, locks and semaphores in our own API: at once, or with index and
// wait when what is read changes.
func (c *call) ownRead(s source) (any, error) {
	q := c.ownQuery()
	if c.err != nil {
		return nil, c.err
	}
	f, err := c.findOrWait(q, s)
	if err != nil {
		return nil, err
	}
	labelFresh(c.w.Header(), formatIndex(c.epoch(), registry.Index(max(f.index, 1))), q.read, f.age)
	return c.answer(f)
}

// epoch names the history that the indexes of this node belong to.
func (h *Handler) epoch() string {
	if v := staleView(h.config.Service); v != nil {
		return v.Epoch()
	}
	return ""
}

// ownQuery reads consistency, index and wait. The index is one that an answer gave; one of another
// history is never newer than what there is, and is answered at once.
func (c *call) ownQuery() (q consulQuery) {
	if q.read, _ = c.consistency(); q.read == registry.Leader {
		q.read = registry.Linearizable // which is not less
	}
	index, resumes := c.lookup("index")
	wait, waits := c.waiting()
	if q.wait = wait; !waits {
		q.wait = defaultBlocking
	}
	if resumes {
		if from := c.position(index); from.epoch == c.epoch() {
			q.after = uint64(from.index)
		}
	}
	q.soon = q.after == 0 // who waits for a change can wait for a leader, too
	return q
}
