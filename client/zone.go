package client

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ZoneOf is the zone of an instance: the metadata entry "zone" (as Spring Cloud), else Amazon's
// availability-zone; "": it says none. Source: com.netflix.appinfo.InstanceInfo.getZone.
func ZoneOf(i *registry.Instance) string {
	if zone := i.Meta("zone"); zone != "" {
		return zone
	}
	if i.DataCenter.Name == registry.Amazon {
		return i.DataCenter.Value("availability-zone")
	}
	return ""
}

// PreferZone returns the instances of a zone, in any case (as Spring Cloud LoadBalancer's
// ZonePreferenceServiceInstanceListSupplier), or all of them if it has none or zone is "". The order
// stays.
func PreferZone(zone string, instances []*registry.Instance) []*registry.Instance {
	near := 0
	for _, i := range instances {
		if inZone(zone, i) {
			near++
		}
	}
	if zone == "" || near == 0 || near == len(instances) {
		return instances
	}
	preferred := make([]*registry.Instance, 0, near)
	for _, i := range instances {
		if inZone(zone, i) {
			preferred = append(preferred, i)
		}
	}
	return preferred
}

func inZone(zone string, i *registry.Instance) bool { return strings.EqualFold(ZoneOf(i), zone) }
