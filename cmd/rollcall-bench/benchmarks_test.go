package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// These benchmarks measure clusters of real processes; docs/benchmarks.md explains them. "on=" in a name says what
// serves the load, so that benchstat -col /on puts the bare handler, a cluster without batching and others side by
// side.

const (
	singly = "--test-no-batching"       // every write becomes a log entry of its own
	atOnce = "--commit-renewal-wait=0s" // no renewal waits for others

	fullStale        = "/eureka/apps?consistency=stale"
	fullLinearizable = "/eureka/apps"
)

var (
	renewed = benchFleet{name: "renewed", size: 10_000}
	changed = benchFleet{name: "changed", size: 2560}
	large   = benchFleet{name: "large", size: 1000, inApp: 1000}
)

// renewing returns renewals of a fleet's instances in turn.
func renewing(conns int, f benchFleet) benchLoad {
	return newBenchLoad(conns, f.renewals(), http.StatusOK)
}

// changing returns changes of a fleet's instances in turn.
func changing(conns int, f benchFleet) benchLoad {
	return newBenchLoad(conns, f.changes(), http.StatusNoContent)
}

func BenchmarkRenew(b *testing.B) {
	for _, on := range []struct {
		name     string
		mode     string
		conns    []int
		settings []string
	}{
		{name: "bare", conns: []int{64, 256, 1024}},
		{name: "cp", mode: localcluster.CP, conns: []int{1, 64, 256, 1024}},
		{name: "cp-all-nodes", mode: localcluster.CP, conns: []int{256}},
		{name: "cp-wal", mode: localcluster.CP, conns: []int{256}, settings: []string{"--raft-log=wal"}},
		{name: "cp-singly", mode: localcluster.CP, conns: []int{256}, settings: []string{singly}},
		{name: "ap", mode: localcluster.AP, conns: []int{64, 256, 1024}},
	} {
		b.Run("on="+on.name, func(b *testing.B) {
			var at []string
			var c peerCluster
			if on.mode == "" {
				c = startBareBeside(b)
			} else {
				own := startCluster(b, on.mode, []benchFleet{renewed}, on.settings...)
				if c = own; on.name == "cp-all-nodes" {
					at = own.addrs()
				}
			}
			for _, conns := range on.conns {
				b.Run(fmt.Sprint("conns=", conns), func(b *testing.B) {
					renewing(conns, renewed).at(0, at...).run(b, c)
				})
			}
		})
	}
	b.Run("on=raft", func(b *testing.B) { b.Run("conns=1", benchmarkApply) })
}

// benchmarkApply measures what the Raft library takes for a command of a renewal's size, with three nodes in this
// process and its default log store: the least that a durable write on a majority takes.
func benchmarkApply(b *testing.B) {
	var configuration raft.Configuration
	nodes := make([]*raft.Raft, benchNodes)
	ports := need.Got(localcluster.ClaimPorts(benchNodes))(b)
	for _, port := range ports {
		addr := localcluster.Address(port)
		server := raft.Server{ID: raft.ServerID(addr), Address: raft.ServerAddress(addr)}
		configuration.Servers = append(configuration.Servers, server)
	}
	for i, server := range configuration.Servers {
		log := need.Got(raftboltdb.NewBoltStore(filepath.Join(b.TempDir(), strconv.Itoa(i))))(b)
		defer log.Close()
		addr := need.Got(net.ResolveTCPAddr("tcp", string(server.Address)))(b)
		transport := need.Got(raft.NewTCPTransport(string(server.Address), addr, 3, 10*time.Second, os.Stderr))(b)
		defer transport.Close()
		config := raft.DefaultConfig()
		config.LocalID, config.Logger = server.ID, hclog.NewNullLogger()
		node := need.Got(raft.NewRaft(config, nothing{}, log, log, raft.NewDiscardSnapshotStore(), transport))(b)
		defer func() { need.OK(b, node.Shutdown().Error()) }()
		need.OK(b, node.BootstrapCluster(configuration).Error())
		nodes[i] = node
	}
	var leader *raft.Raft
	need.OK(b, await(b.Context(), "a node leads", localcluster.ReadyWithin, func(context.Context) (bool, error) {
		leading := slices.IndexFunc(nodes, func(n *raft.Raft) bool { return n.State() == raft.Leader })
		if leading >= 0 {
			leader = nodes[leading]
		}
		return leading >= 0, nil
	}))
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		need.OK(b, leader.Apply(make([]byte, 14), time.Second).Error())
		took = append(took, time.Since(begin))
	}
	reportQuantiles(b, took)
}

