package httpd

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// freshView is a view and how it was read.
type freshView struct {
	*registry.View
	read registry.Consistency
	age  time.Duration // since this node was known to be current; for leader and stale reads
}

// view is read with a label: it says in the answer's header how fresh that is.
func (c *call) view() freshView {
	v := c.read()
	if c.err == nil {
		v.label(c.w.Header(), v.Index())
	}
	return v
}

// newest is linearizable; without consensus, which offers no such reads, it is what this node has.
func (h *Handler) newest(ctx context.Context) (freshView, error) {
	v, err := h.viewAt(ctx, registry.Linearizable)
	if errors.Is(err, registry.ErrNotOffered) {
		return h.viewAt(ctx, registry.Stale)
	}
	return v, err
}

// viewOrStale is newest, but does not wait for a quorum that is known to be gone.
func (h *Handler) viewOrStale(ctx context.Context) (freshView, error) {
	if h.config.Service.Health().Quorum {
		v, err := h.newest(ctx)
		if err == nil || !errors.Is(err, registry.ErrNoLeader) {
			return v, err
		}
	}
	return h.viewAt(ctx, registry.Stale)
}

func (h *Handler) viewAt(ctx context.Context, read registry.Consistency) (freshView, error) {
	v, age, err := look(ctx, h, h.config.Service.View, read)
	return freshView{View: v, read: read, age: age}, err
}

// viewer shows one half of the state: instances, or sessions and keys.
type viewer[V any] func(ctx context.Context, read registry.Consistency) (V, error)

// look looks at one half of the state. Its age was looked at first, so that a view is never older than it says.
func look[V any](ctx context.Context, h *Handler, view viewer[V], read registry.Consistency) (v V, age time.Duration, err error) {
	age = h.config.Service.Health().Age
	v, err = view(ctx, read)
	return v, age, readOutcome(err)
}

// label says in the answer's header how fresh it is. index is that of the document sent, which may
// be newer than the view.
func (v freshView) label(header http.Header, index registry.Index) {
	labelFresh(header, formatIndex(v.Epoch(), index), v.read, v.age)
}

func labelFresh(header http.Header, index string, read registry.Consistency, age time.Duration) {
	header.Set("X-Rollcall-Index", index)
	header.Set("X-Rollcall-Consistency", read.String())
	if read != registry.Linearizable {
		header.Set("X-Rollcall-Age", strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	}
}

// formatIndex writes an index with the history that it belongs to.
func formatIndex(epoch string, index registry.Index) string {
	return epoch + "-" + strconv.FormatUint(uint64(index), 10)
}

// staleView is what this node has, which a Service always has; nil only if it breaks that promise.
func staleView(s registry.Service) *registry.View {
	v, err := s.View(context.Background(), registry.Stale)
	if err != nil {
		return nil
	}
	return v
}

// read reads the registry as fresh as the call asks for, or as the settings say.
func (c *call) read() (v freshView) {
	read, asked := c.consistency()
	switch {
	case c.err != nil:
	case asked:
		v, c.err = c.viewAt(c.r.Context(), read)
	case c.config.Reads == ReadsStale:
		v, c.err = c.viewAt(c.r.Context(), registry.Stale)
	case c.config.Reads == ReadsStaleWithoutQuorum:
		v, c.err = c.viewOrStale(c.r.Context())
	default:
		v, c.err = c.newest(c.r.Context())
	}
	return v
}

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
