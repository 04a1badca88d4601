package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// asGoHolder is set in the environment where this test program is started as a holder by package client:
// its value is the base URL of a node. The holder does what lines on its stdin say:
//
//	acquire KIND NAME  acquires a lock of a kind of goLocks, with a TTL of holderTTL and no lock-delay
//	look WAY NAME      looks whether it is held, in a way of firstLooks
//	pause WAY NAME     stops itself by SIGSTOP, and looks as the first thing when it goes on
//	release WAY NAME   gives it back
//
// Each is answered by a line of JSON.
const asGoHolder = "ROLLCALL_AS_GO_HOLDER"

// goLocks are the kinds of locks that a Go program can acquire.
var goLocks = map[string]client.LockOptions{
	"native": {TTL: holderTTL, LockDelay: -1},
	"recipe": {TTL: holderTTL, LockDelay: -1, Recipe: true},
}

// firstLooks are the ways to find out that a lock is lost.
var firstLooks = []struct {
	name string
	lost func(*client.Held) bool
}{
	{"Err", func(h *client.Held) bool { return h.Err() != nil }},
	{"Valid", func(h *client.Held) bool { return !h.Valid() }},
	{"Context.Err", func(h *client.Held) bool { return h.Context().Err() != nil }},
	{"Context.Done", func(h *client.Held) bool {
		select {
		case <-h.Context().Done():
			return true
		default:
			return false
		}
	}},
}

// goHolderAnswer is what came of one line. Times are Unix nanoseconds: processes of one machine share a
// clock.
type goHolderAnswer struct {
	Error  string `json:"error,omitempty"`
	Fence  uint64 `json:"fence,omitempty"`
	Lost   bool   `json:"lost"`   // what the look said
	Cause  string `json:"cause"`  // what Err says after the look
	Looked int64  `json:"looked"` // when the look was over
	// Sent is when the newest renewal that succeeded was sent, by the transport: package client believes
	// to hold until a TTL from then at most.
	Sent int64 `json:"sent"`
}

func (a goHolderAnswer) failure() string { return a.Error }

// deadline is when a session that was renewed last at a.Sent may end.
func (a goHolderAnswer) deadline() time.Time { return time.Unix(0, a.Sent).Add(holderTTL) }

// renewals is a transport that notes when the newest renewal (or creation) of a session that succeeded
// was sent.
type renewals struct {
	http.RoundTripper
	sent atomic.Int64
}

func (r *renewals) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 2 && (strings.HasSuffix(req.URL.Path, "/renew") || req.Method == http.MethodPost) {
		r.sent.Store(sent.UnixNano())
	}
	return resp, err
}

type goHolder struct {
	client   *client.Client
	renewals *renewals
	held     *client.Held
}

func runGoHolder(base string, in io.Reader, out io.Writer) error {
	// One goroutine at a time: the one that goes on after a pause does so before any timer has run.
	runtime.GOMAXPROCS(1)
	r := &renewals{RoundTripper: http.DefaultTransport}
	c, err := client.New(client.Config{Servers: []string{base}, HTTPClient: &http.Client{Transport: r}})
	if err != nil {
		return err
	}
	h := &goHolder{client: c, renewals: r}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var do, how, name string
		if _, err := fmt.Sscan(lines.Text(), &do, &how, &name); err != nil {
			return err
		}
		answer, err := h.do(do, how, name)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func (h *goHolder) do(do, how, name string) (a goHolderAnswer, err error) {
	switch do {
	case "acquire":
		o := goLocks[how]
		o.Name = name
		if h.held, err = h.client.AcquireLock(context.Background(), o); err == nil {
			a.Fence, a.Sent = uint64(h.held.Fence().Index), h.renewals.sent.Load()
		}
		return a, err
	case "look":
		return h.look(how, func() error { return nil })
	case "pause":
		return h.look(how, stopSelf)
	case "release":
		err = h.held.Release(context.Background())
		a.Lost = errors.Is(err, client.ErrLost)
		if a.Lost {
			err = nil
		}
		return a, err
	}
	return a, fmt.Errorf("what is %q?", do)
}

// look looks once, after something else.
func (h *goHolder) look(way string, after func() error) (a goHolderAnswer, err error) {
	for _, l := range firstLooks {
		if l.name == way {
			err = after()
			a.Lost = l.lost(h.held)
		}
	}
	a.Looked, a.Sent = time.Now().UnixNano(), h.renewals.sent.Load()
	if cause := h.held.Err(); cause != nil {
		a.Cause = cause.Error()
	}
	return a, err
}

// startGoHolder starts a holder by package client at a node.
func startGoHolder(t *testing.T, n *Node) *child[goHolderAnswer] {
	t.Helper()
	return startChild[goHolderAnswer](t, asGoHolder, n.URL())
}