// nothing is a state machine without a state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (nothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (nothing) Release()                            {}

// onBatchingAndNot measures a load on a cluster, and on one that makes a log entry of every write.
func onBatchingAndNot(b *testing.B, fleets []benchFleet, l benchLoad) {
	b.Run("on=cp", func(b *testing.B) { l.run(b, startCluster(b, localcluster.CP, fleets)) })
	b.Run("on=cp-singly", func(b *testing.B) { l.run(b, startCluster(b, localcluster.CP, fleets, singly)) })
}

func BenchmarkRegister(b *testing.B) {
	onBatchingAndNot(b, []benchFleet{renewed, changed}, changing(256, changed))
}

func BenchmarkWriteKey(b *testing.B) {
	onBatchingAndNot(b, nil, newBenchLoad(256, putsOf(100_000), http.StatusOK))
}

// BenchmarkRenewBeside measures renewals beside other requests.
func BenchmarkRenewBeside(b *testing.B) {
	c := startCluster(b, localcluster.CP, []benchFleet{renewed, changed})
	most := renewing(256, renewed)
	b.Run("rate=10000/beside=nothing", func(b *testing.B) { most.at(10_000).run(b, c) })
	b.Run("rate=most/beside=nothing", func(b *testing.B) { most.run(b, c) })
	b.Run("rate=most/beside=fetches-and-registrations", func(b *testing.B) {
		for _, other := range []benchLoad{fetching(4, fullLinearizable), changing(4, changed)} {
			defer other.at(10, need.Got(awaitLeader(b.Context(), c))(b)).beside(b)()
		}
		most.run(b, c)
	})
}

// BenchmarkRenewAtOnce measures what fetches without a pause add to the latency of renewals that do not wait for
// others. The bare handler sends as many bytes.
func BenchmarkRenewAtOnce(b *testing.B) {
	c := startCluster(b, localcluster.CP, []benchFleet{renewed}, atOnce)
	l := renewing(64, renewed).at(1000)
	b.Run("beside=nothing", func(b *testing.B) { l.run(b, c) })
	for _, beside := range []string{"fetches", "bare-fetches"} {
		b.Run("beside="+beside, func(b *testing.B) {
			leader := need.Got(awaitLeader(b.Context(), c))(b)
			fetches := fetching(16, fullStale).at(0, leader)
			if beside == "bare-fetches" {
				fetches = fetching(16, barePath(sizeOf(b, leader, fullStale))).at(0, startBareBeside(b).addr)
			}
			defer fetches.beside(b)()
			l.run(b, c)
		})
	}
}

// sizeOf returns the bytes of a document, compressed.
func sizeOf(b *testing.B, addr, path string) int64 {
	c := need.Got(load.Dial(addr, time.Now().Add(time.Minute)))(b)
	defer c.Close()
	need.Got(exchange(c, fetchesOf(path)(0, 1)(), http.StatusOK))(b)
	return c.Size()
}

// BenchmarkFetch measures documents from the cache, beside as many bytes from the bare handler.
func BenchmarkFetch(b *testing.B) {
	all := []benchFleet{renewed, large}
	for _, doc := range []struct {
		name, path string
		conns      int
		fleets     []benchFleet
	}{
		{"all", fullStale, 8, all},
		{"all-linearizable", fullLinearizable, 8, all},
		{"app", "/eureka/apps/LARGE-000?consistency=stale", 64, all},
		{"health", "/v1/health/service/large-000?stale", 64, all},
		{"delta", "/eureka/apps/delta?consistency=stale", 64, []benchFleet{{name: "delta", size: 80}}},
	} {
		b.Run("doc="+doc.name, func(b *testing.B) {
			c := startCluster(b, localcluster.CP, doc.fleets)
			size := sizeOf(b, need.Got(awaitLeader(b.Context(), c))(b), doc.path)
			b.Run("on=bare", func(b *testing.B) { b.SetBytes(fetching(doc.conns, barePath(size)).run(b, startBareBeside(b))) })
			b.Run("on=cp", func(b *testing.B) { b.SetBytes(fetching(doc.conns, doc.path).run(b, c)) })
		})
	}
}

