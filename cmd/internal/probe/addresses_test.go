package probe

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

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
