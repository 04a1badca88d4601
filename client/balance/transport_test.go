package balance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// listing is what is currently listed, for every URL alike.
type listing struct {
	atomic.Pointer[[]*registry.Instance]
}

func list(instances ...*registry.Instance) *listing {
	l := &listing{}
	l.Store(&instances)
	return l
}

// Snapshot implements List; what is listed comes from lookup.
func (l *listing) Snapshot() *client.Snapshot { return new(client.Snapshot) }

func (l *listing) lookup(*client.Snapshot, string, string) []*registry.Instance { return *l.Load() }

func (l *listing) transport(t testing.TB, c Config) *Transport {
	t.Helper()
	c.List = l
	if c.Lookup == nil {
		c.Lookup = l.lookup
	}
	transport := need.Got(New(c))(t)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// inTurn picks from the beginning of a list.
type inTurn struct{}

func (inTurn) Pick(list []*registry.Instance) *registry.Instance { return list[0] }

// network is a Base in memory: one function per host:port; a host without one cannot be connected to.
type network struct {
	hosts map[string]func(*http.Request) (*http.Response, error)
	mu    sync.Mutex
	asked []string
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked = append(n.asked, r.URL.Host)
	n.mu.Unlock()
	if r.Body != nil {
		defer r.Body.Close()
	}
	if host := n.hosts[r.URL.Host]; host != nil {
		return host(r)
	}
	return nil, refused()
}

// took returns the hosts that were asked since it was last called.
func (n *network) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// ok responds with the body of the request.
func ok(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

func get(t *testing.T, transport http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	return transport.RoundTrip(need.Got(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t))
}

// serve starts a real backend, and returns it as an instance.
func serve(t *testing.T, id string, h http.Handler) (*httptest.Server, *registry.Instance) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, at(id, s.URL)
}

// at returns an instance that listens for the scheme of a URL, at its host and port.
func at(id, address string) *registry.Instance {
	u, _ := url.Parse(address)
	number, _ := strconv.Atoi(u.Port())
	port := registry.Port{Number: uint16(number), Enabled: true}
	i := &registry.Instance{App: "ORDERS", InstanceID: id, HostName: u.Hostname(), Status: registry.Up}
	if u.Scheme == "https" {
		i.SecurePort = port
	} else {
		i.Port = port
	}
	return i
}

func TestTransportCallsTheInstancesHostAndPort(t *testing.T) {
	instance := &registry.Instance{
		App: "ORDERS", InstanceID: "1", HostName: "h", IPAddr: "10.0.0.1",
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 8443, Enabled: true},
	}
	noName, noAddress, v6 := *instance, *instance, *instance
	noName.HostName, noAddress.IPAddr, v6.IPAddr = "", "", "fd00::1"
	tests := []struct {
		name     string
		instance *registry.Instance
		host     func(*registry.Instance) string
		url      string
		want     string
	}{
		{name: "the host's name", instance: instance, url: "http://orders/a?b=c", want: "http://h:8080/a?b=c"},
		{name: "the secure port", instance: instance, url: "https://orders/a", want: "https://h:8443/a"},
		{name: "no name", instance: &noName, url: "http://orders/a", want: "http://10.0.0.1:8080/a"},
		{name: "its address", instance: instance, host: ByIP, url: "http://orders/a", want: "http://10.0.0.1:8080/a"},
		{name: "no address", instance: &noAddress, host: ByIP, url: "http://orders/a", want: "http://h:8080/a"},
		{name: "an address of version 6", instance: &v6, host: ByIP, url: "http://orders/a", want: "http://[fd00::1]:8080/a"},
		{name: "what the caller says", instance: instance, host: func(i *registry.Instance) string { return i.ID() + ".internal" }, url: "http://orders/a", want: "http://1.internal:8080/a"},
		{name: "an escaped path, user and password", instance: instance, url: "http://u:p@orders/a%2Fb", want: "http://u:p@h:8080/a%2Fb"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got string
			base := baseFunc(func(r *http.Request) (*http.Response, error) {
				got = r.URL.String()
				return ok(r)
			})
			resp, err := get(t, list(test.instance).transport(t, Config{Base: base, Host: test.host}), test.url)
			need.That(t, err == nil && got == test.want, "sent to %s, %v; want %s", got, err, test.want)
			expect.That(t, resp.Request.URL.String() == test.want, "the response is of %s, want it to say %s", resp.Request.URL, test.want)
		})
	}
}

