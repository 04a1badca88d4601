package grpcresolver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// connection records its updates.
type connection struct {
	resolver.ClientConn
	updates []string
	config  *serviceconfig.ParseResult
	badly   error // the result of parsing a service config
}

func (c *connection) UpdateState(s resolver.State) error {
	var addresses []string
	for _, a := range s.Addresses {
		addresses = append(addresses, a.Addr)
	}
	c.updates = append(c.updates, fmt.Sprintf("at %v", addresses))
	c.config = s.ServiceConfig
	return errors.New("asks for another resolution")
}

func (c *connection) ReportError(err error) { c.updates = append(c.updates, err.Error()) }

func (c *connection) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: c.badly}
}

func (c *connection) received() []string {
	updates := c.updates
	c.updates = nil
	return updates
}

func build(t *testing.T, list List, target string, cc resolver.ClientConn, options resolver.BuildOptions) (resolver.Resolver, error) {
	t.Helper()
	b := need.Got(NewBuilder(list, Config{}))(t)
	u, err := url.Parse(target)
	need.OK(t, err)
	return b.Build(resolver.Target{URL: *u}, cc, options)
}

func TestResolverPassesTheChangesOfItsServiceOnly(t *testing.T) {
	a, b := instance("o1", "a", 80), instance("o2", "b", 80)
	mute := with(a, func(i *registry.Instance) { i.Port.Enabled = false })
	other := with(instance("s1", "s", 80), func(i *registry.Instance) { i.App = "STOCK" })
	list := newFakeList(t)
	cc := new(connection)
	r := need.Got(build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{}))(t)
	const none = `no instance of application "orders" is UP`
	steps := []struct {
		name      string
		instances []*registry.Instance
		want      []string
	}{
		{name: "nothing at first", want: []string{none + ": the list of all instances is empty (Discovery.Ready waits for it)"}},
		{name: "another service", instances: []*registry.Instance{other}, want: []string{none}},
		{name: "another instance of it", instances: []*registry.Instance{other, with(other, func(i *registry.Instance) { i.InstanceID = "s2" })}},
		{name: "the first", instances: []*registry.Instance{other, a}, want: []string{"at [a:80]"}},
		{name: "a second", instances: []*registry.Instance{other, a, b}, want: []string{"at [a:80 b:80]"}},
		{name: "metadata that does not matter", instances: []*registry.Instance{a, with(b, func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "version", Value: "2"}} })}},
		{name: "the same in another place", instances: []*registry.Instance{with(a, func(i *registry.Instance) { i.InstanceID = "o3" }), b}},
		{name: "one is drained", instances: []*registry.Instance{with(a, func(i *registry.Instance) { i.Status = registry.OutOfService }), b}, want: []string{"at [b:80]"}},
		{name: "one elsewhere", instances: []*registry.Instance{a}, want: []string{"at [a:80]"}},
		{name: "one that speaks no gRPC", instances: []*registry.Instance{mute}, want: []string{"at []",
			`none of the 1 instances of application "orders" that are UP says where it speaks gRPC; register an enabled port or metadata gRPC_port`}},
		{name: "none any more", instances: []*registry.Instance{other}, want: []string{none}},
		{name: "one again", instances: []*registry.Instance{b}, want: []string{"at [b:80]"}},
		{name: "the last goes", instances: []*registry.Instance{other}, want: []string{"at []", none}},
	}
	for _, s := range steps {
		list.set(t, s.instances...)
		expect.Slice(t, cc.received(), s.want, "%s: received", s.name)
	}
	r.ResolveNow(resolver.ResolveNowOptions{})
	r.Close()
	list.set(t, a)
	if got := cc.received(); got != nil || list.subscribers() != 0 {
		t.Errorf("after Close: received %q, with %d subscriptions", got, list.subscribers())
	}
}

// changingList is a list that changes while it is first read.
type changingList struct {
	*fakeList
	next    *client.Snapshot
	once    sync.Once
	changed sync.WaitGroup
}

func (l *changingList) Snapshot() *client.Snapshot {
	seen := l.fakeList.Snapshot()
	l.once.Do(func() { l.changed.Go(l.change(l.next)) })
	return seen
}

