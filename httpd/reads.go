package httpd

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// errNotReadable is the protocol's answer of a server that has not loaded its registry, or found
// nothing to load: a client takes it as "ask another server".
var errNotReadable = &refusal{status: http.StatusForbidden}

// fullList is GET apps. The parameter regions is accepted and means nothing: there are none.
func (c *call) fullList() (any, error) {
	v := c.read()
	if c.err != nil {
		return nil, c.err
	}
	rep := c.representation()
	doc := c.documents.full(v.View, rep)
	v.label(c.w.Header(), doc.index)
	respondReady(c.w, rep, doc.size, doc.parts...)
	return answered, nil
}

// delta is GET apps/delta. It is always served: some clients never fall back to a full fetch.
func (c *call) delta() (any, error) {
	v := c.read()
	if c.err != nil {
		return nil, c.err
	}
	rep := c.representation()
	doc := c.documents.delta(v.View, rep)
	v.label(c.w.Header(), doc.index)
	respondReady(c.w, rep, int64(len(doc.data)), doc.data)
	return answered, nil
}

// application is GET apps/{app}.
func (c *call) application(v freshView) (any, error) {
	app, ok := v.App(strings.ToUpper(c.segment("app")))
	if !ok {
		return nil, notFound
	}
	if err := c.reserve(weightOf(app.Leases())); err != nil {
		return nil, err
	}
	f := formatOf(c.r, c.v1)
	return c.document(f, eureka.AppendApplication(nil, f, app.Name, app.Leases()))
}

// weightOf is what leases take in an answer, in bytes, about.
func weightOf(leases iter.Seq[*registry.Lease]) (bytes int) {
	for l := range leases {
		bytes += l.Weight()
	}
	return bytes
}

// instance is GET apps/{app}/{id}: live, always in full. A lease that has ended but was not evicted
// yet is shown, as it is in the lists: what readers see changes by log entries only.
func (c *call) instance(v freshView) (any, error) {
	lease, ok := v.Lease(c.key())
	if !ok {
		return nil, notFound
	}
	writeInstance(c.w, c.r, http.StatusOK, fullFormat(c.r, c.v1), v, lease)
	return answered, nil
}

// instanceAnywhere is GET instances/{id}: the first instance with that id in whatever application.
func (c *call) instanceAnywhere(v freshView) (any, error) {
	for lease := range v.ByID(c.segment("id")) {
		writeInstance(c.w, c.r, http.StatusOK, fullFormat(c.r, c.v1), v, lease)
		return answered, nil
	}
	return nil, notFound
}

func writeInstance(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, v freshView, lease *registry.Lease) {
	respondEureka(w, r, status, f, eureka.AppendInstanceDocument(nil, f, lease, v.LastRenewal(lease)))
}

// byAddress is GET vips/{vip} or svips/{svip}: the instances of an address; an unknown one is an empty list, not a 404.
func byAddress(variable string, leases func(v freshView, address string) iter.Seq[*registry.Lease]) endpoint {
	return viewed(func(c *call, v freshView) (any, error) {
		address := c.segment(variable)
		if err := c.reserve(weightOf(leases(v, address))); err != nil {
			return nil, err
		}
		f := formatOf(c.r, c.v1)
		return c.document(f, eureka.AppendVIP(nil, f, leases(v, address)))
	})
}

// loaded is an endpoint that does not show a registry which is still being loaded.
func loaded(e endpoint) endpoint {
	return func(c *call) (any, error) {
		if !c.gate.isOpen() {
			return nil, errNotReadable
		}
		return e(c)
	}
}

// viewed is an endpoint that shows a view, see call.view.
func viewed(show func(c *call, v freshView) (any, error)) endpoint {
	return func(c *call) (any, error) {
		v := c.view()
		if c.err != nil {
			return nil, c.err
		}
		return show(c, v)
	}
}

// gate keeps fetches out while the registry cannot be shown: until it is loaded and, if it was empty
// then, for some time, in which instances that are elsewhere may come (upstream:
// PeerAwareInstanceRegistryImpl.shouldAllowAccess).
type gate struct {
	service registry.Service
	wait    time.Duration
	opens   atomic.Pointer[time.Time] // nil until something was asked of the loaded registry
}

// look notes whether the registry is loaded and empty. It is called before every request that could
// fill it.
func (g *gate) look() {
	if g.wait == 0 || g.opens.Load() != nil || !g.service.Health().Ready {
		return
	}
	opens := time.Now()
	if v := staleView(g.service); v != nil && v.Total() == 0 {
		opens = opens.Add(g.wait)
	}
	g.opens.CompareAndSwap(nil, &opens) // whoever looked first is right
}

// isOpen says whether a fetch may be answered now.
func (g *gate) isOpen() bool {
	if !g.service.Health().Ready {
		return false
	}
	g.look() // it may have been loaded since the request came
	opens := g.opens.Load()
	return opens == nil || !time.Now().Before(*opens)
}

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
