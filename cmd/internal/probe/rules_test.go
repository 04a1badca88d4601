package probe

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestRulesLetACheckAddressWhatItsServiceRegistered(t *testing.T) {
	service := &catalog.Service{Address: "10.0.0.5", Port: 8080, Tagged: []catalog.TaggedAddress{{Tag: "wan", Address: "shop.example", Port: 443}}, Ports: []byte(`[{"Name":"admin","Port":9000}]`)}
	instance := &registry.Instance{HostName: "10.0.0.5", IPAddr: "10.0.0.5"}
	named := &catalog.Service{Address: "orders.internal", Port: 8080}
	tests := []struct {
		name    string
		probe   catalog.Probe
		service *catalog.Service
		rules   Rules
		want    string // part of the refusal; "": none
	}{
		{name: "its own port", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health"}, service: service},
		{name: "HEAD", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "HEAD"}, service: service},
		{name: "by TCP", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, service: service},
		{name: "by UDP", probe: catalog.Probe{UDP: "10.0.0.5:8080"}, service: service},
		{name: "by gRPC", probe: catalog.Probe{GRPC: "10.0.0.5:8080/orders"}, service: service},
		{name: "by HTTP/2", probe: catalog.Probe{H2PING: "10.0.0.5:8080"}, service: service},
		{name: "another port by UDP", probe: catalog.Probe{UDP: "10.0.0.5:53"}, service: service, want: "10.0.0.5:53 is not probed"},
		{name: "another address by gRPC", probe: catalog.Probe{GRPC: "10.0.0.6:22/10.0.0.5:8080"}, service: service, want: "10.0.0.6:22 is not probed"},
		{name: "gRPC without a port", probe: catalog.Probe{GRPC: "10.0.0.5/orders"}, service: service, want: `"10.0.0.5" is not of the form host:port`},
		{name: "another port by HTTP/2", probe: catalog.Probe{H2PING: "10.0.0.5:22"}, service: service, want: "10.0.0.5:22 is not probed"},
		{name: "a tagged address", probe: catalog.Probe{HTTP: "https://shop.example/health"}, service: service},
		{name: "a further port", probe: catalog.Probe{TCP: "10.0.0.5:9000"}, service: service},
		{name: "by the name that it registered", probe: catalog.Probe{HTTP: "http://Orders.internal:8080/health"}, service: named},
		{name: "by an address, which its name may resolve to", probe: catalog.Probe{HTTP: "http://10.0.0.9:8080/health"}, service: named},
		{name: "by a name, which may resolve to its address", probe: catalog.Probe{HTTP: "http://orders:8080/health"}, service: service},
		{name: "another port", probe: catalog.Probe{TCP: "10.0.0.5:22"}, service: service, want: "10.0.0.5:22 is not probed: a check addresses what its own service registered (10.0.0.5, shop.example with 8080 443 9000), or what checks.targets names"},
		{name: "another port of its name", probe: catalog.Probe{TCP: "orders.internal:22"}, service: named, want: "checks.targets"},
		{name: "another address", probe: catalog.Probe{HTTP: "http://10.0.0.6/"}, service: service, want: "10.0.0.6:80 is not probed"},
		{name: "a node's check", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, want: "(nothing)"},
		{name: "a target", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8")}}}},
		{name: "a name that may be a target", probe: catalog.Probe{TCP: "db.internal:5432"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8"), Port: 5432}}}},
		{name: "a name at no target's port", probe: catalog.Probe{TCP: "db.internal:22"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8"), Port: 5432}}}, want: "checks.targets"},
		{name: "POST", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "POST"}, service: service, want: `method "POST" is not used by checks; checks.methods allows GET and HEAD`},
		{name: "POST, allowed", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "POST"}, service: service, rules: Rules{Methods: []string{"POST"}}},
		{name: "a metadata service that it registered", probe: catalog.Probe{HTTP: "http://169.254.169.254/"}, service: &catalog.Service{Address: "169.254.169.254", Port: 80}, want: "link-local"},
		{name: "loopback that it registered", probe: catalog.Probe{HTTP: "http://127.0.0.1:80/"}, service: &catalog.Service{Address: "127.0.0.1", Port: 80}, want: "checks.allow-loopback"},
		{name: "another scheme", probe: catalog.Probe{HTTP: "file:///etc/passwd"}, service: service, want: "not of the form http://host:port/path"},
		{name: "no port", probe: catalog.Probe{TCP: "10.0.0.5"}, service: service, want: "not of the form host:port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var i *registry.Instance
			if tt.service == service {
				i = instance
			}
			got, _ := tt.rules.Refuses(&tt.probe, tt.service, i)
			expect.That(t, (got == "") == (tt.want == "") && strings.Contains(got, tt.want), "refused as %q, want %q", got, tt.want)
		})
	}
}

func TestRulesSayWhatIsBeyondTheCheck(t *testing.T) {
	rules := Rules{Targets: anywhere, AllowLoopback: true, IsNode: func(a netip.Addr) bool { return a.String() == "10.0.0.1" }}
	service := &catalog.Service{Address: "10.0.0.5", Port: 8080, Tagged: []catalog.TaggedAddress{{Address: "10.0.0.1"}, {Address: "127.0.0.1"}}}
	named := &catalog.Service{Address: "web.internal", Port: 8080}
	for _, tc := range []struct {
		tcp, from string
		service   *catalog.Service
		want      string
		counted   bool
	}{
		{"10.0.0.5:8080", "10.0.0.5", service, "", false},
		{"[::ffff:10.0.0.5]:8080", "10.0.0.5", named, "", false},
		{"10.0.0.5:8080", "10.0.0.66", service, "10.0.0.5:8080", true},
		{"10.0.0.9:8080", "10.0.0.66", named, "10.0.0.9:8080", true},
		{"10.0.0.5:8080", "", service, "10.0.0.5:8080", true},
		{"10.0.0.1:8080", "10.0.0.1", service, "10.0.0.1:8080", true},
		{"127.0.0.1:8080", "127.0.0.1", service, "127.0.0.1:8080", true},
		{"10.0.0.5:22", "10.0.0.5", service, "10.0.0.5:22", false},
		{"10.0.0.6:8080", "10.0.0.6", service, "10.0.0.6:8080", false},
		{"[::ffff:10.0.0.6]:8080", "10.0.0.5", service, "10.0.0.6:8080", false},
		{"db.internal:5432", "10.0.0.5", service, "", false}, // its address decides
	} {
		why, needs := rules.Refuses(&catalog.Probe{TCP: tc.tcp, From: tc.from}, tc.service, nil)
		var want []access.Need
		if tc.want != "" {
			want = []access.Need{{Resource: access.CheckTarget, Name: tc.want, Verb: access.Probe, Counted: tc.counted}}
		}
		expect.That(t, why == "" && slices.Equal(needs, want), "%s from %s: got %q and %v, want %v", tc.tcp, tc.from, why, needs, want)
	}
	_, needs := rules.Refuses(&catalog.Probe{HTTP: "http://10.0.0.5:8080/", From: "10.0.0.5", Header: []codec.Pair{{Key: "accept"}, {Key: "Host"}, {Key: "Cookie"}}}, service, nil)
	expect.That(t, slices.Equal(needs, []access.Need{{Resource: access.CheckTarget, Name: "header:Host", Verb: access.Probe, Counted: true}}), "of headers: got %v", needs)
}

func TestFilterRefusesAddressesOfTheMachineAndItsCloud(t *testing.T) {
	tests := []struct {
		address  string
		loopback bool   // allowed
		want     string // part of the reason; "": it may be probed
	}{
		{"10.1.2.3", false, ""},
		{"192.168.0.1", false, ""},
		{"8.8.8.8", false, ""},
		{"2001:db8::1", false, ""},
		{"fd12::1", false, ""},
		{"127.0.0.1", true, ""},
		{"::1", true, ""},
		{"127.0.0.1", false, "loopback"},
		{"127.9.9.9", false, "loopback"},
		{"::1", false, "loopback"},
		{"::ffff:127.0.0.1", false, "loopback"},
		{"64:ff9b::7f00:1", false, "loopback"},
		{"169.254.169.254", true, "link-local"},
		{"::ffff:169.254.169.254", true, "link-local"},
		{"64:ff9b::a9fe:a9fe", true, "link-local"},
		{"fe80::1", true, "link-local"},
		{"fe80::1%eth0", true, "link-local"},
		{"fd00:ec2::254", true, "metadata"},
		{"fd00:ec2::254%eth0", true, "metadata"},
		{"fd00:ec2::23", true, "metadata"},
		{"168.63.129.16", true, "metadata"},
		{"::ffff:168.63.129.16", true, "metadata"},
		{"100.100.100.200", true, "metadata"},
		{"0.0.0.0", true, "unspecified"},
		{"::", true, "unspecified"},
		{"::ffff:0.0.0.0", true, "unspecified"},
		{"224.0.0.1", true, "multicast"},
		{"ff02::1", true, "multicast"},
		{"255.255.255.255", true, "broadcast"},
	}
	for _, tt := range tests {
		got := filter{loopback: tt.loopback}.refuses(netip.MustParseAddr(tt.address))
		expect.That(t, (got == "") == (tt.want == "") && strings.Contains(got, tt.want),
			"%s (loopback allowed: %v): refused as %q, want %q", tt.address, tt.loopback, got, tt.want)
	}
}

func TestFilterRefusesATextThatIsNoAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:80", "10.0.0.1", "/run/socket"} {
		expect.That(t, (filter{loopback: true}).control(t.Context(), "tcp", address, nil) != nil, "%q: not refused", address)
	}
}
