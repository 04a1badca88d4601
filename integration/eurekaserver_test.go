package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// startEurekaServer runs a published Eureka server, Spring Cloud's with Netflix's own inside, as a peer of a node, with
// its default settings except how often it polls the node. It has the routes of a node for clients. more are arguments
// for its command line.
func startEurekaServer(t *testing.T, addr string, peer *Node, more ...string) *Node {
	t.Helper()
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	return startEurekaServerOf(t, "", addr, peer, more...)
}

// startLoneEurekaServer runs a published Eureka server that is a peer and client of none, and shows changes at once. Its
// release is a directory below that of the newest one, "".
func startLoneEurekaServer(t *testing.T, release, addr string) *Node {
	t.Helper()
	return startEurekaServerOf(t, release, addr, serverAt("localhost:"+portOf(t, addr)), "--eureka.client.register-with-eureka=false",
		"--eureka.client.fetch-registry=false", "--eureka.server.use-read-only-response-cache=false")
}

func startEurekaServerOf(t *testing.T, release, addr string, peer *Node, more ...string) *Node {
	t.Helper()
	return startEurekaServerWith(t, nil, release, addr, append([]string{"--eureka.client.service-url.defaultZone=" + peer.Eureka()}, more...)...)
}

// startEurekaServerWith has what it is a client of in its environment, or among the arguments.
func startEurekaServerWith(t *testing.T, env []string, release, addr string, more ...string) *Node {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	need.OK(t, err)
	log := filepath.Join(t.TempDir(), "eureka.log")
	p, err := launch(t, log, env, append([]string{"java", javaTemporary(t), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", filepath.Join("clients/java/server/target", release, "driver.jar"),
		"--server.address=" + host, "--server.port=" + port,
		// A server that finds its own host in a URL takes the URL for its own, whatever the port.
		"--eureka.instance.hostname=localhost",
		"--eureka.instance.lease-renewal-interval-in-seconds=1",
		"--eureka.client.registry-fetch-interval-seconds=1",
	}, more...))
	need.OKf(t, err, "start the Eureka server")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Eureka server: %s", p.LastWords(40))
		}
	})
	server := serverAt(addr)
	server.Name, server.Process, server.process = "eureka", p.Process, p
	Eventually(t, clientLimit, "the Eureka server answers", func() error {
		response := server.Get("/eureka/apps/")
		return unless(response.Status == http.StatusOK, "apps/: %v", response)
	})
	return server
}

// awaitOn waits until a server shows an instance in a status; "": not at all.
func awaitOn(t *testing.T, server *Node, app, id, status string) {
	t.Helper()
	Eventually(t, replicated, fmt.Sprintf("%s shows %s as %q", server.Name, id, status), func() error {
		shown, err := server.Lookup(app, id)
		switch {
		case err != nil:
			return err
		case shown == nil && status == "":
			return nil
		case shown == nil:
			return errors.New("it is not there")
		case shown.Status != status:
			return fmt.Errorf("it is %s", shown.Status)
		}
		return nil
	})
}

func mustDo(t *testing.T, what string, response Response) {
	t.Helper()
	need.That(t, response.Outcome() == Done, "%s: %v", what, response)
}

// TestPeerMayBeAPublishedEurekaServer: both send each other registrations, overrides, their ends and cancels; the next
// heartbeat brings back what one of them forgot; what is newer on the other side is adopted; and nothing is sent back
// to its origin.
func TestPeerMayBeAPublishedEurekaServer(t *testing.T) {
	t.Parallel()
	addr := FreeAddr(t)
	c := StartCluster(t, Config{Nodes: 1, Settings: map[string]string{"replication.eureka": "old=http://" + addr + "/eureka"}})
	ours := c.Nodes[0]
	theirs := startEurekaServer(t, addr, ours)

	// Each is a client of the other.
	awaitOn(t, theirs, "EUREKA", "127.0.0.1:rollcall:"+portOf(t, ours.HTTP), "UP")
	Eventually(t, clientLimit, "the Eureka server is registered with the node", func() error {
		listing, err := ours.Listing()
		if err == nil && len(listing) < 2 {
			err = fmt.Errorf("listed are %s", summary(statuses(listing)))
		}
		return err
	})

	for _, way := range []struct {
		id       string
		from, to *Node
	}{{"ours", ours, theirs}, {"theirs", theirs, ours}} {
		const app = "ORDERS"
		mustDo(t, "register", way.from.Register(Instance{App: app, ID: way.id}))
		awaitOn(t, way.to, app, way.id, "UP")
		mustDo(t, "override", way.from.Override(app, way.id, "OUT_OF_SERVICE"))
		awaitOn(t, way.to, app, way.id, "OUT_OF_SERVICE")
		mustDo(t, "end of the override", way.from.EndOverride(app, way.id))
		awaitOn(t, way.to, app, way.id, "UNKNOWN")
		mustDo(t, "register again", way.from.Register(Instance{App: app, ID: way.id}))
		awaitOn(t, way.to, app, way.id, "UP")
		mustDo(t, "override on the other side", way.to.Override(app, way.id, "DOWN"))
		awaitOn(t, way.from, app, way.id, "DOWN")
		mustDo(t, "its end", way.to.Do(Request{Method: http.MethodDelete, Path: path(app, way.id) + "/status?value=UP"}))
		awaitOn(t, way.from, app, way.id, "UP")
		mustDo(t, "cancel", way.from.Cancel(app, way.id))
		awaitOn(t, way.to, app, way.id, "")
	}

	// An instance that a batch removed without its sender's knowledge comes back by the next heartbeat.
	mustDo(t, "register", ours.Register(Instance{App: "ORDERS", ID: "lost"}))
	awaitOn(t, theirs, "ORDERS", "lost", "UP")
	mustDo(t, "batch", theirs.Do(Request{Method: http.MethodPost, Path: "/eureka/peerreplication/batch/", ContentType: "application/json",
		Body: []byte(`{"replicationList":[{"appName":"ORDERS","id":"lost","action":"Cancel"}]}`)}))
	awaitOn(t, theirs, "ORDERS", "lost", "")
	mustDo(t, "heartbeat", ours.Renew("ORDERS", "lost"))
	awaitOn(t, theirs, "ORDERS", "lost", "UP")

	var status api.Peer
	Eventually(t, replicated, "the Eureka server is ok and its link alive", func() (err error) { // a response may be late for once
		status, err = ours.Peer("old")
		if err == nil && (status.State != "ok" || status.Incoming == nil || status.Incoming.Cut) {
			err = fmt.Errorf("the node says of it %+v", status)
		}
		return err
	})
	expect.That(t, len(status.Dropped) == 0, "the node dropped what was for the Eureka server: %+v", status)
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	need.OK(t, err)
	return port
}
