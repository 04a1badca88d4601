package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/seed-20419f34/rollcall/fsm/kv/kvtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The limits of one connection over HTTP/2, as docs/run/limits.md has them.
const (
	streamsAtOnce = 100
	quietAfter    = 90 * time.Second // without a stream
	blockedAfter  = 30 * time.Second // without a byte that the client takes
	goodbye       = 8 * time.Second  // from the decision to end a connection to its end; TLS waits 5 s for its last word to be read
)

// held is a registry whose writes take until they are let go, whatever becomes of their callers.
type held struct {
	*registrytest.Memory
	letGo     chan struct{}
	now, most atomic.Int64
}

// Apply implements registry.Service.
func (h *held) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	<-h.letGo
	return h.Memory.Apply(ctx, origin, ops...)
}

// flooder is a client over HTTP/2 that sends what frames it likes.
type flooder struct {
	*http2.Framer
	conn      *tls.Conn
	begun     time.Time
	headers   bytes.Buffer
	encoder   *hpack.Encoder
	deaf      atomic.Bool        // it reads no more
	goingAway atomic.Bool        // that the connection ends
	ended     chan http2.ErrCode // why, once it has
	resets    atomic.Int64       // streams that the server has reset
}

// newFlooder connects, with a window for the body of each response.
func newFlooder(t *testing.T, n *bubbled, trusted *x509.CertPool, window uint32) *flooder {
	t.Helper()
	raw := n.open(t)
	conn := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: "example.com", NextProtos: []string{"h2"}})
	f := &flooder{Framer: http2.NewFramer(conn, conn), conn: conn, begun: time.Now(), ended: make(chan http2.ErrCode, 1)}
	f.encoder = hpack.NewEncoder(&f.headers)
	need.Got(io.WriteString(conn, http2.ClientPreface))(t)
	need.OK(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	go f.read()
	synctest.Wait()
	return f
}

// read reads until the server ends the connection, or as long as it is to.
func (f *flooder) read() {
	why := http2.ErrCodeNo
	for !f.deaf.Load() {
		frame, err := f.ReadFrame()
		if err != nil {
			f.ended <- why
			return
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			why = frame.ErrCode
			f.goingAway.Store(true)
		case *http2.RSTStreamFrame:
			f.resets.Add(1)
		}
	}
}

// flood sends until the server says that the connection ends, or ends it, at most so often, and returns how often it could.
func (f *flooder) flood(most int, send func(i int) error) (sent int) {
	for sent < most && !f.goingAway.Load() && send(sent) == nil {
		sent++
	}
	return sent
}

// block is the header block of a request.
func (f *flooder) block(method, path string) []byte {
	f.headers.Reset()
	for _, h := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "example.com"}, {":path", path}} {
		f.encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // never fails: it writes to memory
	}
	return f.headers.Bytes()
}

// request opens a stream.
func (f *flooder) request(stream uint32, method, path string) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block(method, path), EndHeaders: true, EndStream: true})
}

// inFlood runs a test in a bubble with a node, and a client that floods it. In the end the others are served, and nothing is
// left of what the flood has started.
func inFlood(t *testing.T, name string, window uint32, test func(t *testing.T, h *held, f *flooder)) {
	certificate, trusted := certified(t)
	inBubble(t, name, func(t *testing.T) {
		h := &held{Memory: registrytest.New(), letGo: make(chan struct{})}
		for i := range 200 {
			h.Perform(t, registry.Register{Instance: newInstance("ORDERS", fmt.Sprintf("i%d", i))})
		}
		n := newBubbledTLS(t, httpd.Config{Service: h, Coordination: kvtest.New(h.Memory)}, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
		conn := tls.Client(n.open(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
		other := line{conn, bufio.NewReader(conn)}
		need.Equal(t, other.roundTrip(t, request("GET", "/eureka/apps/ORDERS", "")).status, 200, "before the flood")
		synctest.Wait()
		before, heap := runtime.NumGoroutine(), heapNow()
		f := newFlooder(t, n, trusted, window)
		test(t, h, f)
		if t.Failed() {
			return
		}
		conn = tls.Client(n.open(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
		other = line{conn, bufio.NewReader(conn)}
		need.Equal(t, other.roundTrip(t, request("GET", "/eureka/apps/ORDERS", "")).status, 200, "after the flood")
		f.conn.NetConn().Close()
		time.Sleep(5 * time.Minute) // in which idle connections have ended
		expect.That(t, heapNow()-heap < 8<<20, "the heap grew by %d bytes", heapNow()-heap)
		expect.That(t, runtime.NumGoroutine() <= before+2, "%d goroutines before the flood, %d after it", before, runtime.NumGoroutine())
	})
}

func heapNow() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestFloodOfResetStreamsRunsNoMoreHandlersThanStreams(t *testing.T) {
	beat := func(f *flooder, i int, reset func(stream uint32) error) error {
		stream := uint32(2*i + 1)
		return errors.Join(f.request(stream, "PUT", "/eureka/apps/ORDERS/i1"), reset(stream))
	}
	byClient := func(f *flooder) func(stream uint32) error {
		return func(stream uint32) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) }
	}
	byServer := func(f *flooder) func(stream uint32) error {
		f.AllowIllegalWrites = true
		return func(stream uint32) error { return f.WriteWindowUpdate(stream, 0) } // an error that resets the stream
	}
	for name, by := range map[string]func(f *flooder) func(stream uint32) error{"by the client": byClient, "by the server": byServer} {
		inFlood(t, "handlers that take, reset "+name, 1<<20, func(t *testing.T, h *held, f *flooder) {
			reset := by(f)
			sent := f.flood(10_000, func(i int) error {
				defer synctest.Wait()
				return beat(f, i, reset)
			})
			expect.Equal(t, <-f.ended, http2.ErrCodeEnhanceYourCalm, "the connection ends with")
			synctest.Wait()
			const most = 5*streamsAtOnce + 2 // those that run, four times as many that wait, and those that say that it is enough
			expect.That(t, h.most.Load() == streamsAtOnce && sent <= most, "%d handlers ran at once, and %d streams were taken, want %d and at most %d", h.most.Load(), sent, streamsAtOnce, most)
			close(h.letGo)
		})
	}
	inFlood(t, "handlers that are quick", 1<<20, func(t *testing.T, h *held, f *flooder) {
		close(h.letGo)
		reset := byClient(f)
		f.flood(20_000, func(i int) error { return beat(f, i, reset) })
		synctest.Wait()
		expect.That(t, h.most.Load() <= streamsAtOnce, "%d handlers ran at once, want %d at most", h.most.Load(), streamsAtOnce)
	})
}

func TestFloodOfContinuationsEndsTheConnection(t *testing.T) {
	begin := func(t *testing.T, f *flooder) {
		need.OK(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block("GET", "/healthz")}))
	}
	inFlood(t, "with fields", 1<<20, func(t *testing.T, h *held, f *flooder) {
		begin(t, f)
		bytes := 0
		f.flood(10_000, func(i int) error {
			f.headers.Reset()
			f.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 500), Sensitive: true})
			bytes += f.headers.Len()
			return f.WriteContinuation(1, false, f.headers.Bytes())
		})
		expect.Equal(t, <-f.ended, http2.ErrCodeProtocol, "the connection ends with")
		expect.That(t, bytes <= 64<<10, "%d bytes of fields were taken, want 64 KiB at most", bytes)
	})
	inFlood(t, "empty ones", 1<<20, func(t *testing.T, h *held, f *flooder) {
		begin(t, f)
		f.flood(1_000_000, func(int) error {
			time.Sleep(50 * time.Millisecond)
			return f.WriteContinuation(1, false, nil)
		})
		expect.That(t, time.Since(f.begun) <= quietAfter+goodbye, "the connection ended after %v, want %v", time.Since(f.begun), quietAfter)
	})
}

