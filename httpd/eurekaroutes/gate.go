package eurekaroutes

import (
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// errNotReadable is the protocol's response of a server that has not loaded its registry, or found nothing to load: a
// client reads it as "ask another server".
var errNotReadable = &web.Refusal{Status: http.StatusForbidden}

// loaded makes an endpoint that keeps fetches out while the registry cannot be shown: until it is loaded and, if it was
// empty then, for some more time, while instances from elsewhere may arrive (upstream:
// PeerAwareInstanceRegistryImpl.shouldAllowAccess).
func loaded(e endpoint) endpoint {
	return func(c call) (any, error) {
		open := c.Service.Health().Ready
		if open {
			c.ObserveLoad() // it may have been loaded since the request arrived
			opens := c.opens.Load()
			open = opens == nil || !time.Now().Before(*opens)
		}
		if !open && !web.KnowsUnheard(c.R.Context()) {
			return nil, errNotReadable
		}
		return e(c)
	}
}

// ObserveLoad records whether the registry is loaded and empty. Call it before every request that could fill the
// registry.
func (e *Eureka) ObserveLoad() {
	wait := e.config.WaitWhenEmpty
	if wait == 0 || e.opens.Load() != nil || !e.Service.Health().Ready {
		return
	}
	opens := time.Now()
	if v := web.StaleView(e.Service); v != nil && v.Total() == 0 {
		opens = opens.Add(wait)
	}
	e.opens.CompareAndSwap(nil, &opens) // the first observation counts
}
