package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
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
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// secured is a server that speaks TLS and wants a certificate of its clients.
func secured(t *testing.T, handler http.HandlerFunc) (s *httptest.Server, trust *tls.Config) {
	t.Helper()
	s = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: pool, Certificates: s.TLS.Certificates}
}

func connected(t *testing.T, c Config) *Cluster {
	t.Helper()
	cluster := newCluster(c)
	t.Cleanup(cluster.Close)
	return cluster
}

func TestTLSIsSpokenAsConfigured(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	s, trust := secured(t, func(w http.ResponseWriter, r *http.Request) { seen.Store(r) })
	stranger := trust.Clone()
	stranger.Certificates = nil
	for name, tc := range map[string]struct {
		trust *tls.Config
		says  string // in the error; "": it works
	}{
		"both know each other":                {trust, ""},
		"the client does not know the server": {&tls.Config{Certificates: trust.Certificates}, "certificate"},
		"the server does not know the client": {stranger, s.URL},
		"nothing is configured":               {nil, "certificate"},
	} {
		c := connected(t, Config{Servers: []string{s.URL}, TLS: tc.trust})
		_, err := c.do(t.Context(), &Call{method: http.MethodGet, eureka: true, path: []string{"apps"}})
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	if r := seen.Load(); r == nil || r.ProtoMajor != 2 || len(r.TLS.PeerCertificates) != 1 {
		t.Errorf("the server saw %v, want HTTP/2 and the client's certificate", r)
	}
	// A server that is not trusted is sent nothing.
	c := connected(t, Config{Servers: []string{s.URL}, TLS: &tls.Config{Certificates: trust.Certificates}})
	err := c.cancelLease(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "Cancel: %v, want an error that is no unknown outcome", err)
}

func TestTLSConfigurationIsNotChanged(t *testing.T) {
	s, trust := secured(t, func(http.ResponseWriter, *http.Request) {})
	before := trust.Clone()
	need.OK(t, connected(t, Config{Servers: []string{s.URL}, TLS: trust}).renew(t.Context()))
	expect.That(t, slices.Equal(trust.NextProtos, before.NextProtos), "its protocols are %v now, want %v", trust.NextProtos, before.NextProtos)
}

func TestRedirectIsNotFollowedAndAnotherServerAsked(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		var there, target atomic.Int32
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			there.Add(1)
			http.Redirect(w, r, "/login", status)
		})
		mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) { target.Add(1) })
		a := httptest.NewServer(mux)
		b := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := connected(t, Config{Servers: []string{a.URL, b.URL}, InOrder: true})
		expect.OKf(t, c.renew(t.Context()), "%d, and the other server's response", status)
		if there.Load() != 1 || target.Load() != 0 || c.Quarantined() != 1 {
			t.Errorf("%d: asked %d times and followed %d times, %d servers in quarantine, want 1, 0 and 1",
				status, there.Load(), target.Load(), c.Quarantined())
		}
		a.Close()
		b.Close()
	}
}

// connections counts those of a server.
type connections struct {
	mu   sync.Mutex
	made int
	open map[net.Conn]bool
	last chan struct{} // receives when none is open any more
}

func (c *connections) record(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.made++
		c.open[conn] = true
	case http.StateClosed:
		delete(c.open, conn)
		if len(c.open) == 0 {
			c.last <- struct{}{}
		}
	}
}

func (c *connections) count() (made, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made, len(c.open)
}

func counted(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *connections) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	c := &connections{open: make(map[net.Conn]bool), last: make(chan struct{}, 1000)}
	s.Config.ConnState = c.record
	s.Start()
	t.Cleanup(s.Close)
	return s, c
}

func TestConnectionsOfManyCallsAtOnceAreKept(t *testing.T) {
	const many = 40
	var here sync.WaitGroup
	s, connections := counted(t, func(http.ResponseWriter, *http.Request) {
		here.Done()
		here.Wait() // all at once
	})
	c := connected(t, Config{Servers: []string{s.URL}, Timeout: time.Minute})
	for range 3 {
		here.Add(many)
		var g sync.WaitGroup
		for range many {
			g.Go(func() {
				expect.OK(t, c.renew(t.Context()))
			})
		}
		g.Wait()
	}
	made, _ := connections.count()
	expect.That(t, made < 2*many, "three times %d calls made %d connections, want that they are kept", many, made)
}

func TestCloseEndsTheConnectionsOfTheClientsOwnTransportOnly(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, connections := counted(t, func(http.ResponseWriter, *http.Request) {})
	transport := &http.Transport{}
	given, own := connected(t, Config{Servers: []string{s.URL}, HTTPClient: &http.Client{Transport: transport}}), connected(t, Config{Servers: []string{s.URL}})
	for _, c := range []*Cluster{given, own} {
		need.OK(t, c.renew(t.Context()))
	}
	given.Close()
	if r, err := (&http.Client{Transport: transport}).Get(s.URL); err != nil {
		t.Error(err)
	} else {
		r.Body.Close()
	}
	made, _ := connections.count()
	expect.That(t, made == 2, "%d connections were made, want 2: the given client's is to stay", made)
	transport.CloseIdleConnections()
	own.Close()
	select {
	case <-connections.last:
	case <-time.After(idleTimeout / 3):
		t.Error("the client's own connection is still open")
	}
	s.Close()
	fake.NoneLeft(t, before)
}

