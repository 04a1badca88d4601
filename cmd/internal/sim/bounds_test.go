package sim_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// fill sends requests through all nodes in turn until one is refused in words that name a limit, and returns how many
// were accepted.
func fill(w *sim.World, limit, method string, request func(i int) (path, body string)) (taken int) {
	w.Helper()
	for i := range 1000 {
		path, body := request(i)
		r := w.Call(w.Names()[i%3], method, path, body)
		if r.Status == http.StatusInsufficientStorage && strings.Contains(r.Body, limit) {
			return i
		}
		need.Equal(w, r.Status, http.StatusOK, "%s %s, request %d: %v, want 507 and %q in the end:", method, path, i, r, limit)
		w.Wait(moment) // a node counts in its own copy, which may lag slightly
	}
	w.Fatalf("1000 requests were accepted, want a refusal that says %s", limit)
	return 0
}

// Sessions without a TTL, nodes of the catalog and keys fill a cluster up to exactly their limits. All nodes refuse
// more, accept everything that adds nothing, and have room again after a deletion.
func TestQuotasBoundWhatIsStoredAndLetTheRestGoOn(t *testing.T) {
	limits := func(c *config.Config) { c.Quota.StateBytes, c.Quota.Sessions, c.Quota.Nodes = 300_000, 20, 10 }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: limits}, func(w *sim.World) {
		w.Keep("ORDERS/orders-1", 90*time.Second)
		session := documentOf[struct{ ID string }](w, w.Call("n1", "PUT", "/v1/session/create", "{}")).ID
		need.That(w, w.Lock("n1", "l", session, 0) > 0, "the lock was not acquired")
		n := fill(w, "limits.sessions is 20", "PUT", func(int) (string, string) { return "/v1/session/create", "{}" })
		expect.Equal(w, n, 19, "sessions beside the first one:")
		node := func(i int) (path, body string) {
			return "/v1/catalog/register", fmt.Sprintf(`{"Node":"node-%d","Address":"10.0.0.1"}`, i)
		}
		expect.Equal(w, fill(w, "limits.nodes is 10", "PUT", node), 10, "nodes:")
		const size = 20 << 10
		value := strings.Repeat("v", size)
		keys := fill(w, "limits.state-bytes is 300000", "PUT", func(i int) (string, string) { return fmt.Sprintf("/v1/kv/k%d", i), value })
		expect.That(w, keys == 300_000/size, "%d keys of %d bytes were taken", keys, size)

		for _, n := range w.Names() {
			for _, row := range []struct {
				name, method, path, body string
				want                     int
			}{
				{"a heartbeat", "PUT", "/eureka/apps/ORDERS/orders-1", "", http.StatusOK},
				{"the renewal of a session", "PUT", "/v1/session/renew/" + session, "", http.StatusOK},
				{"a lock that is held", "PUT", "/v1/rollcall/locks/l?session=" + session, "", http.StatusOK},
				{"a node that is there", "PUT", "/v1/catalog/register", `{"Node":"node-0","Address":"10.0.0.1"}`, http.StatusOK},
				{"a read", "GET", "/v1/kv/k0?raw", "", http.StatusOK},
				{"another lock", "PUT", "/v1/rollcall/locks/m?session=" + session, "", http.StatusInsufficientStorage},
				{"a larger node", "PUT", "/v1/catalog/register", `{"Node":"node-0","Address":"10.0.0.1","NodeMeta":{"k":"v"}}`, http.StatusInsufficientStorage},
				{"a transaction that sets", "PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"t","Value":"eA=="}}]`, http.StatusInsufficientStorage},
			} {
				r := w.Call(n, row.method, row.path, row.body)
				expect.Equal(w, r.Status, row.want, "%s at %s: %.200s:", row.name, n, r)
			}
		}
		need.Equal(w, w.Call("n1", "DELETE", "/v1/kv/k0", "").Status, http.StatusOK, "the deletion is answered")
		w.Wait(moment)
		for _, n := range w.Names() {
			expect.Equal(w, w.Call(n, "PUT", "/v1/kv/more", "v").Status, http.StatusOK, "a key at %s, when there is room again:", n)
		}
	})
}

// batchOf returns a replication message of a node with the given number of heartbeats, some 310 bytes each.
func batchOf(node string, clock int64, items int) []byte {
	app, id := strings.Repeat("F", 50), strings.Repeat("i", 240)
	m := rollcallpeer.Message{Head: rollcallpeer.Head{Datacenter: "dc1", Node: node, Sender: node, Clock: clock}}
	for i := range items {
		m.Items = append(m.Items, rollcallpeer.ItemOf(codec.Newest, registry.Renew{Key: registry.Key{App: app, ID: fmt.Sprintf("%s%05d", id, i)}, Life: 1, LastDirty: 1}))
	}
	return rollcallpeer.Encode(codec.Newest, &m)
}

