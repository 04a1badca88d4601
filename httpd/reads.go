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

// gatedView is view for the routes that must not show a registry that is still being loaded.
func (h *Handler) gatedView(r *http.Request) (freshView, error) {
	if !h.gate.isOpen() {
		return freshView{}, errNotReadable
	}
	return h.view(r)
}

// fullList is GET apps. The parameter regions is accepted and means nothing: there are none.
func (h *Handler) fullList(w http.ResponseWriter, r *http.Request, v1 bool) error {
	v, err := h.gatedView(r)
	if err != nil {
		return err
	}
	rep := representation{format: formatOf(r, v1), gzip: wantsGzip(r)}
	doc := h.documents.full(v.View, rep)
	v.label(w.Header(), doc.index)
	respondReady(w, rep, doc.size, doc.parts...)
	return nil
}

// delta is GET apps/delta. It is always served: some clients never fall back to a full fetch.
func (h *Handler) delta(w http.ResponseWriter, r *http.Request, v1 bool) error {
	v, err := h.gatedView(r)
	if err != nil {
		return err
	}
	rep := representation{format: formatOf(r, v1), gzip: wantsGzip(r)}
	doc := h.documents.delta(v.View, rep)
	v.label(w.Header(), doc.index)
	respondReady(w, rep, int64(len(doc.data)), doc.data)
	return nil
}

// application is GET apps/{app}.
func (h *Handler) application(w http.ResponseWriter, r *http.Request, v1 bool) error {
	v, err := h.gatedView(r)
	if err != nil {
		return err
	}
	v.label(w.Header(), v.Index())
	app, ok := v.App(strings.ToUpper(pathVar(r, "app")))
	if !ok {
		return notFound
	}
	if err := h.reserve(w, r, weightOf(app.Leases())); err != nil {
		return err
	}
	f := formatOf(r, v1)
	respondEureka(w, r, http.StatusOK, f, eureka.AppendApplication(nil, f, app.Name, app.Leases()))
	return nil
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
func (h *Handler) instance(w http.ResponseWriter, r *http.Request, v1 bool) error {
	v, err := h.view(r)
	if err != nil {
		return err
	}
	v.label(w.Header(), v.Index())
	lease, ok := v.Lease(pathKey(r))
	if !ok {
		return notFound
	}
	writeInstance(w, r, http.StatusOK, fullFormat(r, v1), v, lease)
	return nil
}

// instanceAnywhere is GET instances/{id}: the first instance with that id in whatever application.
func (h *Handler) instanceAnywhere(w http.ResponseWriter, r *http.Request, v1 bool) error {
	v, err := h.view(r)
	if err != nil {
		return err
	}
	v.label(w.Header(), v.Index())
	for lease := range v.ByID(pathVar(r, "id")) {
		writeInstance(w, r, http.StatusOK, fullFormat(r, v1), v, lease)
		return nil
	}
	return notFound
}

func writeInstance(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, v freshView, lease *registry.Lease) {
	respondEureka(w, r, status, f, eureka.AppendInstanceDocument(nil, f, lease, v.LastRenewal(lease)))
}

// vip is GET vips/{vip}.
func (h *Handler) vip(w http.ResponseWriter, r *http.Request, v1 bool) error {
	return h.byAddress(w, r, v1, func(v freshView) iter.Seq[*registry.Lease] { return v.ByVIP(pathVar(r, "vip")) })
}

// secureVIP is GET svips/{svip}.
func (h *Handler) secureVIP(w http.ResponseWriter, r *http.Request, v1 bool) error {
	return h.byAddress(w, r, v1, func(v freshView) iter.Seq[*registry.Lease] { return v.BySecureVIP(pathVar(r, "svip")) })
}

// byAddress answers with the instances of an address; an unknown one is an empty list, not a 404.
func (h *Handler) byAddress(w http.ResponseWriter, r *http.Request, v1 bool, leases func(freshView) iter.Seq[*registry.Lease]) error {
	v, err := h.gatedView(r)
	if err != nil {
		return err
	}
	v.label(w.Header(), v.Index())
	if err := h.reserve(w, r, weightOf(leases(v))); err != nil {
		return err
	}
	f := formatOf(r, v1)
	respondEureka(w, r, http.StatusOK, f, eureka.AppendVIP(nil, f, leases(v)))
	return nil
}
