package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// benchPair is two datacenters that replicate to each other with default settings, over a link that can
// be cut. Clients are at the first one, here.
type benchPair struct {
	here, there *benchCluster
	links       localcluster.Links // between the datacenters
	fleets      int                // that were drawn
}

// Bounds of what a pair may take, so that a link that never heals ends the run.
const (
	pairLook  = 50 * time.Millisecond // how often the peers are asked how far they are
	pairLimit = 5 * time.Minute
)

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
	r.say("starting two datacenters")
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

// fleet draws instances that nobody has registered yet.
func (p *benchPair) fleet(name string, size int) benchFleet {
	p.fleets++
	return benchFleet{name: name + strconv.Itoa(p.fleets), size: size}
}

// onlyPeer asks how a datacenter is with the other one.
func onlyPeer(ctx context.Context, c *benchCluster) (client.Peer, error) {
	cl, err := c.client()
	if err != nil {
		return client.Peer{}, err
	}
	peers, err := cl.Peers(ctx)
	if err != nil {
		return client.Peer{}, err
	}
	if len(peers.Peers) != 1 {
		return client.Peer{}, fmt.Errorf("%s has %d peers, want 1", peers.Node, len(peers.Peers))
	}
	return peers.Peers[0], nil
}

// index is the newest change of the first datacenter.
func (p *benchPair) index(ctx context.Context) (uint64, error) {
	leader, err := p.here.leader(ctx)
	if err != nil {
		return 0, err
	}
	cl, err := p.here.client()
	if err != nil {
		return 0, err
	}
	status, err := cl.Status(ctx)
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

// indexNumber is the counter in an index of the form epoch-number.
func indexNumber(index string) (uint64, error) {
	number, err := strconv.ParseUint(index[strings.LastIndex(index, "-")+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no index", index)
	}
	return number, nil
}

// awaitTold waits until the second datacenter knows every change of the first up to an index, and
// comparing finds no difference. Changes that come meanwhile do not matter.
func (p *benchPair) awaitTold(ctx context.Context, index uint64) error {
	err := await(ctx, fmt.Sprintf("the other datacenter knows every change up to %d", index), func(ctx context.Context) (bool, error) {
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

// awaitEqual waits until each datacenter was told everything of the other one, and comparing finds no
// difference. It is for times without changes.
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

// awaitSent waits until a datacenter sends to the other one, and has nothing left to tell.
func awaitSent(ctx context.Context, c *benchCluster) error {
	return await(ctx, c.nodes[0].Datacenter+" has told everything", func(ctx context.Context) (bool, error) {
		peer, err := onlyPeer(ctx, c)
		return peer.State == "ok" && peer.Reason == "" && peer.LagChanges == 0, err
	})
}

// awaitSame waits until comparing with a peer finds no difference.
func awaitSame(ctx context.Context, c *benchCluster, peer string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return await(ctx, "comparing with "+peer+" finds no difference", func(ctx context.Context) (bool, error) {
		d, err := cl.PeerDiff(ctx, peer)
		return d.Missing == 0 && d.Extra == 0, err
	})
}

// await asks again and again until the answer is yes. An error is a no: who asks during an election gets
// some.
func await(ctx context.Context, what string, reached func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pairLimit, errors.New("waited in vain"))
	defer cancel()
	for {
		yes, err := reached(ctx)
		if yes && err == nil {
			return nil
		}
		if !pauseBench(ctx, pairLook) {
			return fmt.Errorf("wait until %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}
