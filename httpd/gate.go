package httpd

import (
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
