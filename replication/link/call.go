package link

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// ErrResponseTooLarge: a response is larger than its bound.
var ErrResponseTooLarge = errors.New("the answer is too large")

// NewClient makes the HTTP client for a peer. It has a connection per worker, and one for the rest.
func NewClient(p PeerConfig) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: p.ConnectTimeout}).DialContext,
			TLSClientConfig:     p.TLS,
			TLSHandshakeTimeout: p.ConnectTimeout,
			MaxIdleConnsPerHost: p.Workers + 1,
			IdleConnTimeout:     30 * time.Second,
		},
		// A redirect is no response that counts: upstream's replication client follows none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Failed is a CallError.
func Failed(result batcher.Result, err error) error { return &CallError{result, err} }

// CallError is a call without a usable response, and what that means for its tasks.
type CallError struct {
	Result batcher.Result
	Err    error
}

func (e *CallError) Error() string { return e.Err.Error() }

func (e *CallError) Unwrap() error { return e.Err }

// ResultOf is what an error of a call means for its tasks.
func ResultOf(err error) batcher.Result {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e.Result
	}
	return batcher.PermanentError
}

// FailureOf says what a failed exchange means: a server that could be reached and did not respond in time
// is busy, anything else of the network is a failure of the network (upstream distinguishes them by
// the words "read timed out").
func FailureOf(err error, connected bool) batcher.Result {
	if errors.Is(err, ErrResponseTooLarge) {
		return batcher.PermanentError
	}
	if timeout, ok := errors.AsType[net.Error](err); connected && ok && timeout.Timeout() {
		return batcher.Congestion
	}
	return batcher.TransientError
}

// WithoutURL is an error of a call without the URL, which may hold a password.
func WithoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
