package sim_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// badPeers has peers that are not servers: how each treats a connection, and what the node must report of it.
var badPeers = []struct {
	name, reason string
	treat        func(net.Conn)
}{
	{"hangs", "time", func(net.Conn) {}},
	{"garbage", "malformed HTTP", answers("\x16\x03\x01 \xff\xfe no server at all\r\n\r\n")},
	{"busy", "503", answers("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy")},
	{"breaks", "EOF", answers("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"datacenter\":")},
	{"nonsense", "cannot be read", answers("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[{]}")},
}

// answers writes a response to whatever has arrived, and closes the connection.
func answers(what string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64<<10)) // a connection may come without a call
		_, _ = io.WriteString(c, what)      // best effort
		c.Close()
	}
}

// badPeerAddress returns where badPeers listen, by their positions.
func badPeerAddress(place int) string { return fmt.Sprintf("127.0.8.%d:8761", place+1) }

// startBadPeer gives every connection to an address the same treatment, and returns a function that ends that.
func startBadPeer(w *sim.World, address string, treat func(net.Conn)) (end func()) {
	l := w.Listen(address)
	var serving sync.WaitGroup
	var conns []net.Conn
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				break // the scenario has ended
			}
			conns = append(conns, c)
			serving.Go(func() { treat(c) })
		}
		for _, c := range conns {
			c.Close()
		}
	})
	return func() {
		l.Close()
		serving.Wait()
	}
}

// Besides a healthy peer, a node has five peers that are not datacenters. The healthy one has everything as soon as
// if it were alone, clients are not kept waiting, and the node reports what is wrong with each of the others.
func TestPeersThatMisbehaveDisturbNoOther(t *testing.T) {
	peers := func(c *config.Config) {
		if c.Datacenter == "dc1" {
			for i, bad := range badPeers {
				c.Replication.Datacenters[bad.name] = "http://" + badPeerAddress(i)
			}
		}
	}
	inBothModes(t, sim.Cluster{Nodes: 1, Datacenters: 2, Configure: peers}, func(w *sim.World) {
		for i, bad := range badPeers {
			defer startBadPeer(w, badPeerAddress(i), bad.treat)()
		}
		w.KeepAt("n1", "HERD/kept", 9*time.Second)
		for round := range 2 {
			w.Wait(time.Minute)
			var ids []string
			for i := range 300 { // more than a batch
				ids = append(ids, fmt.Sprintf("new-%03d", i))
			}
			began := time.Now()
			w.RegisterAllAt("n1", fmt.Sprintf("NEW%d", round), long, ids...)
			took := time.Since(began)
			expect.That(w, took < 300*10*time.Millisecond, "300 registrations took %v", took)
			w.AllListOnly([]string{"dc2-n1"}, told, append(ids, "kept")...)
			w.Override("n1", fmt.Sprintf("NEW%d/new-000", round), "OUT_OF_SERVICE")
			w.CancelAt("n1", fmt.Sprintf("NEW%d/new-001", round))
			w.Await(told, "dc2 has the override and the cancel", func() bool {
				l := w.Lists("dc2-n1")
				return len(l) == 300 && l["new-000"].Status == "OUT_OF_SERVICE"
			})
			w.Await(told, "dc2 is known to have everything", func() bool {
				p := w.Peer("n1", "dc2")
				return p.State == "ok" && p.LagChanges == 0
			})
			for _, bad := range badPeers {
				p := w.Peer("n1", bad.name)
				expect.That(w, p.State == "failing" && strings.Contains(p.Reason, bad.reason) && p.LagChanges == 300,
					"%s is shown as %+v, want failing because of %q", bad.name, p, bad.reason)
			}
			for _, id := range append(ids[:1], ids[2:]...) {
				w.CancelAt("n1", fmt.Sprintf("NEW%d/%s", round, id))
			}
		}
	})
}

