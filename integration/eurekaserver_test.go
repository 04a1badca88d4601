package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// startEurekaServer runs a published Eureka server, Spring Cloud's with Netflix's own inside, as a peer of a node,
// with its default settings except how often it polls the node. It has a node's routes for clients. more has
// arguments for its command line.
func startEurekaServer(t *testing.T, addr string, peer *Node, more ...string) *Node {
	t.Helper()
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	return startEurekaServerOf(t, "", addr, peer, more...)
}

// startLoneEurekaServer runs a published Eureka server that is peer and client of no other server, and shows changes
// at once. Its release is a directory below that of the newest one, "".
func startLoneEurekaServer(t *testing.T, release, addr string) *Node {
	t.Helper()
	return startEurekaServerOf(t, release, addr, serverAt("localhost:"+portOf(t, addr)), "--eureka.client.register-with-eureka=false",
		"--eureka.client.fetch-registry=false", "--eureka.server.use-read-only-response-cache=false")
}

func startEurekaServerOf(t *testing.T, release, addr string, peer *Node, more ...string) *Node {
	t.Helper()
	return startEurekaServerWith(t, nil, release, addr, append([]string{"--eureka.client.service-url.defaultZone=" + peer.Eureka()}, more...)...)
}

// startEurekaServerWith has the servers that it is a client of in its environment, or among the arguments.
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

// awaitOn waits until a server shows an instance in a status; "" means not at all.
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