// One address sends batches of three megabytes on six connections, while a batch that it never finishes occupies its
// share. The refusals say why it has to wait; the batches of another address, and heartbeats even from the same one,
// take no longer than before.
func TestBatchSenderThatFloodsANodeWaitsOnlyForItself(t *testing.T) {
	peer := func(c *config.Config) { c.Replication.Datacenters = map[string]string{"dc2": "http://127.0.2.1:8761"} }
	sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: peer}, func(w *sim.World) {
		const messages = "/v1/rollcall/replication"
		w.Register("ORDERS/o1", time.Hour)
		flooder, other := w.Client("127.0.9.1"), w.Client("127.0.9.2")
		post := func(by *http.Client, batch []byte) (status int, text string, took time.Duration) {
			began := time.Now()
			resp, err := by.Post(w.URL("n1")+messages, "application/octet-stream", bytes.NewReader(batch))
			if err != nil {
				return 0, err.Error(), time.Since(began)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return 0, err.Error(), time.Since(began)
			}
			return resp.StatusCode, resp.Header.Get("Retry-After") + " " + string(body), time.Since(began)
		}
		status, text, _ := post(other, batchOf("n8", 1, 1))
		need.Equal(w, status, http.StatusOK, "before the flood: %s:", text)
		unfinished := w.Dial("127.0.9.1", "n1")
		need.Got(fmt.Fprintf(unfinished, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n{", messages, 4<<20))(w)
		w.Wait(moment)

		large := batchOf("n9", 2, 10_000)
		var flooding atomic.Int64
		var flood sync.WaitGroup
		for range 6 {
			flooding.Add(1)
			flood.Go(func() {
				defer flooding.Add(-1)
				status, text, took := post(flooder, large)
				expect.That(w, status == http.StatusServiceUnavailable && !strings.HasPrefix(text, " ") && strings.Contains(text, "this address has as many replication batches under way"),
					"a batch of the flooder: %d %s, want 503, when to try again, and why", status, text)
				expect.That(w, took >= web.MessagePatience && took <= web.MessagePatience+moment, "it was refused after %v, want %v", took, web.MessagePatience)
			})
		}
		beats := 0
		for clock := int64(2); flooding.Load() > 0; clock++ {
			status, text, took := post(other, batchOf("n8", clock, 20))
			expect.That(w, status == http.StatusOK && took <= moment, "a batch of another address: %d %s after %v", status, text, took)
			r := w.Call("n1", "PUT", "/eureka/apps/ORDERS/o1", "")
			expect.That(w, r.Status == http.StatusOK && r.Took <= moment, "a heartbeat: %v after %v", r, r.Took)
			beats++
		}
		flood.Wait()
		expect.That(w, beats > 10, "only %d heartbeats were sent meanwhile", beats)
		unfinished.Close()
		w.Wait(moment)
		status, text, _ = post(flooder, large)
		expect.Equal(w, status, http.StatusOK, "when the flooder has its share again: %s:", text)
	})
}

// Fetches are limited by class, by settings that are read again while the node runs.
func TestRateLimiterRefusesFetchesByClassAndFollowsItsSettings(t *testing.T) {
	const full, delta, app = "/eureka/v2/apps", "/eureka/v2/apps/delta", "/eureka/v2/apps/ORDERS"
	eachMode(t, func(t *testing.T, mode string) {
		var now struct {
			enabled, throttleStandard bool
			burst                     int
			rate, fullRate            int64
		}
		now.burst, now.rate, now.fullRate = 3, 1, 1
		configure := func(c *config.Config) {
			l := &c.HTTPD.RateLimit
			l.Enabled, l.ThrottleStandard, l.BurstSize, l.FetchRate, l.FullFetchRate = now.enabled, now.throttleStandard, now.burst, now.rate, now.fullRate
			l.Privileged = []string{"ops"}
		}
		sim.Run(t, sim.Cluster{Nodes: 1, Mode: mode, Configure: configure}, func(w *sim.World) {
			w.Register("ORDERS/orders-1", time.Hour)
			// served returns how many of many concurrent fetches are served.
			served := func(identity, path string) (n int) {
				for range 20 {
					r := w.Call("n1", "GET", path, "", "DiscoveryIdentity-Name: "+identity)
					switch {
					case r.Status == http.StatusOK:
						n++
					case r.Status != http.StatusServiceUnavailable || r.Body != "" || r.Header.Get("Retry-After") != "1":
						w.Errorf("%s as %q is refused by %v with Retry-After %q, want an empty 503 and 1", path, identity, r, r.Header.Get("Retry-After"))
					}
				}
				return n
			}
			passes := func(want int, identity string, paths ...string) {
				w.Helper()
				for _, path := range paths {
					w.Wait(time.Minute) // so that the buckets are full
					expect.Equal(w, served(identity, path), want, "of 20 fetches of %s as %q, with %+v, are served", path, identity, now)
				}
			}
			// Switched off it refuses no client, and counts the refusals that it would have made.
			passes(20, "", full, delta, app)
			expect.Equal(w, w.Metric("n1", `rollcall_http_rate_would_limit_total{target="full"}`), 20-3, "a limiter that is off has counted")

			// Full fetches have a bucket of their own, and only that bucket runs dry.
			now.enabled, now.rate = true, 0
			w.Reload("n1")
			passes(3, "", full)
			const each = 10 * time.Millisecond
			var at []time.Time
			for until := time.Now().Add(10 * time.Second); time.Now().Before(until); w.Wait(each) {
				if w.Call("n1", "GET", full, "").Status == http.StatusOK {
					at = append(at, time.Now())
				}
			}
			expect.That(w, len(at) == 10 || len(at) == 9, "%d full fetches were served within 10 s, of one a second", len(at))
			for i := range at[1:] {
				expect.That(w, (at[i+1].Sub(at[i])-time.Second).Abs() <= 2*each, "the next full fetch was served after %v, want one a second", at[i+1].Sub(at[i]))
			}
			passes(20, "", delta, app)
			passes(20, "DefaultClient", full)
			passes(20, "ops", full)

			// All fetches share one bucket.
			now.burst, now.rate, now.fullRate = 2, 1, 0
			w.Reload("n1")
			passes(2, "", full, delta, app)
			passes(20, "", app+"/orders-1", "/eureka/v2/vips/ORDERS")
			passes(20, "DefaultServer", full, delta, app)

			// A larger burst takes effect at once, and standard clients lose their privilege.
			now.burst, now.fullRate = 1000, 1
			w.Reload("n1")
			w.Wait(2 * time.Second)
			expect.Equal(w, served("", full), 20, "full fetches of a larger burst are served:")
			now.burst, now.throttleStandard = 1, true
			w.Reload("n1")
			passes(1, "DefaultClient", full)
			for range 20 {
				expect.Equal(w, w.Call("n1", "PUT", "/eureka/apps/ORDERS/orders-1", "").Status, http.StatusOK, "a heartbeat:")
			}
		})
	})
}

// ask sends a request on a connection and reads its response.
func ask(conn net.Conn, in *bufio.Reader, request string) (*http.Response, error) {
	if _, err := io.WriteString(conn, request+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

func TestIdleConnectionsOfOneAddressKeepNoClientOut(t *testing.T) {
	const limit = 200
	configure := func(c *config.Config) { c.HTTPD.Limits.Connections = limit }
	sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: configure}, func(w *sim.World) {
		open := func(from string) net.Conn {
			began := time.Now()
			conn := w.Dial(from, "n1")
			resp, err := ask(conn, bufio.NewReader(conn), "GET /healthz")
			took := time.Since(began)
			expect.That(w, err == nil && resp.StatusCode == http.StatusOK && took <= moment, "a probe from %s: %v, %v after %v", from, resp, err, took)
			return conn
		}
		var idle []net.Conn
		for range limit + 50 {
			idle = append(idle, open("127.0.9.8"))
		}
		for range 5 { // like other clients
			open("127.0.9.9")
		}
		expect.Equal(w, w.Metric("n1", "rollcall_http_connections"), limit, "connections are")
		// Those that were idle for longest made room, from the address that has most; the clients of the scenario
		// have one.
		closed := 0
		for i, conn := range idle {
			need.OK(w, conn.SetReadDeadline(time.Now().Add(moment)))
			if _, err := conn.Read(make([]byte, 1)); err == io.EOF {
				expect.Equal(w, i, closed, "in the order of their age, closed is connection")
				closed++
			}
		}
		expect.Equal(w, closed, 50+5+1, "connections that made room are")
	})
}

// A client with 40 connections sends heartbeats to two nodes while each of them is restarted, and turns to the other
// when a response says that the connection ends, or a node cannot be reached.
func TestHeartbeatsAreNotCutOffWhileNodesRestartInTurn(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 2, Mode: config.AP}, func(w *sim.World) {
		w.Register("ORDERS/o1", time.Hour)
		w.Wait(toldAll)
		var stop atomic.Bool
		var answered, cut atomic.Int64
		beat := func(node string) {
			conn, err := w.TryDial("127.0.9.4", node)
			if err != nil {
				w.Wait(5 * time.Millisecond) // the node is down
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for first := true; !stop.Load(); first = false {
				resp, err := ask(conn, in, "PUT /eureka/apps/ORDERS/o1")
				if err != nil && !first { // otherwise no heartbeat of it was accepted when the listener closed
					cut.Add(1)
				}
				if err != nil {
					return
				}
				answered.Add(1)
				if resp.Close {
					return
				}
				w.Wait(10 * time.Millisecond)
			}
		}
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for at := i; !stop.Load(); at++ {
					beat(w.Names()[at%2])
				}
			})
		}
		for _, n := range w.Names() {
			before := answered.Load()
			w.Wait(time.Second)
			expect.That(w, answered.Load()-before >= 40*1000/20, "%d heartbeats were answered in a second", answered.Load()-before)
			need.OK(w, w.Stop(n))
			w.Start(n)
			w.ReadyBy(n, sim.ReadyWithin)
		}
		stop.Store(true)
		all.Wait()
		expect.Equal(w, cut.Load(), 0, "of %d heartbeats, cut off by two restarts:", answered.Load())
	})
}

