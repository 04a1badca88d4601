package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/conformance"
)

// shows returns nil if a node shows an instance, alone and within the lists, in JSON and XML.
func shows(n *Node, app, id string) error {
	for _, form := range []string{"application/json", "application/xml"} {
		for _, resource := range []string{path(app, id), "/eureka/apps/", "/eureka/v2/apps/" + app} {
			response := n.Do(Request{Path: resource, Accept: form})
			if response.Status != http.StatusOK || !bytes.Contains(response.Body, []byte(id)) {
				return response.failure(n, fmt.Sprintf("%s as %s, want 200 with %q in it", resource, form, id))
			}
		}
	}
	return nil
}

// TestConformance runs the protocol's suite against a node of a cluster in either mode: with consensus
// one that does not lead, so that every write is forwarded.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(Config{AP: ap}))
		c.awaitLevel(t, codec.Newest)
		n := c.Nodes[0]
		if !ap {
			n = c.Others(c.Leader())[0]
		}
		conformance.Run(t, conformance.Target{URL: n.URL(), Fixtures: os.DirFS("../httpd/eureka/testdata"), Consensus: !ap})
	})
}
