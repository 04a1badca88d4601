package httpd_test

import (
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/conformance"
)

// TestConformance has heartbeats answered on connections that were taken over, as those of a node are.
func TestConformance(t *testing.T) {
	n := newNode(t, httpd.Config{Node: "n1", Version: "test"}, nil)
	n.Set(func(m *registrytest.Memory) { m.Registry.SetLevel(codec.Newest) })
	n.LeadAlways(t)
	conformance.Run(t, conformance.Target{URL: "http://" + n.addr, Fixtures: os.DirFS("eureka/testdata"), Consensus: true})
}

func TestConformanceWithoutConsensus(t *testing.T) {
	config := aloneConfig()
	config.Node, config.Version = "n1", "test"
	n := newNode(t, config, nil)
	n.Set(func(m *registrytest.Memory) { m.Alone = true; m.Registry.SetLevel(codec.Newest) })
	n.LeadAlways(t)
	conformance.Run(t, conformance.Target{URL: "http://" + n.addr, Fixtures: os.DirFS("eureka/testdata")})
}
