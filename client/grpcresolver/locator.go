package grpcresolver

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// locator tells where instances speak gRPC.
type locator struct {
	host func(i *registry.Instance) string
	port func(i *registry.Instance) (port uint16, ok bool)
	zone string
}

// locator fills in the defaults.
func (c Config) locator(secure bool) locator {
	l := locator{host: c.Host, port: c.Port, zone: c.Zone}
	if l.host == nil {
		l.host = balance.ByHostName
	}
	if l.port == nil {
		l.port = func(i *registry.Instance) (uint16, bool) { return portOf(i, secure) }
	}
	return l
}

// addresses returns where to call instances, each address once, in an order that does not depend on the
// instances' ids. Those that speak no gRPC do not count as their zone's.
func (l locator) addresses(instances []*registry.Instance) []string {
	at := make(map[*registry.Instance]string, len(instances))
	var located []*registry.Instance
	for _, i := range instances {
		host := l.host(i)
		if port, ok := l.port(i); ok && host != "" {
			at[i] = net.JoinHostPort(host, strconv.Itoa(int(port)))
			located = append(located, i)
		}
	}
	var addresses []string
	for _, i := range client.PreferZone(l.zone, located) {
		addresses = append(addresses, at[i])
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// portOf is the default of Config.Port. Metadata that names no port is not passed over: whatever listens
// on the instance's other ports, it is not its gRPC server.
// Source of the keys: net.devh.boot.grpc.client.nameresolver.DiscoveryClientNameResolver.
func portOf(i *registry.Instance, secure bool) (uint16, bool) {
	for _, key := range []string{"gRPC_port", "gRPC.port"} {
		for _, m := range i.Metadata {
			if strings.EqualFold(m.Key, key) {
				port, err := strconv.ParseUint(m.Value, 10, 16)
				return uint16(port), err == nil && port != 0
			}
		}
	}
	port := i.PortFor(secure)
	return port, port != 0
}
