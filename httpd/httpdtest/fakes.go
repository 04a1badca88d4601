package httpdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// FakePeers is an own.Peers that gives every call the same answer and remembers the calls.
type FakePeers struct {
	Err        error
	StatusJSON string // response of Status; empty means {}
	Calls      []string
	WriteState func(w io.Writer) error
	Takes      time.Duration // a comparison
	Waiting    string        // its name, while it waits for a node to copy from
}

func (p *FakePeers) record(asked string) ([]byte, error) {
	p.Calls = append(p.Calls, asked)
	return []byte(`{"done":true}`), p.Err
}

// Receive implements own.Peers.
func (p *FakePeers) Receive(_ context.Context, message []byte) ([]byte, error) {
	return p.record(fmt.Sprintf("receive %d %.20s", len(message), message))
}

// Compare implements own.Peers.
func (p *FakePeers) Compare(_ context.Context, message []byte) ([]byte, error) {
	return p.record(fmt.Sprintf("compare %d %.20s", len(message), message))
}

// State implements own.Peers.
func (p *FakePeers) State(ctx context.Context, datacenter string, w io.Writer) error {
	if _, err := p.record("state " + datacenter); err != nil {
		return err
	}
	return errors.Join(p.WriteState(w), ctx.Err())
}

// Levels implements own.Peers.
func (p *FakePeers) Levels() string { return "0 1 1 1 0 0.1" }

func (p *FakePeers) Waits() string { return p.Waiting }

func (p *FakePeers) AuthFile() string { return "none" }

// Cut implements own.Peers.
func (p *FakePeers) Cut(string) time.Duration { return time.Minute }

// Status implements own.Peers.
func (p *FakePeers) Status(context.Context) (status api.Peers, err error) {
	if p.StatusJSON != "" {
		return status, errors.Join(json.Unmarshal([]byte(p.StatusJSON), &status), p.Err)
	}
	_, err = p.record("status")
	return api.Peers{Node: "done"}, err
}

// Diff implements own.Peers.
func (p *FakePeers) Diff(ctx context.Context, peer string) (_ api.PeerDiff, err error) {
	select {
	case <-time.After(p.Takes):
		_, err = p.record("diff " + peer)
	case <-ctx.Done():
		err = fmt.Errorf("ask %s: %w", peer, ctx.Err())
	}
	return api.PeerDiff{Items: []api.DiffedItem{{What: "done"}}}, err
}

// Repair implements own.Peers.
func (p *FakePeers) Repair(_ context.Context, peer string) (_ api.PeerDiff, err error) {
	_, err = p.record("repair " + peer)
	return api.PeerDiff{Items: []api.DiffedItem{{What: "done"}}}, err
}

// Pause implements own.Peers.
func (p *FakePeers) Pause(_ context.Context, peer string, paused bool, by registry.Act) error {
	_, err := p.record(fmt.Sprintf("pause %s %t by %s (%s)", peer, paused, by.Author, by.Reason))
	return err
}

// Forget implements own.Peers.
func (p *FakePeers) Forget(_ context.Context, sender string, by registry.Act) error {
	_, err := p.record(fmt.Sprintf("forget %s by %s (%s)", sender, by.Author, by.Reason))
	return err
}

// AloneConfig is the configuration of a node without consensus.
func AloneConfig() httpd.Config {
	return httpd.Config{Reads: web.ReadsStale, WithoutConsensus: true, Datacenter: "dc1"}
}

// Cluster is a fixed web.Cluster.
type Cluster api.Status

// Status implements web.Cluster.
func (c Cluster) Status(context.Context) api.Status { return api.Status(c) }

// ThreeNodes is a cluster of three nodes.
var ThreeNodes = Cluster{
	Mode: "cp", ClusterID: "c1", Leader: "n2", Term: 7,
	Nodes: []api.NodeStatus{
		{ID: "n1", HTTP: "127.0.0.1:8761", Cluster: "127.0.0.1:7761", Role: "follower", Applied: 41},
		{ID: "n2", HTTP: "127.0.0.1:8762", Cluster: "127.0.0.1:7762", Role: "leader", Applied: 42, Index: "c1-17"},
		{ID: "n3", Cluster: "127.0.0.1:7763", Role: "unreachable"},
	},
}

// SlowService holds writes back while hold is set, until release is closed.
type SlowService struct {
	*fsmtest.Memory
	Hold           atomic.Bool
	Begun, Release chan struct{}
}

// Apply implements registry.Service.
func (s *SlowService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if s.Hold.Load() {
		close(s.Begun)
		<-s.Release
	}
	return s.Memory.Apply(ctx, origin, ops...)
}
