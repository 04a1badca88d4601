package eurekaroutes

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// errNotReadable is the protocol's response of a server that has not loaded its registry, or found nothing to load: a
// client reads it as "ask another server".
var errNotReadable = &web.Refusal{Status: http.StatusForbidden}

// loaded makes an endpoint that does not show a registry which is still loading.
func loaded(e endpoint) endpoint {
	return func(c call) (any, error) {
		if !c.gate.isOpen() && !web.KnowsUnheard(c.R.Context()) {
			return nil, errNotReadable
		}
		return e(c)
	}
}

// gate keeps fetches out while the registry cannot be shown: until it is loaded and, if it was empty then, for some
// more time, while instances from elsewhere may arrive (upstream: PeerAwareInstanceRegistryImpl.shouldAllowAccess).
type gate struct {
	service registry.Service
	wait    time.Duration
	opens   atomic.Pointer[time.Time] // nil until the first request to the loaded registry
}

// observe records whether the registry is loaded and empty. It is called before every request that could
// fill it.
func (g *gate) observe() {
	if g.wait == 0 || g.opens.Load() != nil || !g.service.Health().Ready {
		return
	}
	opens := time.Now()
	if v := web.StaleView(g.service); v != nil && v.Total() == 0 {
		opens = opens.Add(g.wait)
	}
	g.opens.CompareAndSwap(nil, &opens) // the first observation counts
}

// isOpen reports whether a fetch may be served now.
func (g *gate) isOpen() bool {
	if !g.service.Health().Ready {
		return false
	}
	g.observe() // it may have been loaded since the request arrived
	opens := g.opens.Load()
	return opens == nil || !time.Now().Before(*opens)
}
