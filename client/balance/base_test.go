package balance

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// wires is a network of pipes in memory, on which hosts serve, refuse, or say nothing at all.
type wires struct {
	mu      sync.Mutex
	serving map[string]chan net.Conn
	silent  map[string]bool
	slow    time.Duration // how long it takes to connect
	dialled []string
}

// dial connects as net.Dialer.DialContext does.
func (w *wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, address)
	conns, silent := w.serving[address], w.silent[address]
	w.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	case conns == nil:
		return nil, refused()
	}
	select {
	case <-time.After(w.slow):
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	here, there := net.Pipe()
	conns <- there
	return here, nil
}

// serve serves at an address until the test ends.
func (w *wires) serve(t *testing.T, address string, h http.Handler) {
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	w.serving[address] = l.conns
	s := &http.Server{Handler: h}
	var g sync.WaitGroup
	g.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		g.Wait()
	})
}

// pipes is a net.Listener.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestAHostThatSaysNothingCostsItsShareOfTheTime: its packets vanish, as those of a machine that lost its
// power do. The call goes on with another instance, soon enough for its deadline.
func TestAHostThatSaysNothingCostsItsShareOfTheTime(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration // of a call; 0: none
		listed  int           // 0: 3
		silent  int           // how many of them are
		took    time.Duration
		fails   bool
	}{
		{name: "no deadline", silent: 1, took: DefaultConnect},
		{name: "a late deadline", timeout: time.Minute, silent: 1, took: DefaultConnect},
		{name: "a third of the time", timeout: 3 * time.Second, silent: 1, took: time.Second},
		{name: "two thirds of the time", timeout: 3 * time.Second, silent: 2, took: 2 * time.Second},
		{name: "half of the time, of two", timeout: 3 * time.Second, listed: 2, silent: 1, took: 1500 * time.Millisecond},
		{name: "two thirds of the time, although there are more than are tried", timeout: 3 * time.Second, listed: 5, silent: 2, took: 2 * time.Second},
		{name: "all of the time", timeout: 3 * time.Second, silent: 3, took: 3 * time.Second, fails: true},
		{name: "never too little for a handshake", timeout: 600 * time.Millisecond, silent: 1, took: leastShare},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wires{serving: map[string]chan net.Conn{}, silent: map[string]bool{}}
				listed := instances("ORDERS", cmp.Or(test.listed, 3))
				for n, i := range listed {
					address := i.HostName + ":8080"
					if n < test.silent {
						w.silent[address] = true
						continue
					}
					w.serve(t, address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				}
				c := &http.Client{
					Transport: list(listed...).transport(t, Config{Base: newBase(w.dial), Picker: inTurn{}}),
					Timeout:   test.timeout,
				}
				start := time.Now()
				resp, err := c.Get("http://orders/")
				need.That(t, (err != nil) == test.fails, "got %v", err)
				expect.Equal(t, time.Since(start), test.took, "it took")
				if err != nil {
					return
				}
				resp.Body.Close()
				w.dialled = nil
				start = time.Now()
				if resp, err = c.Get("http://orders/"); err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				took := time.Since(start)
				expect.That(t, took == 0 && !slices.ContainsFunc(w.dialled, func(a string) bool { return w.silent[a] }),
					"the next call took %v and dialled %v, want it to pass over who said nothing", took, w.dialled)
			})
		})
	}
}

// TestTheLastTryConnectsForTheNextCall: where nobody else is left to be tried, a connection that comes too
// late for one call is there for the next.
func TestTheLastTryConnectsForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{serving: map[string]chan net.Conn{}, slow: time.Second}
		w.serve(t, "h0:8080", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := &http.Client{
			Transport: list(instances("ORDERS", 1)...).transport(t, Config{Base: newBase(w.dial)}),
			Timeout:   500 * time.Millisecond,
		}
		_, err := c.Get("http://orders/")
		need.That(t, err != nil, "a call was quicker than its connection")
		time.Sleep(time.Second)
		resp := need.Got(c.Get("http://orders/"))(t)
		resp.Body.Close()
	})
}

func TestAConnectionIsKeptForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{serving: map[string]chan net.Conn{}}
		w.serve(t, "h0:8080", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		transport := list(instances("ORDERS", 1)...).transport(t, Config{Base: newBase(w.dial)})
		call := func() {
			resp := need.Got(get(t, transport, "http://orders/"))(t)
			read(t, resp)
			synctest.Wait() // the connection is put back
		}
		call()
		call()
		expect.That(t, len(w.dialled) == 1, "dialled %v for two calls, want once", w.dialled)
		(&http.Client{Transport: transport}).CloseIdleConnections()
		synctest.Wait()
		call()
		expect.That(t, len(w.dialled) == 2, "dialled %v, want once more after the idle connection was closed", w.dialled)
	})
}

// TestABaseWithoutIdleConnectionsIsLeftAlone: not every RoundTripper keeps connections.
func TestABaseWithoutIdleConnectionsIsLeftAlone(t *testing.T) {
	list().transport(t, Config{Base: baseFunc(ok)}).CloseIdleConnections()
}
