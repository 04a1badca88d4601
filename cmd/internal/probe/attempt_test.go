package probe

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is far longer than an attempt on loopback takes.
const patience = 30 * time.Second

func attempt(t *testing.T, p *catalog.Probe, r Rules) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return newCaller(nil, r, allMay).attempt(ctx, p, location{})
}

func allMay(string, string) bool { return true }

// anywhere lets checks use any address.
var anywhere = []access.Target{{Addresses: netip.MustParsePrefix("0.0.0.0/0")}, {Addresses: netip.MustParsePrefix("::/0")}}

var lenient = Rules{AllowLoopback: true, Targets: anywhere, Methods: []string{"GET", "POST"}}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestAttemptDecidesByTheHTTPStatus(t *testing.T) {
	tests := []struct {
		code   int
		want   catalog.CheckStatus
		output string
	}{
		{200, catalog.Passing, "200 OK Output: fine"},
		{299, catalog.Passing, "299 status code 299 Output: fine"},
		{204, catalog.Passing, "204 No Content Output: "},
		{429, catalog.Warning, "429 Too Many Requests Output: fine"},
		{304, catalog.Critical, "304 Not Modified Output: "},
		{404, catalog.Critical, "404 Not Found Output: fine"},
		{500, catalog.Critical, "500 Internal Server Error Output: fine"},
	}
	for _, tt := range tests {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.code)
			io.WriteString(w, "fine")
		})
		got := attempt(t, &catalog.Probe{HTTP: s.URL + "/health"}, lenient)
		want := result{tt.want, "HTTP GET " + s.URL + "/health: " + tt.output}
		expect.Equal(t, got, want, "status %d: got", tt.code)
	}
}

func TestAttemptSendsTheRequestOfTheCheck(t *testing.T) {
	seen := make(chan *http.Request, 1)
	body := make(chan string, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body <- string(b)
		seen <- r
	})
	got := attempt(t, &catalog.Probe{HTTP: s.URL, Method: "POST", Body: "ping", Header: []registry.Pair{
		{Key: "Host", Value: "shop.example"}, {Key: "X-Token", Value: "a"}, {Key: "X-Token", Value: "b"}, {Key: "Accept", Value: "application/json"},
	}}, lenient)
	need.That(t, got.status == catalog.Passing, "got %+v", got)
	r := <-seen
	if b := <-body; r.Method != "POST" || b != "ping" || r.Host != "shop.example" || !slices.Equal(r.Header["X-Token"], []string{"a", "b"}) || r.UserAgent() != "Consul Health Check" || r.Header.Get("Accept") != "application/json" {
		t.Errorf("the service was asked %s for host %s with %v and body %q", r.Method, r.Host, r.Header, b)
	}
}

func TestAttemptBoundsItsOutputAndKeepsItText(t *testing.T) {
	tests := map[string]string{
		"long":                      strings.Repeat("x", 3*maxOutput) + "the end",
		"cut within a character":    strings.Repeat("é", 3*maxOutput),
		"not text":                  "\xff\xfe",
		"a character cut in itself": "é"[:1],
	}
	for name, body := range tests {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		got := attempt(t, &catalog.Probe{HTTP: s.URL}, lenient)
		expect.That(t, len(got.output) <= maxOutput && utf8.ValidString(got.output) && got.status == catalog.Passing,
			"%s: status %d, %d bytes of output, valid UTF-8: %v", name, got.status, len(got.output), utf8.ValidString(got.output))
		if name == "long" {
			expect.That(t, len(got.output) == maxOutput && strings.HasSuffix(got.output, "xthe end") && strings.HasPrefix(got.output, "HTTP GET http://"), "%s: the output is %.60s … %s", name, got.output, got.output[maxOutput-20:])
		}
	}
}

func TestAttemptHidesThePasswordOfAURL(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, address := range []string{s.Listener.Addr().String(), "127.0.0.1:1"} {
		got := attempt(t, &catalog.Probe{HTTP: "http://me:secret@" + address}, lenient)
		expect.That(t, !strings.Contains(got.output, "secret"), "output %q", got.output)
	}
}

func TestAttemptVerifiesCertificatesUnlessTheCheckSaysOtherwise(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	for skip, want := range map[bool]catalog.CheckStatus{false: catalog.Critical, true: catalog.Passing} {
		got := attempt(t, &catalog.Probe{HTTP: s.URL, SkipVerify: skip}, lenient)
		expect.That(t, got.status == want, "skipping verification %v: got %+v, want status %d", skip, got, want)
	}
}

