package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// replicatedLease is a typical instance's: its heartbeats travel to the other datacenter.
var replicatedLease = benchLease{interval: 30, duration: 90}

// changeRate is the open loop's, in changes per second.
const changeRate = 1000

// replication measures how soon two datacenters know each other's changes, and what replication costs.
func (r *ratiosRun) replication(ctx context.Context) error {
	pair, err := r.startPair(ctx)
	if err != nil {
		return fmt.Errorf("two datacenters: %w", err)
	}
	defer pair.stop()
	if err := r.inRounds(ctx, func(ctx context.Context) error { return r.crossings(ctx, pair) }); err != nil {
		return err
	}
	replicated := pair.fleet("told", r.many)
	replicated.lease = replicatedLease
	r.reportProgress("registering %d instances", replicated.size)
	if err := pair.here.register(ctx, replicated); err != nil {
		return err
	}
	return r.besideHeartbeats(ctx, pair.here, replicated, func(ctx context.Context) error {
		if err := pair.awaitEqual(ctx); err != nil {
			return err
		}
		if err := r.inRounds(ctx, func(ctx context.Context) error { return r.beatCosts(ctx, pair) }); err != nil {
			return err
		}
		return r.cutLink(ctx, pair, replicated)
	})
}

// beatBursts is how many bursts of simultaneous heartbeats are sent per second. If they came one by one, the leader's
// log would take many times the CPU that a peer does, and an amount that varies with how many heartbeats share an
// entry.
const beatBursts = 10

// besideHeartbeats measures while every instance of a fleet sends its heartbeats at its interval, in an open loop.
func (r *ratiosRun) besideHeartbeats(ctx context.Context, c *benchCluster, f benchFleet, measure func(context.Context) error) error {
	rate := float64(f.size) / float64(f.lease.interval)
	burst := max(1, int(rate/beatBursts))
	l := load.Bulk{Targets: c.addrs(), Conns: burst, Requests: f.renewals(), Want: http.StatusOK, Burst: burst}
	return r.measureBeside(ctx, "heartbeats beside replication", l, rate, measure)
}

// beatTurns is how often the peer is paused in a round. The leader's CPU is many times what the peer costs, and
// drifts.
const beatTurns = 4

// beatCosts measures the leader's CPU with its peer paused and not paused, in turns.
func (r *ratiosRun) beatCosts(ctx context.Context, p *benchPair) error {
	return r.underOneLeader(ctx, cpuForPeer, p.here, func(leader string) (func(), error) {
		var paused, sending, received float64
		for range beatTurns {
			if err := p.pause(ctx); err != nil {
				return nil, err
			}
			cpu, _, err := r.beatCost(ctx, p, leader)
			if err != nil {
				return nil, err
			}
			paused += cpu / beatTurns
			if err := p.resume(ctx); err != nil {
				return nil, err
			}
			cpu, rate, err := r.beatCost(ctx, p, leader)
			if err != nil {
				return nil, err
			}
			sending += cpu / beatTurns
			received += rate / beatTurns
		}
		return func() {
			r.record(cpuPaused, "%", paused)
			r.record(cpuSending, "%", sending)
			r.record(cpuForPeer, "%", sending-paused)
			r.record(beatsReplicated, "/s", received)
		}, nil
	})
}

// beatCost returns how much of a core a node's process takes, in percent, and how many heartbeats a second the second
// datacenter receives meanwhile.
func (r *ratiosRun) beatCost(ctx context.Context, p *benchPair, node string) (cpu, received float64, err error) {
	grown, err := r.growthPerSecond(ctx, r.window/2, func(ctx context.Context) (map[string]float64, error) {
		peer, err := onlyPeer(ctx, p.here)
		if err != nil {
			return nil, err
		}
		cpu, err := cpuSoFar(ctx, node)
		return map[string]float64{"cpu": cpu, "told": float64(peer.Sent["heartbeat"])}, err
	})
	return grown["cpu"], grown["told"], err
}

// benchAct is the author of the acts that pause peers.
var benchAct = registry.Act{Author: "bench"}

