package integration

import (
	"fmt"
	"maps"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// tlsCluster is a cluster whose every listener uses certificates of ca.
func tlsCluster(t *testing.T, ca *Certificates) Config {
	return Config{TLS: ca, Of: func(node string) map[string]string { return ca.Settings(t, node) }}
}

func TestClusterOverMutualTLSServesHTTPS(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, tlsCluster(t, NewCertificates(t)))
	follower := c.Others(c.Leader())[0]
	mustRegister(t, follower, Instance{App: "SECRET", ID: "s"})
	for _, n := range c.Nodes {
		_, listed := mustList(t, n)["s"]
		expect.That(t, listed, "node %s does not list what was registered over TLS", n.Name)
	}
	plain := *follower
	plain.Client = nil
	response := plain.Get("/eureka/apps")
	expect.That(t, response.Status != 200, "plain HTTP on the TLS port: %v, want a refusal", response)
}

// TestWithoutConsensusNodesReplicateOverMutualTLS: they show each other certificates, and are closed to clients that
// have none.
func TestWithoutConsensusNodesReplicateOverMutualTLS(t *testing.T) {
	t.Parallel()
	ca := NewCertificates(t)
	ca.PresentTo(t)
	c := StartCluster(t, Config{AP: true, Nodes: 2, TLS: ca, Of: func(node string) map[string]string {
		settings := ca.Settings(t, node)
		settings["http.tls.client-ca"] = ca.CA
		settings["replication.tls.ca"] = ca.CA
		settings["replication.tls.cert"], settings["replication.tls.key"] = settings["http.tls.cert"], settings["http.tls.key"]
		return settings
	}})
	mustRegister(t, c.Nodes[0], Instance{App: "SECRET", ID: "s"})
	c.mustListEverywhere(t, "s")
	stranger := *c.Nodes[0]
	stranger.Client = NewCertificates(t).Client()
	expect.OKf(t, stranger.Get("/eureka/apps").is(0), "a client without a certificate")
}

// TestNodeWithForeignCertificateCannotJoin puts a node in the place of a stopped one, with its
// directory and name, but with a certificate of another authority.
func TestNodeWithForeignCertificateCannotJoin(t *testing.T) {
	t.Parallel()
	ca := NewCertificates(t)
	c := StartCluster(t, tlsCluster(t, ca))
	stranger := c.Others(c.Leader())[0]
	stranger.Stop(t)
	mustRegister(t, c.Leader(c.Others(stranger)...), Instance{App: "SECRET", ID: "s"})

	foreign := NewCertificates(t)
	maps.Copy(stranger.Settings, foreign.Settings(t, stranger.Name))
	stranger.Client = foreign.Client()
	stranger.Start(t)
	mustStayOutside(t, stranger)

	maps.Copy(stranger.Settings, ca.Settings(t, stranger.Name))
	stranger.Client = ca.Client()
	stranger.Kill()
	stranger.Start(t)
	stranger.WaitReady(t)
	_, listed := mustList(t, stranger)["s"]
	expect.That(t, listed, "with its own certificate the node does not catch up")
}

// mustStayOutside watches a node for a while in which it would have joined many times over: it may
// end, or serve what it has, but it must not learn what was written without it.
func mustStayOutside(t *testing.T, n *Node) {
	t.Helper()
	for range 10 {
		Pass(t, noticeAfter/10)
		if !n.Running() {
			return
		}
		need.That(t, n.Get("/eureka/apps?consistency=linearizable").Status != 200, "a node with a certificate of another authority serves linearizable reads")
		if listing, err := n.ListingOf("/eureka/apps?consistency=stale"); err == nil {
			_, listed := listing["s"]
			need.That(t, !listed, "a node with a certificate of another authority got the log")
		}
	}
}

func TestPlainListenersOutsideLoopbackAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key   string
		ap    bool
		plain string
	}{{"http.addr", false, "http.plain"}, {"http.addr", true, "http.plain"}, {"cluster.addr", false, "cluster.plain"}} {
		t.Run(fmt.Sprintf("%s ap %v", tc.key, tc.ap), func(t *testing.T) {
			t.Parallel()
			n := NewCluster(t, Config{AP: tc.ap, Nodes: 1}).Nodes[0]
			n.Settings[tc.key] = "0.0.0.0:0"
			mustRefuseToStart(t, n, tc.key, "TLS", tc.plain)
		})
	}
}
