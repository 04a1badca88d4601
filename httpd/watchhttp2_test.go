package httpd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// certified is the certificate of package httptest, for example.com, and who trusts it.
func certified(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

// newSecure is a server with its own settings in a bubble, and a client that speaks HTTP/2 with it.
func newSecure(t *testing.T, certificate tls.Certificate, trusted *x509.CertPool) (*registrytest.Memory, *http.Client) {
	t.Helper()
	m := registrytest.New()
	handler := need.Got(httpd.New(httpd.Config{Service: m}))(t)
	server := httpd.NewServer("", handler, nil)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.RegisterOnShutdown(handler.EndWatches)
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(p, "", "") }()
	transport := &http.Transport{DialContext: p.dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
	return m, &http.Client{Transport: transport}
}

// In HTTP/2 a time limit for writes ends a stream on which nothing is written, too.
func TestQuietWatchesLiveOverHTTP2(t *testing.T) {
	certificate, trusted := certified(t)
	bubble(t, func(t *testing.T) {
		m, client := newSecure(t, certificate, trusted)
		resp := need.Got(client.Get("https://example.com/v1/rollcall/watch"))(t)
		defer resp.Body.Close()
		need.That(t, resp.ProtoMajor == 2, "it speaks %s", resp.Proto)
		s := newEvents(t, resp.Body)
		s.want("start")
		time.AfterFunc(5*time.Minute, func() {
			_, _ = m.Apply(context.Background(), registry.FromClient, registry.Register{Instance: newInstance("A", "1")})
		})
		polled := need.Got(client.Get("https://example.com/v1/rollcall/watch?wait=10m&index=test-0"))(t)
		defer polled.Body.Close()
		body, err := io.ReadAll(polled.Body)
		expect.That(t, err == nil && strings.HasPrefix(string(body), `{"index":"test-1","changes":[{"index":"test-1","action":"ADDED"`),
			"the poll got %s, %v", body, err)
		for {
			e, ok := s.next()
			need.That(t, ok, "the stream ended")
			if e.name == "change" {
				return
			}
		}
	})
}
