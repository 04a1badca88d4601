package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/world"
)

const (
	// maxOutput is the longest output of a check, in bytes.
	maxOutput = 4 << 10
	// maxBody bounds how much of a response's body is read to find its end, in bytes.
	maxBody = 1 << 20
	// maxHeader is the longest header of a response, in bytes.
	maxHeader = 64 << 10
)

// result is what one attempt found.
type result struct {
	status catalog.CheckStatus
	output string
}

// caller makes attempts.
type caller struct {
	rules    Rules
	mayProbe func(token, at string) bool
	world    *world.World
	control  world.Control
}

func newCaller(w *world.World, rules Rules, mayProbe func(token, at string) bool) *caller {
	return &caller{rules, mayProbe, w, filter{loopback: rules.AllowLoopback}.control}
}

// client returns a client without a proxy, which would resolve names on its own, and without kept connections: a
// service that accepts no new ones is not healthy. It follows redirects on the host that the check names; no other host
// was registered.
func (c *caller) client(p *catalog.Probe) *http.Client {
	return &http.Client{
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case p.NoRedirects:
				return http.ErrUseLastResponse // a redirect counts as the response
			case !strings.EqualFold(req.URL.Hostname(), via[0].URL.Hostname()):
				return errors.New("a redirect to another host is not followed")
			case len(via) >= maxRedirects:
				return fmt.Errorf("%d redirects are too many", maxRedirects)
			}
			return nil
		},
		Transport: &http.Transport{
			DialContext:            c.open,
			TLSClientConfig:        tlsConfig(p),
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
}

func tlsConfig(p *catalog.Probe, protocols ...string) *tls.Config {
	// the check says so: TLSSkipVerify
	return &tls.Config{InsecureSkipVerify: p.SkipVerify, ServerName: p.ServerName, NextProtos: protocols}
}

// maxRedirects is net/http's own limit.
const maxRedirects = 10

// attempt probes once, at an address that the service registered or the rules allow. ctx bounds it.
func (c *caller) attempt(ctx context.Context, p *catalog.Probe, loc location) result {
	if why := c.rules.refuses(p, loc); why != "" {
		return result{catalog.Critical, why}
	}
	if header := c.rules.beyondHeaders(p); header != "" && !c.mayProbe(p.By, header) {
		why := header + " is not sent: checks.headers names the headers that checks may send"
		if loc.counted == nil {
			return result{catalog.Critical, why}
		}
		loc.counted(why)
	}
	ctx = context.WithValue(ctx, reachKey{}, c.reach(ctx, p, loc))
	r, err := c.probe(ctx, p)
	if err != nil {
		r = result{catalog.Critical, describe(err)}
	}
	r.output = strings.ToValidUTF8(r.output[:min(len(r.output), maxOutput)], "")
	return r
}

// probe makes an attempt as the check says. An error means that there was no response.
func (c *caller) probe(ctx context.Context, p *catalog.Probe) (result, error) {
	kind, address := target(p)
	switch kind {
	case kindHTTP:
		return c.http(ctx, p)
	case kindUDP:
		return c.udp(ctx, address)
	case kindGRPC:
		return c.grpc(ctx, p, address)
	case kindH2PING:
		return c.ping(ctx, p, address)
	}
	return c.tcp(ctx, p, address)
}

// reach returns which addresses a check may use. It resolves the names under which the service registered, if the
// check does not use one of them.
func (c *caller) reach(ctx context.Context, p *catalog.Probe, loc location) reach {
	host, _, _ := address(p)
	r := reach{rules: c.rules, token: func(at string) bool { return c.mayProbe(p.By, at) }, location: loc, named: loc.is(host)}
	if r.named {
		return r
	}
	for _, name := range loc.names() {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name) // one that is not found adds nothing
		for _, a := range found {
			r.ips = append(r.ips, plain(a))
		}
	}
	return r
}

func (c *caller) tcp(ctx context.Context, p *catalog.Probe, address string) (result, error) {
	conn, err := c.dial(ctx, p, address)
	if err != nil {
		return result{}, err
	}
	conn.Close()
	kind := "TCP"
	if p.UseTLS {
		kind = "TCP+TLS"
	}
	return result{catalog.Passing, kind + " connect " + address + ": Success"}, nil
}

// dial connects, and shakes hands over TLS if the check says so, offering protocols by ALPN.
func (c *caller) dial(ctx context.Context, p *catalog.Probe, address string, protocols ...string) (net.Conn, error) {
	conn, err := c.open(ctx, "tcp", address)
	if err != nil || !p.UseTLS {
		return conn, err
	}
	return world.Handshake(ctx, conn, address, tlsConfig(p, protocols...))
}

// open connects to an address that may be probed.
func (c *caller) open(ctx context.Context, network, address string) (net.Conn, error) {
	return c.world.DialControlled(ctx, network, address, c.control)
}

// udpPatience bounds the wait for a response to a datagram. A later one would change nothing, because silence passes,
// and an attempt keeps its slot meanwhile.
const udpPatience = time.Second

// udp sends an empty datagram. It passes unless the machine refuses it: many services do not respond to what they do
// not understand.
func (c *caller) udp(ctx context.Context, address string) (result, error) {
	passing := result{catalog.Passing, "UDP connect " + address + ": Success"}
	conn, err := c.open(ctx, "udp", address)
	if err != nil {
		return result{}, err
	}
	defer conn.Close()
	until := time.Now().Add(udpPatience)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	conn.SetDeadline(until)
	if _, err := conn.Write(nil); err != nil {
		return result{}, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return result{}, err
	}
	return passing, nil
}

func (c *caller) http(ctx context.Context, p *catalog.Probe) (result, error) {
	req, err := newRequest(ctx, p)
	if err != nil {
		return result{}, err
	}
	resp, err := c.client(p).Do(req)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	status := catalog.Critical
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		status = catalog.Passing
	case resp.StatusCode == http.StatusTooManyRequests:
		status = catalog.Warning
	}
	output := fmt.Sprintf("HTTP %s %s: %s Output: ", req.Method, req.URL.Redacted(), resp.Status)
	// The status counts, even if the body breaks off.
	return result{status, output + lastOf(io.LimitReader(resp.Body, maxBody), max(maxOutput-len(output), 0))}, nil
}

// lastOf returns the last bytes, at most most, of what r yields: that is where services say what failed.
func lastOf(r io.Reader, most int) string {
	var last []byte
	for piece := make([]byte, maxOutput); ; {
		n, err := r.Read(piece)
		if last = append(last, piece[:n]...); len(last) > most {
			last = append(last[:0], last[len(last)-most:]...)
		}
		if err != nil {
			return string(last)
		}
	}
}

// userAgent is the one that Consul's agents send: services recognize their checks by it.
const userAgent = "Consul Health Check"

func newRequest(ctx context.Context, p *catalog.Probe) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, cmp.Or(p.Method, http.MethodGet), p.HTTP, strings.NewReader(p.Body))
	if err != nil {
		return nil, err
	}
	for _, h := range p.Header {
		req.Header.Add(h.Key, h.Value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	for name, value := range map[string]string{"User-Agent": userAgent, "Accept": "text/plain, text/*, */*"} {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// describe returns an error's text without the local port, which differs each time: an output that stays the same
// needs no entry in the log.
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