// A node without consensus has only a misbehaving peer to copy from. It goes on with what it has after waiting for a
// ready node as long as the settings say, and for a hanging one as long as for a response.
func TestApNodeStartsBesidePeersThatMisbehave(t *testing.T) {
	for i, bad := range badPeers {
		t.Run(bad.name, func(t *testing.T) {
			peers := func(c *config.Config) {
				c.Replication.Nodes = append(c.Replication.Nodes, "http://"+badPeerAddress(i))
			}
			sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: peers}, func(w *sim.World) {
				defer startBadPeer(w, badPeerAddress(i), bad.treat)()
				w.RegisterAt("n1", "ORDERS/orders-1", long)
				need.OK(w, w.Stop("n1"))
				w.Start("n1")
				started := time.Now()
				w.ReadyBy("n1", config.Default().Replication.CopyWait+flow.ConnectTimeout+flow.ReadTimeout+time.Second)
				w.Logf("ready after %v", time.Since(started))
				expect.That(w, w.ListsOnly("n1", "orders-1"), "n1 lists %v", w.Lists("n1"))
			})
		})
	}
}

// tape stands in front of a node and records what other servers send to it.
type tape struct {
	mu       sync.Mutex
	messages []string
}

// startTape passes everything that reaches an address on to a node.
func startTape(w *sim.World, address, node string) (t *tape, end func()) {
	t = &tape{}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the sender is gone
		}
		if req.URL.Path == "/v1/rollcall/replication" {
			t.mu.Lock()
			t.messages = append(t.messages, string(body))
			t.mu.Unlock()
		}
		r := w.Call(node, req.Method, req.URL.RequestURI(), string(body), "Content-Type: "+req.Header.Get("Content-Type"))
		if r.Status == 0 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		rw.WriteHeader(r.Status)
		_, _ = io.WriteString(rw, r.Body) // the sender may be gone
	})}
	l := w.Listen(address)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // it ends with the scenario
	}()
	return t, func() {
		s.Close()
		<-ended
	}
}

// recorded returns what has arrived so far.
func (t *tape) recorded() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.messages...)
}

// hasRenewal reports whether a message with a heartbeat was recorded.
func (t *tape) hasRenewal() bool {
	for _, message := range t.recorded() {
		var m rollcallpeer.Message
		if rollcallpeer.Decode([]byte(message), &m) != nil {
			return false
		}
		for _, item := range m.Items {
			if _, ok := item.Op.(registry.Renew); ok {
				return true
			}
		}
	}
	return false
}

// Everything that one datacenter has sent to another is sent again after the instances were canceled or changed.
func TestReplicationMessageThatIsSentAgainChangesNothing(t *testing.T) {
	const front = "127.0.8.1:8761"
	peers := func(c *config.Config) {
		if c.Datacenter == "dc1" {
			c.Replication.Datacenters["dc2"] = "http://" + front
		}
	}
	inBothModes(t, sim.Cluster{Nodes: 1, Datacenters: 2, Configure: peers}, func(w *sim.World) {
		tape, end := startTape(w, front, "dc2-n1")
		defer end()
		w.RegisterAt("n1", "ORDERS/canceled", long)
		overridden := w.RegisterAt("n1", "ORDERS/overridden", long)
		w.Override("n1", "ORDERS/overridden", "OUT_OF_SERVICE")
		shows := func(number int, status string) func() bool {
			return func() bool {
				l := w.Lists("dc2-n1")
				return len(l) == number && l["overridden"].Status == status
			}
		}
		w.Await(healed, "the override arrives", shows(2, "OUT_OF_SERVICE"))
		w.RenewAt("n1", overridden)
		w.Await(renewed, "a heartbeat is told", tape.hasRenewal)
		w.Do(http.StatusOK, "n1", "DELETE", "/eureka/apps/ORDERS/overridden/status?value=UP")
		w.CancelAt("n1", "ORDERS/canceled")
		w.Await(told, "the end of the override and the cancel arrive", shows(1, "UP"))
		w.Wait(told)

		w.Wait(time.Minute) // which must not lower the age of the lease when a renewal is sent again
		before, sent, ends := w.Index("dc2-n1"), tape.recorded(), endsIn(w, "dc2-n1", "ORDERS/overridden")
		need.That(w, len(sent) >= 3, "%d messages were recorded", len(sent))
		for _, message := range sent {
			r := w.Call("dc2-n1", "POST", "/v1/rollcall/replication", message, "Content-Type: application/octet-stream")
			expect.Equal(w, r.Status, http.StatusOK, "a message that came before: %v", r)
		}
		// as much as such a message may make it look, see docs/reference/protocol/replication.md
		const fresher = 6 * time.Second
		gained := endsIn(w, "dc2-n1", "ORDERS/overridden") - ends
		expect.That(w, gained < fresher, "messages that came before have renewed the lease by %v", gained)
		w.Wait(3 * config.Default().Replication.Digest)
		expect.Equal(w, w.Index("dc2-n1"), before, "the index after messages that came before")
		expect.That(w, shows(1, "UP")(), "dc2-n1 lists %v", w.Lists("dc2-n1"))
	})
}

