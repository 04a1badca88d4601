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
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// serveHTTP2 serves HTTP/2 alone, as gRPC servers do, with TLS or without, and tells the names that TLS clients ask for.
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

// answerGRPC answers like a gRPC server: a message, and the status in the trailer.
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
		want                      string // output, with ADDR for the address; "": it passes
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

// What speaks no gRPC makes the check critical, in words that say what was found, and always the same: each other output is
// an entry of the log.
func TestGRPCCheckAgainstWhatSpeaksNoneSaysSo(t *testing.T) {
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
		again := attempt(t, &tt.probe, lenient)
		expect.Equal(t, again, got, "%s: again", tt.name)
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
		"TLS where there is none":       {catalog.Probe{H2PING: clear, UseTLS: true}, "Failed to dial to " + clear + ": "},
		"a certificate without trust":   {catalog.Probe{H2PING: overTLS, UseTLS: true}, "Failed to dial to " + overTLS + ": tls: failed to verify certificate"},
		"a port that nobody listens at": {catalog.Probe{H2PING: "127.0.0.1:1"}, "Failed to dial to 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		got := attempt(t, &tt.probe, lenient)
		expect.That(t, got.status == catalog.Critical && strings.HasPrefix(got.output, tt.want), "%s: %+v, want it critical with %q", name, got, tt.want)
	}
}

// A server may send other frames before it acknowledges, and one that sends no SETTINGS first, or too much, is none.
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