// many is the larger size of BenchmarkSize; for a million give the nodes a limit, such as GOMEMLIMIT=5GiB.
var many = cmp.Or(os.Getenv("ROLLCALL_BENCH_INSTANCES"), "100000") // read before clearSettings

// BenchmarkSize measures what a registry of some size costs.
func BenchmarkSize(b *testing.B) {
	for _, instances := range []string{"1000", many} {
		b.Run("instances="+instances, func(b *testing.B) { benchmarkSize(b, need.Got(strconv.Atoi(instances))(b)) })
	}
}

func benchmarkSize(b *testing.B, instances int) {
	all := benchFleet{name: "sized", size: instances, inApp: 50}
	// The limit leaves room for those whose leases end.
	c := startCluster(b, localcluster.CP, []benchFleet{all}, atOnce, fmt.Sprint("--limits-instances-total=", 2*instances))
	leader := need.Got(awaitLeader(b.Context(), c))(b)
	change := all.changes()(0, 1)
	for _, doc := range []struct{ name, path string }{
		{"delta-of-all", "/eureka/apps/delta"}, // first: the delta forgets registrations after three minutes
		{"all", fullLinearizable},
		{"app", "/eureka/apps/SIZED-000"},
		{"metrics", "/metrics"},
		{"overview", "/"},
		{"apps-page", "/ui/apps"},
	} {
		b.Run("changed="+doc.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				once(b, leader, change(), http.StatusNoContent)
				took = append(took, get(b, leader, doc.path))
			}
			b.ReportMetric(0, "ns/op")
			reportQuantiles(b, took)
		})
	}
	b.Run("renew", func(b *testing.B) { renewing(256, all).run(b, c) })
	b.Run("snapshot", func(b *testing.B) {
		end := renewing(256, all).at(1000, leader).beside(b) // so many connections that no renewal waits for another one
		for b.Loop() {
			get(b, leader, "/v1/rollcall/snapshot")
		}
		reportQuantiles(b, end())
	})
	b.Run("leases-end", func(b *testing.B) { benchmarkLeasesEnd(b, c, all) })
	b.Run("restart", func(b *testing.B) { benchmarkRestart(b, c, all.size) })
}

// benchmarkLeasesEnd measures how long after their leases a hundredth of the instances are still listed by a node.
func benchmarkLeasesEnd(b *testing.B, c *benchCluster, all benchFleet) {
	leader := need.Got(awaitLeader(b.Context(), c))(b)
	counted := func(ctx context.Context) (bool, error) {
		p, err := c.client.SelfPreservation(ctx)
		return int(p.Figures.Counted) >= all.size, err
	}
	need.OK(b, await(b.Context(), "self-preservation counts the instances", time.Minute, counted))
	n := all.size / 100
	var late []time.Duration
	for turn := 0; b.Loop(); turn++ {
		// Self-preservation holds instances for alive for a minute after that.
		need.OK(b, prepareAt(b.Context(), leader, "renew all", 256, http.StatusOK, firstRequests(all.size, all.renewals())))
		mortal := benchFleet{name: fmt.Sprint("mortal", turn), size: n, inApp: n, lease: benchLease{interval: 2, duration: 6}}
		need.OK(b, mortal.registerAt(b.Context(), leader))
		end := time.Now().Add(time.Duration(mortal.lease.duration) * time.Second)
		load.SleepUntil(end)
		for _, addr := range c.addrs() {
			look := fetchesOf("/eureka/apps/"+strings.ToUpper(mortal.app(0)))(0, 1)()
			conn := need.Got(load.Dial(addr, end.Add(time.Minute)))(b)
			for status := 0; status != http.StatusNotFound; {
				status = need.Got(conn.Exchange(look))(b)
				wait.For(b.Context(), 10*time.Millisecond)
			}
			conn.Close()
		}
		late = append(late, time.Since(end))
	}
	b.ReportMetric(0, "ns/op")
	reportQuantiles(b, late)
}

