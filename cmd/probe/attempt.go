package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// maxOutput is the longest output of a check, in bytes.
	maxOutput = 4 << 10
	// maxHeader is the longest header of an answer, in bytes.
	maxHeader = 64 << 10
)

// result is what one attempt came to.
type result struct {
	status registry.CheckStatus
	output string
}

// caller makes attempts.
type caller struct {
	rules    Rules
	dialer   *net.Dialer
	verified *http.Client
	skipping *http.Client // does not verify certificates
}

func newCaller(rules Rules) *caller {
	dialer := &net.Dialer{ControlContext: guard{loopback: rules.AllowLoopback}.control}
	return &caller{rules: rules, dialer: dialer, verified: newClient(dialer, false), skipping: newClient(dialer, true)}
}

// newClient makes a client without a proxy, which would resolve names by itself, and without connections
// that are kept: a service that takes no new ones is not well.
func newClient(dialer *net.Dialer, skipVerify bool) *http.Client {
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: skipVerify}, // the check says so: TLSSkipVerify
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// maxRedirects is net/http's own limit.
const maxRedirects = 10

// sameHost follows redirects on the host that the check names; another one was not registered.
func sameHost(req *http.Request, via []*http.Request) error {
	if !strings.EqualFold(req.URL.Hostname(), via[0].URL.Hostname()) {
		return errors.New("a redirect to another host is not followed")
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("%d redirects are too many", maxRedirects)
	}
	return nil
}

// noRedirects makes a redirect the answer.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// attempt asks once, what the service registered or the rules allow. ctx bounds it.
func (c *caller) attempt(ctx context.Context, p *registry.Probe, o own) result {
	if why := c.rules.refuses(p, o); why != "" {
		return result{registry.Critical, why}
	}
	ctx = context.WithValue(ctx, reachKey{}, c.reach(ctx, p, o))
	r := result{status: registry.Critical}
	var err error
	if p.HTTP != "" {
		r, err = c.http(ctx, p)
	} else {
		r, err = c.tcp(ctx, p.TCP)
	}
	if err != nil {
		r = result{registry.Critical, describe(err)}
	}
	r.output = shorten(r.output)
	return r
}

// reach resolves the names under which the service registered, if the check does not use one of them.
func (c *caller) reach(ctx context.Context, p *registry.Probe, o own) reach {
	host, _, _ := address(p)
	r := reach{rules: c.rules, own: o, named: o.is(host)}
	if r.named {
		return r
	}
	for _, name := range o.names() {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name) // one that is not found adds nothing
		for _, a := range found {
			r.ips = append(r.ips, plain(a))
		}
	}
	return r
}

func (c *caller) tcp(ctx context.Context, address string) (result, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return result{}, err
	}
	conn.Close()
	return result{registry.Passing, "TCP connect " + address + ": Success"}, nil
}

func (c *caller) http(ctx context.Context, p *registry.Probe) (result, error) {
	req, err := newRequest(ctx, p)
	if err != nil {
		return result{}, err
	}
	client := c.verified
	if p.SkipVerify {
		client = c.skipping
	}
	if p.NoRedirects {
		client = &http.Client{Transport: client.Transport, CheckRedirect: noRedirects}
	}
	resp, err := client.Do(req)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	// A body that breaks off does not change what the status said.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	output := fmt.Sprintf("HTTP %s %s: %s Output: %s", req.Method, req.URL.Redacted(), resp.Status, body)
	return result{statusOf(resp.StatusCode), output}, nil
}

func newRequest(ctx context.Context, p *registry.Probe) (*http.Request, error) {
	method := p.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, p.HTTP, strings.NewReader(p.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "Rollcall Health Check")
	req.Header.Set("Accept", "text/plain, text/*, */*")
	for _, h := range p.Header {
		if strings.EqualFold(h.Key, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Set(h.Key, h.Value)
	}
	return req, nil
}

// statusOf is the state that an HTTP status stands for.
func statusOf(code int) registry.CheckStatus {
	switch {
	case code >= 200 && code <= 299:
		return registry.Passing
	case code == http.StatusTooManyRequests:
		return registry.Warning
	}
	return registry.Critical
}

// describe is an error without the local port, which is another one each time: outputs that stay the same
// need no log entry.
func describe(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err.Error()
	}
	same := *op
	same.Source = nil
	var outer *url.Error
	if errors.As(err, &outer) {
		return fmt.Sprintf("%s %q: %v", outer.Op, outer.URL, &same)
	}
	return same.Error()
}

// shorten cuts an output to maxOutput bytes of valid UTF-8.
func shorten(output string) string {
	if len(output) > maxOutput {
		output = output[:maxOutput]
	}
	return strings.ToValidUTF8(output, "")
}

// metadata are services of clouds that hand out credentials to whoever asks from the machine, beside those
// at link-local addresses.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd00:ec2::23"),    // Amazon, for pods
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba
}

// nat64 is the well-known prefix (RFC 6052) behind which IPv4 addresses are reached from IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

var broadcast = netip.MustParseAddr("255.255.255.255")

// guard decides which addresses may be connected to.
type guard struct{ loopback bool }

// reach is what one attempt may connect to.
type reach struct {
	rules Rules
	own   own
	named bool         // the check names a host as the service does: whatever that resolves to is the service's
	ips   []netip.Addr // what the service's names resolve to
}

type reachKey struct{}

// allows says why an address must not be connected to; "": it may.
func (r reach) allows(to netip.AddrPort) string {
	a := plain(to.Addr())
	switch mine := slices.Contains(r.own.ports, to.Port()); {
	case mine && (r.named || slices.Contains(r.ips, a) || r.own.is(a.String())):
		return ""
	case r.rules.targets(a, to.Port()):
		return ""
	}
	return notOwn(to.String(), r.own)
}

// control is net.Dialer.ControlContext: it sees every address that is connected to, redirects and all
// addresses of a name included, after it was resolved.
func (g guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: %w", address, err)
	}
	if why := g.refuses(to.Addr()); why != "" {
		return fmt.Errorf("%s is not probed: it is %s", to.Addr(), why)
	}
	r, ok := ctx.Value(reachKey{}).(reach)
	if !ok {
		return fmt.Errorf("%s is not probed: nobody said what may be", to)
	}
	if why := r.allows(to); why != "" {
		return errors.New(why)
	}
	return nil
}

// plain is the address that another form of it stands for.
func plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// refuses says what an address is that must not be probed; "": it may be.
func (g guard) refuses(a netip.Addr) string {
	a = plain(a)
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