func TestAttemptByTCPPassesIfItConnects(t *testing.T) {
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	want := result{catalog.Passing, "TCP connect " + address + ": Success"}
	expect.Equal(t, attempt(t, &catalog.Probe{TCP: address}, lenient), want, "got")
	l.Close()
	got := attempt(t, &catalog.Probe{TCP: address}, lenient)
	expect.That(t, got.status == catalog.Critical && got.output == "dial tcp "+address+": connect: connection refused", "after it closed: %+v", got)
}

func TestAttemptByTCPShakesHandsByTLSIfTheCheckSaysSo(t *testing.T) {
	address, names := serveHTTP2(t, true, func(http.ResponseWriter, *http.Request) {})
	got := attempt(t, &catalog.Probe{TCP: address, UseTLS: true, SkipVerify: true, ServerName: "db.example"}, lenient)
	expect.Equal(t, got, result{catalog.Passing, "TCP+TLS connect " + address + ": Success"}, "got")
	expect.Equal(t, <-names, "db.example", "TLSServerName")
	got = attempt(t, &catalog.Probe{TCP: address, UseTLS: true}, lenient)
	expect.That(t, got.status == catalog.Critical && strings.Contains(got.output, "failed to verify certificate"), "a certificate that is not trusted: %+v", got)
	expect.Equal(t, <-names, "", "the name of a server by its address")
	got = attempt(t, &catalog.Probe{HTTP: "https://" + address, SkipVerify: true, ServerName: "web.example"}, lenient)
	expect.Equal(t, <-names, "web.example", "TLSServerName of an HTTP check, which got %+v:", got)
}

// Silence passes: a service may have nothing to say to an empty datagram.
func TestAttemptByUDPPassesUnlessItIsRefused(t *testing.T) {
	for _, responds := range []bool{true, false} {
		conn := need.Got(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
		address := conn.LocalAddr().String()
		sizes := make(chan int, 1)
		go func() {
			n, from, err := conn.ReadFromUDP(make([]byte, 100))
			if err == nil && responds {
				conn.WriteToUDP([]byte("x"), from)
			}
			sizes <- n
		}()
		got := attempt(t, &catalog.Probe{UDP: address}, lenient)
		expect.Equal(t, got, result{catalog.Passing, "UDP connect " + address + ": Success"}, "it responds: %v; got", responds)
		expect.Equal(t, <-sizes, 0, "bytes of the datagram")
		conn.Close()
		got = attempt(t, &catalog.Probe{UDP: address}, lenient)
		expect.Equal(t, got, result{catalog.Critical, "read udp " + address + ": read: connection refused"}, "after it closed: got")
	}
}

func TestAttemptDoesNotConnectToARefusedAddress(t *testing.T) {
	asked := false
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, p := range []*catalog.Probe{
		{HTTP: s.URL},
		{HTTP: "http://localhost:" + port},
		{HTTP: "http://[::ffff:127.0.0.1]:" + port},
		{TCP: s.Listener.Addr().String()},
		{TCP: "localhost:" + port},
		{TCP: "localhost:" + port, UseTLS: true},
		{UDP: "localhost:" + port},
		{GRPC: "localhost:" + port + "/orders"},
		{H2PING: s.Listener.Addr().String()},
	} {
		got := attempt(t, p, Rules{Targets: anywhere})
		expect.That(t, got.status == catalog.Critical && strings.Contains(got.output, "checks.allow-loopback"), "%+v: got %+v, want it refused", p, got)
	}
	expect.That(t, !asked, "the service was asked")
}

func TestAttemptFollowsFewRedirectsOnItsHostUnlessTheCheckSaysOtherwise(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		} else if left, _ := strconv.Atoi(r.URL.Path[1:]); left > 0 {
			http.Redirect(w, r, fmt.Sprint("/", left-1), http.StatusFound)
		}
	})
	for _, tc := range []struct {
		path     string // with the number of redirects
		disabled bool
		status   catalog.CheckStatus
		says     string
	}{
		{"/9", false, catalog.Passing, "200 OK"},
		{"/10", false, catalog.Critical, "10 redirects are too many"},
		{"/away", false, catalog.Critical, "a redirect to another host is not followed"},
		{"/1", true, catalog.Critical, "302 Found"},
	} {
		got := attempt(t, &catalog.Probe{HTTP: s.URL + tc.path, NoRedirects: tc.disabled}, lenient)
		expect.That(t, got.status == tc.status && strings.Contains(got.output, tc.says), "%s: got %+v, want status %d and %q", tc.path, got, tc.status, tc.says)
	}
}

func TestAttemptDoesNotUseAProxyOfTheEnvironment(t *testing.T) {
	proxied := false
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied = true })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	attempt(t, &catalog.Probe{HTTP: "http://169.254.169.254/"}, lenient)
	tr := newCaller(nil, lenient, allMay).client(&catalog.Probe{}).Transport.(*http.Transport)
	expect.That(t, !proxied && tr.Proxy == nil, "a proxy was used")
}

