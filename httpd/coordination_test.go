package httpd_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// locker is an httpd.Coordination in one process, over the same registry, counter of indexes and lease
// clock as a memory.
type locker struct {
	m        *registrytest.Memory
	state    *kv.State // guarded by the memory's mutex
	watchers kv.Watchers
	applyErr error        // guarded likewise; of every Apply
	viewErr  error        // of views that are not stale
	behind   *kv.View     // what stale views show; nil: the newest
	after    func()       // happens once, between the next Apply or view that is not stale and its caller
	applied  atomic.Int64 // operations
	views    atomic.Int64 // that were not stale
	joined   atomic.Int64 // calls of Watch
}

// testCatalog answers package kv from the registry beside it.
type testCatalog struct{ *registry.Registry }

// Check implements kv.Catalog.
func (c testCatalog) Check(node, id string) (critical, known bool) {
	status, known := c.CheckState(node, id)
	return known && status == catalog.Critical, known
}

// PerformInTxn implements kv.Registrar.
func (c testCatalog) PerformInTxn(op registry.CatalogOp) (result registry.CatalogResult, lost []kv.CheckRef) {
	result = c.Registry.PerformInTxn(op)
	for _, l := range c.Lost() {
		lost = append(lost, kv.CheckRef(l))
	}
	return result, lost
}

// Readmit implements kv.Registrar.
func (c testCatalog) Readmit(m registry.Image, by registry.Act) (returned int, lost []kv.CheckRef) {
	returned, refs := c.Registry.Readmit(m, by)
	for _, ref := range refs {
		lost = append(lost, kv.CheckRef(ref))
	}
	return returned, lost
}

func newLocker(m *registrytest.Memory) *locker {
	l := &locker{m: m, state: kv.New(testCatalog{m.Registry})}
	l.state.Establish(kv.Epoch{Term: 1, Index: 1}, m.Stamp().Lease)
	m.After = l.lose
	return l
}

func (l *locker) at() kv.At {
	stamp := l.m.Stamp()
	return kv.At{Index: l.m.Registry.Next(), Lease: stamp.Lease, Wall: stamp.Wall, Term: 1}
}

// lose ends the sessions that an operation of the registry took the checks of.
func (l *locker) lose(taken registry.Index) {
	at := l.at()
	if taken != 0 {
		at.Index = taken
	}
	ended := false
	for _, lost := range l.m.Registry.Lost() {
		if lost.ID == "" {
			ended = l.state.LoseNode(at, lost.Node) || ended
		} else {
			ended = l.state.Lose(at, []kv.CheckRef{kv.CheckRef(lost)}) || ended
		}
	}
	if ended && taken == 0 {
		l.m.Registry.ReserveIndex()
	}
	l.watchers.Wake(l.state.Touched())
}

// Apply implements kv.Service.
func (l *locker) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.applyErr != nil {
		return nil, l.applyErr
	}
	results := make([]kv.Result, len(ops))
	for i, op := range ops {
		results[i] = l.performBy(access.SenderOf(ctx).Name, op)
	}
	l.happen()
	return results, nil
}

// happen does what is to happen after this call.
func (l *locker) happen() {
	if after := l.after; after != nil {
		l.after = nil
		after()
	}
}

func (l *locker) perform(op kv.Op) kv.Result { return l.performBy("", op) }

func (l *locker) performBy(principal string, op kv.Op) kv.Result {
	l.applied.Add(1)
	l.m.Registry.Advance(l.m.Stamp())
	at := l.at()
	at.By = principal
	result := l.state.Apply(at, op)
	if result.Index >= l.m.Registry.Next() {
		l.m.Registry.ReserveIndex()
	}
	l.m.Watchers.Publish(l.m.Registry.View())
	l.watchers.Wake(l.state.Touched())
	return result
}

