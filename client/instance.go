package client

import (
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// NewInstance returns an instance on this machine: app listening on port, UP, with the lease that stock clients ask
// for (30 s, 90 s), named HOST:app:PORT, with app in lower case as its VIP address. Host and address are the
// machine's: its name (or its address, if nameless), and its first address that is not loopback. Port 0 means that it
// does not listen. The caller may change anything before it registers the instance.
func NewInstance(app string, port uint16) *registry.Instance {
	name := strings.ToLower(app)
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = ownIP()
	}
	return &registry.Instance{
		InstanceID:      host + ":" + name + ":" + strconv.Itoa(int(port)),
		HostName:        host,
		App:             strings.ToUpper(app),
		IPAddr:          ownIP(),
		Status:          registry.Up,
		Port:            registry.Port{Number: port, Enabled: port != 0},
		DataCenter:      registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: registry.DefaultRenewalInterval,
		Duration:        registry.DefaultDuration,
		VIP:             name,
	}
}

// ownIP returns the first address of this machine that others may reach.
func ownIP() string {
	const nobodyElse = "127.0.0.1"
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nobodyElse
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return nobodyElse
}

// ZoneOf returns the zone of an instance: the metadata entry "zone" (as Spring Cloud), otherwise Amazon's
// availability-zone, or "" if it names none. Source: com.netflix.appinfo.InstanceInfo.getZone.
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
// ZonePreferenceServiceInstanceListSupplier), or all of them if none is in it or zone is "". The order stays.
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
