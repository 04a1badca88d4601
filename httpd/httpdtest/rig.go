// Package httpdtest provides nodes to test the HTTP face with: handlers behind real servers, in bubbles of virtual
// time, or called directly, the requests and instances that tests send them, and a suite that runs against the URL of
// a server, whatever orders its operations.
//
//	node.go        a node behind a real server, and what it replies
//	bubbled.go     a node in virtual time
//	coordinated.go a node with sessions, keys and locks
//	events.go      the events of a watch
//	fakes.go       peers, clusters and services that answer as a test wants
//	rig.go         instances and requests
//	suite.go       the order of the suite's checks, their client, and the keys of documents
//	suitereads.go  checks of Eureka's protocol: what is read
//	suitewrites.go checks of Eureka's protocol: what is written
//	suiteown.go    checks of our own API
package httpdtest

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Request returns a well-formed request with these header lines and body.
func Request(method, target, body string, headers ...string) string {
	lines := []string{method + " " + target + " HTTP/1.1", "Host: node"}
	lines = append(lines, headers...)
	if body != "" {
		lines = append(lines, "Content-Length: "+Decimal(len(body)))
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// InstanceJSON is a registration of ORDERS/i1.
const InstanceJSON = `{"instance":{"instanceId":"i1","hostName":"h","app":"ORDERS","ipAddr":"10.0.0.1","status":"UP",` +
	`"port":{"$":8080,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},` +
	`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}}}`

// InstanceXML is a registration of ORDERS/i1.
const InstanceXML = `<instance><instanceId>i1</instanceId><hostName>h</hostName><app>ORDERS</app><ipAddr>10.0.0.1</ipAddr>` +
	`<status>UP</status><dataCenterInfo class="x"><name>MyOwn</name></dataCenterInfo></instance>`

// NewInstance returns an instance as a client registers it.
func NewInstance(app, id string) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.1", Status: registry.Up, CountryID: 1,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: strings.ToLower(app), LastDirty: 1000,
	}
}

// Gzipped compresses a text.
func Gzipped(text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = io.WriteString(w, text) // cannot fail: it writes to memory
	_ = w.Close()
	return buf.String()
}

func Decimal(n int) string { return strconv.Itoa(n) }

// Register returns a raw registration of ORDERS/i1.
func Register(body string, headers ...string) string {
	return Request("POST", "/eureka/apps/ORDERS", body, headers...)
}

// WithStatus returns a copy of an instance with a status, and a lastDirtyTimestamp that is later by dirty.
func WithStatus(i *registry.Instance, status registry.Status, dirty int64) *registry.Instance {
	c := *i
	c.Status, c.LastDirty = status, i.LastDirty+dirty
	return &c
}

// Gathered returns the sum of a metric's series with these labels.
func Gathered(t testing.TB, metrics *prometheus.Registry, name string, labels map[string]string) float64 {
	t.Helper()
	families := need.Got(metrics.Gather())(t)
	sum, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		found = true
	series:
		for _, series := range family.GetMetric() {
			left := len(labels)
			for _, label := range series.GetLabel() {
				want, wanted := labels[label.GetName()]
				if wanted && want != label.GetValue() {
					continue series
				}
				if wanted {
					left--
				}
			}
			if left == 0 {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	need.That(t, found, "there is no metric %s", name)
	return sum
}

// KeyOf returns the key of an instance of ORDERS.
func KeyOf(id string) registry.Key { return registry.NewKey("ORDERS", id) }

// Certified returns the certificate of package httptest, for example.com, and a pool that trusts it.
func Certified(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(liveness); !holds(); {
		need.That(t, !time.Now().After(end), "waited %v until %s", liveness, what)
		time.Sleep(time.Millisecond)
	}
}
