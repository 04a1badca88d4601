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

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// The limits of one HTTP/2 connection, from docs/run/limits.md.
const (
	streamsAtOnce = 100
	quietAfter    = 90 * time.Second // without a stream
	blockedAfter  = 30 * time.Second // while the client takes no byte
	// from the decision to end a connection until it is closed; TLS waits 5 s for its last message to be read
	goodbye = 8 * time.Second
)

// held is a registry whose writes block until released, even if their callers give up.
type held struct {
	*fsmtest.Memory
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

// flooder is an HTTP/2 client that can send any frames.
type flooder struct {
	*http2.Framer
	conn      *tls.Conn
	begun     time.Time
	headers   bytes.Buffer
	encoder   *hpack.Encoder
	deaf      atomic.Bool        // stops reading
	goingAway atomic.Bool        // the server announced the end of the connection
	ended     chan http2.ErrCode // receives the reason once it has ended
	resets    atomic.Int64       // streams that the server reset
}

// newFlooder connects, with a window for the body of each response.
func newFlooder(t *testing.T, n *httpdtest.Bubbled, trusted *x509.CertPool, window uint32) *flooder {
	t.Helper()
	raw := n.Open(t)
	conn := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: "example.com", NextProtos: []string{"h2"}})
	f := &flooder{Framer: http2.NewFramer(conn, conn), conn: conn, begun: time.Now(), ended: make(chan http2.ErrCode, 1)}
	f.encoder = hpack.NewEncoder(&f.headers)
	need.Got(io.WriteString(conn, http2.ClientPreface))(t)
	need.OK(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	go f.read()
	synctest.Wait()
	return f
}

// read reads until the server ends the connection, or until deaf is set.
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

// flood calls send at most most times, until the server announces or makes the end of the connection, and returns how
// often it succeeded.
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

// inFlood runs a test in a bubble with a node, and a client that floods it. At the end other clients must be served,
// and nothing that the flood started may be left.
func inFlood(t *testing.T, name string, window uint32, test func(t *testing.T, h *held, f *flooder)) {
	certificate, trusted := httpdtest.Certified(t)
	httpdtest.InBubble(t, name, func(t *testing.T) {
		h := &held{Memory: fsmtest.New(), letGo: make(chan struct{})}
		for i := range 200 {
			h.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", fmt.Sprintf("i%d", i))})
		}
		n := httpdtest.NewBubbledTLS(t, httpd.Config{Service: h, Coordination: fsmtest.NewCoordination(h.Memory)}, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
		conn := tls.Client(n.Open(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
		other := httpdtest.Line{Conn: conn, In: bufio.NewReader(conn)}
		need.Equal(t, other.RoundTrip(t, httpdtest.Request("GET", "/eureka/apps/ORDERS", "")).Status, 200, "before the flood")
		synctest.Wait()
		before, heap := runtime.NumGoroutine(), heapNow()
		f := newFlooder(t, n, trusted, window)
		test(t, h, f)
		if t.Failed() {
			return
		}
		conn = tls.Client(n.Open(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
		other = httpdtest.Line{Conn: conn, In: bufio.NewReader(conn)}
		need.Equal(t, other.RoundTrip(t, httpdtest.Request("GET", "/eureka/apps/ORDERS", "")).Status, 200, "after the flood")
		f.conn.NetConn().Close()
		time.Sleep(5 * time.Minute) // long enough for idle connections to end
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
			// running streams, four times as many that wait, and those that end the connection
			const most = 5*streamsAtOnce + 2
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

// starve asks for a document on each stream, and reads a byte of each per second.
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

// A body without a meaning is dropped before a call waits. HTTP/2 would keep up to 1 MiB of it per connection.
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

// one returns an enabled limiter with a single token a second in each bucket.
func one() httpd.RateLimit {
	return httpd.RateLimit{Enabled: true, BurstSize: 1, FetchRate: 1, FullFetchRate: 1}
}

func TestRateLimitTakesATokenFromBothBucketsForAFullFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{RateLimit: httpd.RateLimit{Enabled: true, BurstSize: 5, FetchRate: 1, FullFetchRate: 1}})
		statuses := func(path string, times int) []int {
			var got []int
			for range times {
				got = append(got, n.Send(t, "GET", path, "").Status)
			}
			return got
		}
		need.Slice(t, statuses("/eureka/apps/delta", 3), []int{200, 200, 200}, "deltas: got")
		// Both buckets serve a full fetch: the common one has two tokens left.
		need.Slice(t, statuses("/eureka/apps", 5), []int{200, 200, 503, 503, 503}, "full fetches: got")
		time.Sleep(time.Second) // virtual; one more token in each
		expect.Slice(t, statuses("/eureka/apps", 2), []int{200, 503}, "full fetches a second later: got")
	})
}

func TestRateLimitTakesNoCommonTokenForARefusedFullFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{RateLimit: httpd.RateLimit{Enabled: true, BurstSize: 3, FetchRate: 1000, FullFetchRate: 1}})
		for i := range 3 {
			n.Send(t, "GET", "/eureka/apps", "")
			if i < 2 {
				time.Sleep(time.Millisecond) // virtual; the common token is back, the one for full fetches is not
			}
		}
		time.Sleep(10 * time.Millisecond) // virtual
		for range 20 {
			need.Equal(t, n.Send(t, "GET", "/eureka/apps", "").Status, 503, "a full fetch too many: got")
		}
		for i := range 3 {
			n.Send(t, "GET", "/eureka/apps/delta", "").Says(t, 200, "", "delta %d", i+1)
		}
	})
}

