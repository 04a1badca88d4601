package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRulesLetACheckAddressWhatItsServiceRegistered(t *testing.T) {
	service := &catalog.Service{Address: "10.0.0.5", Port: 8080, Tagged: []catalog.TaggedAddress{{Tag: "wan", Address: "shop.example", Port: 443}}, Ports: []byte(`[{"Name":"admin","Port":9000}]`)}
	instance := &registry.Instance{HostName: "10.0.0.5", IPAddr: "10.0.0.5"}
	named := &catalog.Service{Address: "orders.internal", Port: 8080}
	tests := []struct {
		name    string
		probe   catalog.Probe
		service *catalog.Service
		rules   Rules
		want    string // part of the refusal; "" if it is allowed
	}{
		{name: "its own port", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health"}, service: service},
		{name: "HEAD", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "HEAD"}, service: service},
		{name: "by TCP", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, service: service},
		{name: "by UDP", probe: catalog.Probe{UDP: "10.0.0.5:8080"}, service: service},
		{name: "by gRPC", probe: catalog.Probe{GRPC: "10.0.0.5:8080/orders"}, service: service},
		{name: "by HTTP/2", probe: catalog.Probe{H2PING: "10.0.0.5:8080"}, service: service},
		{name: "another port by UDP", probe: catalog.Probe{UDP: "10.0.0.5:53"}, service: service, want: "10.0.0.5:53 is not probed"},
		{name: "another address by gRPC", probe: catalog.Probe{GRPC: "10.0.0.6:22/10.0.0.5:8080"}, service: service, want: "10.0.0.6:22 is not probed"},
		{name: "gRPC without a port", probe: catalog.Probe{GRPC: "10.0.0.5/orders"}, service: service, want: `"10.0.0.5" is not of the form host:port`},
		{name: "another port by HTTP/2", probe: catalog.Probe{H2PING: "10.0.0.5:22"}, service: service, want: "10.0.0.5:22 is not probed"},
		{name: "a tagged address", probe: catalog.Probe{HTTP: "https://shop.example/health"}, service: service},
		{name: "a further port", probe: catalog.Probe{TCP: "10.0.0.5:9000"}, service: service},
		{name: "by the name that it registered", probe: catalog.Probe{HTTP: "http://Orders.internal:8080/health"}, service: named},
		{name: "by an address, which its name may resolve to", probe: catalog.Probe{HTTP: "http://10.0.0.9:8080/health"}, service: named},
		{name: "by a name, which may resolve to its address", probe: catalog.Probe{HTTP: "http://orders:8080/health"}, service: service},
		{name: "another port", probe: catalog.Probe{TCP: "10.0.0.5:22"}, service: service, want: "10.0.0.5:22 is not probed: a check addresses what its own service registered (10.0.0.5, shop.example with 8080 443 9000), or what checks.targets names"},
		{name: "another port of its name", probe: catalog.Probe{TCP: "orders.internal:22"}, service: named, want: "checks.targets"},
		{name: "another address", probe: catalog.Probe{HTTP: "http://10.0.0.6/"}, service: service, want: "10.0.0.6:80 is not probed"},
		{name: "a node's check", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, want: "(nothing)"},
		{name: "a target", probe: catalog.Probe{TCP: "10.0.0.5:8080"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8")}}}},
		{name: "a name that may be a target", probe: catalog.Probe{TCP: "db.internal:5432"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8"), Port: 5432}}}},
		{name: "a name at no target's port", probe: catalog.Probe{TCP: "db.internal:22"}, rules: Rules{Targets: []access.Target{{Addresses: netip.MustParsePrefix("10.0.0.0/8"), Port: 5432}}}, want: "checks.targets"},
		{name: "POST", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "POST"}, service: service, want: `method "POST" is not used by checks; checks.methods allows GET and HEAD`},
		{name: "POST, allowed", probe: catalog.Probe{HTTP: "http://10.0.0.5:8080/health", Method: "POST"}, service: service, rules: Rules{Methods: []string{"POST"}}},
		{name: "a metadata service that it registered", probe: catalog.Probe{HTTP: "http://169.254.169.254/"}, service: &catalog.Service{Address: "169.254.169.254", Port: 80}, want: "link-local"},
		{name: "loopback that it registered", probe: catalog.Probe{HTTP: "http://127.0.0.1:80/"}, service: &catalog.Service{Address: "127.0.0.1", Port: 80}, want: "checks.allow-loopback"},
		{name: "another scheme", probe: catalog.Probe{HTTP: "file:///etc/passwd"}, service: service, want: "not of the form http://host:port/path"},
		{name: "no port", probe: catalog.Probe{TCP: "10.0.0.5"}, service: service, want: "not of the form host:port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var i *registry.Instance
			if tt.service == service {
				i = instance
			}
			got, _ := tt.rules.Refuses(&tt.probe, tt.service, i)
			expect.That(t, (got == "") == (tt.want == "") && strings.Contains(got, tt.want), "refused as %q, want %q", got, tt.want)
		})
	}
}

func TestRulesSayWhatIsBeyondTheCheck(t *testing.T) {
	rules := Rules{Targets: anywhere, AllowLoopback: true, IsNode: func(a netip.Addr) bool { return a.String() == "10.0.0.1" }}
	service := &catalog.Service{Address: "10.0.0.5", Port: 8080, Tagged: []catalog.TaggedAddress{{Address: "10.0.0.1"}, {Address: "127.0.0.1"}}}
	named := &catalog.Service{Address: "web.internal", Port: 8080}
	for _, tc := range []struct {
		tcp, from string
		service   *catalog.Service
		want      string
		counted   bool
	}{
		{"10.0.0.5:8080", "10.0.0.5", service, "", false},
		{"[::ffff:10.0.0.5]:8080", "10.0.0.5", named, "", false},
		{"10.0.0.5:8080", "10.0.0.66", service, "10.0.0.5:8080", true},
		{"10.0.0.9:8080", "10.0.0.66", named, "10.0.0.9:8080", true},
		{"10.0.0.5:8080", "", service, "10.0.0.5:8080", true},
		{"10.0.0.1:8080", "10.0.0.1", service, "10.0.0.1:8080", true},
		{"127.0.0.1:8080", "127.0.0.1", service, "127.0.0.1:8080", true},
		{"10.0.0.5:22", "10.0.0.5", service, "10.0.0.5:22", false},
		{"10.0.0.6:8080", "10.0.0.6", service, "10.0.0.6:8080", false},
		{"[::ffff:10.0.0.6]:8080", "10.0.0.5", service, "10.0.0.6:8080", false},
		{"db.internal:5432", "10.0.0.5", service, "", false}, // its address decides
	} {
		why, needs := rules.Refuses(&catalog.Probe{TCP: tc.tcp, From: tc.from}, tc.service, nil)
		var want []access.Need
		if tc.want != "" {
			want = []access.Need{{Resource: access.CheckTarget, Name: tc.want, Verb: access.Probe, Counted: tc.counted}}
		}
		expect.That(t, why == "" && slices.Equal(needs, want), "%s from %s: got %q and %v, want %v", tc.tcp, tc.from, why, needs, want)
	}
	_, needs := rules.Refuses(&catalog.Probe{HTTP: "http://10.0.0.5:8080/", From: "10.0.0.5", Header: []codec.Pair{{Key: "accept"}, {Key: "Host"}, {Key: "Cookie"}}}, service, nil)
	expect.That(t, slices.Equal(needs, []access.Need{{Resource: access.CheckTarget, Name: "header:Host", Verb: access.Probe, Counted: true}}), "of headers: got %v", needs)
}

func TestFilterRefusesAddressesOfTheMachineAndItsCloud(t *testing.T) {
	tests := []struct {
		address  string
		loopback bool   // allowed
		want     string // part of the reason; "" if it may be probed
	}{
		{"10.1.2.3", false, ""},
		{"192.168.0.1", false, ""},
		{"8.8.8.8", false, ""},
		{"2001:db8::1", false, ""},
		{"fd12::1", false, ""},
		{"127.0.0.1", true, ""},
		{"::1", true, ""},
		{"127.0.0.1", false, "loopback"},
		{"127.9.9.9", false, "loopback"},
		{"::1", false, "loopback"},
		{"::ffff:127.0.0.1", false, "loopback"},
		{"64:ff9b::7f00:1", false, "loopback"},
		{"169.254.169.254", true, "link-local"},
		{"::ffff:169.254.169.254", true, "link-local"},
		{"64:ff9b::a9fe:a9fe", true, "link-local"},
		{"fe80::1", true, "link-local"},
		{"fe80::1%eth0", true, "link-local"},
		{"fd00:ec2::254", true, "metadata"},
		{"fd00:ec2::254%eth0", true, "metadata"},
		{"fd00:ec2::23", true, "metadata"},
		{"168.63.129.16", true, "metadata"},
		{"::ffff:168.63.129.16", true, "metadata"},
		{"100.100.100.200", true, "metadata"},
		{"0.0.0.0", true, "unspecified"},
		{"::", true, "unspecified"},
		{"::ffff:0.0.0.0", true, "unspecified"},
		{"224.0.0.1", true, "multicast"},
		{"ff02::1", true, "multicast"},
		{"255.255.255.255", true, "broadcast"},
	}
	for _, tt := range tests {
		got := filter{loopback: tt.loopback}.refuses(netip.MustParseAddr(tt.address))
		expect.That(t, (got == "") == (tt.want == "") && strings.Contains(got, tt.want),
			"%s (loopback allowed: %v): refused as %q, want %q", tt.address, tt.loopback, got, tt.want)
	}
}

func TestFilterRefusesAnInvalidAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:80", "10.0.0.1", "/run/socket"} {
		expect.That(t, (filter{loopback: true}).control(t.Context(), "tcp", address, nil) != nil, "%q: not refused", address)
	}
}

