package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// metadata are services of clouds that hand out credentials to whoever asks from the machine, beside those
// at link-local addresses.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("100.100.100.200"), // Alibaba
}

// nat64 is the well-known prefix (RFC 6052) behind which IPv4 addresses are reached from IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

var broadcast = netip.MustParseAddr("255.255.255.255")

// guard decides which addresses may be connected to.
type guard struct{ loopback bool }

// control is net.Dialer.Control: it sees every address that is connected to, redirects and all addresses of a
// name included, after it was resolved.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: %w", address, err)
	}
	if why := g.refuses(to.Addr()); why != "" {
		return fmt.Errorf("%s is not probed: it is %s", to.Addr(), why)
	}
	return nil
}

// refuses says what an address is that must not be probed; "": it may be.
func (g guard) refuses(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback() && !g.loopback:
		return "a loopback address, and checks.allow-loopback is not set"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast(), a == broadcast:
		return "multicast or broadcast"
	case slices.Contains(metadata, a):
		return "a cloud's metadata service"
	}
	return ""
}