func TestResolverMissesNoChangeDuringTheFirstUpdate(t *testing.T) {
	list := &changingList{fakeList: newFakeList(t, instance("o1", "a", 80)), next: snapshotOf(t, instance("o2", "b", 80))}
	cc := new(connection)
	r := need.Got(build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{}))(t)
	list.changed.Wait()
	r.Close()
	got := cc.received()
	expect.That(t, len(got) != 0 && got[len(got)-1] == "at [b:80]", "received %q; the list ends with b:80", got)
}

func TestTargetNamesAService(t *testing.T) {
	app := instance("o1", "app", 80)
	vip := with(instance("p1", "vip", 80), func(i *registry.Instance) { i.App, i.VIP = "P", "charges,Payments" })
	svip := with(instance("q1", "svip", 80), func(i *registry.Instance) {
		i.App, i.SecureVIP, i.SecurePort = "Q", "payments", registry.Port{Number: 443, Enabled: true}
	})
	list := newFakeList(t, app, vip, svip)
	cases := []struct{ target, update, fails string }{
		{target: "rollcall:///orders", update: "at [app:80]"},
		{target: "rollcall:///ORDERS", update: "at [app:80]"},
		{target: "rollcall:orders", update: "at [app:80]"},
		{target: "rollcall://vip/payments", update: "at [vip:80]"},
		{target: "rollcall://svip/Payments", update: "at [svip:443]"},
		{target: "rollcall://vip/orders", update: `no instance of VIP address "orders" is UP`},
		{target: "rollcall://svip/charges", update: `no instance of secure VIP address "charges" is UP`},
		{target: "rollcall://zone/orders", fails: `target "rollcall://zone/orders" has the unknown authority "zone"; targets are rollcall:///APPLICATION, `},
		{target: "rollcall://vip:80/orders", fails: `unknown authority "vip:80"`},
		{target: "rollcall://orders", fails: `target "rollcall://orders" names no service; targets are rollcall:///APPLICATION, `},
		{target: "rollcall:///", fails: "names no service"},
	}
	for _, c := range cases {
		t.Run(c.target, func(t *testing.T) {
			cc := new(connection)
			r, err := build(t, list, c.target, cc, resolver.BuildOptions{})
			if c.fails != "" {
				expect.That(t, err != nil && strings.Contains(err.Error(), c.fails), "got %v, want %s", err, c.fails)
				return
			}
			need.OK(t, err)
			defer r.Close()
			expect.Slice(t, cc.received(), []string{c.update}, "received")
		})
	}
	expect.That(t, list.subscribers() == 0, "%d subscriptions are left", list.subscribers())
}

func TestServiceConfigIsLeftOutWhereItIsNotWanted(t *testing.T) {
	list := newFakeList(t, instance("o1", "a", 80))
	for _, disabled := range []bool{false, true} {
		cc := new(connection)
		need.Got(build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{DisableServiceConfig: disabled}))(t).Close()
		expect.That(t, (cc.config == nil) == disabled, "disabled %v: the service config is %v", disabled, cc.config)
	}
}

func TestServiceConfigThatGRPCRefusesIsReportedAtOnce(t *testing.T) {
	refused := errors.New("no such policy")
	expect.ErrorIs(t, expect.Err(build(t, newFakeList(t), "rollcall:///orders", &connection{badly: refused}, resolver.BuildOptions{})), refused, "got")
}

func TestBuilderNeedsAList(t *testing.T) {
	_, err := NewBuilder(nil, Config{})
	expect.That(t, err != nil && err.Error() == "no list is given; give a *client.Discovery", "got %v", err)
}

