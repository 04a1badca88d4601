package own

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// readCoordination responds to a read of sessions, locks and semaphores in our own API: at once, or with index and
// wait when the result changes. The index comes from an earlier response; a read with an index of another history never
// waits.
func (c call) readCoordination(s web.Source) (any, error) {
	var q web.Query
	if q.Read, _ = c.Consistency(); q.Read == registry.Leader {
		q.Read = registry.Linearizable // which is at least as fresh
	}
	index, resumes := c.Lookup("index")
	wait, waits := c.waiting()
	if q.Wait = wait; !waits {
		q.Wait = web.DefaultWait
	}
	if resumes {
		if from := c.position(index); from.epoch == c.Epoch() {
			q.After = uint64(from.index)
		}
	}
	q.Soon = q.After == 0 // a read that waits for a change can also wait for a leader
	if c.Err != nil {
		return nil, c.Err
	}
	f, err := c.ReadOrWait(q, s)
	if err != nil {
		return nil, err
	}
	web.LabelFreshness(c.W.Header(), web.FormatIndex(c.Epoch(), registry.Index(max(f.Index, 1))), q.Read, f.Age)
	return c.DocumentOf(f)
}
