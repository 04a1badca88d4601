package integration

import (
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/conformance"
)

// TestConformance runs the protocol's suite against a node of a cluster in either mode: with consensus
// one that does not lead, so that every write is forwarded.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, steadfast(Config{AP: ap}))
		n := c.Nodes[0]
		if !ap {
			n = c.Others(c.Leader())[0]
		}
		conformance.Run(t, conformance.Target{URL: n.URL(), Fixtures: os.DirFS("../httpd/eureka/testdata"), Consensus: !ap})
	})
}