func TestAttemptEndsWithItsContext(t *testing.T) {
	block := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-block })
	defer close(block)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := newCaller(nil, lenient, allMay).attempt(ctx, &catalog.Probe{HTTP: s.URL}, location{})
	expect.That(t, got.status == catalog.Critical && strings.Contains(got.output, "deadline exceeded"), "got %+v, want it ended by its time-out", got)
}

func TestAttemptDescribesAnErrorTheSameEachTime(t *testing.T) {
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	hung := make(chan struct{})
	go func() {
		defer close(hung)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.(*net.TCPConn).SetLinger(0) // a reset: the error names both ends
			conn.Close()
		}
	}()
	defer func() { l.Close(); <-hung }()
	p := &catalog.Probe{HTTP: "http://" + l.Addr().String()}
	expect.That(t, strings.Count(describe(&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 5}, Addr: &net.TCPAddr{Port: 6}, Err: io.EOF}), ":5") <= 0,
		"the local port is shown")
	got := attempt(t, p, lenient)
	expect.That(t, got.status == catalog.Critical && !strings.Contains(got.output, "->"), "got %+v", got)
}

// The addresses of names are known only when a probe connects.
func TestAttemptConnectsOnlyToWhatItsServiceRegistered(t *testing.T) {
	asked := 0
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked++ })
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	rules := Rules{AllowLoopback: true}
	for _, tc := range []struct {
		name, host string
		loc        location
		want       catalog.CheckStatus
	}{
		{"the name that was registered", "localhost", location{hosts: []string{"localhost"}, ports: []uint16{at.Port()}}, catalog.Passing},
		{"a name of the address that was registered", "localhost", location{hosts: []string{"127.0.0.1", "::1"}, ports: []uint16{at.Port()}}, catalog.Passing},
		{"an address of the name that was registered", "127.0.0.1", location{hosts: []string{"localhost"}, ports: []uint16{at.Port()}}, catalog.Passing},
		{"a name of another address", "localhost", location{hosts: []string{"10.9.9.9"}, ports: []uint16{at.Port()}}, catalog.Critical},
		{"an address of another name", "127.0.0.1", location{hosts: []string{"nowhere.invalid"}, ports: []uint16{at.Port()}}, catalog.Critical},
		{"another port", "127.0.0.1", location{hosts: []string{"127.0.0.1"}, ports: []uint16{1}}, catalog.Critical},
	} {
		before := asked
		got := newCaller(nil, rules, allMay).attempt(t.Context(), &catalog.Probe{HTTP: fmt.Sprintf("http://%s:%d/", tc.host, at.Port())}, tc.loc)
		expect.That(t, got.status == tc.want && (got.status == catalog.Critical) == strings.Contains(got.output, "checks.targets") && (asked > before) == (tc.want == catalog.Passing),
			"%s: %+v, asked: %v", tc.name, got, asked > before)
	}
}

// Anything beyond the service's own address needs both the operator's targets and the token's, even if a name leads
// there.
func TestAttemptBeyondItsServiceNeedsTheTokensTargetsToo(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	own := location{hosts: []string{"127.0.0.1"}, ports: []uint16{at.Port()}, from: "127.0.0.1"}
	for _, tc := range []struct {
		name, host, token string
		targets           Targets
		loc               location
		want              string // in the output; "" if it passes
	}{
		{"an address", "127.0.0.1", "good", anywhere, location{}, ""},
		{"a name", "localhost", "good", anywhere, location{}, ""},
		{"an address that the token does not allow", "127.0.0.1", "bad", anywhere, location{}, "check-target " + at.String() + " probe"},
		{"a name of such", "localhost", "bad", anywhere, location{}, "check-target"},
		{"an address that the token alone allows", "127.0.0.1", "good", nil, location{}, "checks.targets"},
		{"what the service says is its own", "127.0.0.1", "bad", nil, own, "registered from 127.0.0.1, and the token"},
		{"the same, which the token allows", "127.0.0.1", "good", nil, own, ""},
		{"the same by a name", "localhost", "good", nil, own, ""},
		{"a name of it that the token does not allow", "localhost", "bad", nil, own, "check-target " + at.String() + " probe"},
	} {
		may := func(token, to string) bool { return token == "good" && to == at.String() }
		rules := Rules{AllowLoopback: true, Targets: tc.targets}
		got := newCaller(nil, rules, may).attempt(t.Context(), &catalog.Probe{HTTP: fmt.Sprintf("http://%s:%d/", tc.host, at.Port()), By: tc.token}, tc.loc)
		expect.That(t, (got.status == catalog.Passing) == (tc.want == "") && strings.Contains(got.output, tc.want), "%s: %+v", tc.name, got)
	}
}

