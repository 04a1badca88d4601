package grpcresolver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// liveness is when a test gives up; it decides nothing else.
const liveness = 20 * time.Second

// eurekaServer is a stock server that lists what it is told to.
type eurekaServer struct {
	*httptest.Server
	mu        sync.Mutex
	instances []*registry.Instance
}

func newEurekaServer(t *testing.T, instances ...*registry.Instance) *eurekaServer {
	s := &eurekaServer{instances: instances}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *eurekaServer) list(instances ...*registry.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = instances
}

func (s *eurekaServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/eureka/apps" && r.URL.Path != "/eureka/apps/" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var leases []*registry.Lease
	for _, i := range s.instances {
		leases = append(leases, &registry.Lease{Instance: i, Interval: 30, Duration: 90})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(eureka.AppendApplications(nil, eureka.Format{}, "1", fmt.Sprintf("UP_%d_", len(leases)), slices.Values(leases)))
}

// discover keeps a list of what the server lists, and believes it.
func (s *eurekaServer) discover(t *testing.T) *client.Discovery {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{s.URL}})
	need.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), liveness)
		defer cancel()
		expect.OKf(t, c.Close(ctx), "close the client")
	})
	d, err := c.StartDiscovery(client.DiscoveryConfig{
		Mode: client.RefreshFull, Interval: 10 * time.Millisecond, Guard: client.Guard{Share: -1},
	})
	need.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	need.OK(t, d.Ready(ctx))
	return d
}

// fakeList is a List that changes when it is told to, and has told everybody when set returns.
type fakeList struct {
	mu       sync.Mutex
	snapshot *client.Snapshot
	each     map[int]func(old, new *client.Snapshot)
	next     int
}

func newFakeList(t *testing.T, instances ...*registry.Instance) *fakeList {
	return &fakeList{snapshot: snapshotOf(t, instances...), each: make(map[int]func(old, new *client.Snapshot))}
}

// snapshotOf is the list of a client that was told of instances: nobody else can make one.
func snapshotOf(t *testing.T, instances ...*registry.Instance) *client.Snapshot {
	t.Helper()
	return newEurekaServer(t, instances...).discover(t).Snapshot()
}

func (l *fakeList) Snapshot() *client.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshot
}

func (l *fakeList) OnChange(each func(old, new *client.Snapshot)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.next
	l.next++
	l.each[n] = each
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.each, n)
	}
}

func (l *fakeList) set(t *testing.T, instances ...*registry.Instance) {
	t.Helper()
	l.change(snapshotOf(t, instances...))()
}

// change returns what tells those who are subscribed now.
func (l *fakeList) change(next *client.Snapshot) (tell func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, subscribed := l.snapshot, slices.Collect(maps.Values(l.each))
	l.snapshot = next
	return func() {
		for _, each := range subscribed {
			each(old, next)
		}
	}
}

func (l *fakeList) subscribers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.each)
}

// instance is one of application ORDERS that is UP.
func instance(id, host string, port uint16) *registry.Instance {
	return &registry.Instance{
		App: "ORDERS", InstanceID: id, HostName: host, IPAddr: host, Status: registry.Up,
		Port: registry.Port{Number: port, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
	}
}

// with returns a changed copy of an instance.
func with(i *registry.Instance, change func(i *registry.Instance)) *registry.Instance {
	changed := *i
	change(&changed)
	return &changed
}