func TestReplicationMessagesAreBoundedAt8MiB(t *testing.T) {
	const limit = 8 << 20
	bodies := map[string]func(size int) string{
		"/v1/rollcall/replication": messageOf,
		"/eureka/peerreplication/batch/": func(size int) string {
			const head = `{"replicationList":[]`
			return head + strings.Repeat(" ", size-len(head)-1) + "}"
		},
	}
	peers := func(c *config.Config) {
		c.Replication.Datacenters = map[string]string{"dc2": "http://" + badPeerAddress(0)}
	}
	inBothModes(t, sim.Cluster{Nodes: 1, Configure: peers}, func(w *sim.World) {
		for path, of := range bodies {
			r := w.Call("n1", "POST", path, of(limit))
			expect.Equal(w, r.Status, http.StatusOK, "8 MiB for %s: %v", path, r)
			r = w.Call("n1", "POST", path, of(limit+1))
			expect.Equal(w, r.Status, http.StatusRequestEntityTooLarge, "a byte more for %s: %v", path, r)
		}
	})
}

// messageOf returns a message of the given size, with an item that is not valid.
func messageOf(size int) string {
	of := func(owner int) []byte {
		return rollcallpeer.Encode(codec.Newest, &rollcallpeer.Message{
			Head:  rollcallpeer.Head{Datacenter: "dc2", Node: "n2", Sender: "s", Incarnation: 1, Clock: 1, Sequence: 1},
			Items: []rollcallpeer.Item{rollcallpeer.ItemOf(codec.Newest, registry.Remove{Owner: strings.Repeat("x", owner)})},
		})
	}
	about := size - 100
	return string(of(about + size - len(of(about))))
}

// replicated returns an instance as a Eureka server shows it, with the given number of metadata pairs.
func replicated(app, id string, metadata int) string {
	var pairs []string
	for n := range metadata {
		pairs = append(pairs, fmt.Sprintf(`"k%d":"v"`, n))
	}
	return fmt.Sprintf(`{"instanceId":%q,"hostName":"h","app":%q,"ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},"lastDirtyTimestamp":"1000","metadata":{%s}}`,
		id, app, strings.Join(pairs, ","))
}

// item returns an item of a replication batch.
func item(action, app, id, more string) string {
	return fmt.Sprintf(`{"appName":%q,"id":%q,"lastDirtyTimestamp":1000%s,"action":%q}`, app, id, more, action)
}

