package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

const (
	// maxOutput is the longest output of a check, in bytes.
	maxOutput = 4 << 10
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
	dialer   *net.Dialer
	verified *http.Client
	skipping *http.Client // does not verify certificates
}

func newCaller(rules Rules) *caller {
	dialer := &net.Dialer{ControlContext: filter{loopback: rules.AllowLoopback}.control}
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

// noRedirects makes a redirect the response that counts.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// attempt probes once, at an address that the service registered or the rules allow. ctx bounds it.
func (c *caller) attempt(ctx context.Context, p *catalog.Probe, loc location) result {
	if why := c.rules.refuses(p, loc); why != "" {
		return result{catalog.Critical, why}
	}
	ctx = context.WithValue(ctx, reachKey{}, c.reach(ctx, p, loc))
	r := result{status: catalog.Critical}
	var err error
	if p.HTTP != "" {
		r, err = c.http(ctx, p)
	} else {
		r, err = c.tcp(ctx, p.TCP)
	}
	if err != nil {
		r = result{catalog.Critical, describe(err)}
	}
	r.output = shorten(r.output)
	return r
}

// reach resolves the names under which the service registered, if the check does not use one of them.
func (c *caller) reach(ctx context.Context, p *catalog.Probe, loc location) reach {
	host, _, _ := address(p)
	r := reach{rules: c.rules, location: loc, named: loc.is(host)}
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

func (c *caller) tcp(ctx context.Context, address string) (result, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return result{}, err
	}
	conn.Close()
	return result{catalog.Passing, "TCP connect " + address + ": Success"}, nil
}

func (c *caller) http(ctx context.Context, p *catalog.Probe) (result, error) {
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
	// The status counts, even if the body breaks off.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	output := fmt.Sprintf("HTTP %s %s: %s Output: %s", req.Method, req.URL.Redacted(), resp.Status, body)
	return result{statusOf(resp.StatusCode), output}, nil
}

func newRequest(ctx context.Context, p *catalog.Probe) (*http.Request, error) {
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

// statusOf is the state of a check after a response with an HTTP status.
func statusOf(code int) catalog.CheckStatus {
	switch {
	case code >= 200 && code <= 299:
		return catalog.Passing
	case code == http.StatusTooManyRequests:
		return catalog.Warning
	}
	return catalog.Critical
}

// describe is an error without the local port, which is another one each time: an output that stays the same
// needs no entry of the log.
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