// serveHTTP2 serves only HTTP/2, as gRPC servers do, with or without TLS, and reports the names that TLS clients ask
// for.
func serveHTTP2(t *testing.T, overTLS bool, h http.HandlerFunc) (address string, names <-chan string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	asked := make(chan string, 10)
	s.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		asked <- hello.ServerName
		return nil, nil
	}}
	s.Config.Protocols = new(http.Protocols)
	if s.EnableHTTP2 = overTLS; overTLS {
		s.Config.Protocols.SetHTTP2(true)
		s.StartTLS()
	} else {
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), asked
}

// answerGRPC responds like a gRPC server: a message, and the status in the trailer.
func answerGRPC(message, status, what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		io.WriteString(w, message)
		if status != "" {
			w.Header().Set("Grpc-Status", status)
			w.Header().Set("Grpc-Message", what)
		}
	}
}

func silentTCP(t *testing.T) (address string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestGRPCCheckAsksTheHealthServiceAndPassesOnlyIfItServes(t *testing.T) {
	const served = "\x00\x00\x00\x00\x02\x08\x01"
	for _, tt := range []struct {
		name, message, code, what string
		want                      string // output, with ADDR for the address; "" if it passes
	}{
		{"SERVING", served, "0", "", ""},
		{"SERVING, with fields of a later version", "\x00\x00\x00\x00\x07\x12\x01x\x08\x01\x18\x05", "0", "", ""},
		{"NOT_SERVING", "\x00\x00\x00\x00\x02\x08\x02", "0", "", "gRPC ADDR/orders serving status: NOT_SERVING"},
		{"nothing, which is UNKNOWN", "\x00\x00\x00\x00\x00", "0", "", "gRPC ADDR/orders serving status: UNKNOWN"},
		{"a status of a later version", "\x00\x00\x00\x00\x02\x08\x09", "0", "", "gRPC ADDR/orders serving status: 9"},
		{"an unknown service", "", "5", "unknown service", "rpc error: code = NotFound desc = unknown service"},
		{"no health service", "", "12", "unknown service grpc.health.v1.Health", "rpc error: code = Unimplemented desc = unknown service grpc.health.v1.Health"},
		{"an error with other characters", "", "13", "50%25 of %22it%22", `rpc error: code = Internal desc = 50% of "it"`},
		{"a code of a later version", "", "77", "new", "rpc error: code = Code(77) desc = new"},
		{"no trailer", served, "", "", "rpc error: code = Internal desc = server closed the stream without sending trailers"},
		{"a length that is wrong", "\x00\x00\x00\x00\x09\x08\x01", "0", "", "rpc error: code = Internal desc = the response of 7 bytes is not one message that is not compressed"},
		{"no message", "", "0", "", "rpc error: code = Internal desc = the response of 0 bytes is not one message that is not compressed"},
		{"another message", "\x00\x00\x00\x00\x01\x08", "0", "", "rpc error: code = Internal desc = the response is not a HealthCheckResponse: unexpected EOF"},
		{"a message without end", "\x00\xff\xff\xff\xff" + strings.Repeat("\x08\x01", 1<<16), "0", "", "rpc error: code = Internal desc = server closed the stream without sending trailers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(chan string, 1)
			address, _ := serveHTTP2(t, false, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				seen <- fmt.Sprintf("%s %s %s %s %q", r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Te"), body)
				answerGRPC(tt.message, tt.code, tt.what)(w, r)
			})
			got := attempt(t, &catalog.Probe{GRPC: address + "/orders"}, lenient)
			want := result{catalog.Critical, strings.ReplaceAll(tt.want, "ADDR", address)}
			if tt.want == "" {
				want = result{catalog.Passing, "gRPC check " + address + "/orders: success"}
			}
			expect.Equal(t, got, want, "got")
			expect.Equal(t, <-seen, `POST /grpc.health.v1.Health/Check application/grpc trailers "\x00\x00\x00\x00\b\n\x06orders"`, "the server was asked")
		})
	}
}

