package client

import "github.com/seed-20419f34/rollcall/fsm/registry"

// ZoneOf is the zone of an instance: the metadata entry "zone" (as Spring Cloud), else Amazon's
// availability-zone; "": it says none. Source: com.netflix.appinfo.InstanceInfo.getZone.
func ZoneOf(i *registry.Instance) string { panic("not written") }

// PreferZone returns the instances of a zone, or all of them if it has none or zone is "". The order
// stays.
func PreferZone(zone string, instances []*registry.Instance) []*registry.Instance {
	panic("not written")
}
