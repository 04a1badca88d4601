package balance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Transport is an http.RoundTripper that sends a request for a service to one of its instances: the host of the URL
// names the service, the port is the instance's (its secure port with https). The Host header is the instance's,
// unless the request sets one (a Request.Host other than the URL's). The response is the instance's, unchanged, and
// its Request.URL says which instance sent it. Safe for concurrent use.
type Transport struct {
	list    List
	lookup  func(s *client.Snapshot, scheme, host string) []*registry.Instance
	host    func(i *registry.Instance) string
	picker  Picker
	base    http.RoundTripper
	tries   int
	avoided avoided
}

// New returns a Transport. The error joins every mistake of the configuration.
func New(c Config) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Transport{
		list:    c.List,
		lookup:  c.Lookup,
		host:    c.Host,
		picker:  c.Picker,
		base:    c.Base,
		tries:   cmp.Or(c.Tries, DefaultTries),
		avoided: avoided{time: cmp.Or(c.Avoid, DefaultAvoid)},
	}
	if t.lookup == nil {
		t.lookup = ByApp
	}
	if t.host == nil {
		t.host = ByHostName
	}
	if t.picker == nil {
		t.picker = RoundRobin()
	}
	if t.base == nil {
		t.base = newBase((&net.Dialer{}).DialContext)
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. It returns ErrNoInstance if no instance can be called.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	at, err := t.choose(r.URL, nil)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	body := body{request: r}
	var tried []address
	for {
		resp, err := t.try(r, at, &body, t.tries-len(tried))
		if r.Context().Err() == nil { // otherwise the caller gave up, which says nothing about the instance
			t.avoided.record(at.listed, err)
		}
		if !another(r, err) {
			body.handOver()
			return resp, err
		}
		tried = append(tried, at.address)
		next, none := t.choose(r.URL, tried)
		if none != nil || len(tried) == t.tries || !body.again() {
			body.handOver()
			if len(tried) > 1 {
				err = fmt.Errorf("none of %d instances of %s answered, the last: %w", len(tried), r.URL.Host, err)
			}
			return nil, err
		}
		at = next
	}
}

// try sends a copy of a request to an instance, because a RoundTripper must not modify the request. left is how many
// tries remain, including this one.
func (t *Transport) try(r *http.Request, at choice, body *body, left int) (*http.Response, error) {
	content, err := body.next()
	if err != nil {
		return nil, err
	}
	ctx, rest := r.Context(), min(left, at.of)
	if deadline, ok := ctx.Deadline(); ok && rest > 1 {
		// Each remaining try gets its share of the time until the deadline to connect; the last one has all of it.
		share := max(time.Until(deadline)/time.Duration(rest), leastShare)
		ctx = context.WithValue(ctx, shareKey{}, share)
	}
	sent := r.WithContext(ctx)
	u := *r.URL
	u.Host = at.address.String()
	sent.URL = &u
	sent.Body = content
	if r.Host == r.URL.Host {
		sent.Host = "" // the URL's
	}
	return t.base.RoundTrip(sent)
}

// another reports whether another instance may be tried after a try with this error: if nothing was sent, or if the
// same may be sent twice.
func another(r *http.Request, err error) bool {
	return r.Context().Err() == nil && (unconnected(err) || cutOff(err) && repeatable(r))
}

// repeatable reports whether sending a request twice does the same as sending it once, by the rules of net/http
// (http.Transport): by its method, or because its header says so.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	_, key := r.Header["Idempotency-Key"]
	_, other := r.Header["X-Idempotency-Key"]
	return key || other
}

// cutOff reports whether a connection ended before a response began, as it does when an instance dies.
func cutOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// CloseIdleConnections closes the connections that are kept for later requests, if Config.Base can. http.Client's
// method of that name calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// idlePerHost is how many connections to an instance are kept for later requests. net/http keeps two, which makes all
// but two of many concurrent callers connect anew each time.
const idlePerHost = 64

// leastShare is the least time that a try has to connect, if the deadline leaves that much: longer than a handshake
// around the world takes.
const leastShare = 300 * time.Millisecond

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// newBase returns a transport with the settings of http.DefaultTransport, except for how it connects: it gives up a
// connection attempt after DefaultConnect, or after the share in its context. net/http does not: it goes on after the
// end of the request, for the next one that may need the connection.
func newBase(dial dialFunc) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			patience := DefaultConnect
			if share, ok := ctx.Value(shareKey{}).(time.Duration); ok {
				patience = min(patience, share)
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return dial(ctx, network, address)
		},
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// shareKey is the context key for the share of a try.
type shareKey struct{}

// Defaults of a Transport.
const (
	DefaultTries   = 3
	DefaultAvoid   = 10 * time.Second
	DefaultConnect = 2 * time.Second
)

// List is where a Transport looks up instances: a *client.Discovery.
type List interface{ Snapshot() *client.Snapshot }

