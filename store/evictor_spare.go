package store

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// spare leaves out, of leases that have ended, those of other datacenters that stay for now.
func (e *evictor) spare(now int64, due []registry.EvictItem) []registry.EvictItem {
	if e.spares == nil {
		return due
	}
	spared := map[string]bool{"": false} // by datacenter
	return slices.DeleteFunc(due, func(item registry.EvictItem) bool {
		dc := e.owner(item.Handle)
		stays, asked := spared[dc]
		if !asked {
			stays = e.sparesAll(now, dc)
			spared[dc] = stays
		}
		return stays
	})
}

// sparesAll says whether the leases of a datacenter stay for now.
func (e *evictor) sparesAll(now int64, dc string) bool {
	link, ok := e.view().Link(dc)
	if !ok {
		return e.spares(dc, 0, false)
	}
	return e.spares(dc, time.Duration(now-link.Heard)*time.Millisecond, true)
}
