package eurekaroutes

import (
	"iter"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// listed makes an endpoint of GET apps, whose parameter regions is accepted and ignored: there are no regions; or of
// GET apps/delta, which is always served, because some clients never fall back to a full fetch.
func listed(k kind) endpoint {
	return func(c call) (any, error) {
		v := c.Read()
		if c.Err != nil {
			return nil, c.Err
		}
		rep := c.representation()
		doc := c.documents.newestOf(k, v.View, rep)
		v.Label(c.W.Header(), doc.index)
		respondReady(c.W, rep, doc.size, doc.parts...)
		return web.Sent, nil
	}
}

// application is GET apps/{app}.
func (c call) application(v web.FreshView) (any, error) {
	app, ok := v.App(strings.ToUpper(c.Segment("app")))
	if !ok {
		return nil, web.NotFound
	}
	f := formatOf(c.R, c.V1)
	return c.sharedDocument("apps/"+app.Name, f, app, app.Leases(), func() []byte { return eureka.AppendApplication(nil, f, app.Name, app.Leases()) })
}

// instance is GET apps/{app}/{id}: live, always in full. Like the lists it shows a lease that has ended but was not
// evicted yet: only log entries change what readers see.
func (c call) instance(v web.FreshView) (any, error) {
	lease, ok := v.Lease(c.Key())
	if !ok {
		return nil, web.NotFound
	}
	writeInstance(c.W, c.R, http.StatusOK, fullFormat(c.R, c.V1), v, lease)
	return web.Sent, nil
}

// instanceAnywhere is GET instances/{id}: the first instance with that id in any application.
func (c call) instanceAnywhere(v web.FreshView) (any, error) {
	for lease := range v.ByID(c.Segment("id")) {
		writeInstance(c.W, c.R, http.StatusOK, fullFormat(c.R, c.V1), v, lease)
		return web.Sent, nil
	}
	return nil, web.NotFound
}

// byAddress is GET vips/{vip} or svips/{svip}: the instances of an address; an unknown one gives an empty list, not a
// 404.
func byAddress(variable string, leases func(v web.FreshView, address string) iter.Seq[*registry.Lease]) endpoint {
	return web.Viewed(func(c call, v web.FreshView) (any, error) {
		address := c.Segment(variable)
		f := formatOf(c.R, c.V1)
		found := leases(v, address)
		return c.sharedDocument(variable+"/"+address, f, version{epoch: v.Epoch(), index: v.Index()}, found, func() []byte { return eureka.AppendVIP(nil, f, found) })
	})
}