// baseFunc is an http.RoundTripper.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportSendsTheInstancesHostHeaderUnlessTheRequestGivesOne(t *testing.T) {
	_, instance := serve(t, "1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	transport := list(instance).transport(t, Config{})
	address := net.JoinHostPort(instance.HostName, fmt.Sprint(instance.Port.Number))
	for given, want := range map[string]string{"": address, "orders": address, "shop.example.com": "shop.example.com"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://orders/", nil)
		r.Host = given
		expect.Equal(t, read(t, need.Got(transport.RoundTrip(r))(t)), want, "with Host %q the instance saw", given)
	}
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.OK(t, err)
	return string(body)
}

// A RoundTripper must not modify it.
func TestTransportLeavesTheRequestAsItIs(t *testing.T) {
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h1:8080": ok}}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/a", strings.NewReader("text"))
	r.Header.Set("X-A", "b")
	before := r.Clone(r.Context())
	before.URL, before.Body = r.URL, r.Body
	url := *r.URL
	need.Got(list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r))(t)
	expect.That(t, r.URL == before.URL && *r.URL == url && r.Host == before.Host && r.Body == before.Body && fmt.Sprint(r.Header) == fmt.Sprint(before.Header),
		"the request is %+v now, want %+v", r, before)
	expect.Slice(t, n.took(), []string{"h0:8080", "h1:8080"}, "asked")
}

func TestTransportErrorSaysWhyNoInstanceCanBeCalled(t *testing.T) {
	up := instances("ORDERS", 2)
	noHost := *up[0]
	noHost.HostName, noHost.IPAddr = "", ""
	zero, disabled := *up[0], *up[0]
	zero.Port.Number, disabled.Port.Enabled = 0, false
	tests := []struct {
		name   string
		list   []*registry.Instance
		url    string
		picker Picker
		want   string // part of the message
		other  bool   // it is not ErrNoInstance
	}{
		{name: "nothing is UP", url: "http://orders/", want: `"orders"`},
		{name: "no secure port", list: up, url: "https://orders/", want: `"orders": no instance to call: none of the 2 that are UP has a host and its securePort enabled`},
		{name: "no port", list: []*registry.Instance{at("1", "https://h:1")}, url: "http://orders/", want: `none of the 1 that are UP has a host and its port enabled`},
		{name: "a port that is not enabled", list: []*registry.Instance{&disabled}, url: "http://orders/", want: `port enabled`},
		{name: "port 0", list: []*registry.Instance{&zero}, url: "http://orders/", want: `port enabled`},
		{name: "no host", list: []*registry.Instance{&noHost}, url: "http://orders/", want: `has a host`},
		{name: "a picker that takes none", list: up, url: "http://orders/", picker: noPicker{}, want: `the Picker took none of 2`},
		{name: "another scheme", list: up, url: "ftp://orders/", want: `scheme "ftp"`, other: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := &network{}
			body := &content{Reader: strings.NewReader("text")}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, test.url, body)
			_, err := list(test.list...).transport(t, Config{Base: n, Picker: test.picker}).RoundTrip(r)
			expect.That(t, err != nil && errors.Is(err, ErrNoInstance) != test.other && strings.Contains(err.Error(), test.want),
				"got %v, want it to say %s", err, test.want)
			expect.That(t, body.closed == 1, "the body was closed %d times, want once", body.closed)
			expect.That(t, len(n.took()) == 0, "a request was sent")
		})
	}
}

// noPicker takes nothing.
type noPicker struct{}

func (noPicker) Pick([]*registry.Instance) *registry.Instance { return nil }

func TestTransportRefusesARequestWithoutURL(t *testing.T) {
	expect.That(t, expect.Err(list().transport(t, Config{}).RoundTrip(&http.Request{})) != nil, "no error")
}

