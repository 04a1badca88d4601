package httpd

import (
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ownRead answers a read of sessions, locks and semaphores in our own API: at once, or with index and
// wait when what is read changes.
func (h *Handler) ownRead(w http.ResponseWriter, r *http.Request, s source) error {
	read, q, err := h.readOwnQuery(r)
	if err != nil {
		return err
	}
	q.soon = q.after == 0 // who waits for a change can wait for a leader, too
	f, err := h.findOrWait(w, r, q, s)
	if err != nil {
		return err
	}
	labelFresh(w.Header(), formatIndex(h.epoch(), registry.Index(max(f.index, 1))), read, f.age)
	return h.answer(w, r, f)
}

// readOwnQuery reads consistency, index and wait. The index is one that an answer gave; one of another
// history is never newer than what there is, and is answered at once.
func (h *Handler) readOwnQuery(r *http.Request) (read registry.Consistency, q consulQuery, err error) {
	read, _, err = consistencyParam(r.URL.RawQuery)
	if err != nil {
		return read, q, err
	}
	if read == registry.Leader {
		read = registry.Linearizable // which is not less
	}
	q.stale = read == registry.Stale
	text, resumes, err := param(r.URL.RawQuery, "index")
	if err != nil {
		return read, q, err
	}
	var waits bool
	if q.wait, waits, err = waitParam(r.URL.RawQuery); err != nil {
		return read, q, err
	}
	if !waits {
		q.wait = defaultBlocking
	}
	if !resumes {
		return read, q, nil
	}
	from, err := parsePosition(text)
	if err == nil && from.epoch == h.epoch() {
		q.after = uint64(from.index)
	}
	return read, q, err
}

// epoch names the history that the indexes of this node belong to.
func (h *Handler) epoch() string {
	if v := staleView(h.config.Service); v != nil {
		return v.Epoch()
	}
	return ""
}