// Whatever a Eureka server sends and a node refuses is named: once in the log, in the peers' document, in the
// instance's explanation, and by a metric. Finally the server sends something acceptable, and the refusal is
// forgotten.
func TestRefusedItemOfAEurekaServerIsNamedEverywhere(t *testing.T) {
	for _, mode := range []string{"cp", "ap"} {
		t.Run(mode, func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode, Configure: func(c *config.Config) { c.HTTPD.Limits.InstancesInApp = 1 }}, func(w *sim.World) {
				const n = "n2"
				headers := []string{"Content-Type: application/json", "X-Netflix-Discovery-Replication: true"}
				batch := func(items ...string) sim.Reply {
					return w.Call(n, "POST", "/eureka/peerreplication/batch/", `{"replicationList":[`+strings.Join(items, ",")+`]}`, headers...)
				}
				refused := func() map[string]api.RefusedItem {
					all := map[string]api.RefusedItem{}
					for _, r := range sim.Document[api.Peers](w, n, "/v1/rollcall/peers").Refused {
						all[r.App+"/"+r.ID] = r
					}
					return all
				}
				explained := func(name string) string {
					return sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/"+name+"/explain").Summary
				}
				w.KeepAt(n, "FULL/a", 30*time.Second)
				w.Wait(time.Second) // the node has applied it
				many := item("Register", "BIG", "b", `,"instanceInfo":`+replicated("BIG", "b", 300))
				fine := item("Register", "FINE", "f", `,"instanceInfo":`+replicated("FINE", "f", 3))
				for range 3 {
					r := batch(many, fine, item("Register", "NONE", "n", ""), item("Register", "FULL", "z", `,"instanceInfo":`+replicated("FULL", "z", 1)))
					expect.Equal(t, r.Body, `{"responseList":[{"statusCode":400},{"statusCode":200},{"statusCode":500},{"statusCode":429}]}`, "the answer")
				}
				alone := w.Call(n, "POST", "/eureka/apps/ALONE", `{"instance":`+replicated("ALONE", "a", 300)+`}`, headers...)
				expect.Equal(t, alone.Status, http.StatusBadRequest, "a registration that is sent alone")
				expect.Equal(t, batch(`{"unknown":1}`).Status, http.StatusBadRequest, "a batch that cannot be read")

				all := refused()
				for name, why := range map[string]string{"BIG/b": "metadata", "NONE/n": "lacks", "FULL/z": "too many instances", "ALONE/": "metadata", "/": "unknown key"} {
					r := all[name]
					expect.That(t, strings.Contains(r.Text, why) && r.From == "eureka", "%s is refused: %+v; want a reason with %q", name, r, why)
				}
				expect.That(t, len(all) == 5 && all["BIG/b"].Times == 3 && all["BIG/b"].What == "register of BIG/b", "refused: %+v", all)
				expect.That(t, strings.Contains(explained("BIG/b"), "BIG/b is not registered here. This node refuses what eureka sends of it"), "explained as %q", explained("BIG/b"))
				expect.Equal(t, strings.Count(w.Log(), "id=b "), 1, "lines of the log about BIG/b")
				expect.Equal(t, w.Metric(n, "rollcall_replication_refused_items_total"), 11, "counted")

				batch(item("Register", "BIG", "b", `,"instanceInfo":`+replicated("BIG", "b", 3)))
				expect.That(t, len(refused()) == 3, "refused after a batch and BIG/b were accepted: %+v", refused())
				expect.That(t, !strings.Contains(explained("BIG/b"), "refuses"), "explained as %q", explained("BIG/b"))
			})
		})
	}
}

// Two programs with one id replace each other. The registry cannot know which one is meant, so it reports that.
func TestRegistrationAtAnotherAddressThanTheLivingInstanceIsSaid(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const n = "n2"
		w.ReadyBy(n, time.Minute)
		register := func(ip string) {
			body := strings.Replace(replicated("ORDERS", "one", 1), "10.0.0.1", ip, 1)
			body = strings.Replace(body, `"status"`, `"port":{"$":8080,"@enabled":"true"},"leaseInfo":{"durationInSecs":30},"status"`, 1)
			w.Led(n)
			expect.Equal(t, w.Call(n, "POST", "/eureka/apps/ORDERS", `{"instance":`+body+`}`, "Content-Type: application/json").Status, http.StatusNoContent, "registered")
			w.Wait(5 * time.Second)
		}
		said := func(want int) {
			t.Helper()
			summary := sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/ORDERS/one/explain").Summary
			words := fmt.Sprintf("(%d such registrations at this node). Two programs need two ids.", want)
			expect.That(t, strings.HasSuffix(summary, words) == (want > 0), "explained as %q; want %d registrations at another address", summary, want)
			expect.Equal(t, w.Metric(n, "rollcall_http_moved_registrations_total"), float64(want), "counted")
			expect.Equal(t, strings.Count(w.Log(), "registered at another address"), min(want, 1), "lines of the log")
		}
		register("10.0.0.1")
		register("10.0.0.1")
		said(0)
		register("10.0.0.2")
		register("10.0.0.1")
		said(2)
		w.CancelAt(n, "ORDERS/one")
		register("10.0.0.3") // it moved after it had ended
		expect.Equal(t, w.Metric(n, "rollcall_http_moved_registrations_total"), 2, "counted after a cancel")
	})
}