func TestGRPCCheckOfTheServerNamesNoService(t *testing.T) {
	body := make(chan string, 1)
	address, names := serveHTTP2(t, true, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body <- string(b)
		answerGRPC("\x00\x00\x00\x00\x02\x08\x01", "0", "")(w, r)
	})
	got := attempt(t, &catalog.Probe{GRPC: address, UseTLS: true, SkipVerify: true, ServerName: "orders.example"}, lenient)
	expect.Equal(t, got, result{catalog.Passing, "gRPC check " + address + ": success"}, "over TLS:")
	expect.Equal(t, <-body, "\x00\x00\x00\x00\x00", "request")
	expect.Equal(t, <-names, "orders.example", "TLSServerName")
	got = attempt(t, &catalog.Probe{GRPC: address, UseTLS: true}, lenient)
	expect.That(t, got.status == catalog.Critical && strings.HasPrefix(got.output, "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: tls: failed to verify certificate"),
		"a certificate that is not trusted: %+v", got)
}

// Something that does not speak gRPC makes the check critical, with an output that says what was found and never
// varies: each different output is an entry in the log.
func TestGRPCCheckReportsATargetWithoutGRPC(t *testing.T) {
	nothing := func(http.ResponseWriter, *http.Request) {}
	plain := serve(t, nothing).Listener.Addr().String()
	http2, _ := serveHTTP2(t, false, nothing)
	missing, _ := serveHTTP2(t, false, http.NotFound)
	overTLS, _ := serveHTTP2(t, true, nothing)
	closed := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	for _, tt := range []struct {
		name  string
		probe catalog.Probe
		want  string // the beginning of the output
	}{
		{"HTTP/1.1", catalog.Probe{GRPC: plain}, "rpc error: code = Unavailable desc = " + noHTTP2},
		{"HTTP/2", catalog.Probe{GRPC: http2}, `rpc error: code = Unknown desc = unexpected HTTP status code received from server: 200 (OK); transport: received unexpected content-type ""`},
		{"HTTP/2 with 404", catalog.Probe{GRPC: missing}, "rpc error: code = Unimplemented desc = unexpected HTTP status code received from server: 404 (Not Found)"},
		{"TLS, unasked", catalog.Probe{GRPC: overTLS}, "rpc error: code = Unavailable desc = " + noHTTP2},
		{"no TLS, asked for", catalog.Probe{GRPC: http2, UseTLS: true, SkipVerify: true}, `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: `},
		{"a closed port", catalog.Probe{GRPC: closed.Addr().String()}, `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp ` + closed.Addr().String() + `: connect: connection refused"`},
	} {
		got := attempt(t, &tt.probe, lenient)
		expect.That(t, got.status == catalog.Critical && strings.HasPrefix(got.output, tt.want), "%s: %+v, want it critical with %s", tt.name, got, tt.want)
		expect.Equal(t, attempt(t, &tt.probe, lenient), got, "%s: again", tt.name)
	}
}

