package httpd

import (
	"iter"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// errNotReadable is the protocol's answer of a server that has not loaded its registry, or found
// nothing to load: a client takes it as "ask another server".
var errNotReadable = &refusal{status: http.StatusForbidden}

// fullList is GET apps. The parameter regions is accepted and means nothing: there are none.
func (c *call) fullList() (any, error) {
	c.mustBeLoaded()
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
	c.mustBeLoaded()
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
func (c *call) application() (any, error) {
	c.mustBeLoaded()
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
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
func (c *call) instance() (any, error) {
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
	lease, ok := v.Lease(c.key())
	if !ok {
		return nil, notFound
	}
	writeInstance(c.w, c.r, http.StatusOK, fullFormat(c.r, c.v1), v, lease)
	return answered, nil
}

// instanceAnywhere is GET instances/{id}: the first instance with that id in whatever application.
func (c *call) instanceAnywhere() (any, error) {
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
	for lease := range v.ByID(c.segment("id")) {
		writeInstance(c.w, c.r, http.StatusOK, fullFormat(c.r, c.v1), v, lease)
		return answered, nil
	}
	return nil, notFound
}

func writeInstance(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, v freshView, lease *registry.Lease) {
	respondEureka(w, r, status, f, eureka.AppendInstanceDocument(nil, f, lease, v.LastRenewal(lease)))
}

// vip is GET vips/{vip}.
func (c *call) vip() (any, error) {
	return c.byAddress(func(v freshView) iter.Seq[*registry.Lease] { return v.ByVIP(c.segment("vip")) })
}

// secureVIP is GET svips/{svip}.
func (c *call) secureVIP() (any, error) {
	return c.byAddress(func(v freshView) iter.Seq[*registry.Lease] { return v.BySecureVIP(c.segment("svip")) })
}

// byAddress answers with the instances of an address; an unknown one is an empty list, not a 404.
func (c *call) byAddress(leases func(freshView) iter.Seq[*registry.Lease]) (any, error) {
	c.mustBeLoaded()
	v := c.view()
	if c.err != nil {
		return nil, c.err
	}
	if err := c.reserve(weightOf(leases(v))); err != nil {
		return nil, err
	}
	f := formatOf(c.r, c.v1)
	return c.document(f, eureka.AppendVIP(nil, f, leases(v)))
}

// mustBeLoaded refuses what must not show a registry that is still being loaded.
func (c *call) mustBeLoaded() {
	if c.err == nil && !c.gate.isOpen() {
		c.err = errNotReadable
	}
}
