package rollcallpeer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// calls makes calls to a peer that can be reached at several URLs: the one that answered last,
// and if it cannot, the others in turn.
type calls struct {
	peer   link.PeerConfig
	client *http.Client

	mu sync.Mutex
	at int // of peer.URLs, the one in use
}

func newCalls(p link.PeerConfig) *calls {
	return &calls{peer: p, client: link.NewClient(p)}
}

func (c *calls) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *calls) use(at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at % len(c.peer.URLs)
}

// inUse is the URL in use, without user info.
func (c *calls) inUse() string { return link.WithoutUser(c.peer.URLs[c.current()]) }

// call is a call to be made.
type call struct {
	path     string
	body     []byte
	limit    int64 // bytes of the answer
	patience int   // the answer may take so many times the read timeout
}

// post makes a call and returns the answer. A node that cannot be reached, or is
// busy, is passed over for the next one; one that does not answer in time has taken the time there
// was, and the next call begins with another. The error is a *callError.
func (c *calls) post(ctx context.Context, call call) ([]byte, error) {
	first := c.current()
	var busy, failed error
	for n := range c.peer.URLs {
		at := (first + n) % len(c.peer.URLs)
		answer, err := c.try(ctx, c.peer.URLs[at]+call.path, call)
		switch {
		case err == nil:
			c.use(at)
			return answer, nil
		case ctx.Err() != nil:
			return nil, link.Failed(batcher.TransientError, ctx.Err())
		case errors.Is(err, errSlow):
			c.use(at + 1)
			return nil, err
		case link.ResultOf(err) == batcher.PermanentError:
			return nil, err
		case link.ResultOf(err) == batcher.Congestion:
			busy = err
		default:
			failed = err
		}
	}
	if busy != nil {
		return nil, busy
	}
	return nil, failed
}

// errSlow: there was no answer in time.
var errSlow = errors.New("no answer in time")

// try makes a call to one URL.
func (c *calls) try(ctx context.Context, target string, call call) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.peer.ConnectTimeout+time.Duration(call.patience)*c.peer.ReadTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(call.body))
	if err != nil {
		return nil, link.Failed(batcher.PermanentError, link.WithoutURL(err))
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	answer, err := c.exchange(r, call.limit)
	if err == nil {
		return answer, nil
	}
	if _, known := errors.AsType[*link.CallError](err); known {
		return nil, err
	}
	result := link.FailureOf(err, connected.Load())
	if result == batcher.Congestion {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return nil, link.Failed(result, fmt.Errorf("POST %s: %w", link.WithoutUser(target), err))
}

// exchange makes a call and reads the whole answer, which must be one of success.
func (c *calls) exchange(r *http.Request, limit int64) ([]byte, error) {
	body, err := c.begin(r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	answer, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(answer)) > limit {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("POST %s: the answer has more than %d bytes", r.URL.Path, limit))
	}
	return answer, err
}

// begin makes a call, and returns its answer if it is one of success.
func (c *calls) begin(r *http.Request) (io.ReadCloser, error) {
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, link.WithoutURL(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(r, resp)
	}
	return resp.Body, nil
}

// refusal is an answer of another status than 200, with the sentence that came with it.
func refusal(r *http.Request, resp *http.Response) error {
	const sentence = 300
	text, _ := io.ReadAll(io.LimitReader(resp.Body, sentence))
	err := fmt.Errorf("%s %s was answered %s %s", r.Method, r.URL.Path, resp.Status, strings.TrimSpace(string(text)))
	if resp.StatusCode == http.StatusConflict {
		err = fmt.Errorf("%w: %w", errConflict, err)
	}
	return link.Failed(meaning(resp.StatusCode), err)
}

// errConflict: the peer does not believe this sender's clock.
var errConflict = errors.New("conflict")

// meaning is what a status says of the tasks. A node that takes nothing of this sender, because it was
// not told of it yet or is of an older version, does not refuse these tasks: they wait, and dividing
// them would only ask it more often.
func meaning(status int) batcher.Result {
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusNotImplemented:
		return batcher.Congestion
	}
	return batcher.PermanentError
}

// messagePath is the endpoint of messages; those of digests and of the state are below it.
const messagePath = "/v1/rollcall/replication"

// digestPath is the endpoint of comparisons.
const digestPath = messagePath + "/digest"

// statePath is the endpoint of the start-up copy.
const statePath = messagePath + "/state"
