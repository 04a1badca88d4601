package httpd_test

import (
	"net/http/httptest"
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/conformance"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConformance(t *testing.T) {
	service := registrytest.New()
	service.LeadAlways(t)
	handler := need.Got(httpd.New(httpd.Config{Service: service, Node: "n1", Version: "test"}))(t)
	server := httptest.NewServer(handler)
	defer server.Close()
	conformance.Run(t, conformance.Target{URL: server.URL, Fixtures: os.DirFS("eureka/testdata"), Consensus: true})
}

func TestConformanceWhereConnectionsAreTakenOver(t *testing.T) {
	n := newNode(t, httpd.Config{Node: "n1", Version: "test"}, nil)
	n.LeadAlways(t)
	conformance.Run(t, conformance.Target{URL: "http://" + n.addr, Fixtures: os.DirFS("eureka/testdata"), Consensus: true})
}

func TestConformanceWithoutConsensus(t *testing.T) {
	config := aloneConfig()
	config.Node, config.Version = "n1", "test"
	n := newNode(t, config, nil)
	n.Set(func(m *registrytest.Memory) { m.Alone = true })
	n.LeadAlways(t)
	conformance.Run(t, conformance.Target{URL: "http://" + n.addr, Fixtures: os.DirFS("eureka/testdata")})
}