// From the machines of two nodes, 600 connections to each node-to-node port say nothing, and are reopened when they
// are dropped: the nodes' own connections come from the same addresses.
func TestIdleConnectionsToTheNodePortsDelayNoFailover(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		failover := func() time.Duration {
			dead := w.Leader()
			began := time.Now()
			w.Kill(dead)
			took := w.Led(w.Others(dead)[0]).Sub(began)
			w.Start(dead)
			w.ReadyBy(dead, sim.ReadyWithin)
			return took
		}
		without := failover()
		var stop atomic.Bool
		var crowd sync.WaitGroup
		for i := range 2 * 600 {
			for _, n := range w.Names() {
				crowd.Go(func() {
					w.Wait(time.Duration(i) * time.Millisecond)
					for !stop.Load() {
						conn, err := w.TryDialPort([]string{"127.0.1.1", "127.0.1.2"}[i%2], n)
						if err != nil { // the node is down
							w.Wait(100 * time.Millisecond)
							continue
						}
						_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
						_, _ = conn.Read(make([]byte, 1)) // until either side closes it
						conn.Close()
					}
				})
			}
		}
		w.Wait(3 * time.Second) // most of them have had to make room by then
		with := failover()
		stop.Store(true)
		crowd.Wait()
		w.Logf("a leader served %v after the last one was killed, and %v with the crowd", without, with)
		for _, took := range []time.Duration{without, with} {
			expect.That(w, took <= elected, "the failover took %v, want %v at most", took, elected)
		}
	})
}