// View implements kv.Service.
func (l *locker) View(_ context.Context, read registry.Consistency) (*kv.View, error) {
	stale := read == registry.Stale
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	if !stale {
		l.views.Add(1)
		if l.viewErr != nil {
			return nil, l.viewErr
		}
	}
	if stale && l.behind != nil {
		return l.behind, nil
	}
	v := l.state.View()
	v.Registry = l.m.Registry.View()
	if !stale {
		l.happen()
	}
	return v, nil
}

// Watch implements kv.Service.
func (l *locker) Watch(t kv.Topic) *kv.Wait {
	l.joined.Add(1)
	return l.watchers.Join(t)
}

// WatchCatalog implements httpd.Coordination.
func (l *locker) WatchCatalog(t registry.Topic) (<-chan struct{}, func()) {
	return l.m.Watchers.Join(t)
}

// RaftAddresses implements httpd.Coordination.
func (l *locker) RaftAddresses() (string, []string) {
	return "10.0.0.1:7761", []string{"10.0.0.1:7761", "10.0.0.2:7761"}
}

// fail makes every call fail that asks others.
func (l *locker) fail(err error) {
	l.m.Set(func(m *registrytest.Memory) {
		l.applyErr, l.viewErr, m.ViewErr, m.Reported.Quorum = err, err, err, err == nil
	})
}

// due does once what a leader does all the time: it ends sessions and lock-delays whose time has come.
func (l *locker) due() {
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	for _, op := range l.state.Due(l.m.Stamp().Lease, 1000) {
		l.perform(op)
	}
}

// pass moves the lease clock on.
func (l *locker) pass(d time.Duration) {
	l.m.Pass(d)
	l.due()
}

// coordinated is a handler with coordination, asked without a network.
type coordinated struct {
	*registrytest.Memory
	kv      *locker
	handler *httpd.Handler
}

func newCoordinated(t testing.TB, config httpd.Config) *coordinated {
	t.Helper()
	m := registrytest.New()
	c := &coordinated{Memory: m, kv: newLocker(m)}
	config.Service, config.Coordination, config.Agents = c.Memory, c.kv, cmp.Or(config.Agents, httpd.OneAgent)
	var err error
	if c.handler, err = httpd.New(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request with these header lines and returns the response, or what there is of it when the
// context ends.
func (c *coordinated) sendUntil(ctx context.Context, method, target, body string, headers ...string) reply {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return reply{status: w.Code, header: w.Header(), body: w.Body.String()}
}

// sendFrom is send by a client at an address.
func (c *coordinated) sendFrom(source, method, target, body string) reply {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = source
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return reply{status: w.Code, header: w.Header(), body: w.Body.String()}
}

func (c *coordinated) send(method, target, body string, headers ...string) reply {
	return c.sendUntil(context.Background(), method, target, body, headers...)
}

func (c *coordinated) get(target string) reply { return c.send(http.MethodGet, target, "") }

// put must succeed with true.
func (c *coordinated) put(t testing.TB, target, body string) reply {
	t.Helper()
	got := c.send(http.MethodPut, target, body)
	need.That(t, got.status == http.StatusOK && got.body == "true", "PUT %s: got %d %q, want 200 true", target, got.status, got.body)
	return got
}

// session creates one with Consul's API.
func (c *coordinated) session(t testing.TB, body string) string {
	t.Helper()
	got := c.send(http.MethodPut, "/v1/session/create", body)
	var created struct{ ID string }
	err := json.Unmarshal([]byte(got.body), &created)
	need.That(t, err == nil && got.status == http.StatusOK, "create %s: got %d %s", body, got.status, got.body)
	return created.ID
}

// decodeReply decodes the body of a 200.
func decodeReply[T any](t testing.TB, got reply) (into T) {
	t.Helper()
	err := json.Unmarshal([]byte(got.body), &into)
	need.That(t, err == nil && got.status == http.StatusOK, "got %d %q (%v), want 200 and JSON", got.status, got.body, err)
	return into
}