func TestSocketIsNotCalledByWayOfAProxy(t *testing.T) {
	standard := http.DefaultTransport
	defer func() { http.DefaultTransport = standard }()
	proxy := &url.URL{Scheme: "http", Host: "proxy:3128"}
	http.DefaultTransport = &http.Transport{Proxy: http.ProxyURL(proxy)}
	for address, want := range map[string]*url.URL{"http://a": proxy, "unix:/x/admin.sock": nil} {
		s := need.Got(parseServer(address))(t)
		r := need.Got(Own(http.MethodGet, "status").request(t.Context(), s))(t)
		got, err := Config{}.transport().Proxy(r)
		expect.That(t, err == nil && got == want, "%s: by way of %v, %v, want %v", address, got, err, want)
	}
}

func TestTransportMayReplaceTheStandardOne(t *testing.T) {
	standard := http.DefaultTransport
	defer func() { http.DefaultTransport = standard }()
	http.DefaultTransport = fake.Servers{}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	expect.OK(t, connected(t, Config{Servers: []string{s.URL}}).renew(t.Context()))
}

func dialing(t *testing.T, dial func(ctx context.Context) (net.Conn, error)) *Cluster {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return connected(t, Config{Servers: []string{"http://a"}, HTTPClient: &http.Client{Transport: transport}})
}

func TestWriteWithoutAConnectionDidNotHappen(t *testing.T) {
	for name, tc := range map[string]struct {
		dial    func(ctx context.Context) (net.Conn, error)
		unknown bool
		took    time.Duration
	}{
		"no process answers the dial": {dial: func(ctx context.Context) (net.Conn, error) {
			wait.For(ctx, dialTimeout)
			return nil, errors.New("timeout")
		}, took: usualTimeout},
		"the dial fails": {dial: func(context.Context) (net.Conn, error) { return nil, errors.New("no route") }},
		"the connection is cut": {dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			there.Close()
			return here, nil
		}, unknown: true},
		"no process answers the request": {dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { // reads until the client gives up
				buffer := make([]byte, 1<<10)
				for {
					if _, err := there.Read(buffer); err != nil {
						return
					}
				}
			}()
			return here, nil
		}, unknown: true, took: usualTimeout},
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			c := dialing(t, tc.dial)
			start := time.Now()
			err := c.cancelLease(t.Context())
			expect.That(t, err != nil && errors.Is(err, ErrUnknownOutcome) == tc.unknown, "Cancel: %v, want an unknown outcome: %v", err, tc.unknown)
			expect.Equal(t, time.Since(start), tc.took, "took")
			time.Sleep(dialTimeout) // the transport lets an attempt go on
		})
	}
}

func TestCloseEndsConnectionsThatAreStillBeingMade(t *testing.T) {
	before := goleak.IgnoreCurrent()
	listener := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := connected(t, Config{Servers: []string{"https://" + listener.Addr().String()}, Timeout: time.Minute})
	result := make(chan error)
	go func() { result <- c.cancelLease(t.Context()) }()
	conn := need.Got(listener.Accept())(t) // and no word of TLS
	c.Close()
	if err := <-result; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want that the client is closed, and no unknown outcome", err)
	}
	need.OK(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := io.Copy(io.Discard, conn)
	expect.That(t, !errors.Is(err, os.ErrDeadlineExceeded), "the connection is still open")
	conn.Close()
	listener.Close()
	fake.NoneLeft(t, before)
}

func TestConnectionsDoNotOutliveTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []net.Conn
		slow := newDials(func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !wait.For(ctx, time.Second) {
				return nil, context.Cause(ctx)
			}
			here, there := net.Pipe()
			made = append(made, there)
			return here, nil
		})
		first := need.Got(slow.connect(t.Context(), "tcp", "a:1"))(t)
		second := need.Got(slow.connect(t.Context(), "tcp", "a:1"))(t)
		first.Close()
		expect.Equal(t, len(slow.open), 1, "connections remembered:")
		result := make(chan error)
		go func() {
			_, err := slow.connect(t.Context(), "tcp", "a:1")
			result <- err
		}()
		synctest.Wait()
		start := time.Now()
		slow.close()
		expect.ErrorIs(t, <-result, ErrClosed, "one that was being made:")
		expect.Equal(t, time.Since(start), 0, "that took")
		expect.Equal(t, expect.Err(made[1].Read(make([]byte, 1))), io.EOF, "one that was open:")
		second.Close()
		late := newDials(func(context.Context, string, string) (net.Conn, error) {
			here, _ := net.Pipe()
			return here, nil
		})
		late.close()
		expect.ErrorIs(t, expect.Err(late.connect(t.Context(), "tcp", "a:1")), ErrClosed, "one that was made all the same:")
	})
}