// elected is when another node leads at the latest: a follower stands for election when it has heard nothing for once
// to twice raft.heartbeat-timeout, and, if two do so at once, again after once to twice raft.election-timeout.
const elected = (2 + 2 + 2) * time.Second

// Alias checks beyond the bound are refused with it, and while heartbeats flip the check that all others follow, a
// heartbeat of another application takes no longer than before.
func TestAliasesWithoutEndAreRefusedAndOthersLive(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		n := w.Others(w.Leader())[0]
		put := func(path, body string) sim.Reply { return w.Call(n, "PUT", "/agent/web-1/v1/agent/"+path, body) }
		need.Equal(w, put("service/register", `{"Name":"target","Check":{"CheckID":"ttl","TTL":"1h"}}`).Status, http.StatusOK, "the target is answered")
		const services, each, bound = 24, 64, 1000
		checks := strings.Join(slices.Repeat([]string{`{"AliasService":"target","AliasNode":"web-1"}`}, each), ",")
		for i := range services {
			r := put("service/register", fmt.Sprintf(`{"Name":"follower","ID":"f%d","Checks":[%s]}`, i, checks))
			if (i+1)*each <= bound {
				expect.Equal(w, r.Status, http.StatusOK, "service %d: %v:", i, r)
				continue
			}
			expect.That(w, r.Status == http.StatusBadRequest && strings.Contains(r.Body, "Invalid check: at most 1000 alias checks may follow"), "service %d: %v", i, r)
		}
		w.Register("OTHER/o", time.Hour)
		var flips sync.WaitGroup
		var flipping atomic.Int32
		for k := range 4 {
			flipping.Add(1)
			flips.Go(func() {
				defer flipping.Add(-1)
				for i := range 20 {
					r := put("check/"+[]string{"fail", "pass"}[(i+k)%2]+"/ttl", "")
					expect.Equal(w, r.Status, http.StatusOK, "a flip: %v:", r)
				}
			})
		}
		beats := 0
		for ; flipping.Load() > 0; beats++ {
			r := w.Call(n, "PUT", "/eureka/apps/OTHER/o", "")
			expect.That(w, r.Status == http.StatusOK && r.Took <= renewalWait+moment, "a heartbeat of another application: %v after %v", r, r.Took)
		}
		flips.Wait()
		expect.That(w, beats > 3, "only %d heartbeats were sent meanwhile", beats)
	})
}

// renewalWait is how long a renewal waits for others (commit.renewal-wait).
const renewalWait = 100 * time.Millisecond