func TestPortWhereAnInstanceSpeaksGRPC(t *testing.T) {
	metadata := func(pairs ...registry.Pair) func(*registry.Instance) {
		return func(i *registry.Instance) { i.Metadata = pairs }
	}
	cases := []struct {
		name   string
		change func(i *registry.Instance)
		config Config
		secure bool
		want   []string
	}{
		{name: "its host name and port", want: []string{"orders-1:8080"}},
		{name: "its secure port for svip", secure: true, want: []string{"orders-1:8443"}},
		{name: "the port of its metadata", change: metadata(registry.Pair{Key: "gRPC_port", Value: "9090"}), want: []string{"orders-1:9090"}},
		{name: "the port of its metadata for svip", change: metadata(registry.Pair{Key: "gRPC_port", Value: "9090"}), secure: true, want: []string{"orders-1:9090"}},
		{name: "the older key", change: metadata(registry.Pair{Key: "gRPC.port", Value: "9091"}), want: []string{"orders-1:9091"}},
		{name: "the newer key of both", change: metadata(registry.Pair{Key: "gRPC.port", Value: "9091"}, registry.Pair{Key: "gRPC_port", Value: "9090"}), want: []string{"orders-1:9090"}},
		{name: "a key in another case", change: metadata(registry.Pair{Key: "grpc.port", Value: "9092"}), want: []string{"orders-1:9092"}},
		{name: "metadata that is no port", change: metadata(registry.Pair{Key: "gRPC_port", Value: "none"})},
		{name: "metadata that is the port 0", change: metadata(registry.Pair{Key: "gRPC_port", Value: "0"})},
		{name: "metadata that is above all ports", change: metadata(registry.Pair{Key: "gRPC_port", Value: "65536"})},
		{name: "port not enabled", change: func(i *registry.Instance) { i.Port.Enabled = false }},
		{name: "port 0, which it did not know when it registered", change: func(i *registry.Instance) { i.Port.Number = 0 }},
		{name: "secure port not enabled", change: func(i *registry.Instance) { i.SecurePort.Enabled = false }, secure: true},
		{name: "no host name", change: func(i *registry.Instance) { i.HostName = "" }, want: []string{"10.0.0.1:8080"}},
		{name: "neither name nor address", change: func(i *registry.Instance) { i.HostName, i.IPAddr = "", "" }},
		{name: "an address of IPv6", change: func(i *registry.Instance) { i.HostName = "fd00::1" }, want: []string{"[fd00::1]:8080"}},
		{name: "the host that the caller chose", config: Config{Host: balance.ByIP}, want: []string{"10.0.0.1:8080"}},
		{name: "the port that the caller chose", config: Config{Port: func(i *registry.Instance) (uint16, bool) { return i.SecurePort.Number, true }}, want: []string{"orders-1:8443"}},
		{name: "no port that the caller chose", config: Config{Port: func(i *registry.Instance) (uint16, bool) { return 1, false }}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			i := with(instance("o1", "orders-1", 8080), func(i *registry.Instance) {
				i.IPAddr, i.SecurePort = "10.0.0.1", registry.Port{Number: 8443, Enabled: true}
			})
			if c.change != nil {
				c.change(i)
			}
			expect.Slice(t, c.config.withDefaults(c.secure).addresses([]*registry.Instance{i}), c.want, "got")
		})
	}
}

func TestAddressesOfAService(t *testing.T) {
	inZone := func(zone string) func(*registry.Instance) {
		return func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "zone", Value: zone}} }
	}
	a1 := with(instance("o3", "a1", 80), inZone("a"))
	b1 := with(instance("o2", "b1", 80), inZone("b"))
	b2 := with(instance("o1", "b2", 80), inZone("b"))
	mute := func(i *registry.Instance) { i.Port.Enabled = false }
	cases := []struct {
		name      string
		zone      string
		instances []*registry.Instance
		want      []string
	}{
		{name: "all, in an order that ids do not change", instances: []*registry.Instance{b2, b1, a1}, want: []string{"a1:80", "b1:80", "b2:80"}},
		{name: "each once", instances: []*registry.Instance{b1, with(b1, func(i *registry.Instance) { i.InstanceID = "o9" })}, want: []string{"b1:80"}},
		{name: "those of the zone", zone: "b", instances: []*registry.Instance{b2, b1, a1}, want: []string{"b1:80", "b2:80"}},
		{name: "all, if the zone has none", zone: "c", instances: []*registry.Instance{b2, b1, a1}, want: []string{"a1:80", "b1:80", "b2:80"}},
		{name: "all, if the zone has none that speaks gRPC", zone: "a", instances: []*registry.Instance{b2, b1, with(a1, mute)}, want: []string{"b1:80", "b2:80"}},
		{name: "none", zone: "a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			expect.Slice(t, (Config{Zone: c.zone}).withDefaults(false).addresses(c.instances), c.want, "got")
		})
	}
}

