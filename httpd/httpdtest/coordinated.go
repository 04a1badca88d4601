package httpdtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// KvOp is one operation of a transaction.
func KvOp(members string) string {
	return `{"KV":{` + members + `},"Node":null,"Service":null,"Check":null}`
}

// Txn performs a transaction of Consul's API.
func (c *Coordinated) Txn(ops ...string) Reply {
	return c.Send("PUT", "/v1/txn", "["+strings.Join(ops, ",")+"]")
}

// IndexOf returns a member of a read's response, by path.
func (c *Coordinated) IndexOf(t *testing.T, path string, members ...any) uint64 {
	t.Helper()
	var at any
	need.OK(t, json.Unmarshal([]byte(c.Get(path).Body), &at))
	for _, m := range members {
		switch m := m.(type) {
		case int:
			at = at.([]any)[m]
		case string:
			at = at.(map[string]any)[m]
		}
	}
	return uint64(at.(float64))
}

// Pending is a request under way.
type Pending struct {
	Got  Reply
	Took time.Duration
	done chan struct{}
}

// Start sends a request that is expected to wait.
func (c *Coordinated) Start(ctx context.Context, method, target string, headers ...string) *Pending {
	p := &Pending{done: make(chan struct{})}
	begun := time.Now()
	go func() {
		defer close(p.done)
		p.Got = c.SendUntil(ctx, method, target, "", headers...)
		p.Took = time.Since(begun)
	}()
	return p
}

// Wait returns the response and how long it took.
func (p *Pending) Wait() (Reply, time.Duration) {
	<-p.done
	return p.Got, p.Took
}

// Answered reports whether there is a response by now, once everything that can happen at this time has.
func (p *Pending) Answered() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Coordinates reports whether a path needs sessions, keys or locks.
func Coordinates(path string) bool {
	if rest, own := strings.CutPrefix(path, "/v1/rollcall/"); own {
		first, _, _ := strings.Cut(rest, "/")
		return first == "sessions" || first == "locks" || first == "semaphores" || first == "fence"
	}
	return strings.HasPrefix(path, "/v1/") && path != "/v1/acl/bootstrap" // needs a permission first
}

// Coordinated is a handler with coordination, called without a network.
type Coordinated struct {
	*fsmtest.Memory
	Kv      *fsmtest.Coordination
	Handler *httpd.Handler
}

// NewCoordinated makes a handler over sessions, keys and locks in memory.
func NewCoordinated(t testing.TB, config httpd.Config) *Coordinated {
	t.Helper()
	m := fsmtest.New()
	c := &Coordinated{Memory: m, Kv: fsmtest.NewCoordination(m)}
	config.Service, config.Coordination, config.Agents = c.Memory, c.Kv, cmp.Or(config.Agents, consul.OneAgent)
	var err error
	if c.Handler, err = httpd.New(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// WithCoordination runs a test in a bubble with a handler that has coordination.
func WithCoordination(t *testing.T, test func(t *testing.T, c *Coordinated)) {
	Bubble(t, func(t *testing.T) { test(t, NewCoordinated(t, httpd.Config{})) })
}

// WithKey is WithCoordination where the key a has the value v.
func WithKey(t *testing.T, test func(t *testing.T, c *Coordinated)) {
	WithCoordination(t, func(t *testing.T, c *Coordinated) {
		c.Put(t, "/v1/kv/a", "v")
		test(t, c)
	})
}

// SendUntil sends a request with these header lines and returns the response, or the part of it that exists when the
// context ends.
func (c *Coordinated) SendUntil(ctx context.Context, method, target, body string, headers ...string) Reply {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.Handler.ServeHTTP(w, r)
	return Reply{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// SendFrom is Send by a client at an address.
func (c *Coordinated) SendFrom(source, method, target, body string) Reply {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = source
	w := httptest.NewRecorder()
	c.Handler.ServeHTTP(w, r)
	return Reply{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// Send returns the response to a request.
func (c *Coordinated) Send(method, target, body string, headers ...string) Reply {
	return c.SendUntil(context.Background(), method, target, body, headers...)
}

// Get returns the response to a GET.
func (c *Coordinated) Get(target string) Reply { return c.Send(http.MethodGet, target, "") }

// Put sends a PUT that must succeed with true.
func (c *Coordinated) Put(t testing.TB, target, body string) Reply {
	t.Helper()
	got := c.Send(http.MethodPut, target, body)
	need.That(t, got.Status == http.StatusOK && got.Body == "true", "PUT %s: got %d %q, want 200 true", target, got.Status, got.Body)
	return got
}

// Session creates a session with Consul's API.
func (c *Coordinated) Session(t testing.TB, body string) string {
	t.Helper()
	got := c.Send(http.MethodPut, "/v1/session/create", body)
	var created struct{ ID string }
	need.That(t, json.Unmarshal([]byte(got.Body), &created) == nil && got.Status == http.StatusOK, "create %s: got %d %s", body, got.Status, got.Body)
	return created.ID
}

// DecodeReply decodes the body of a 200.
func DecodeReply[T any](t testing.TB, got Reply) (into T) {
	t.Helper()
	err := json.Unmarshal([]byte(got.Body), &into)
	need.That(t, err == nil && got.Status == http.StatusOK, "got %d %q (%v), want 200 and JSON", got.Status, got.Body, err)
	return into
}

// OwnSession creates a session with our own API.
func (c *Coordinated) OwnSession(t testing.TB, body string) string {
	t.Helper()
	return DecodeReply[struct{ ID string }](t, c.Send("POST", "/v1/rollcall/sessions", body)).ID
}

// Acquisition is the response to a request for a permit.
type Acquisition struct {
	Acquired bool
	Fence    uint64
	Place    int
	Limit    int
	Holders  []struct {
		Session string
		Fence   uint64
		Value   []byte
	}
}

// Acquire acquires a lock or semaphore.
func (c *Coordinated) Acquire(t testing.TB, target, body string) Acquisition {
	t.Helper()
	got := c.Send("PUT", target, body)
	a := DecodeReply[Acquisition](t, got)
	fence := got.Header.Get("X-Rollcall-Fence")
	expect.That(t, a.Acquired == (fence != "") && (!a.Acquired || fence == fmt.Sprint(a.Fence)), "%s: acquired %v with token %d, the header says %q", target, a.Acquired, a.Fence, fence)
	return a
}

// NextIndex returns the index that the next change will have.
func (c *Coordinated) NextIndex() kv.Index {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Kv.State.View().Index() + 1
}

// FormType is the header line of a form.
const FormType = "Content-Type: application/x-www-form-urlencoded"

// FormOf returns the body of a form.
func FormOf(fields ...string) string {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return form.Encode()
}

// Act sends the form of an act.
func (c *Coordinated) Act(name string, fields ...string) Reply {
	return c.Send(http.MethodPost, "/ui/acts/"+name, FormOf(fields...), FormType)
}

// KeyPairs is the response to a read of keys.
type KeyPairs []struct {
	Value       []byte
	Flags       uint64
	ModifyIndex uint64
}

// Key is a key as the API shows it.
func (c *Coordinated) Key(t *testing.T, name string) (value string, flags uint64) {
	t.Helper()
	pairs := DecodeReply[KeyPairs](t, c.Get("/v1/kv/"+name))
	return string(pairs[0].Value), pairs[0].Flags
}
