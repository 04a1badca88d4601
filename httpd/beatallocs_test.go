package httpd

import (
	"bufio"
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// done is a service that renews everything at once.
type done struct{ *registrytest.Memory }

var doneResults = []registry.Result{{Outcome: registry.Done}}

// Apply implements registry.Service.
func (*done) Apply(context.Context, registry.Origin, ...registry.Op) ([]registry.Result, error) {
	return doneResults, nil
}

// heartbeat is what a Java client sends.
const heartbeat = "PUT /eureka/v2/apps/ORDERS/host-1.example.internal:orders:8080?status=UP&lastDirtyTimestamp=1767225599500 HTTP/1.1\r\n" +
	"DiscoveryIdentity-Name: DefaultClient\r\nDiscoveryIdentity-Version: 1.4\r\nDiscoveryIdentity-Id: 10.0.0.1\r\nAccept-Encoding: gzip\r\n" +
	"Content-Length: 0\r\nHost: 127.0.0.1:8761\r\nConnection: Keep-Alive\r\nUser-Agent: Java-EurekaClient/v1.10.17\r\n\r\n"

func newBenched(b testing.TB, access AccessConfig) *Handler {
	b.Helper()
	h, err := New(Config{Service: &done{registrytest.New()}, Access: access})
	need.OK(b, err)
	return h
}

// holding is access control that asks for a token, and a heartbeat that has it.
func holding(t testing.TB) (c AccessConfig, withToken string) {
	t.Helper()
	text := access.NewText([access.RandomBytes]byte{1}, "", "")
	accessor, hash, err := access.Parse(text, "")
	need.OK(t, err)
	rule := need.Got(access.ParseRule("app {app} register"))(t)
	table, refusal := new(access.Table).Apply(&access.Change{
		Sure: true, Mode: access.On, PutRoles: []*access.Role{{Name: "service", Rules: []access.Rule{rule}}},
		Create: []*access.Token{{Accessor: accessor, Name: "orders", App: "ORDERS", Roles: []string{"service"}, Secrets: []access.Secret{{Hash: hash}}}},
	}, 1, 1)
	if refusal != "" {
		t.Fatal(refusal)
	}
	user := base64.StdEncoding.EncodeToString([]byte("orders:" + text))
	return AccessConfig{Table: func() *access.Table { return table }}, strings.Replace(heartbeat, "Host:", "Authorization: Basic "+user+"\r\nHost:", 1)
}

// endless is a connection on which the same heartbeat comes again and again.
type endless struct {
	net.Conn
	heartbeat string
}

func (e endless) Read(p []byte) (int, error)      { return copy(p, e.heartbeat), nil }
func (e endless) Write(p []byte) (int, error)     { return len(p), nil }
func (e endless) SetDeadline(time.Time) error     { return nil }
func (e endless) LocalAddr() net.Addr             { return nil }
func (e endless) SetReadDeadline(time.Time) error { return nil }

// A heartbeat with a credential that is known compares bytes and tables, and allocates what one without does.
func TestHeartbeatWithAKnownCredentialAllocatesNoMore(t *testing.T) {
	perHeartbeat := func(c AccessConfig, heartbeat string) float64 {
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Host = "127.0.0.1:8761"
		conn := endless{heartbeat: heartbeat}
		beats := newBeatConn(newBenched(t, c), new(heartbeats), conn, bufio.NewReader(conn), r)
		return testing.AllocsPerRun(1000, func() {
			need.That(t, beats.wait() && beats.heartbeat() && beats.write() && beats.w.status <= http.StatusOK, "%q was answered %d", heartbeat, beats.w.status)
		})
	}
	asks, with := holding(t)
	plain := perHeartbeat(AccessConfig{}, heartbeat)
	for name, got := range map[string]float64{
		"asked for a token":     perHeartbeat(asks, with),
		"not asked for a token": perHeartbeat(AccessConfig{}, with),
	} {
		expect.That(t, got == plain, "%s: %v allocations, want those of a heartbeat without one, %v", name, got, plain)
	}
}