// pause stops sending to the second datacenter.
func (p *benchPair) pause(ctx context.Context) error {
	return p.here.client.PausePeer(ctx, localcluster.DatacenterName(2), benchAct)
}

// resume resumes sending, and waits until it has.
func (p *benchPair) resume(ctx context.Context) error {
	if err := p.here.client.ResumePeer(ctx, localcluster.DatacenterName(2), benchAct); err != nil {
		return err
	}
	return awaitSent(ctx, p.here)
}

// nodeMetric asks a node for one of its metrics without labels.
func nodeMetric(ctx context.Context, node, name string) (float64, error) {
	text, err := getText(ctx, "http://"+node+"/metrics")
	if err != nil {
		return 0, err
	}
	return metricValue(text, name)
}

// benchPair is two datacenters that replicate to each other with default settings, over a link that can be cut.
// Clients are at the first one, called here.
type benchPair struct {
	here, there *benchCluster
	links       localcluster.Links // between the datacenters
	fleets      int                // fleets made so far
}

// pairLimit bounds how long a pair may run, so that a link that never heals ends the run.
const pairLimit = 5 * time.Minute

// startPair starts both datacenters at the same time. The caller stops them.
func (r *ratiosRun) startPair(ctx context.Context) (_ *benchPair, err error) {
	p := new(benchPair)
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	nodes, err := localcluster.LayOut(filepath.Join(r.dir, "replication"), localcluster.CP, 2, benchNodes)
	if err != nil {
		return nil, err
	}
	if p.links, err = localcluster.StartLinks(nodes, func(from, to *localcluster.Node) bool { return from.Datacenter != to.Datacenter }); err != nil {
		return nil, err
	}
	p.links.Introduce(nodes)
	if p.here, err = newBenchCluster(r.server.path, nodes[:benchNodes], r.settings); err != nil {
		return nil, err
	}
	if p.there, err = newBenchCluster(r.server.path, nodes[benchNodes:], r.settings); err != nil {
		return nil, err
	}
	r.reportProgress("starting two datacenters")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.here.start(ctx) })
	g.Go(func() error { return p.there.start(ctx) })
	return p, g.Wait()
}

func (p *benchPair) stop() {
	for _, c := range []*benchCluster{p.here, p.there} {
		if c != nil {
			c.stop()
		}
	}
	p.links.Stop()
}

// fleet makes instances that no load has registered yet.
func (p *benchPair) fleet(name string, size int) benchFleet {
	p.fleets++
	return benchFleet{name: name + strconv.Itoa(p.fleets), size: size}
}

// onlyPeer asks a datacenter about its link to the other one.
func onlyPeer(ctx context.Context, c *benchCluster) (client.Peer, error) {
	peers, err := c.client.Peers(ctx)
	if err != nil {
		return client.Peer{}, err
	}
	if len(peers.Peers) != 1 {
		return client.Peer{}, fmt.Errorf("%s has %d peers, want 1", peers.Node, len(peers.Peers))
	}
	return peers.Peers[0], nil
}

// index returns the newest change of the first datacenter.
func (p *benchPair) index(ctx context.Context) (uint64, error) {
	leader, err := p.here.leader(ctx)
	if err != nil {
		return 0, err
	}
	status, err := p.here.client.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range status.Nodes {
		if n.HTTP == p.here.nodes[leader].HTTP {
			return indexNumber(n.Index)
		}
	}
	return 0, fmt.Errorf("%s does not know the node at %s", status.Node, p.here.nodes[leader].HTTP)
}

