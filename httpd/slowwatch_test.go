package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestWatchSendsASlowReaderAResetAsItsLastEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		s := n.watch(t, "")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(4 * time.Second) // not too slow yet
		s.want("change")
		n.Perform(t, registry.Register{Instance: newInstance("A", "2")})
		time.Sleep(6 * time.Second)
		n.Perform(t, registry.Register{Instance: newInstance("A", "3")})
		e := s.want("change")
		expect.That(t, e.id == "test-2", "got %s, want what it was slow to read", e.text)
		e = s.want("reset")
		expect.That(t, e.id == "test-3" && strings.Contains(e.data.Reason, "too slowly"), "got %s %s", e.id, e.text)
		if e, ok := s.next(); ok {
			t.Errorf("got %+v after the reset, want the end", e)
		}
		got := gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "slow"})
		expect.That(t, got == 1, "%v slow watchers are counted", got)
		got = gathered(t, metrics, "rollcall_http_watch_events_total", nil)
		expect.That(t, got == 2, "%v events are counted, want 2", got)
	})
}

func TestWatchWithoutAReaderIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		resp := need.Got(n.openRequest(t, request("GET", "/v1/rollcall/watch", "")))(t)
		newEvents(t, resp.Body).want("start")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(31 * time.Second)
		rest, err := io.ReadAll(resp.Body)
		expect.That(t, err != nil, "the stream ended in order, after %q", rest)
		got := gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "cut"})
		expect.That(t, got == 1, "%v cut watchers are counted", got)
		got = gathered(t, metrics, "rollcall_http_watchers", nil)
		expect.That(t, got == 0, "%v watchers are left", got)
	})
}

func TestWatchSendsALargeChangeWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		s := n.watch(t, "")
		for _, size := range []int{31 << 10, 32 << 10, 64 << 10, 65 << 10, 250 << 10} {
			n.Perform(t, registry.Register{Instance: largeInstance("A", fmt.Sprint(size), size)})
			e := s.want("change")
			got := len(e.data.Instance["metadata"].(map[string]any)["large"].(string))
			expect.That(t, got == size, "%d bytes of %d arrived", got, size)
		}
	})
}

func largeInstance(app, id string, size int) *registry.Instance {
	i := newInstance(app, id)
	i.Metadata = []registry.Pair{{Key: "large", Value: strings.Repeat("x", size)}}
	return i
}

// narrow is a listener whose connections buffer as little as the system lets them, and tell how long
// their writes take.
type narrow struct {
	net.Listener
	mu     sync.Mutex
	writes map[*narrowConn]time.Time // under way
}

type narrowConn struct {
	*net.TCPConn
	l *narrow
}

// Accept implements net.Listener.
func (l *narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	return &narrowConn{tcp, l}, tcp.SetWriteBuffer(4 << 10)
}

// Write implements net.Conn.
func (c *narrowConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	c.l.writes[c] = time.Now()
	c.l.mu.Unlock()
	defer func() {
		c.l.mu.Lock()
		delete(c.l.writes, c)
		c.l.mu.Unlock()
	}()
	return c.TCPConn.Write(p)
}

// blocked counts writes that are under way for longer than d.
func (l *narrow) blocked(d time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, begun := range l.writes {
		if time.Since(begun) > d {
			n++
		}
	}
	return n
}

