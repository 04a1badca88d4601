package replication

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-20419f34/rollcall/replication/batcher"
)

var errAnswerTooLarge = errors.New("the answer is too large")

// newClient makes the HTTP client for a peer. It has a connection per worker, and one for the rest.
func newClient(p PeerConfig) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: p.ConnectTimeout}).DialContext,
			TLSClientConfig:     p.TLS,
			TLSHandshakeTimeout: p.ConnectTimeout,
			MaxIdleConnsPerHost: p.Workers + 1,
			IdleConnTimeout:     30 * time.Second,
		},
		// A redirect is no answer: upstream's replication client follows none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// callError is a call without a usable answer, and what that means for its tasks.
type callError struct {
	result batcher.Result
	err    error
}

func (e *callError) Error() string { return e.err.Error() }

func (e *callError) Unwrap() error { return e.err }

// resultOf is what an error of a call means for its tasks.
func resultOf(err error) batcher.Result {
	if e, ok := errors.AsType[*callError](err); ok {
		return e.result
	}
	return batcher.PermanentError
}

// failureOf says what a failed exchange means: a server that could be reached and did not answer in time
// is busy, anything else of the network is a failure of the network (upstream tells them apart by the
// words "read timed out").
func failureOf(err error, connected bool) batcher.Result {
	if errors.Is(err, errAnswerTooLarge) {
		return batcher.PermanentError
	}
	if timeout, ok := errors.AsType[net.Error](err); connected && ok && timeout.Timeout() {
		return batcher.Congestion
	}
	return batcher.TransientError
}

// withoutURL is an error of a call without the URL, which may hold a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
