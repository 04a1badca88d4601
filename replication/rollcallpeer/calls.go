// Package rollcallpeer talks to Rollcall servers, in both directions (docs/reference/protocol/replication.md): it has
// the link to a node of this datacenter or to another datacenter, and the receiver of what such servers send here. It
// does not decide which peers get which changes: package replication does.
//
// Sending:
//
//	link.go      the link, and what every message starts with
//	parts.go     what tasks become, and how they are cut into messages
//	sending.go   messages, and what replies ask for
//	questions.go comparisons, at the server that asks
//	calls.go     calls to one of several URLs
//	copy.go      the start-up copy, at the node that starts
//	authfile.go  comparisons of auth.file with that of another node
//
// Receiving:
//
//	receive.go   messages and comparisons of peers
//	contacts.go  contacts with peers, and acts that arrived before
//	results.go   the result of each item
//	clocks.go    messages of senders whose clocks cannot be right
//	senders.go   the senders, as operators see them
//	state.go     the start-up copy, at the node that has the state
//
// Both: compare.go, the difference between two sets of instances.
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

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// calls makes calls to a peer that has several URLs: to the one that responded last, and if it cannot, to the others
// in turn.
type calls struct {
	peer   link.PeerConfig
	client *http.Client
	files  fileComparison

	mu     sync.Mutex
	at     int         // index in peer.URLs of the one in use
	levels codec.Reads // what the server that responded last reads
	said   time.Time   // when it said so; zero if none has
	mode   string      // mode of access control in another datacenter; "" if not known yet
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

// call is a call to be made.
type call struct {
	path     string
	body     []byte
	limit    int64 // most bytes of the response
	patience int   // the response may take this many times the read timeout
}

// post makes a call and returns the body of the response. If a node cannot be reached, or is busy, it tries the next
// one. A node that does not respond in time has used up the time there was, and the next call starts with another.
// The error is a link.CallError.
func (c *calls) post(ctx context.Context, call call) ([]byte, error) {
	first := c.current()
	var busy, failed error
	for n := range c.peer.URLs {
		at := (first + n) % len(c.peer.URLs)
		body, err := c.try(ctx, c.peer.URLs[at]+call.path, call)
		switch {
		case err == nil:
			c.use(at)
			return body, nil
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

// errSlow means that there was no response in time.
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
	body, err := c.exchange(r, call.limit)
	if err == nil {
		return body, nil
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

// exchange makes a call and reads the whole response, which must be a success.
func (c *calls) exchange(r *http.Request, limit int64) ([]byte, error) {
	reader, err := c.open(r)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	body, err := io.ReadAll(io.LimitReader(reader, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("POST %s: the response has more than %d bytes", r.URL.Path, limit))
	}
	return body, err
}

// open makes a call, and returns the body of its response if it is a success.
func (c *calls) open(r *http.Request) (io.ReadCloser, error) {
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, link.WithoutURL(err)
	}
	if levels, ok := codec.ParseReads(resp.Header.Get(codec.LevelHeader)); ok {
		c.mu.Lock()
		if c.levels, c.said = levels, time.Now(); c.peer.Kind == link.Datacenter {
			c.mode = resp.Header.Get(link.AuthModeHeader)
		}
		c.mu.Unlock()
	}
	c.files.heard(resp.Header.Get(link.AuthFileHeader))
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		err := refusal(r, resp)
		if node := resp.Header.Get(waitsHeader); resp.StatusCode == http.StatusServiceUnavailable && node != "" {
			err = fmt.Errorf("%w: %w", waitsError{node}, err)
		}
		return nil, err
	}
	return resp.Body, nil
}

// Levels returns what the server that responded last reads, and when it said so, or zero if none has.
func (c *calls) Levels() (codec.Reads, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.levels, c.said
}

func (c *calls) AuthMode() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

// refusal returns the error of a response with a status other than 200, with the sentence that came with it.
func refusal(r *http.Request, resp *http.Response) error {
	const sentence = 300
	text, _ := io.ReadAll(io.LimitReader(resp.Body, sentence))
	err := fmt.Errorf("%s %s was answered %s %s", r.Method, r.URL.Path, resp.Status, strings.TrimSpace(string(text)))
	if resp.StatusCode == http.StatusConflict {
		err = fmt.Errorf("%w: %w", errConflict, err)
	}
	// A node that accepts nothing from this sender, because it was not configured with it yet or is of an older
	// version, does not refuse these tasks: they wait, and splitting the batch would only ask it more often.
	result := batcher.PermanentError
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusNotImplemented:
		result = batcher.Congestion
	}
	return link.Failed(result, err)
}

// errConflict means that the peer rejects this sender's clock.
var errConflict = errors.New("conflict")

// messagePath is the endpoint of messages; those of digests and of the state are below it.
const messagePath = "/v1/rollcall/replication"

// digestPath is the endpoint of comparisons.
const digestPath = messagePath + "/digest"

// statePath is the endpoint of the start-up copy.
const statePath = messagePath + "/state"
