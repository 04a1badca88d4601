package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// metadata has services of clouds that hand out credentials to every program on the machine, besides those at
// link-local addresses.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd00:ec2::23"),    // Amazon, for pods
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba
}

// nat64 is the well-known prefix (RFC 6052) behind which IPv4 addresses are reached from IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

var broadcast = netip.MustParseAddr("255.255.255.255")

// filter decides which addresses may be connected to.
type filter struct{ loopback bool }

// reach is what one attempt may connect to.
type reach struct {
	rules Rules
	// token reports whether the token that registered the check allows an address that is not the check's own.
	token func(at string) bool
	location
	named bool         // the check names the same host as the service: every address of that name is the service's
	ips   []netip.Addr // of the service's names
}

type reachKey struct{}

// allows returns why an address must not be connected to, or "".
func (r reach) allows(to netip.AddrPort) string {
	a := plain(to.Addr())
	to = netip.AddrPortFrom(a, to.Port())
	mine := slices.Contains(r.ports, to.Port()) && (r.named || slices.Contains(r.ips, a) || r.is(a.String()))
	switch {
	case mine && r.rules.owns(r.from, a), r.token(to.String()) && (mine || r.rules.targets(a, to.Port())):
		return ""
	case mine && r.counted != nil:
		r.counted(notOwn(to, r.from))
		return ""
	case mine:
		return notOwn(to, r.from)
	case !r.rules.targets(a, to.Port()):
		return notRegistered(to.String(), r.location)
	}
	return fmt.Sprintf("%s is not probed: the token that registered the check does not allow it (check-target %[1]s probe), or was revoked", to)
}

// notOwn names the address that a check may probe, and the rule under which it may probe another one.
func notOwn(to netip.AddrPort, from string) string {
	return fmt.Sprintf("%s is not probed: the check was registered from %s, and the token that registered it does not allow another address (check-target %[1]s probe), or was revoked",
		to, cmp.Or(from, "an address that is not known"))
}

// control is net.Dialer.ControlContext: it sees every address that is connected to, after it was resolved, including
// redirects and all addresses of a name.
func (f filter) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: %w", address, err)
	}
	if why := f.refuses(to.Addr()); why != "" {
		return fmt.Errorf("%s is not probed: it is %s", to.Addr(), why)
	}
	r, ok := ctx.Value(reachKey{}).(reach)
	if !ok {
		return fmt.Errorf("%s is not probed: no rule says which targets may be", to)
	}
	if why := r.allows(to); why != "" {
		return errors.New(why)
	}
	return nil
}

// plain returns the address that another form of it stands for.
func plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// refuses returns what an address is that must not be probed, or "".
func (f filter) refuses(a netip.Addr) string {
	a = plain(a)
	switch {
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback() && !f.loopback:
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
