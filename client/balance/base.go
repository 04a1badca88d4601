package balance

import (
	"context"
	"net"
	"net/http"
	"time"
)

// idlePerHost is how many connections to an instance are kept for later requests. net/http keeps two,
// which makes all but two of many concurrent callers connect anew each time.
const idlePerHost = 64

// leastShare is the least time that a try has to connect, if the deadline leaves as much: longer than a
// handshake around the world takes.
const leastShare = 300 * time.Millisecond

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// newBase returns a transport with the settings of http.DefaultTransport, except for how it connects.
func newBase(dial dialFunc) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           within(dial),
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// within gives a connection up after DefaultConnect, or after the share that its context says. Nobody
// else does: net/http connects beyond the end of the request, for the next that may need the connection.
func within(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		patience := DefaultConnect
		if share, ok := ctx.Value(shareKey{}).(time.Duration); ok {
			patience = min(patience, share)
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// shareKey is where a context has the share of a try.
type shareKey struct{}

// withShare notes how long a try may take to connect, so that each of those that are left gets its share
// of the time until the deadline. The last has all of it.
func withShare(ctx context.Context, left int) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok || left <= 1 {
		return ctx
	}
	share := max(time.Until(deadline)/time.Duration(left), leastShare)
	return context.WithValue(ctx, shareKey{}, share)
}