// indexNumber returns the counter in an index of the form epoch-number.
func indexNumber(index string) (uint64, error) {
	number, err := strconv.ParseUint(index[strings.LastIndex(index, "-")+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no index", index)
	}
	return number, nil
}

// awaitReplicated waits until the second datacenter knows every change of the first up to an index, and a comparison
// finds no difference. Later changes do not matter.
func (p *benchPair) awaitReplicated(ctx context.Context, index uint64) error {
	err := await(ctx, fmt.Sprintf("the other datacenter knows every change up to %d", index), pairLimit, func(ctx context.Context) (bool, error) {
		peer, err := onlyPeer(ctx, p.here)
		if err != nil || peer.Cursor == "" {
			return false, err
		}
		cursor, err := indexNumber(peer.Cursor)
		return cursor >= index, err
	})
	if err != nil {
		return err
	}
	return awaitSame(ctx, p.here, localcluster.DatacenterName(2))
}

// awaitEqual waits until each datacenter has sent everything to the other one, and a comparison finds no difference.
// It is for times without changes.
func (p *benchPair) awaitEqual(ctx context.Context) error {
	for dc, c := range []*benchCluster{p.here, p.there} {
		if err := awaitSent(ctx, c); err != nil {
			return err
		}
		if err := awaitSame(ctx, c, localcluster.DatacenterName(2-dc)); err != nil {
			return err
		}
	}
	return nil
}

// awaitSent waits until a datacenter sends to the other one, and has nothing left to send.
func awaitSent(ctx context.Context, c *benchCluster) error {
	return await(ctx, c.nodes[0].Datacenter+" has told everything", pairLimit, func(ctx context.Context) (bool, error) {
		peer, err := onlyPeer(ctx, c)
		return peer.State == "ok" && peer.Reason == "" && peer.LagChanges == 0, err
	})
}

// awaitSame waits until a comparison with a peer finds no difference.
func awaitSame(ctx context.Context, c *benchCluster, peer string) error {
	return await(ctx, "comparing with "+peer+" finds no difference", pairLimit, func(ctx context.Context) (bool, error) {
		d, err := c.client.PeerDiff(ctx, peer)
		return d.Missing == 0 && d.Extra == 0, err
	})
}

// mib is the unit of memory.
const mib = 1 << 20

// cutLink cuts the link under a load of changes, and measures what the leader keeps for the peer, and how long it
// takes after the cut to send all of it. The load goes on meanwhile. Every instance has changed once before: the
// memory that an instance takes with its first change is not kept for a peer.
func (r *ratiosRun) cutLink(ctx context.Context, p *benchPair, f benchFleet) error {
	l := load.Bulk{Targets: p.here.addrs(), Conns: changeConns, Requests: f.changes(), Want: http.StatusNoContent}
	if err := r.changeAll(ctx, l, f.size); err != nil {
		return err
	}
	if err := p.awaitEqual(ctx); err != nil {
		return err
	}
	err := r.underOneLeader(ctx, healing, p.here, func(leader string) (record func(), err error) {
		err = r.measureBeside(ctx, healing, l, changeRate, func(ctx context.Context) error {
			record, err = r.cutAndHeal(ctx, p, leader)
			return err
		})
		return record, err
	})
	if err != nil {
		return err
	}
	if err := p.awaitEqual(ctx); err != nil {
		return fmt.Errorf("after the cut: %w", err)
	}
	return nil
}

// changeAll sends n changes of a load as fast as it can.
func (r *ratiosRun) changeAll(ctx context.Context, l load.Bulk, n int) error {
	r.reportProgress("changing %d instances", n)
	l.Conns, l.Requests = min(256, n), firstRequests(n, l.Requests)
	result, err := l.Closed(ctx)
	if err != nil {
		return err
	}
	r.countWrong(healing, result.Wrong)
	return nil
}

func (r *ratiosRun) cutAndHeal(ctx context.Context, p *benchPair, leader string) (record func(), err error) {
	if !wire.Pause(ctx, r.window) {
		return nil, ctx.Err()
	}
	before, err := r.memory(ctx, p, leader)
	if err != nil {
		return nil, err
	}
	r.reportProgress("cutting the link for %v", r.cut)
	p.links.Cut()
	defer p.links.Heal()
	if !wire.Pause(ctx, r.cut) {
		return nil, ctx.Err()
	}
	after, err := r.memory(ctx, p, leader)
	if err != nil {
		return nil, err
	}
	took, err := p.timeHealing(ctx)
	return func() {
		r.record(healing, "s", took.Seconds())
		r.record(cutResident, "MiB", (after.resident-before.resident)/mib)
		r.record(cutHeap, "MiB", (after.heap-before.heap)/mib)
		r.record(cutGoal, "MiB", (after.goal-before.goal)/mib)
	}, err
}

// timeHealing heals the link and returns how long it takes until the other datacenter knows the earlier changes.
func (p *benchPair) timeHealing(ctx context.Context) (time.Duration, error) {
	index, err := p.index(ctx)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	p.links.Heal()
	err = p.awaitReplicated(ctx, index)
	return time.Since(begin), err
}

// nodeMemory is bytes of a node's process.
type nodeMemory struct {
	resident float64 // without mapped files
	heap     float64 // survives a collection
	goal     float64 // to which the heap grows before the next collection
}

// memory asks a node of the first datacenter a few times and keeps the minimum: for some seconds a snapshot holds the
// state of its beginning.
func (r *ratiosRun) memory(ctx context.Context, p *benchPair, node string) (least nodeMemory, err error) {
	const times = 4
	for i := range times {
		m, err := p.memoryNow(ctx, node)
		if err != nil {
			return least, err
		}
		if i == 0 {
			least = m
		}
		least = nodeMemory{min(least.resident, m.resident), min(least.heap, m.heap), min(least.goal, m.goal)}
		if i < times-1 && !wire.Pause(ctx, r.window/2) {
			return least, ctx.Err()
		}
	}
	return least, nil
}

func (p *benchPair) memoryNow(ctx context.Context, node string) (m nodeMemory, err error) {
	at := slices.Index(p.here.addrs(), node)
	if m.resident, err = p.here.resident(ctx, at); err != nil {
		return m, err
	}
	if m.heap, err = liveHeap(ctx, node, p.here.profilers[at]); err != nil {
		return m, err
	}
	m.goal, err = nodeMetric(ctx, node, "go_memstats_next_gc_bytes")
	return m, err
}

// resident returns a node's resident memory without the files mapped into it: with every entry more of the Raft log is
// mapped. Where the system does not tell them apart, it returns all of it.
func (c *benchCluster) resident(ctx context.Context, node int) (float64, error) {
	text := procField(fmt.Sprintf("/proc/%d/status", c.nodes[node].Pid()), "RssAnon")
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64); err == nil {
		return kb * 1024, nil
	}
	return nodeMetric(ctx, c.nodes[node].HTTP, "process_resident_memory_bytes")
}