func TestRateLimitNeverRefusesWritesHeadAndPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{RateLimit: one()})
		n.Send(t, "GET", "/eureka/apps", "")
		need.Equal(t, n.Send(t, "GET", "/eureka/apps", "").Status, 503, "the limiter has a token left: got")
		for range 20 {
			for _, r := range []struct {
				method, target, body string
				want                 int
			}{
				{"POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON, 204},
				{"PUT", "/eureka/apps/ORDERS/i1", "", 200}, {"PUT", "/eureka/apps/ORDERS/i1/", "", 200},
				{"PUT", "/eureka/apps/ORDERS/i1/status?value=UP", "", 200}, {"PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", "", 200},
				{"POST", "/eureka/peerreplication/batch/", batchJSON, 200},
				{"HEAD", "/eureka/apps", "", 200}, {"HEAD", "/eureka/apps/ORDERS", "", 200},
				{"DELETE", "/eureka/apps/ORDERS/i1", "", 200},
			} {
				need.Equal(t, n.Send(t, r.method, r.target, r.body, "Content-Type: application/json").Status, r.want, "%s %s: got", r.method, r.target)
			}
		}
	})
}

// Spring's and JavaScript's clients send no identity, so they are the ones that the limiter restricts: its defaults
// must leave them enough. Here 300 of them start within three seconds and then fetch as they usually do.
func TestRateLimitDefaultsDoNotStarveClientsWithoutIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := setting.Default[httpd.RateLimit]()
		settings.Enabled = true
		n := httpdtest.NewBubbled(t, httpd.Config{RateLimit: settings})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		fetch := func(path string) {
			for i := range 300 {
				agent := []string{"Java/17.0.1", "node-fetch/1.0"}[i%2]
				need.Equal(t, n.Send(t, "GET", path, "", "Accept: application/json", "User-Agent: "+agent).Status, 200, "client %d: GET %s: got", i, path)
				time.Sleep(10 * time.Millisecond) // virtual
			}
		}
		fetch("/eureka/apps/")
		for range 3 {
			time.Sleep(27 * time.Second) // virtual; every client comes back after 30 s
			fetch("/eureka/apps/delta")
		}
	})
}

func TestRateLimitRefusesAnEmptyPrivilegedName(t *testing.T) {
	_, err := httpd.New(httpd.Config{Service: fsmtest.New(), RateLimit: httpd.RateLimit{Privileged: []string{"a", ""}}})
	expect.That(t, err != nil && strings.Contains(err.Error(), "RateLimit.Privileged"), "got %v, want an error that names RateLimit.Privileged", err)
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{})
		settings := one()
		settings.Privileged = []string{""}
		n.Handler.SetRateLimit(settings)
		n.Send(t, "GET", "/eureka/apps", "", "DiscoveryIdentity-Name: ")
		expect.Equal(t, n.Send(t, "GET", "/eureka/apps", "", "DiscoveryIdentity-Name: ").Status, 503, "a client with an empty name: got")
	})
}