// benchmarkRestart measures how long each node in turn takes from its start until it is ready, and the live heap of the
// last one when clients of both formats have fetched everything.
func benchmarkRestart(b *testing.B, c *benchCluster, instances int) {
	ctx := b.Context()
	profiler := localcluster.Address(need.Got(localcluster.ClaimPorts(1))(b)[0])
	var node *localcluster.Node
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		node = c.nodes[n%benchNodes]
		need.OK(b, node.Terminate(ctx))
		node.Settings["pprof.addr"] = profiler
		b.StartTimer()
		need.OK(b, node.Start(testServer.path))
		need.OK(b, node.AwaitReady(ctx, false))
		b.StopTimer()
		need.OK(b, localcluster.AwaitReady(ctx, c.nodes))
		delete(node.Settings, "pprof.addr")
		b.StartTimer()
	}
	for _, accept := range []string{"application/json", "application/xml"} {
		// set explicitly, so that the transport leaves the body compressed
		resp := need.Got(getOK(ctx, node.URL()+fullLinearizable, "Accept", accept, "Accept-Encoding", "gzip"))(b)
		need.Got(io.Copy(io.Discard, resp.Body))(b)
		resp.Body.Close()
	}
	for range 2 { // pooled memory survives the first collection
		need.Got(getText(ctx, "http://"+profiler+"/debug/pprof/heap?gc=1"))(b)
	}
	const heap = "\ngo_memstats_heap_alloc_bytes "
	_, rest, found := strings.Cut(need.Got(getText(ctx, node.URL()+"/metrics"))(b), heap)
	need.That(b, found, "there is no metric %q", heap)
	line, _, _ := strings.Cut(rest, "\n")
	b.ReportMetric(need.Got(strconv.ParseFloat(line, 64))(b)/float64(instances), "heap-B/instance")
}

// watchAll starts watchers of everything, at nodes in turn. Each sends the time when it has read a change in an
// application.
func watchAll(b *testing.B, addrs []string, watchers int, app string) <-chan time.Time {
	mark, read := fmt.Appendf(nil, `"app":%q`, strings.ToUpper(app)), make(chan time.Time, watchers)
	for i := range watchers {
		conn := need.Got(net.DialTimeout("tcp", addrs[i%len(addrs)], time.Minute))(b)
		events := api.NewEventReader(need.Got(load.AskForEvents(conn, "/v1/rollcall/watch"))(b), 4<<10)
		need.Got(events.Next())(b) // the stream has begun
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				e, err := events.Next()
				if err != nil {
					return
				}
				if bytes.Contains(e.Data, mark) {
					read <- time.Now()
				}
			}
		}()
		b.Cleanup(func() {
			conn.Close()
			<-ended
		})
	}
	return read
}