func TestTransportTriesAnotherInstanceIfNothingWasSentOrTheRequestMayBeSentTwice(t *testing.T) {
	fails := func(err error) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	tests := []struct {
		name   string
		first  func(*http.Request) (*http.Response, error)
		method string      // "" means GET
		header http.Header // may be nil
		want   int         // how many are asked
	}{
		{name: "no connection", want: 2},
		{name: "no connection, in other words", first: fails(fmt.Errorf("h0: %w", refused())), want: 2},
		{name: "no connection for a POST", method: http.MethodPost, want: 2},
		{name: "cut off", first: fails(io.ErrUnexpectedEOF), want: 2},
		{name: "a POST cut off", method: http.MethodPost, first: fails(io.ErrUnexpectedEOF), want: 1},
		{name: "a PUT cut off", method: http.MethodPut, first: fails(io.ErrUnexpectedEOF), want: 1},
		{name: "a DELETE cut off", method: http.MethodDelete, first: fails(io.ErrUnexpectedEOF), want: 1},
		{name: "a POST with a key cut off", method: http.MethodPost, header: http.Header{"Idempotency-Key": {"1"}}, first: fails(io.EOF), want: 2},
		{name: "a HEAD cut off", method: http.MethodHead, first: fails(io.EOF), want: 2},
		{name: "reset", first: fails(&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}), want: 2},
		{name: "a POST reset", method: http.MethodPost, first: fails(&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}), want: 1},
		{name: "no connection to a proxy", first: fails(&net.OpError{Op: "proxyconnect", Err: refused()}), want: 1},
		{name: "a bad certificate", first: fails(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), want: 1},
		{name: "a response", first: ok, want: 1},
		{name: "a bad response", want: 1, first: func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: http.NoBody}, nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h0:8080": test.first, "h1:8080": ok}}
			transport := list(instances("ORDERS", 3)...).transport(t, Config{Base: n, Picker: inTurn{}})
			r := httptest.NewRequest(test.method, "http://orders/", nil)
			maps.Copy(r.Header, test.header)
			_, err := transport.RoundTrip(r)
			asked := n.took()
			expect.That(t, len(asked) == test.want, "asked %v (%v), want %d", asked, err, test.want)
		})
	}
}

func TestTransportTriesAsManyInstancesAsConfigured(t *testing.T) {
	for _, test := range []struct{ listed, tries, want int }{
		{listed: 5, tries: 0, want: DefaultTries},
		{listed: 5, tries: 1, want: 1},
		{listed: 5, tries: 4, want: 4},
		{listed: 2, tries: 4, want: 2}, // each is tried once
	} {
		t.Run(fmt.Sprintf("%d of %d", test.tries, test.listed), func(t *testing.T) {
			n := &network{}
			_, err := get(t, list(instances("ORDERS", test.listed)...).transport(t, Config{Base: n, Tries: test.tries, Avoid: -1}), "http://orders/")
			asked := n.took()
			slices.Sort(asked)
			expect.That(t, len(asked) == test.want && len(slices.Compact(asked)) == test.want, "asked %v, want %d different ones", asked, test.want)
			var op *net.OpError
			expect.That(t, errors.As(err, &op), "got %v, want why the last was not connected to", err)
			expect.That(t, test.want <= 1 || strings.Contains(err.Error(), fmt.Sprintf("none of %d instances of orders", test.want)),
				"got %v, want it to say how many were tried", err)
		})
	}
}

// What was removed meanwhile is not tried.
func TestTransportRetriesFromThePresentList(t *testing.T) {
	all := instances("ORDERS", 3)
	l := list(all...)
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h0:8080": func(*http.Request) (*http.Response, error) {
			left := all[2:]
			l.Store(&left)
			return nil, refused()
		},
		"h2:8080": ok,
	}}
	need.Got(get(t, l.transport(t, Config{Base: n, Picker: inTurn{}}), "http://orders/"))(t)
	expect.Slice(t, n.took(), []string{"h0:8080", "h2:8080"}, "the second is not to be asked: asked")
}

func TestTransportEndsItsTriesWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h0:8080": func(*http.Request) (*http.Response, error) {
			cancel()
			return nil, refused()
		},
	}}
	transport := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}})
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://orders/", nil)
	expect.That(t, expect.Err(transport.RoundTrip(r)) != nil, "no error")
	asked := n.took()
	expect.That(t, len(asked) == 1, "asked %v, want the first only", asked)
	avoided := transport.avoided.now()
	expect.That(t, avoided == nil, "%v are avoided, although the caller gave up", avoided)
}

func TestTransportConfigReportsEveryMistake(t *testing.T) {
	_, err := New(Config{Tries: -1})
	expect.That(t, err != nil && strings.Contains(err.Error(), "no List") && strings.Contains(err.Error(), "tries -1"), "got %v, want both mistakes", err)
}

// As soon as the list lacks an instance, nothing connects to it, and nothing goes over a connection that was kept.
func TestTransportNeverDialsAnInstanceThatIsNotListed(t *testing.T) {
	var late atomic.Int64 // calls that reached the removed instance after its removal
	var removed atomic.Bool
	gone, leaving := serve(t, "1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if removed.Load() {
			late.Add(1)
		}
	}))
	_, staying := serve(t, "2", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	l := list(leaving, staying)
	c := &http.Client{Transport: l.transport(t, Config{})}
	call := func() {
		resp, err := c.Get("http://orders/")
		if err != nil {
			t.Error(err)
			return
		}
		read(t, resp)
	}
	for range 10 {
		call()
	}
	l.Store(&[]*registry.Instance{staying})
	removed.Store(true)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 25 {
				call()
			}
		})
	}
	g.Wait()
	expect.That(t, late.Load() <= 0, "%d calls came to %s after it was removed", late.Load(), gone.URL)
}

// Of many callers none fails, and the dead instance is dialled only once in a while.
func TestTransportGoesOnWhileAnInstanceIsDeadAndListed(t *testing.T) {
	dead, deadInstance := serve(t, "1", http.NotFoundHandler())
	dead.Close()
	_, live := serve(t, "2", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var dialled atomic.Int64
	base := newBase(func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == dead.Listener.Addr().String() {
			dialled.Add(1)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	c := &http.Client{Transport: list(deadInstance, live).transport(t, Config{Base: base})}
	const callers, calls = 8, 50
	var g sync.WaitGroup
	for range callers {
		g.Go(func() {
			for range calls {
				resp, err := c.Get("http://orders/")
				if err != nil {
					t.Error(err)
					return
				}
				read(t, resp)
			}
		})
	}
	g.Wait()
	n := dialled.Load()
	expect.That(t, n >= 1 && n <= callers,
		"the dead instance was dialled %d times in %d calls, want once, or once by each of %d callers", n, callers*calls, callers)
}

// As a websocket needs it.
func TestTransportLeavesAnUpgradedConnectionToTheCaller(t *testing.T) {
	_, instance := serve(t, "1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.CopyN(conn, buffered, 5)
	}))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://orders/", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp := need.Got(list(instance).transport(t, Config{}).RoundTrip(r))(t)
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriter)
	need.That(t, resp.StatusCode == http.StatusSwitchingProtocols && ok, "got %s and a body of type %T, want a connection", resp.Status, resp.Body)
	fmt.Fprint(conn, "hello")
	expect.Equal(t, read(t, resp), "hello", "it answered")
}

// wires is a network of pipes in memory, where hosts serve, refuse, or say nothing at all.
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

// Its packets vanish, like those of a machine that lost power. The call goes on with another instance, soon enough
// for its deadline.
func TestTransportGivesASilentHostItsShareOfTheTime(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration // of a call; 0 for none
		listed  int           // 0 means 3
		silent  int           // how many of them are silent
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
					"the next call took %v and dialled %v, want it to pass over the silent host", took, w.dialled)
			})
		})
	}
}