// It asks as a connection does: what the service says of itself does not count, and the nodes' machines belong to
// nobody.
func TestCheckOwnsTheAddressThatItWasRegisteredFrom(t *testing.T) {
	for _, tc := range []struct {
		name, from, to, token string
		targets               Targets
		named, refused        bool
	}{
		{name: "where it comes from", from: "10.0.0.5", to: "10.0.0.5:8080"},
		{name: "in another form", from: "::ffff:10.0.0.5", to: "[64:ff9b::a00:5]:8080"},
		{name: "where a name leads", from: "10.0.0.7", to: "10.0.0.7:8080", named: true},
		{name: "another port of it", from: "10.0.0.5", to: "10.0.0.5:22", refused: true},
		{name: "what it says it is", from: "10.0.0.66", to: "10.0.0.5:8080", refused: true},
		{name: "the same, which its token allows", from: "10.0.0.66", to: "10.0.0.5:8080", token: "10.0.0.5:8080"},
		{name: "the same, which the operator's targets allow", from: "10.0.0.66", to: "10.0.0.5:8080", targets: anywhere, refused: true},
		{name: "where its name leads, elsewhere", from: "10.0.0.66", to: "10.0.0.7:8080", named: true, refused: true},
		{name: "from where is not known", to: "10.0.0.5:8080", refused: true},
		{name: "from a name", from: "web-7", to: "10.0.0.5:8080", refused: true},
		{name: "a node's machine", from: "10.0.0.1", to: "10.0.0.1:8080", refused: true},
		{name: "a node's machine, which its token allows", from: "10.0.0.1", to: "10.0.0.1:8080", token: "10.0.0.1:8080"},
		{name: "loopback", from: "127.0.0.1", to: "127.0.0.1:8080", refused: true},
	} {
		counted := ""
		r := reach{
			rules: Rules{Targets: tc.targets, IsNode: func(a netip.Addr) bool { return a.String() == "10.0.0.1" }}, token: func(at string) bool { return at == tc.token },
			location: location{hosts: []string{"10.0.0.5", "10.0.0.1", "127.0.0.1"}, ports: []uint16{8080}, from: tc.from}, named: tc.named,
		}
		to := netip.MustParseAddrPort(tc.to)
		why := r.allows(to)
		expect.That(t, (why != "") == tc.refused, "%s: refused as %q", tc.name, why)
		r.counted = func(why string) { counted = why }
		claims := to.Port() == 8080
		expect.Equal(t, r.allows(to) != "", tc.refused && !claims, "%s: below level 3", tc.name)
		if tc.refused && claims {
			expect.Equal(t, counted, why, "%s: counted below level 3", tc.name)
		}
	}
}

// Checks send only the headers from the settings, unless their token allows everything.
func TestAttemptSendsNoHeaderBeyondTheSettings(t *testing.T) {
	got := ""
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization") + r.Header.Get("Accept")
	})
	for _, tc := range []struct {
		name, header, token  string
		allowed              []string
		counts, sent, warned bool
	}{
		{name: "of the default", header: "accept", sent: true},
		{name: "another", header: "Authorization"},
		{name: "another, only counted", header: "Authorization", counts: true, sent: true, warned: true},
		{name: "allowed", header: "Authorization", allowed: []string{"authorization"}, sent: true},
		{name: "of all", header: "Authorization", allowed: []string{"*"}, sent: true},
		{name: "of one who may everything", header: "Authorization", token: "all", sent: true},
		{name: "none is allowed", header: "Accept", allowed: []string{}},
	} {
		got = ""
		loc, warned := location{}, ""
		if tc.counts {
			loc.counted = func(why string) { warned = why }
		}
		may := func(token, at string) bool { return token == "all" || !strings.HasPrefix(at, "header:") }
		rules := Rules{AllowLoopback: true, Targets: anywhere, Headers: tc.allowed}
		found := newCaller(nil, rules, may).attempt(t.Context(), &catalog.Probe{HTTP: s.URL, By: tc.token, Header: []codec.Pair{{Key: tc.header, Value: "x"}}}, loc)
		expect.That(t, strings.HasPrefix(got, "x") == tc.sent && (found.status == catalog.Passing) == tc.sent && (warned != "") == tc.warned, "%s: got %q, %+v, %q", tc.name, got, found, warned)
		expect.That(t, tc.sent || strings.Contains(found.output, "checks.headers"), "%s: %+v", tc.name, found)
	}
}
