package grpcresolver

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// grpcServer is an instance that counts its calls.
type grpcServer struct {
	grpc_health_v1.UnimplementedHealthServer
	grpc     *grpc.Server
	instance *registry.Instance
	calls    atomic.Int64
	failing  atomic.Bool
	entered  chan struct{} // a call for "slow" came in
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

// dial connects to application orders, as a user does.
func dial(t *testing.T, list List, options ...grpc.DialOption) grpc_health_v1.HealthClient {
	t.Helper()
	b, err := NewBuilder(list, Config{})
	need.OK(t, err)
	options = append(options, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("rollcall:///orders", options...)
	need.OK(t, err)
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

// untilAll calls until each server has got a call: all are connected then.
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

func TestInstancesAreCalledInTurns(t *testing.T) {
	a, b := startGRPC(t, "o1"), startGRPC(t, "o2")
	c := dial(t, newFakeList(t, a.instance, b.instance))
	untilAll(t, c, a, b)
	before := a.calls.Load()
	mustCall(t, c, 100)
	got := a.calls.Load() - before
	expect.That(t, got == 50, "one of two instances got %d of 100 calls, want 50", got)
}

func TestAnotherServiceConfigReplacesTheTurns(t *testing.T) {
	a, b := startGRPC(t, "o1"), startGRPC(t, "o2")
	c := dial(t, newFakeList(t, a.instance, b.instance),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"pick_first": {}}]}`))
	mustCall(t, c, 20)
	if a, b := a.calls.Load(), b.calls.Load(); max(a, b) != 20 {
		t.Errorf("calls were spread: %d and %d", a, b)
	}
}

func TestNoCallGoesToAnInstanceOnceItsEndWasTold(t *testing.T) {
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
			got := leaving.calls.Load() - before
			expect.That(t, got == 0, "%d calls went to it", got)
		})
	}
}

func TestACallThatAnInstanceHasIsLetFinish(t *testing.T) {
	leaving, staying := startGRPC(t, "o1"), startGRPC(t, "o2")
	list := newFakeList(t, leaving.instance)
	c := dial(t, list)
	slow := make(chan error)
	go func() { slow <- call(t, c, "slow") }()
	<-leaving.entered
	list.set(t, staying.instance)
	mustCall(t, c, 1)
	close(leaving.release)
	if err := <-slow; err != nil || staying.calls.Load() != 1 {
		t.Errorf("the call that was under way: %v; the new instance got %d calls, want 1", err, staying.calls.Load())
	}
}

func TestWithoutInstancesCallsFailAtOnceOrWait(t *testing.T) {
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

func TestACallToATargetThatNamesNothingSaysWhy(t *testing.T) {
	b, err := NewBuilder(newFakeList(t), Config{})
	need.OK(t, err)
	conn, err := grpc.NewClient("rollcall://zone/orders", grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	need.OK(t, err)
	defer conn.Close()
	err = call(t, grpc_health_v1.NewHealthClient(conn), "")
	expect.That(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), `unknown authority "zone"`), "got %v", err)
}

// told is a Discovery whose changes can be waited for: each has reached the connection when it is sent.
type told struct {
	*client.Discovery
	changes chan *client.Snapshot
}

func (d told) OnChange(each func(old, new *client.Snapshot)) (stop func()) {
	return d.Discovery.OnChange(func(old, new *client.Snapshot) {
		each(old, new)
		d.changes <- new
	})
}

func TestAConnectionFollowsTheRegistry(t *testing.T) {
	a, b, next := startGRPC(t, "o1"), startGRPC(t, "o2"), startGRPC(t, "o3")
	server := newEurekaServer(t, a.instance, b.instance)
	list := told{Discovery: server.discover(t), changes: make(chan *client.Snapshot, 10)}
	c := dial(t, list)
	untilAll(t, c, a, b)
	a.grpc.Stop()
	server.list(b.instance, next.instance)
	need.Slice(t, ids((<-list.changes).App("orders")), []string{"o2", "o3"}, "told of")
	mustCall(t, c, 100)
	untilAll(t, c, b, next)
}

func ids(instances []*registry.Instance) (ids []string) {
	for _, i := range instances {
		ids = append(ids, i.ID())
	}
	return ids
}