// If no other instance is left to try, a connection that comes too late for one call is there for the next.
func TestTransportsLastTryConnectsForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{serving: map[string]chan net.Conn{}, slow: time.Second}
		w.serve(t, "h0:8080", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := &http.Client{
			Transport: list(instances("ORDERS", 1)...).transport(t, Config{Base: newBase(w.dial)}),
			Timeout:   500 * time.Millisecond,
		}
		need.That(t, expect.Err(c.Get("http://orders/")) != nil, "a call was quicker than its connection")
		time.Sleep(time.Second)
		need.Got(c.Get("http://orders/"))(t).Body.Close()
	})
}

func TestTransportKeepsAConnectionForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{serving: map[string]chan net.Conn{}}
		w.serve(t, "h0:8080", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		transport := list(instances("ORDERS", 1)...).transport(t, Config{Base: newBase(w.dial)})
		call := func() {
			read(t, need.Got(get(t, transport, "http://orders/"))(t))
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

// content is a body that can be read only once.
type content struct {
	io.Reader
	closed int
}

func (c *content) Close() error {
	c.closed++
	return nil
}

func TestBodyThatStreamsIsSentOnceAlthoughTheFirstInstanceIsDead(t *testing.T) {
	var got []string
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h2:8080": func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			got = append(got, string(body))
			return &http.Response{StatusCode: 200, Body: http.NoBody}, err
		},
	}}
	body := &content{Reader: strings.NewReader("text")}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", body)
	need.Got(list(instances("ORDERS", 3)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r))(t)
	expect.That(t, len(got) == 1 && got[0] == "text" && body.closed == 1,
		"the instance got %q, the body was closed %d times; want it sent and closed once", got, body.closed)
}

// A Base that reads it before it connects has used it up.
func TestBodyThatWasReadIsNotSentAgain(t *testing.T) {
	n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
		"h0:8080": func(r *http.Request) (*http.Response, error) {
			io.CopyN(io.Discard, r.Body, 1)
			return nil, refused()
		},
		"h1:8080": ok,
	}}
	body := &content{Reader: strings.NewReader("text")}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", body)
	_, err := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r)
	asked := n.took()
	expect.That(t, err != nil && len(asked) == 1 && body.closed == 1,
		"asked %v, %v, closed %d times; want an error of the first only", asked, err, body.closed)
}

func TestBodyThatCanBeHadAgainIsAskedForAgain(t *testing.T) {
	for _, fails := range []bool{false, true} {
		n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){
			"h0:8080": func(r *http.Request) (*http.Response, error) {
				io.Copy(io.Discard, r.Body)
				return nil, refused()
			},
			"h1:8080": ok,
		}}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://orders/", strings.NewReader("text"))
		spent := errors.New("spent")
		if fails {
			r.GetBody = func() (io.ReadCloser, error) { return nil, spent }
		}
		resp, err := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}}).RoundTrip(r)
		if fails {
			expect.That(t, errors.Is(err, spent), "got %v, want why the body cannot be had again", err)
			continue
		}
		expect.That(t, err == nil && read(t, resp) == "text", "the second instance did not get the whole body: %v", err)
	}
}

// A Base may close what it got later, from another goroutine.
func TestBodyIsNotTouchedByATryThatIsOver(t *testing.T) {
	body := &content{Reader: strings.NewReader("text")}
	over := &loan{body: body}
	need.That(t, over.takeBack(), "a body that was not read cannot be lent again")
	for _, when := range []string{"before", "after"} {
		n, err := over.Read(make([]byte, 4))
		expect.That(t, n == 0 && err != nil, "%s its Close the try that is over read %d bytes, %v", when, n, err)
		over.Close()
	}
	kept := &loan{body: body}
	kept.handOver()
	text, err := io.ReadAll(kept)
	expect.That(t, string(text) == "text" && err == nil, "the next try read %q, %v", text, err)
	expect.That(t, body.closed == 0, "the body was closed by the try that is over")
	kept.Close()
	kept.Close()
	expect.That(t, body.closed == 1, "closed %d times, want once", body.closed)
}

// A server that closes a connection with unread data first waits for half a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