func TestClientThatDoesNotReadOverHTTP2LosesItsConnection(t *testing.T) {
	inFlood(t, "pings", 1<<20, func(t *testing.T, h *held, f *flooder) {
		f.deaf.Store(true)
		sent := f.flood(100_000, func(int) error { return f.WritePing(false, [8]byte{}) })
		expect.That(t, sent <= 11_000, "%d pings were taken, want 10,000", sent)
	})
	everySecond := func(t *testing.T, f *flooder, send func(i int) error) {
		f.deaf.Store(true)
		begun := time.Now()
		f.flood(4000, func(i int) error {
			time.Sleep(time.Second)
			return send(i)
		})
		expect.That(t, time.Since(begun) <= blockedAfter+goodbye, "the connection ended after %v, want %v", time.Since(begun), blockedAfter)
	}
	inFlood(t, "settings", 1<<20, func(t *testing.T, h *held, f *flooder) {
		everySecond(t, f, func(i int) error { return f.WriteSettings() })
	})
	for _, path := range []string{"/eureka/apps", "/v1/rollcall/watch"} {
		inFlood(t, path, 1<<20, func(t *testing.T, h *held, f *flooder) {
			need.OK(t, f.request(1, "GET", path))
			everySecond(t, f, func(i int) error { return f.WritePing(false, [8]byte{}) })
		})
	}
}

func TestClientThatGivesNoWindowLosesItsStreams(t *testing.T) {
	for _, path := range []string{"/eureka/apps", "/v1/rollcall/watch"} {
		inFlood(t, path, 0, func(t *testing.T, h *held, f *flooder) { starve(t, f, path) })
	}
}

// starve asks for a document on each stream, and takes a byte of each a second.
func starve(t *testing.T, f *flooder, path string) {
	for i := range streamsAtOnce {
		need.OK(t, f.request(uint32(2*i+1), "GET", path))
	}
	for time.Since(f.begun) < blockedAfter+goodbye {
		time.Sleep(time.Second)
		for i := range streamsAtOnce {
			_ = f.WriteWindowUpdate(uint32(2*i+1), 1)
		}
	}
	expect.Equal(t, f.resets.Load(), streamsAtOnce, "streams that were reset")
	<-f.ended
	expect.That(t, time.Since(f.begun) <= blockedAfter+quietAfter+goodbye, "the connection ended after %v", time.Since(f.begun))
}

// A body that means nothing is dropped before a call waits. HTTP/2 would keep up to 1 MiB of it, for each connection.
func TestCallThatWaitsKeepsNoBody(t *testing.T) {
	for _, path := range []string{"/v1/rollcall/watch", "/v1/rollcall/watch?wait=5m&index=test-200", "/v1/health/service/ORDERS?index=201&wait=5m", "/ui/live"} {
		inFlood(t, path, 1<<20, func(t *testing.T, h *held, f *flooder) {
			need.OK(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block("GET", path), EndHeaders: true}))
			synctest.Wait()
			for range 63 {
				need.OK(t, f.WriteData(1, false, make([]byte, 16<<10)))
			}
			synctest.Wait()
			expect.That(t, f.resets.Load() > 0, "%s: a call with a body of 1 MiB waits", path)
		})
	}
}