// liveness is when a test gives up; it decides nothing else.
const liveness = 20 * time.Second

// eurekaServer is a stock server whose list the test sets.
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

// fakeList is a List that set changes; every subscriber was called when set returns.
type fakeList struct {
	mu       sync.Mutex
	snapshot *client.Snapshot
	each     map[int]func(old, new *client.Snapshot)
	next     int
}

func newFakeList(t *testing.T, instances ...*registry.Instance) *fakeList {
	return &fakeList{snapshot: snapshotOf(t, instances...), each: make(map[int]func(old, new *client.Snapshot))}
}

// snapshotOf returns the list of a client whose server has these instances: only a client can make one.
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

// change returns a function that calls the current subscribers.
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

func instance(id, host string, port uint16) *registry.Instance {
	return &registry.Instance{
		App: "ORDERS", InstanceID: id, HostName: host, IPAddr: host, Status: registry.Up,
		Port: registry.Port{Number: port, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
	}
}

func with(i *registry.Instance, change func(i *registry.Instance)) *registry.Instance {
	changed := *i
	change(&changed)
	return &changed
}

// grpcServer is an instance that counts its calls.
type grpcServer struct {
	grpc_health_v1.UnimplementedHealthServer
	grpc     *grpc.Server
	instance *registry.Instance
	calls    atomic.Int64
	failing  atomic.Bool
	entered  chan struct{} // a call for "slow" arrived
	release  chan struct{} // and may end
}

func startGRPC(t *testing.T, id string) *grpcServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	need.OK(t, err)
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	s := &grpcServer{grpc: grpc.NewServer(), instance: instance(id, "127.0.0.1", port), entered: make(chan struct{}), release: make(chan struct{})}
	grpc_health_v1.RegisterHealthServer(s.grpc, s)
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	t.Cleanup(func() {
		s.grpc.Stop()
		expect.OKf(t, <-served, "serve")
	})
	return s
}

