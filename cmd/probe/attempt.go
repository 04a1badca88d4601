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
	dialer   *net.Dialer
	verified *http.Client
	skipping *http.Client // does not verify certificates
}

func newCaller(g guard) *caller {
	dialer := &net.Dialer{Control: g.control}
	return &caller{dialer: dialer, verified: newClient(dialer, false), skipping: newClient(dialer, true)}
}

// newClient makes a client without a proxy, which would resolve names by itself, and without connections
// that are kept: a service that takes no new ones is not well.
func newClient(dialer *net.Dialer, skipVerify bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: skipVerify}, // the check says so: TLSSkipVerify
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// attempt asks once. ctx bounds it.
func (c *caller) attempt(ctx context.Context, p *registry.Probe) result {
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