// awaitWatchers registers new instances at the nodes in turn, one in each turn of the loop, and measures how long the
// watchers take to read each registration.
func awaitWatchers(b *testing.B, addrs []string, app string, watchers int, read <-chan time.Time) {
	const pause = 20 * time.Millisecond // in which the cluster comes to rest
	var took []time.Duration
	f := benchFleet{name: app, size: 1, inApp: 1 << 30}
	for i := 0; b.Loop(); i++ {
		wait.For(b.Context(), pause)
		sent := time.Now()
		once(b, addrs[i%len(addrs)], f.registration(i), http.StatusNoContent)
		for range watchers {
			select {
			case at := <-read:
				took = append(took, at.Sub(sent))
			case <-time.After(time.Minute):
				b.Fatal("a watcher has not read a registration")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	reportQuantiles(b, took)
}

// BenchmarkWatch measures the way of a registration to 1,000 watchers, and that of one at the leader to a watcher at a
// follower.
func BenchmarkWatch(b *testing.B) {
	const many = 1000
	c := startCluster(b, localcluster.CP, nil)
	addrs := c.addrs()
	b.Run("watchers=1000", func(b *testing.B) {
		awaitWatchers(b, addrs, "watched", many, watchAll(b, addrs, many, "watched-000"))
	})
	b.Run("watchers=follower", func(b *testing.B) {
		underOneLeader(b, c, func(leader string) {
			follower := addrs[(slices.Index(addrs, leader)+1)%benchNodes]
			awaitWatchers(b, []string{leader}, "lone", 1, watchAll(b, []string{follower}, 1, "lone-000"))
		})
	})
}

// BenchmarkReplicate measures the way of a registration to watchers in another datacenter, beside as many changes a
// second as its name says.
func BenchmarkReplicate(b *testing.B) {
	need.OK(b, clearSettings())
	nodes := need.Got(localcluster.LayOut(b.TempDir(), localcluster.CP, 2, benchNodes))(b)
	for _, n := range nodes {
		n.Introduce(nodes)
	}
	here := need.Got(newBenchCluster(testServer.path, nodes[:benchNodes]))(b)
	there := need.Got(newBenchCluster(testServer.path, nodes[benchNodes:]))(b)
	var g errgroup.Group
	for _, c := range []*benchCluster{here, there} {
		b.Cleanup(c.stop)
		g.Go(func() error { return c.start(b.Context()) })
	}
	need.OK(b, g.Wait())
	need.OK(b, changed.registerAt(b.Context(), need.Got(awaitLeader(b.Context(), here))(b)))
	for _, rate := range []int{0, 1000} {
		b.Run(fmt.Sprint("changes=", rate), func(b *testing.B) {
			if rate > 0 {
				defer changing(30, changed).at(float64(rate), here.addrs()...).beside(b)()
			}
			app := fmt.Sprint("crossing", rate)
			awaitWatchers(b, here.addrs(), app, benchNodes, watchAll(b, there.addrs(), benchNodes, app+"-000"))
		})
	}
}

// BenchmarkHandOverLock measures how long a lock for which 100 contenders wait at all nodes has no holder: from its
// holder's release until the next one reads that it has the lock.
func BenchmarkHandOverLock(b *testing.B) {
	c := startCluster(b, localcluster.CP, nil)
	g, ctx := errgroup.WithContext(b.Context())
	turns := make(chan struct{})
	released := make(chan time.Time, 1) // by the holder, for the next one
	released <- time.Time{}
	var took []time.Duration // belongs to the holder
	for i, session := range openSessions(b, c, 100) {
		conn := need.Got(load.Dial(c.addrs()[i%benchNodes], time.Now().Add(10*time.Minute)))(b)
		defer context.AfterFunc(ctx, func() { conn.Close() })() // when another contender has failed
		const lock = "/v1/rollcall/locks/bench?session="
		acquire := putJSON(lock+session+"&wait=10m", "")
		release := fmt.Appendf(nil, "DELETE %s%s HTTP/1.1\r\nHost: localhost\r\n\r\n", lock, session)
		g.Go(func() error {
			for more := true; more; {
				if _, err := exchange(conn, acquire, http.StatusOK); err != nil {
					return err
				}
				if at := <-released; !at.IsZero() {
					took = append(took, time.Since(at))
				}
				_, more = <-turns
				released <- time.Now()
				if _, err := exchange(conn, release, http.StatusOK); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for b.Loop() {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			b.Fatal(g.Wait())
		}
	}
	close(turns)
	need.OK(b, g.Wait())
	b.ReportMetric(0, "ns/op")
	reportQuantiles(b, took)
}

// openSessions opens sessions that outlast the benchmark.
func openSessions(b *testing.B, c *benchCluster, n int) (ids []string) {
	return need.Got(createSessions(b.Context(), need.Got(awaitLeader(b.Context(), c))(b), n))(b)
}

// BenchmarkRenewSession measures what the renewals of 10,000 sessions, each every ten seconds, take from the nodes.
func BenchmarkRenewSession(b *testing.B) {
	c := startCluster(b, localcluster.CP, nil)
	ids := openSessions(b, c, 10_000)
	renewals := inTurn(len(ids), func(i int) []byte { return putJSON("/v1/session/renew/"+ids[i], "") })
	newBenchLoad(48, renewals, http.StatusOK).at(1000, c.addrs()...).run(b, c)
}

// BenchmarkIdle measures what a cluster takes that has nothing to do, in percent of a core, in turns of ten seconds.
func BenchmarkIdle(b *testing.B) {
	const turn = 10 * time.Second
	c := startCluster(b, localcluster.CP, nil)
	underOneLeader(b, c, func(leader string) {
		used := func() (leading, following time.Duration) {
			for _, n := range c.nodes {
				if cpu := runningUsage(n.Pid()).cpu; n.HTTP == leader {
					leading = cpu
				} else {
					following += cpu / (benchNodes - 1)
				}
			}
			return leading, following
		}
		wait.For(b.Context(), turn/4) // until the work of its start has ended
		leading, following := used()
		for b.Loop() {
			wait.For(b.Context(), turn)
		}
		l, f := used()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(100*(l-leading).Seconds()/b.Elapsed().Seconds(), "leader-%")
		b.ReportMetric(100*(f-following).Seconds()/b.Elapsed().Seconds(), "follower-%")
	})
}