func (s *grpcServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.calls.Add(1)
	if s.failing.Load() {
		return nil, status.Error(codes.Unavailable, "this instance is on its way out")
	}
	if r.GetService() == "slow" {
		s.entered <- struct{}{}
		<-s.release
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func dial(t *testing.T, list List, options ...grpc.DialOption) grpc_health_v1.HealthClient {
	t.Helper()
	b := need.Got(NewBuilder(list, Config{}))(t)
	options = append(options, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn := need.Got(grpc.NewClient("rollcall:///orders", options...))(t)
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func call(t *testing.T, c grpc_health_v1.HealthClient, service string, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	_, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, options...)
	return err
}

func mustCall(t *testing.T, c grpc_health_v1.HealthClient, times int) {
	t.Helper()
	for range times {
		need.OKf(t, call(t, c, ""), "a call failed")
	}
}

// untilAll calls until each server has received a call: all are connected then.
func untilAll(t *testing.T, c grpc_health_v1.HealthClient, servers ...*grpcServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	before := make([]int64, len(servers))
	for i, s := range servers {
		before[i] = s.calls.Load()
	}
	for {
		mustCall(t, c, 1)
		all := true
		for i, s := range servers {
			all = all && s.calls.Load() > before[i]
		}
		if all {
			return
		}
		need.That(t, ctx.Err() == nil, "an instance gets no calls")
	}
}

func TestConnectionCallsInstancesInTurns(t *testing.T) {
	a, b := startGRPC(t, "o1"), startGRPC(t, "o2")
	c := dial(t, newFakeList(t, a.instance, b.instance))
	untilAll(t, c, a, b)
	before := a.calls.Load()
	mustCall(t, c, 100)
	expect.Equal(t, a.calls.Load()-before, 50, "of 100 calls one of two instances got")
}

func TestConnectionCallsNoInstanceAfterItsRemoval(t *testing.T) {
	ends := []struct {
		name string
		end  func(s *grpcServer)
	}{
		{name: "it was killed", end: func(s *grpcServer) { s.grpc.Stop() }},
		{name: "it answers with errors", end: func(s *grpcServer) { s.failing.Store(true) }},
	}
	for _, e := range ends {
		t.Run(e.name, func(t *testing.T) {
			leaving, staying := startGRPC(t, "o1"), startGRPC(t, "o2")
			list := newFakeList(t, leaving.instance, staying.instance)
			c := dial(t, list)
			untilAll(t, c, leaving, staying)
			e.end(leaving)
			list.set(t, staying.instance)
			before := leaving.calls.Load()
			mustCall(t, c, 200)
			expect.Equal(t, leaving.calls.Load()-before, 0, "calls that went to it:")
		})
	}
}

func TestConnectionWithoutInstancesFailsCallsAtOnceOrWaits(t *testing.T) {
	s := startGRPC(t, "o1")
	list := newFakeList(t)
	c := dial(t, list)
	err := call(t, c, "")
	expect.That(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), `no instance of application "orders" is UP`),
		"before the first instance: %v", err)
	waits := make(chan error)
	go func() { waits <- call(t, c, "", grpc.WaitForReady(true)) }()
	list.set(t, s.instance)
	expect.OKf(t, <-waits, "the call that waited")
	list.set(t)
	if err := call(t, c, ""); status.Code(err) != codes.Unavailable {
		t.Errorf("after the last instance went: %v", err)
	}
	list.set(t, s.instance)
	expect.OKf(t, call(t, c, "", grpc.WaitForReady(true)), "after it came back")
}

// awaited is a Discovery whose changes can be waited for: each has reached the connection when it is sent.
type awaited struct {
	*client.Discovery
	changes chan *client.Snapshot
}

func (d awaited) OnChange(each func(old, new *client.Snapshot)) (stop func()) {
	return d.Discovery.OnChange(func(old, new *client.Snapshot) {
		each(old, new)
		d.changes <- new
	})
}

func TestAConnectionFollowsTheRegistry(t *testing.T) {
	a, b, next := startGRPC(t, "o1"), startGRPC(t, "o2"), startGRPC(t, "o3")
	server := newEurekaServer(t, a.instance, b.instance)
	list := awaited{Discovery: server.discover(t), changes: make(chan *client.Snapshot, 10)}
	c := dial(t, list)
	untilAll(t, c, a, b)
	a.grpc.Stop()
	server.list(b.instance, next.instance)
	need.Slice(t, ids((<-list.changes).App("orders")), []string{"o2", "o3"}, "received")
	mustCall(t, c, 100)
	untilAll(t, c, b, next)
}

func ids(instances []*registry.Instance) (ids []string) {
	for _, i := range instances {
		ids = append(ids, i.ID())
	}
	return ids
}

// asHealthServer turns this test's binary into a gRPC server with the health service: the server's tests probe it,
// whose module needs no gRPC.
const asHealthServer = "ROLLCALL_TEST_HEALTH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asHealthServer) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := serveHealth(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveHealth serves until in ends. It writes a line with the addresses without and with TLS, reads lines of a
// service and its status, such as "orders NOT_SERVING", and writes a line after each.
func serveHealth(in io.Reader, out io.Writer) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	service := health.NewServer()
	var addresses []string
	for _, options := range [][]grpc.ServerOption{nil, {grpc.Creds(credentials.NewServerTLSFromCert(&certificate))}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := grpc.NewServer(options...)
		grpc_health_v1.RegisterHealthServer(server, service)
		go server.Serve(listener)
		defer server.Stop()
		addresses = append(addresses, listener.Addr().String())
	}
	fmt.Fprintln(out, strings.Join(addresses, " "))
	for lines := bufio.NewScanner(in); lines.Scan(); {
		name, status, _ := strings.Cut(lines.Text(), " ")
		service.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_ServingStatus(grpc_health_v1.HealthCheckResponse_ServingStatus_value[status]))
		fmt.Fprintln(out, "done")
	}
	return nil
}

// selfSigned returns a certificate that nobody signed.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"orders.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