// dialNarrow opens a watch on a connection that buffers little.
func dialNarrow(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	need.OK(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	need.Got(io.WriteString(conn, request("GET", "/v1/rollcall/watch?index=test-0", "")))(t)
	return conn
}

func TestWatchersThatAreSlowDelayNoOther(t *testing.T) {
	const (
		slowWatchers = 1000
		instances    = 100
		size         = 8 << 10
		slow         = 2 * time.Second // a busy machine may keep the healthy watcher's process from running for less
	)
	metrics := prometheus.NewRegistry()
	n, l := newNarrowNode(t, httpd.Config{Metrics: metrics}, slow)
	churn := func() {
		for i := range instances {
			n.Perform(t, registry.Register{Instance: largeInstance("CHURN", fmt.Sprint(i), size)})
		}
	}
	before := heap()
	churn() // much more than a connection holds
	conns := make([]net.Conn, slowWatchers)
	for i := range conns {
		conns[i] = dialNarrow(t, l.Addr().String())
	}
	healthy := newEvents(t, n.watchRaw(t, "?app=HEALTHY"))
	healthy.want("start")
	slowOnes := func() float64 {
		return gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "slow"})
	}
	// On a busy machine some are told already, because what they did not read fits into the network.
	eventually(t, "all others are too slow", func() bool { return l.blocked(slow)+int(slowOnes()) >= slowWatchers })
	for i := range 20 {
		churn()
		n.Perform(t, registry.Register{Instance: newInstance("HEALTHY", fmt.Sprint(i))})
		e := healthy.want("change")
		expect.That(t, e.data.ID == fmt.Sprint(i), "the healthy watcher got %s, want %d", e.text, i)
	}
	// A piece and the change that filled it, and what a connection takes, for each; not what waits.
	grew := heap() - before
	expect.That(t, grew <= slowWatchers*160<<10,
		"the heap grew by %d MiB for %d watchers that wait for %d KiB each", grew>>20, slowWatchers, instances*size>>10)
	var reading sync.WaitGroup
	for _, conn := range conns {
		reading.Go(func() {
			last, err := lastEvent(conn)
			expect.That(t, err == nil && last == "reset", "the last event is %q, %v; want a reset", last, err)
		})
	}
	reading.Wait()
	eventually(t, "the slow ones have gone", func() bool { return gathered(t, metrics, "rollcall_http_watchers", nil) == 1 })
	got := slowOnes()
	expect.That(t, got == slowWatchers, "%v slow watchers are counted, want %d", got, slowWatchers)
}

func newNarrowNode(t *testing.T, config httpd.Config, slow time.Duration) (*node, *narrow) {
	t.Helper()
	n := newNode(t, config, nil)
	n.handler.SetPace(50*time.Millisecond, 15*time.Second, slow, 10*liveness)
	inner := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := &narrow{Listener: inner, writes: map[*narrowConn]time.Time{}}
	server := httpd.NewServer("", n.handler, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return n, l
}

// watchRaw opens a watch on an ordinary connection.
func (n *node) watchRaw(t *testing.T, query string) io.Reader {
	t.Helper()
	conn := n.dial(t)
	if err := conn.SetDeadline(time.Now().Add(10 * liveness)); err != nil { // it lives as long as the test
		t.Fatal(err)
	}
	need.Got(io.WriteString(conn, request("GET", "/v1/rollcall/watch"+query, "")))(t)
	return readHead(t, conn).Body
}

// lastEvent reads a stream, which must end in good order, and returns the name of its last event.
func lastEvent(conn net.Conn) (name string, err error) {
	if err := errors.Join(conn.SetDeadline(time.Now().Add(10*liveness)), conn.(*net.TCPConn).SetReadBuffer(1<<20)); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	stream, err := io.ReadAll(resp.Body)
	for line := range strings.SplitSeq(string(stream), "\n") {
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			name = event
		}
	}
	return name, err
}

// heap is how many bytes of the heap are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// slowService holds writes back while hold is set, until release is closed.
type slowService struct {
	*registrytest.Memory
	hold           atomic.Bool
	begun, release chan struct{}
}

// Apply implements registry.Service.
func (s *slowService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if s.hold.Load() {
		close(s.begun)
		<-s.release
	}
	return s.Memory.Apply(ctx, origin, ops...)
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(liveness); !holds(); {
		need.That(t, !time.Now().After(end), "waited %v until %s", liveness, what)
		time.Sleep(time.Millisecond)
	}
}
