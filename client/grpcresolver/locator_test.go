package grpcresolver

import (
	"testing"

	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestWhereAnInstanceSpeaksGRPC(t *testing.T) {
	metadata := func(pairs ...registry.Pair) func(*registry.Instance) {
		return func(i *registry.Instance) { i.Metadata = pairs }
	}
	cases := []struct {
		name   string
		change func(i *registry.Instance)
		config Config
		secure bool
		want   []string
	}{
		{name: "its host name and port", want: []string{"orders-1:8080"}},
		{name: "its secure port for svip", secure: true, want: []string{"orders-1:8443"}},
		{name: "the port of its metadata", change: metadata(registry.Pair{Key: "gRPC_port", Value: "9090"}), want: []string{"orders-1:9090"}},
		{name: "the port of its metadata for svip", change: metadata(registry.Pair{Key: "gRPC_port", Value: "9090"}), secure: true, want: []string{"orders-1:9090"}},
		{name: "the older key", change: metadata(registry.Pair{Key: "gRPC.port", Value: "9091"}), want: []string{"orders-1:9091"}},
		{name: "the newer key of both", change: metadata(registry.Pair{Key: "gRPC.port", Value: "9091"}, registry.Pair{Key: "gRPC_port", Value: "9090"}), want: []string{"orders-1:9090"}},
		{name: "a key in another case", change: metadata(registry.Pair{Key: "grpc.port", Value: "9092"}), want: []string{"orders-1:9092"}},
		{name: "metadata that is no port", change: metadata(registry.Pair{Key: "gRPC_port", Value: "none"})},
		{name: "metadata that is the port 0", change: metadata(registry.Pair{Key: "gRPC_port", Value: "0"})},
		{name: "metadata that is above all ports", change: metadata(registry.Pair{Key: "gRPC_port", Value: "65536"})},
		{name: "port not enabled", change: func(i *registry.Instance) { i.Port.Enabled = false }},
		{name: "port 0, which it did not know when it registered", change: func(i *registry.Instance) { i.Port.Number = 0 }},
		{name: "secure port not enabled", change: func(i *registry.Instance) { i.SecurePort.Enabled = false }, secure: true},
		{name: "no host name", change: func(i *registry.Instance) { i.HostName = "" }, want: []string{"10.0.0.1:8080"}},
		{name: "neither name nor address", change: func(i *registry.Instance) { i.HostName, i.IPAddr = "", "" }},
		{name: "an address of IPv6", change: func(i *registry.Instance) { i.HostName = "fd00::1" }, want: []string{"[fd00::1]:8080"}},
		{name: "the host that the caller chose", config: Config{Host: balance.ByIP}, want: []string{"10.0.0.1:8080"}},
		{name: "the port that the caller chose", config: Config{Port: func(i *registry.Instance) (uint16, bool) { return i.SecurePort.Number, true }}, want: []string{"orders-1:8443"}},
		{name: "no port that the caller chose", config: Config{Port: func(i *registry.Instance) (uint16, bool) { return 1, false }}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			i := with(instance("o1", "orders-1", 8080), func(i *registry.Instance) {
				i.IPAddr, i.SecurePort = "10.0.0.1", registry.Port{Number: 8443, Enabled: true}
			})
			if c.change != nil {
				c.change(i)
			}
			expect.Slice(t, c.config.locator(c.secure).addresses([]*registry.Instance{i}), c.want, "got")
		})
	}
}

func TestAddressesOfAService(t *testing.T) {
	inZone := func(zone string) func(*registry.Instance) {
		return func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "zone", Value: zone}} }
	}
	a1 := with(instance("o3", "a1", 80), inZone("a"))
	b1 := with(instance("o2", "b1", 80), inZone("b"))
	b2 := with(instance("o1", "b2", 80), inZone("b"))
	mute := func(i *registry.Instance) { i.Port.Enabled = false }
	cases := []struct {
		name      string
		zone      string
		instances []*registry.Instance
		want      []string
	}{
		{name: "all, in an order that ids do not change", instances: []*registry.Instance{b2, b1, a1}, want: []string{"a1:80", "b1:80", "b2:80"}},
		{name: "each once", instances: []*registry.Instance{b1, with(b1, func(i *registry.Instance) { i.InstanceID = "o9" })}, want: []string{"b1:80"}},
		{name: "those of the zone", zone: "b", instances: []*registry.Instance{b2, b1, a1}, want: []string{"b1:80", "b2:80"}},
		{name: "all, if the zone has none", zone: "c", instances: []*registry.Instance{b2, b1, a1}, want: []string{"a1:80", "b1:80", "b2:80"}},
		{name: "all, if the zone has none that speaks gRPC", zone: "a", instances: []*registry.Instance{b2, b1, with(a1, mute)}, want: []string{"b1:80", "b2:80"}},
		{name: "none", zone: "a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			expect.Slice(t, (Config{Zone: c.zone}).locator(false).addresses(c.instances), c.want, "got")
		})
	}
}
