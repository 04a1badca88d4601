package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	m.Run()
}

// newEureka is a server in memory whose leases end. It has only a stock server's routes.
func newEureka(t *testing.T) http.Handler {
	leases := fsmtest.New()
	routes := need.Got(httpd.New(httpd.Config{Service: leases}))(t)
	t.Cleanup(routes.Close)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/eureka/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		leases.Evict()
		routes.ServeHTTP(w, r)
	})
}

// network is a network in memory of serving hosts. It refuses connections to others.
type network struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
	calls map[string]int // by host, refused ones included
}

// serve makes a host serve, or, with nil, marks it dead.
func (n *network) serve(host string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = h
}

// called returns how often a host was called since it was last asked.
func (n *network) called(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls[host]
	n.calls[host] = 0
	return calls
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	n.mu.Lock()
	n.calls[r.URL.Host]++
	h := n.hosts[r.URL.Host]
	n.mu.Unlock()
	if h == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// started is an instance on the network. Its own path to the registry can be cut, which its death does.
type started struct {
	*service
	host string
	dead atomic.Bool
	net  *network
}

// RoundTrip implements http.RoundTripper for what the instance sends.
func (s *started) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.dead.Load() {
		return nil, errors.New("dead")
	}
	return s.net.RoundTrip(r)
}

// kill ends an instance as kill -9 does: without a word to the registry.
func (s *started) kill() {
	s.dead.Store(true)
	s.net.serve(s.host, nil)
}

func startNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{hosts: map[string]http.Handler{}, calls: map[string]int{}}
	n.serve("registry", newEureka(t))
	return n
}

func (n *network) start(t *testing.T, id string) *started {
	t.Helper()
	s := &started{host: "127.0.0." + id + ":80", net: n}
	c, err := client.New(client.Config{Servers: []string{"http://registry"}, HTTPClient: &http.Client{Transport: s}})
	need.OK(t, err)
	o := options{name: "orders", id: "orders-" + id, lease: 30 * time.Second}
	ip := net.ParseIP("127.0.0." + id)
	if s.service, err = start(c, o.instance(&net.TCPAddr{IP: ip, Port: 80}), s); err != nil {
		t.Fatal(err)
	}
	n.serve(s.host, s.routes())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.Close(ctx)
	})
	return s
}

func (s *started) get(method, path string) (int, string) {
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestTheDeadAreNotCalledOnceTheListIsWithoutThem kills one of two instances. Until the registry and its clients know,
// calls still succeed; from then on none goes to the dead one.
func TestTheDeadAreNotCalledOnceTheListIsWithoutThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNetwork(t)
		caller, doomed := n.start(t, "1"), n.start(t, "2")
		var gone atomic.Bool
		caller.others.OnChange(func(_, now *client.Snapshot) {
			gone.Store(now.Instance(doomed.self.Instance().Key()) == nil)
		})
		time.Sleep(time.Minute) // stock servers are asked every 30 s
		answers := make(map[string]int)
		for range 10 {
			_, id := caller.get(http.MethodGet, "/call?service=orders")
			answers[id]++
		}
		expect.That(t, answers["orders-1"] == 5 && answers["orders-2"] == 5, "the answers are of %v, want half of each", answers)

		doomed.kill()
		n.called(doomed.host)
		for range 120 { // seconds; the lease lasts 30 s, and a list is up to 30 s old
			told := gone.Load()
			status, body := caller.get(http.MethodGet, "/call?service=orders")
			expect.That(t, status == http.StatusOK && body == "orders-1", "a call came to %d %q, want the one that is alive", status, body)
			if calls := n.called(doomed.host); told && calls > 0 {
				t.Error("the dead one was called although the list is without it")
			}
			time.Sleep(time.Second)
		}
		expect.That(t, gone.Load(), "the list never lost the dead one")
	})
}

func TestAnInstanceThatIsDownIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNetwork(t)
		caller, broken := n.start(t, "1"), n.start(t, "2")
		broken.get(http.MethodPut, "/health?down=true")
		time.Sleep(time.Minute)
		status, body := broken.get(http.MethodGet, "/health")
		expect.That(t, status == http.StatusServiceUnavailable && body == "DOWN", "it says of itself %d %q, want 503 DOWN", status, body)
		for range 10 {
			_, id := caller.get(http.MethodGet, "/call?service=orders")
			expect.That(t, id == "orders-1", "%s was called", id)
		}
		broken.get(http.MethodPut, "/health?down=false")
		time.Sleep(time.Minute)
		n.called(broken.host)
		for range 10 {
			caller.get(http.MethodGet, "/call?service=orders")
		}
		calls := n.called(broken.host)
		expect.That(t, calls == 5, "after it was repaired it got %d of 10 calls, want 5", calls)
	})
}

func TestALeavingInstanceDrainsBeforeItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNetwork(t)
		caller, leaving := n.start(t, "1"), n.start(t, "2")
		key := leaving.self.Instance().Key()
		time.Sleep(time.Minute + time.Second) // between two fetches: it may show STARTING on its way out
		start := time.Now()
		var seen []string
		caller.others.OnChange(func(_, now *client.Snapshot) {
			status := "gone"
			if i := now.Instance(key); i != nil {
				status = i.Status.String()
			}
			seen = append(seen, status)
		})
		expect.OK(t, leaving.leave(time.Minute, &http.Server{}))
		took := time.Since(start)
		expect.That(t, took >= time.Minute && took <= time.Minute+5*time.Second, "it left in %v, want a minute for those who call it", took)
		time.Sleep(time.Minute)
		synctest.Wait()
		expect.That(t, fmt.Sprint(seen) == "[OUT_OF_SERVICE gone]", "others saw %v, want it out of service first", seen)
	})
}

func TestCallsThatCannotBeMadeAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller := startNetwork(t).start(t, "1")
		time.Sleep(time.Minute)
		for service, want := range map[string]string{"stock": `service "stock"`, "": `service ""`} {
			status, body := caller.get(http.MethodGet, "/call?service="+service)
			expect.That(t, status == http.StatusBadGateway && strings.Contains(body, want),
				"a call of %q came to %d %q, want 502 that says %s", service, status, body, want)
		}
	})
}

func TestAnInstanceSaysWhereItListens(t *testing.T) {
	o := options{name: "orders", id: "orders-1", lease: 4 * time.Second}
	bound := o.instance(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081})
	expect.That(t, bound.HostName == "127.0.0.1" && bound.IPAddr == "127.0.0.1" && bound.Port == (registry.Port{Number: 8081, Enabled: true}),
		"it says %s, %s, %v; want where it listens", bound.HostName, bound.IPAddr, bound.Port)
	expect.That(t, bound.ID() == "orders-1" && bound.Duration == 4 && bound.RenewalInterval == 1, "id %s, lease of %d s renewed each %d s", bound.ID(), bound.Duration, bound.RenewalInterval)
	all := o.instance(&net.TCPAddr{IP: net.IPv6zero, Port: 8081})
	expect.That(t, all.HostName != "::" && all.IPAddr != "::", "it says that it is everywhere")
}
