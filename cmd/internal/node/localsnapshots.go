package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// localSnapshots saves and restores what a node without consensus has.
type localSnapshots struct {
	service          registry.Service
	node, datacenter string
	levels           func() codec.Reads
}

func (s *localSnapshots) source(ctx context.Context, _ registry.Consistency) (backup.Source, error) {
	v, err := s.service.View(ctx, registry.Stale)
	return backup.Source{Registry: v, Header: backup.Header{Level: s.levels().Writes, Mode: config.AP, Cluster: s.datacenter, Node: s.node}}, err
}

func (s *localSnapshots) check(h backup.Header, another bool) error {
	switch {
	case h.Mode != config.AP:
		return fmt.Errorf("%w: the snapshot is of mode %s, and this node takes those of mode ap", consensus.ErrRestoreRefused, h.Mode)
	case h.Cluster != s.datacenter && !another:
		return fmt.Errorf("%w: the snapshot is of datacenter %s, and this one is %s; if that is meant, say so (--another-cluster)", consensus.ErrRestoreRefused, h.Cluster, s.datacenter)
	}
	return nil
}

// restoredTogether is how many instances one call of the store brings in.
const restoredTogether = 500

// restore brings instances in as copies, each with a full lease, that lose against anything newer: what was canceled
// since stays away (docs/adr/0013).
func (s *localSnapshots) restore(ctx context.Context, file io.Reader, op kv.Restore) (done kv.Restoration, err error) {
	if op.KeysOnly || op.WithAuth {
		return done, registry.ErrNotOffered
	}
	saved, err := backup.Read(file)
	if err != nil {
		return done, err
	}
	v, err := s.service.View(ctx, registry.Stale)
	if err != nil {
		return done, err
	}
	ops := map[registry.Origin][]registry.Op{}
	lacking, there := lackingHere(v, saved.Instances)
	done.InstancesStayed = there
	for _, in := range lacking {
		origin := registry.FromClient
		if in.Owner != "" {
			origin = registry.Origin{Kind: registry.RemoteDC, DC: in.Owner}
		}
		in.Owner = ""
		ops[origin] = append(ops[origin], in)
	}
	var errs []error
	for origin, all := range ops {
		errs = append(errs, s.apply(ctx, origin, all, &done))
	}
	return done, errors.Join(errs...)
}

// plan says what a restore would do now.
func (s *localSnapshots) plan(ctx context.Context, saved *kv.Image, op kv.Restore) (p backup.Plan, err error) {
	if op.KeysOnly {
		return p, registry.ErrNotOffered
	}
	v, err := s.service.View(ctx, registry.Stale)
	if err != nil {
		return p, err
	}
	var lacking []registry.Replica
	lacking, p.InstancesStayed = lackingHere(v, saved.Instances)
	p.InstancesNewer = v.Total() - p.InstancesStayed
	for _, in := range lacking {
		p.Instances = append(p.Instances, in.Instance.Key().String())
	}
	return p, nil
}

// lackingHere returns the saved instances that would come back, with a full lease: they are not registered, and were
// not canceled since. there counts the saved ones that are registered.
func lackingHere(v *registry.View, saved []registry.Saved) (lacking []registry.Replica, there int) {
	removals := map[registry.Key]registry.Removal{}
	for rec := range v.Removals() {
		removals[rec.Lease.Key()] = rec
	}
	for _, in := range saved {
		in.Age = 0
		rec, removed := removals[in.Instance.Key()]
		switch _, found := v.Find(in.Instance.Key()); {
		case found:
			there++
		case in.Service == nil && !(removed && v.Outdates(rec, in.Replica)):
			lacking = append(lacking, in.Replica)
		}
	}
	return lacking, there
}

func (s *localSnapshots) apply(ctx context.Context, origin registry.Origin, ops []registry.Op, done *kv.Restoration) error {
	for len(ops) > 0 {
		n := min(len(ops), restoredTogether)
		results, err := s.service.Apply(ctx, origin, ops[:n]...)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Index > 0 {
				done.Instances++
			}
		}
		ops = ops[n:]
	}
	return nil
}
