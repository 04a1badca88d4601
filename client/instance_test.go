package client

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestNewInstanceCanBeRegistered(t *testing.T) {
	i := NewInstance("Orders", 8080)
	expect.OK(t, checkInstance(i))
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("this machine has no name: %v", err)
	}
	expect.Equal(t, i.ID(), host+":orders:8080", "its id is")
	if i.App != "ORDERS" || i.VIP != "orders" || i.HostName != host || i.Status != registry.Up || i.RenewalInterval != 30 || i.Duration != 90 ||
		i.Port != (registry.Port{Number: 8080, Enabled: true}) {
		t.Errorf("it is %+v", i)
	}
	expect.That(t, net.ParseIP(i.IPAddr) != nil, "its address is %q", i.IPAddr)
}

func TestNewInstanceWithoutAPortDoesNotListen(t *testing.T) {
	i := NewInstance("orders", 0)
	expect.That(t, !i.Port.Enabled && strings.HasSuffix(i.ID(), ":orders:0"), "it is %+v", i)
}

// changedInstance is an instance of ORDERS after changes.
func changedInstance(id string, changes ...func(*registry.Instance)) *registry.Instance {
	i := orders(id, registry.Up)
	for _, change := range changes {
		change(i)
	}
	return i
}

func withZone(zone string) func(*registry.Instance) {
	return func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "zone", Value: zone}} }
}

func TestZoneOfAnInstance(t *testing.T) {
	amazon := func(zone string) func(*registry.Instance) {
		return func(i *registry.Instance) {
			i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{{Key: "availability-zone", Value: zone}}}
		}
	}
	tests := []struct {
		name   string
		change []func(*registry.Instance)
		want   string
	}{
		{"it says none", nil, ""},
		{"in its metadata", []func(*registry.Instance){withZone("eu-1a")}, "eu-1a"},
		{"Amazon's", []func(*registry.Instance){amazon("us-east-1c")}, "us-east-1c"},
		{"its metadata counts more than Amazon's", []func(*registry.Instance){amazon("us-east-1c"), withZone("eu-1a")}, "eu-1a"},
		{"an empty entry is none", []func(*registry.Instance){amazon("us-east-1c"), withZone("")}, "us-east-1c"},
		{"another data center's metadata does not count", []func(*registry.Instance){amazon("us-east-1c"), func(i *registry.Instance) {
			i.DataCenter.Name = registry.MyOwn
		}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, ZoneOf(changedInstance("1", tt.change...)), tt.want, "zone")
		})
	}
}

func TestPreferZone(t *testing.T) {
	a1, a2, b, none := changedInstance("1", withZone("a")), changedInstance("2", withZone("a")), changedInstance("3", withZone("b")), changedInstance("4")
	tests := []struct {
		name      string
		zone      string
		instances []*registry.Instance
		want      []*registry.Instance
	}{
		{"those of the zone, in their order", "a", []*registry.Instance{a2, b, a1, none}, []*registry.Instance{a2, a1}},
		{"in another case", "A", []*registry.Instance{a1, b}, []*registry.Instance{a1}},
		{"all where the zone has none", "c", []*registry.Instance{a1, b, none}, []*registry.Instance{a1, b, none}},
		{"all without a zone, not those without one", "", []*registry.Instance{a1, none}, []*registry.Instance{a1, none}},
		{"all are in the zone", "a", []*registry.Instance{a1, a2}, []*registry.Instance{a1, a2}},
		{"of none", "a", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.instances)
			if got := PreferZone(tt.zone, tt.instances); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			expect.That(t, slices.Equal(given, tt.instances), "the list that was given was changed")
		})
	}
}
