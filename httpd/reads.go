package httpd

import (
	"iter"
	"net/http"
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