// Config is what a Transport needs. List is required; every other field has a default.
type Config struct {
	List List
	// Lookup finds the instances that may be called for a URL, given its scheme and its host (with the port, if the
	// URL has one). Nil means ByApp.
	Lookup func(s *client.Snapshot, scheme, host string) []*registry.Instance
	// Host returns the name or address to call an instance at, or "" if it cannot be called. Nil means ByHostName.
	Host   func(i *registry.Instance) string
	Picker Picker // nil means RoundRobin
	// Base sends the requests. It decides how long to wait for a connection to a silent host. Nil means a transport
	// like http.DefaultTransport that waits for DefaultConnect, or for a try's share of what is left until the
	// request's deadline.
	Base http.RoundTripper
	// Tries is the most instances tried for one request. Another one is tried if the connection could not be made, so
	// that nothing was sent; and if it was cut off before a response began and the request may be sent twice. Like
	// net/http, Transport assumes that of GET, HEAD, OPTIONS and TRACE, and of every request with an Idempotency-Key
	// header. 0 means DefaultTries.
	Tries int
	// Avoid is how long an instance that could not be connected to is skipped, unless all are, or until it has
	// registered anew: it may be dead before the registry knows. 0 means DefaultAvoid; a negative value disables it.
	Avoid time.Duration
}

// ByApp takes the host of a URL for an application: http://orders/path.
func ByApp(s *client.Snapshot, scheme, host string) []*registry.Instance { return s.App(host) }

// ByVIP takes the host of a URL for a VIP address, or for a secure VIP address with https.
func ByVIP(s *client.Snapshot, scheme, host string) []*registry.Instance {
	if scheme == "https" {
		return s.SecureVIP(host)
	}
	return s.VIP(host)
}

// ByHostName returns an instance's host name, or its address without one.
func ByHostName(i *registry.Instance) string { return cmp.Or(i.HostName, i.IPAddr) }

// ByIP returns an instance's address, or its host name without one. Use it where host names cannot be resolved, as
// is common for containers.
func ByIP(i *registry.Instance) string { return cmp.Or(i.IPAddr, i.HostName) }

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var errs []error
	if c.List == nil {
		errs = append(errs, errors.New("no List is given; give a *client.Discovery"))
	}
	if c.Tries < 0 {
		errs = append(errs, fmt.Errorf("tries %d is negative; give at least 1, or 0 for %d", c.Tries, DefaultTries))
	}
	return errors.Join(errs...)
}

// addressOf returns where an instance listens for a scheme, or the zero address if it does not.
func (t *Transport) addressOf(i *registry.Instance, scheme string) address {
	host, port := t.host(i), i.PortFor(scheme == "https")
	if host == "" || port == 0 {
		return address{}
	}
	return address{host, port}
}

func (t *Transport) asListed(i *registry.Instance, scheme string) listed {
	return listed{t.addressOf(i, scheme), i.LastDirty}
}

// choice is the instance for one try.
type choice struct {
	listed
	of int // the number of instances to choose from
}

// choose chooses an instance for a URL among those that are listed now and were not tried, if possible one that is
// not avoided.
func (t *Transport) choose(u *url.URL, tried []address) (choice, error) {
	if u == nil {
		return choice{}, errors.New("the request has no URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return choice{}, fmt.Errorf("scheme %q of %s is not http or https", u.Scheme, u.Redacted())
	}
	list := t.list.Snapshot()
	up := t.lookup(list, u.Scheme, u.Host)
	fit := filter(up, func(i *registry.Instance) bool {
		at := t.addressOf(i, u.Scheme)
		return at != address{} && !slices.Contains(tried, at)
	})
	switch {
	case len(fit) > 0:
	case len(up) > 0:
		port := "port"
		if u.Scheme == "https" {
			port = "securePort"
		}
		return choice{}, fmt.Errorf("service %q: %w: none of the %d that are UP has a host and its %s enabled", u.Host, ErrNoInstance, len(up), port)
	case list.Len() == 0:
		return choice{}, fmt.Errorf("service %q: %w: the list of all instances is empty (Discovery.Ready waits for it)", u.Host, ErrNoInstance)
	default:
		return choice{}, fmt.Errorf("service %q: %w: none is UP", u.Host, ErrNoInstance)
	}
	picked := t.picker.Pick(t.unavoided(fit, u.Scheme))
	if picked == nil {
		return choice{}, fmt.Errorf("service %q: %w: the Picker took none of %d", u.Host, ErrNoInstance, len(fit))
	}
	return choice{t.asListed(picked, u.Scheme), len(fit)}, nil
}

// unavoided returns those of list that are not avoided, or all if all are.
func (t *Transport) unavoided(list []*registry.Instance, scheme string) []*registry.Instance {
	avoided := t.avoided.now()
	if avoided == nil {
		return list
	}
	rest := filter(list, func(i *registry.Instance) bool {
		_, avoid := avoided[t.asListed(i, scheme)]
		return !avoid
	})
	if len(rest) == 0 {
		return list
	}
	return rest
}