// Both send each other registrations, overrides, their ends and cancels; the next heartbeat brings back what one of
// them forgot; what is newer on the other side is adopted; and nothing is sent back to its origin.
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
	// a response may be late once
	Eventually(t, replicated, "the Eureka server is ok and its link alive", func() (err error) {
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

// mixed is published Eureka servers, a datacenter with consensus and one without it, all peers of each other.
type mixed struct{ eureka, cp, ap []*Node }

// startMixed starts the given number of each.
func startMixed(t *testing.T, eureka, cp, ap int) mixed {
	t.Helper()
	var peers, addrs []string
	for n := range eureka {
		addrs = append(addrs, FreeAddr(t))
		peers = append(peers, fmt.Sprintf("old%d=http://%s/eureka", n+1, addrs[n]))
	}
	settings := map[string]string{"replication.eureka": strings.Join(peers, ",")}
	d := StartUnlikeDatacenters(t, Config{Nodes: cp, Settings: settings}, Config{AP: true, Nodes: ap, Settings: settings})
	m := mixed{cp: d.Clusters[0].Nodes, ap: d.Clusters[1].Nodes}
	for n, addr := range addrs {
		// A property that is given several times is a list of all its values.
		var others []string
		for _, other := range d.Nodes()[1:] {
			others = append(others, "--eureka.client.service-url.defaultZone="+other.Eureka())
		}
		for i, other := range addrs {
			if i != n {
				others = append(others, "--eureka.client.service-url.defaultZone=http://"+other+"/eureka/")
			}
		}
		server := startEurekaServer(t, addr, d.Nodes()[0], others...)
		server.Name = fmt.Sprintf("eureka%d", n+1)
		m.eureka = append(m.eureka, server)
	}
	for i, n := range m.ap {
		n.Name = fmt.Sprintf("ap%d", i+1)
	}
	for i, n := range m.cp {
		n.Name = fmt.Sprintf("cp%d", i+1)
	}
	return m
}

// all returns all servers.
func (m mixed) all() []*Node { return append(m.rollcall(), m.eureka...) }

// rollcall returns the nodes of Rollcall.
func (m mixed) rollcall() []*Node { return append(m.cp[:len(m.cp):len(m.cp)], m.ap...) }

// startClient registers an instance at a server, and renews it there every second until the test ends or stop is
// called. It registers again when a heartbeat gets 404: as it registered before, like many clients, or with a new
// timestamp, like Netflix's.
func startClient(t *testing.T, at *Node, i Instance, newTimestamp bool) (stop func()) {
	t.Helper()
	mustDo(t, "register", at.Register(i))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ticker := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			beat := at.Do(Request{Method: http.MethodPut, Path: fmt.Sprintf("%s?lastDirtyTimestamp=%d", path(i.App, i.ID), i.Dirty)})
			if beat.Status == http.StatusNotFound {
				if newTimestamp {
					i.Dirty = time.Now().UnixMilli()
				}
				at.Register(i) // the next heartbeat shows whether it was accepted
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// awaitShown waits until a server shows an instance, and shows it right.
func awaitShown(t *testing.T, server *Node, app, id, what string, right func(*Listed) bool) {
	t.Helper()
	Eventually(t, replicated, fmt.Sprintf("%s shows %s with %s", server.Name, id, what), func() error {
		shown, err := server.Lookup(app, id)
		switch {
		case err != nil:
			return err
		case shown == nil:
			return errors.New("it is not there")
		case !right(shown):
			return fmt.Errorf("it is %+v", *shown)
		}
		return nil
	})
}

// An instance whose home is a published server is canceled while it lives, at the home or at a node. It is back at
// every node, whatever timestamp it has, and so is what is done to it at its home afterwards.
func TestInstanceOfAPublishedEurekaServerComesBackAfterACancel(t *testing.T) {
	t.Parallel()
	m := startMixed(t, 1, 1, 2)
	home := m.eureka[0]
	for _, tc := range []struct {
		name     string
		canceled *Node
		later    int64 // ms, by its client's clock, when it registers again
	}{
		{name: "at a node with consensus", canceled: m.cp[0]},
		{name: "at a node without consensus", canceled: m.ap[0]},
		{name: "at its home, and its clock went back", canceled: home, later: -5000},
		{name: "at its home, and registers as before", canceled: home},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const app = "BILLING"
			id := strings.ReplaceAll(tc.name, " ", "-")
			i := Instance{App: app, ID: id, Duration: 9, Dirty: time.Now().UnixMilli()} // heartbeats every 3 s
			stop := startClient(t, home, i, false)
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "UP")
			}
			if tc.canceled == home {
				stop()
				mustDo(t, "cancel", home.Cancel(app, id))
				for _, n := range m.rollcall() {
					awaitOn(t, n, app, id, "")
				}
				i.Dirty += tc.later
				startClient(t, home, i, false)
			} else {
				mustDo(t, "cancel", tc.canceled.Cancel(app, id))
				shown, err := tc.canceled.Lookup(app, id)
				need.That(t, err == nil && shown == nil, "after its cancel it is there: %+v, %v", shown, err)
			}
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "UP")
			}
			awaitHeartbeats(t, m.all(), app, id)
			mustDo(t, "metadata", home.Do(Request{Method: http.MethodPut, Path: path(app, id) + "/metadata?color=blue"}))
			for _, n := range m.all() {
				awaitShown(t, n, app, id, "its metadata", func(l *Listed) bool { return l.Metadata["color"] == "blue" })
			}
			mustDo(t, "override", home.Override(app, id, "OUT_OF_SERVICE"))
			for _, n := range m.all() {
				awaitOn(t, n, app, id, "OUT_OF_SERVICE")
			}
		})
	}
	t.Run("port -1", func(t *testing.T) {
		t.Parallel()
		mustShowNoPortEverywhere(t, m)
	})
}

// awaitHeartbeats waits until two heartbeats of an instance have reached each server. What a published server sends
// after a failed heartbeat, the instance as it was before, has arrived by then, too: with the same timestamp it would
// undo what is changed meanwhile, at published servers as well.
func awaitHeartbeats(t *testing.T, servers []*Node, app, id string) {
	t.Helper()
	for _, n := range servers {
		var last int64
		beats := -1 // the first value seen is none
		awaitShown(t, n, app, id, "two more heartbeats", func(l *Listed) bool {
			if l.LeaseInfo.Renewed > last {
				last, beats = l.LeaseInfo.Renewed, beats+1
			}
			return beats >= 2
		})
	}
}

