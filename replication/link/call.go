package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// ErrResponseTooLarge means that a response is larger than its bound.
var ErrResponseTooLarge = errors.New("the response is too large")

// NewClient returns an HTTP client for a peer. It has a connection per worker, and one for everything else.
func NewClient(p PeerConfig) *http.Client {
	transport := &renewed{life: cmp.Or(p.Life, time.Hour), make: func() *http.Transport { return newTransport(p) }}
	return &http.Client{
		Transport: &authorized{renewed: transport, user: p.user(), file: p.TokenFile},
		// A redirect does not count as a response: upstream's replication client follows none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newTransport(p PeerConfig) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, p.ConnectTimeout)
			defer cancel()
			return p.World.DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout: p.ConnectTimeout,
		MaxIdleConnsPerHost: p.Workers + 1,
		IdleConnTimeout:     idleLimit,
	}
	if p.TLS != nil {
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			// The time is for both connecting to the peer and the handshake.
			ctx, cancel := context.WithTimeout(ctx, 2*p.ConnectTimeout)
			defer cancel()
			conn, err := p.World.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return world.Handshake(ctx, conn, address, p.TLS())
		}
	}
	return t
}

// idleLimit is how long an idle connection is kept.
const idleLimit = 30 * time.Second

// renewed is a transport that is replaced at intervals, so that each of its connections ends within life, and with it
// the trust in certificates that were replaced meanwhile.
type renewed struct {
	life time.Duration
	make func() *http.Transport

	mu    sync.Mutex
	now   *http.Transport
	until time.Time
}

// transport returns the current one. Connections of the last one end once their calls have ended and they have been
// idle.
func (r *renewed) transport() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.until) {
		return r.now
	}
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
	r.now, r.until = r.make(), now.Add(r.life/2+rand.N(r.life/3))
	return r.now
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
}

// Failed returns a CallError.
func Failed(result batcher.Result, err error) error { return &CallError{result, err} }

// authorized is a transport that sends the password from a file with each request.
type authorized struct {
	*renewed
	user, file string // without a file, requests are sent unchanged
}

// maxToken is more than any password has, in bytes.
const maxToken = 4096

// RoundTrip implements http.RoundTripper.
func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.file == "" {
		return a.transport().RoundTrip(req)
	}
	password, err := certfiles.ReadPrivate(a.file, maxToken)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a transport must close it
		}
		return nil, fmt.Errorf("replication.token-files: %w", err)
	}
	req = req.Clone(req.Context())
	req.SetBasicAuth(a.user, strings.TrimSpace(string(password)))
	return a.transport().RoundTrip(req)
}

// user returns the user name in the peer's URLs. Our own servers check only the password.
func (p PeerConfig) user() string {
	for _, text := range p.URLs {
		if u, err := url.Parse(text); err == nil && u.User.Username() != "" {
			return u.User.Username()
		}
	}
	return "rollcall"
}

// CallError is a call without a usable response, and what that means for its tasks.
type CallError struct {
	Result batcher.Result
	Err    error
}

func (e *CallError) Error() string { return e.Err.Error() }

func (e *CallError) Unwrap() error { return e.Err }

// ResultOf returns what the error of a call means for its tasks.
func ResultOf(err error) batcher.Result {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e.Result
	}
	return batcher.PermanentError
}

// FailureOf returns what a failed exchange means: a server that could be reached and did not respond in time is busy;
// any other network error is a network failure (upstream distinguishes them by the words "read timed out").
func FailureOf(err error, connected bool) batcher.Result {
	if errors.Is(err, ErrResponseTooLarge) {
		return batcher.PermanentError
	}
	if timeout, ok := errors.AsType[net.Error](err); connected && ok && timeout.Timeout() {
		return batcher.Congestion
	}
	return batcher.TransientError
}

// WithoutURL returns the error of a call without the URL, which may hold a password.
func WithoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