func TestHTTP2ChecksEndWithTheirContext(t *testing.T) {
	address := silentTCP(t)
	for _, tt := range []struct {
		probe catalog.Probe
		want  string
	}{
		{catalog.Probe{GRPC: address}, "rpc error: code = DeadlineExceeded desc = context deadline exceeded"},
		{catalog.Probe{H2PING: address}, "HTTP2 ping failed: context deadline exceeded"},
		{catalog.Probe{H2PING: address, UseTLS: true}, "Failed to dial to " + address + ": context deadline exceeded"},
		{catalog.Probe{TCP: address, UseTLS: true}, "context deadline exceeded"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		got := newCaller(nil, lenient, allMay).attempt(ctx, &tt.probe, location{})
		cancel()
		expect.Equal(t, got, result{catalog.Critical, tt.want}, "%+v: got", tt.probe)
	}
}

func TestH2PINGCheckPassesIfThePingIsAnswered(t *testing.T) {
	nothing := func(http.ResponseWriter, *http.Request) {}
	clear, _ := serveHTTP2(t, false, nothing)
	overTLS, names := serveHTTP2(t, true, nothing)
	plain := serve(t, nothing).Listener.Addr().String()
	passing := result{catalog.Passing, "HTTP2 ping was successful"}
	expect.Equal(t, attempt(t, &catalog.Probe{H2PING: clear}, lenient), passing, "without TLS:")
	expect.Equal(t, attempt(t, &catalog.Probe{H2PING: overTLS, UseTLS: true, SkipVerify: true, ServerName: "a.example"}, lenient), passing, "with TLS:")
	expect.Equal(t, <-names, "a.example", "TLSServerName")
	for name, tt := range map[string]struct {
		probe catalog.Probe
		want  string
	}{
		"HTTP/1.1":                      {catalog.Probe{H2PING: plain}, "HTTP2 ping failed: "},
		"TLS at a plain port":           {catalog.Probe{H2PING: clear, UseTLS: true}, "Failed to dial to " + clear + ": "},
		"a certificate without trust":   {catalog.Probe{H2PING: overTLS, UseTLS: true}, "Failed to dial to " + overTLS + ": tls: failed to verify certificate"},
		"a port that nobody listens at": {catalog.Probe{H2PING: "127.0.0.1:1"}, "Failed to dial to 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		got := attempt(t, &tt.probe, lenient)
		expect.That(t, got.status == catalog.Critical && strings.HasPrefix(got.output, tt.want), "%s: %+v, want it critical with %q", name, got, tt.want)
	}
}

// A server may send other frames before it acknowledges, but one that sends no SETTINGS first, or too much, does not
// speak HTTP/2.
func TestPingWaitsForItsAcknowledgmentAndForNothingElse(t *testing.T) {
	const ack = "\x00\x00\x08\x06\x01\x00\x00\x00\x00"
	for _, tt := range []struct {
		name, sent string
		ok         bool
	}{
		{"an acknowledgment", settings + ack + pingBody, true},
		{"behind other frames", settings + settingsAck + pingHead + "another!" + ack + "another!" + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01" + ack + pingBody, true},
		{"none", settings + pingHead + pingBody, false},
		{"without SETTINGS", ack + pingBody, false},
		{"a frame that is too long", settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x00", false},
		{"HTTP/1.1", "HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 1<<22), false},
	} {
		conn := struct {
			io.Reader
			io.Writer
		}{strings.NewReader(tt.sent), io.Discard}
		err := pingOver(conn)
		expect.That(t, (err == nil) == tt.ok, "%s: %v, want that it passes: %v", tt.name, err, tt.ok)
	}
}

func FuzzDecodeHealth(f *testing.F) {
	for _, seed := range []string{"", "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x02\x08\x01", "\x01\x00\x00\x00\x00", "\x00\x00\x00\x00\x07\x12\x01x\x08\x01\x18\x05", "\x00\x00\x00\x00\x01\x0b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		status, err := decodeHealth(message)
		expect.That(t, status.String() != "" && (err == nil || status == 0), "status %v with %v", status, err)
	})
}