// changeConns is how many connections changes are spread over.
const changeConns = 30

// crossings measures how long changes here take to reach watchers there.
func (r *ratiosRun) crossings(ctx context.Context, p *benchPair) error {
	if err := p.awaitEqual(ctx); err != nil {
		return err
	}
	return r.underOneLeader(ctx, crossingP99, p.here, func(string) (func(), error) {
		latencies, err := r.crossInTime(ctx, p)
		return func() { r.recordLatencies(latencies, "s", time.Second, crossingP50, crossingP99) }, err
	})
}

// crossInTime registers new instances here, and returns how long after the acknowledgement each watcher there had read
// them. The first changes, during which the load warms up, do not count.
func (r *ratiosRun) crossInTime(ctx context.Context, p *benchPair) (*hdrhistogram.Histogram, error) {
	c := newCrowd(p.fleet("crossing", int(changeRate*(r.warm+r.window).Seconds())))
	defer c.disperse()
	for _, addr := range p.there.addrs() {
		if err := c.join(addr); err != nil {
			return nil, fmt.Errorf("watch at %s: %w", addr, err)
		}
	}
	l := load.Bulk{
		Targets: p.here.addrs(), Conns: changeConns, Requests: c.fleet.registrations, Want: http.StatusNoContent, Warm: r.warm, Window: r.window, Insist: true,
		Answered: func(conn, n int, at time.Time) { c.setStart(conn+n*changeConns, at) },
	}
	result, err := l.Open(ctx, changeRate)
	if err == nil && len(result.Wrong) > 0 {
		err = errors.New(result.Wrong.String())
	}
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	return c.latencies(ctx, int(changeRate*r.warm.Seconds()))
}
