package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// pacedRate is the open loop's, in renewals per second.
const pacedRate = 10_000

// writeRig is what writes are measured on.
type writeRig struct {
	*ratiosRun
	batching, singly *benchCluster // default settings; one log entry per write
	local            *benchCluster // without consensus
	raft             *bareRaftCluster
	renewed          workload
	changed          benchFleet
}

// writesAndFetches measures all that needs a registry of ordinary size.
func (r *ratiosRun) writesAndFetches(ctx context.Context) error {
	renewed := benchFleet{name: "renewed", size: r.instances}
	changed := benchFleet{name: "changed", size: min(2560, r.instances)}
	rig := writeRig{ratiosRun: r, renewed: renewed.renewals(), changed: changed}
	var err error
	if rig.raft, err = startBareRaft(filepath.Join(r.dir, "raft"), r.defaults.Raft.CommitTimeout); err != nil {
		return err
	}
	defer rig.raft.stop()
	fleets := []benchFleet{renewed, changed}
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "default", fleets: fleets},
		clusterSpec{name: "one-entry-per-write", fleets: fleets, settings: []string{"--commit-batching=false"}},
		clusterSpec{name: "without-consensus", mode: localcluster.AP, fleets: fleets[:1]})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	rig.batching, rig.singly, rig.local = clusters[0], clusters[1], clusters[2]
	if err := r.inRounds(ctx, rig.renews, rig.registers); err != nil {
		return err
	}
	if err := r.profile(ctx, "renew", rig.batching, r.renewals(256, rig.renewed)); err != nil {
		return err
	}
	if err := r.profile(ctx, "renew-ap", rig.local, r.renewals(256, rig.renewed)); err != nil {
		return err
	}
	rig.raft.stop()
	rig.singly.stop()
	rig.local.stop()
	return r.fetches(ctx, rig.batching, rig.renewed, changed)
}

// inRounds runs each part as often as the plan says before the next one.
func (r *ratiosRun) inRounds(ctx context.Context, parts ...func(context.Context) error) error {
	for _, part := range parts {
		for range r.rounds {
			if err := part(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// registers is a round of registrations.
func (r writeRig) registers(ctx context.Context) error {
	l := r.renewals(256, r.changed.changes())
	l.want = http.StatusNoContent
	if err := r.recordLeaderRate(ctx, register256, r.batching, l); err != nil {
		return err
	}
	return r.recordLeaderRate(ctx, registerSolo, r.singly, l)
}

// renews is a round of renewals.
func (r writeRig) renews(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		r.lone, r.paced,
		r.closed(64, renew64, bare64, renewAP64),
		r.closed(256, renew256, bare256, renewAP256),
		r.singles, r.spread,
		r.closed(1024, renew1024, bare1024, renewAP1024),
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// closed measures renewals, the bare handler and renewals without consensus right after each other.
func (r writeRig) closed(conns int, renew, bare, renewAP figureName) func(context.Context) error {
	return func(ctx context.Context) error {
		l := r.renewals(conns, r.renewed)
		if err := r.recordLeaderRate(ctx, renew, r.batching, l); err != nil {
			return err
		}
		l.targets = []string{r.bare}
		if err := r.recordRate(ctx, bare, l); err != nil {
			return err
		}
		return r.recordLeaderRate(ctx, renewAP, r.local, l)
	}
}

func (r writeRig) singles(ctx context.Context) error {
	return r.recordLeaderRate(ctx, renewSingly, r.singly, r.renewals(256, r.renewed))
}

func (r writeRig) spread(ctx context.Context) error {
	return r.steady(ctx, renewSpread, r.batching, func(string) (func(), error) {
		l := r.renewals(256, r.renewed)
		l.targets = r.batching.addrs()
		result, err := r.rate(ctx, renewSpread, l)
		return func() { r.record(renewSpread, "/s", result.rate) }, err
	})
}

// lone measures one renewal at a time, and one Apply at a time of the library underneath.
func (r writeRig) lone(ctx context.Context) error {
	err := r.steady(ctx, loneRenew, r.batching, func(leader string) (func(), error) {
		l := r.renewals(1, r.renewed)
		l.targets = []string{leader}
		result, err := r.rate(ctx, loneRenew, l)
		return func() { r.record(loneRenew, "ms", milliseconds(result.quantile(50))) }, err
	})
	if err != nil {
		return err
	}
	apply, err := r.raft.apply(ctx)
	if err == nil {
		r.record(loneApply, "ms", apply)
	}
	return err
}

// paced measures the open loop.
func (r writeRig) paced(ctx context.Context) error {
	return r.steady(ctx, pacedP99, r.batching, func(leader string) (func(), error) {
		l := r.renewals(256, r.renewed)
		l.targets = []string{leader}
		result, err := l.open(ctx, pacedRate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pacedP99, err)
		}
		r.wronged(pacedP99, result.wrong)
		return func() {
			r.record(pacedP50, "ms", milliseconds(result.quantile(50)))
			r.record(pacedP99, "ms", milliseconds(result.quantile(99)))
		}, nil
	})
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