// mustShowNoPortEverywhere registers instances without a web server, as their clients do, at a server of each kind.
func mustShowNoPortEverywhere(t *testing.T, m mixed) {
	t.Helper()
	const app = "WORKERS"
	for _, home := range []*Node{m.eureka[0], m.cp[0], m.ap[0]} {
		id := "worker-of-" + home.Name
		startClient(t, home, Instance{App: app, ID: id, Port: -1, Dirty: time.Now().UnixMilli()}, false)
		for _, n := range m.all() {
			awaitShown(t, n, app, id, "port -1", func(l *Listed) bool { return l.Port.Number == -1 && l.Port.Enabled == "true" })
			xml := n.Do(Request{Method: http.MethodGet, Path: path(app, id), Accept: "application/xml"})
			expect.That(t, strings.Contains(string(xml.Body), `<port enabled="true">-1</port>`), "%s shows in XML %s", n.Name, xml.Body)
		}
		for _, n := range m.rollcall() {
			var own []api.Instance
			need.OK(t, json.Unmarshal(n.Get("/v1/rollcall/apps").Body, &own))
			at := slices.IndexFunc(own, func(i api.Instance) bool { return i.ID == id })
			expect.That(t, at >= 0 && own[at].Port == 0, "%s shows in our own API %+v", n.Name, own)
		}
		consul := m.cp[0].Get("/v1/catalog/service/workers")
		expect.That(t, strings.Contains(string(consul.Body), `"ServicePort":0`), "%s shows in Consul's API %v", m.cp[0].Name, consul)
	}
}

// pairing is an instance, the server where its client registers and renews it, and the server where something is done
// to it.
type pairing struct {
	id, kinds string // kinds: of the home, and of the other
	home, at  *Node
	stop      func()
}

// tableApp is the application of all pairings, tableLease the duration of their leases (s), tableLimit the time that
// one act may take to reach all servers.
const (
	tableApp   = "TABLE"
	tableLease = 30
	tableLimit = 3 * time.Minute
)

// act is something that is done to an instance, and how a server shows that it was.
type act struct {
	name string
	do   func(p pairing) Response
	// done gets what the server showed before the act, and what it shows now; nil for nothing.
	done func(before, now *Listed, at time.Time) bool
	// few is set if it is done to only one instance of each home, 7 of 49. A server that loses more than 15 % of its
	// instances at once keeps them: self-preservation.
	few bool
}

func status(word string) func(before, now *Listed, at time.Time) bool {
	return func(_, now *Listed, _ time.Time) bool { return now != nil && now.Status == word }
}

// tableActs are in the order they are performed.
var tableActs = []act{
	{name: "heartbeat", do: func(p pairing) Response { return p.home.Renew(tableApp, p.id) },
		done: func(before, now *Listed, _ time.Time) bool {
			return now != nil && before != nil && now.LeaseInfo.Renewed > before.LeaseInfo.Renewed
		}},
	{name: "metadata", do: func(p pairing) Response {
		return p.at.Do(Request{Method: http.MethodPut, Path: path(tableApp, p.id) + "/metadata?color=blue"})
	}, done: func(_, now *Listed, _ time.Time) bool { return now != nil && now.Metadata["color"] == "blue" }},
	{name: "override", do: func(p pairing) Response { return p.at.Override(tableApp, p.id, "OUT_OF_SERVICE") }, done: status("OUT_OF_SERVICE")},
	{name: "end of the override", do: func(p pairing) Response { return p.at.EndOverride(tableApp, p.id) }, done: status("UP")},
	{name: "cancel while it lives", do: func(p pairing) Response { return p.at.Cancel(tableApp, p.id) },
		done: func(_, now *Listed, at time.Time) bool {
			return now != nil && now.Status == "UP" && now.LeaseInfo.Registered >= at.UnixMilli()
		}},
	{name: "metadata after it", do: func(p pairing) Response {
		return p.home.Do(Request{Method: http.MethodPut, Path: path(tableApp, p.id) + "/metadata?color=red"})
	}, done: func(_, now *Listed, _ time.Time) bool { return now != nil && now.Metadata["color"] == "red" }},
	{name: "eviction", few: true, do: func(p pairing) Response {
		p.stop()
		return Response{Status: http.StatusOK}
	}, done: func(_, now *Listed, _ time.Time) bool { return now == nil }},
}

