package access

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Target is a set of addresses, at one port, or at any if Port is 0.
type Target struct {
	Addresses netip.Prefix
	Port      uint16
}

// ParseTarget reads CIDR:port, with * for any port and brackets around IPv6: 10.0.0.0/8:*, [fd00::/8]:443.
// A single address stands for itself.
func ParseTarget(text string) (Target, error) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return Target{}, fmt.Errorf("%q has no port; write 10.0.0.0/8:8080, or 10.0.0.0/8:* for any", text)
	}
	var t Target
	if port := text[at+1:]; port != "*" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Target{}, fmt.Errorf("%q has no port from 1 to 65535, or * for any", text)
		}
		t.Port = uint16(n)
	}
	addresses := strings.TrimSuffix(strings.TrimPrefix(text[:at], "["), "]")
	if a, err := netip.ParseAddr(addresses); err == nil {
		t.Addresses = netip.PrefixFrom(a, a.BitLen())
		return t, nil
	}
	p, err := netip.ParsePrefix(addresses)
	if err != nil {
		return Target{}, fmt.Errorf("%q does not begin with a CIDR such as 10.0.0.0/8 or [fd00::/8]", text)
	}
	t.Addresses = p.Masked()
	return t, nil
}

// String is the inverse of ParseTarget.
func (t Target) String() string {
	addresses, port := t.Addresses.String(), "*"
	if t.Addresses.Addr().Is6() {
		addresses = "[" + addresses + "]"
	}
	if t.Port != 0 {
		port = fmt.Sprint(t.Port)
	}
	return addresses + ":" + port
}

// Contains reports whether a target has an address, which must not be IPv4 in IPv6.
func (t Target) Contains(at netip.AddrPort) bool {
	return (t.Port == 0 || t.Port == at.Port()) && t.Addresses.Contains(at.Addr())
}

// ToProbe returns what the owner of a check needs to let it look at an address.
func ToProbe(at string) Need { return Need{Resource: CheckTarget, Name: at, Verb: Probe} }

// HeaderTarget begins the name in the need of a check that sends a header beyond the settings: no rule allows it.
const HeaderTarget = "header:"