// kindOf returns the kind of a server by its name.
func kindOf(n *Node) string { return strings.TrimRight(n.Name, "0123456789") }

// It prints how long every act at every server takes until every server shows it, in a cluster of two published
// Eureka servers, three nodes with consensus and two without it. make eureka-table runs it.
func TestTableOfAMixedCluster(t *testing.T) {
	if os.Getenv("ROLLCALL_EUREKA_TABLE") == "" {
		t.Skip("it takes some minutes: make eureka-table")
	}
	m := startMixed(t, 2, 3, 2)
	var all []pairing
	registered := time.Now()
	for _, home := range m.all() {
		for _, at := range m.all() {
			p := pairing{id: home.Name + "-" + at.Name, kinds: kindOf(home) + " → " + kindOf(at), home: home, at: at}
			p.stop = startClient(t, home, Instance{App: tableApp, ID: p.id, Duration: tableLease, Dirty: time.Now().UnixMilli()}, true)
			all = append(all, p)
		}
	}
	table := map[string]map[string]time.Duration{}
	register := act{name: "register", do: func(pairing) Response { return Response{Status: http.StatusOK} }, done: status("UP")}
	shown := observe(t, m, register, all, nil, func(pairing) time.Time { return registered }, table)
	for _, a := range tableActs {
		if a.few {
			all = slices.DeleteFunc(all, func(p pairing) bool { return p.home != p.at })
		}
		done := map[string]time.Time{}
		for _, p := range all {
			done[p.id] = time.Now()
			mustDo(t, a.name, a.do(p))
		}
		shown = observe(t, m, a, all, shown, func(p pairing) time.Time { return done[p.id] }, table)
	}
	printTable(table, append([]act{register}, tableActs...))
}

// observe asks all servers until each shows that an act was done to every instance, and records the longest time by
// kinds of servers. It returns what they show then, by server and id.
func observe(t *testing.T, m mixed, a act, all []pairing, before map[string]map[string]*Listed, since func(pairing) time.Time, table map[string]map[string]time.Duration) map[string]map[string]*Listed {
	t.Helper()
	shown := map[string]map[string]*Listed{}
	table[a.name] = map[string]time.Duration{}
	for _, n := range m.all() {
		shown[n.Name] = map[string]*Listed{}
	}
	for end := time.Now().Add(tableLimit); ; time.Sleep(pollInterval) {
		var missing []string
		for _, n := range m.all() {
			for _, p := range all {
				if _, seen := shown[n.Name][p.id]; seen {
					continue
				}
				now := need.Got(n.Lookup(tableApp, p.id))(t)
				if !a.done(before[n.Name][p.id], now, since(p)) {
					missing = append(missing, fmt.Sprintf("%s of %s: %+v", n.Name, p.id, now))
					continue
				}
				shown[n.Name][p.id] = now
				table[a.name][p.kinds] = max(table[a.name][p.kinds], time.Since(since(p)))
			}
		}
		if len(missing) == 0 {
			return shown
		}
		need.That(t, time.Now().Before(end), "%s: %d of %d are not shown, such as at %v", a.name, len(missing), len(all)*len(m.all()), missing[:min(10, len(missing))])
	}
}

// printTable prints the longest times in seconds, or "-" if it was not done there.
func printTable(table map[string]map[string]time.Duration, acts []act) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	var kinds []string
	for k := range table["register"] {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	fmt.Fprintf(w, "home → done at\t%s\n", strings.Join(kinds, "\t"))
	for _, a := range acts {
		fmt.Fprint(w, a.name)
		for _, k := range kinds {
			took, was := table[a.name][k]
			if !was {
				fmt.Fprint(w, "\t-")
				continue
			}
			fmt.Fprintf(w, "\t%.1f", took.Seconds())
		}
		fmt.Fprintln(w)
	}
}
