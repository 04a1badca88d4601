package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// bareRaft is one node of hashicorp/raft with nothing around it: the other baseline, the least that a
// durable write on a majority takes with this library and its default log store.
type bareRaft struct {
	addr  string // Raft's own
	peers []string
	dir   string

	commitTimeout time.Duration // after which an idle leader tells the others the commit index
}

func newBenchRaftCommand() *cobra.Command {
	var b bareRaft
	var addr string
	cmd := &cobra.Command{
		Use:    "raft",
		Short:  "Run a node of the bare Raft library that bench compares with",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			return b.serve(ctx, addr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "http-addr", "", "address to serve")
	f.StringVar(&b.addr, "cluster-addr", "", "address of Raft")
	f.StringSliceVar(&b.peers, "cluster-join", nil, "addresses of Raft on all nodes")
	f.StringVar(&b.dir, "data-dir", "", "directory of the log")
	f.DurationVar(&b.commitTimeout, "commit-timeout", 0, "as the servers have it")
	return cmd
}

// serve answers GET /apply with the median time of an Apply, on the leader only.
func (b bareRaft) serve(ctx context.Context, addr string) error {
	node, err := b.open()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apply", func(w http.ResponseWriter, r *http.Request) {
		median, err := medianApply(r.Context(), node)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, strconv.FormatInt(median.Microseconds(), 10))
	})
	err = serveUntil(ctx, addr, mux)
	return errors.Join(err, node.Shutdown().Error())
}

// open starts Raft with the library's defaults, except where the server's own differ for everybody.
func (b bareRaft) open() (*raft.Raft, error) {
	log, err := raftboltdb.NewBoltStore(filepath.Join(b.dir, "log.db"))
	if err != nil {
		return nil, err
	}
	advertised, err := net.ResolveTCPAddr("tcp", b.addr)
	if err != nil {
		return nil, err
	}
	transport, err := raft.NewTCPTransport(b.addr, advertised, 3, 10*time.Second, os.Stderr)
	if err != nil {
		return nil, err
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(b.addr)
	conf.CommitTimeout = b.commitTimeout
	conf.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	node, err := raft.NewRaft(conf, nothing{}, log, log, raft.NewDiscardSnapshotStore(), transport)
	if err != nil {
		return nil, err
	}
	var servers []raft.Server
	for _, p := range b.peers {
		servers = append(servers, raft.Server{ID: raft.ServerID(p), Address: raft.ServerAddress(p)})
	}
	return node, node.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
}

// medianApply applies commands of a renewal's size, one at a time.
func medianApply(ctx context.Context, node *raft.Raft) (time.Duration, error) {
	const tries = 500
	command := make([]byte, 14)
	times := make([]time.Duration, 0, tries)
	for range tries {
		begin := time.Now()
		if err := cmp.Or(ctx.Err(), node.Apply(command, time.Second).Error()); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	return times[tries/2], nil
}

// nothing is a state machine without a state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (nothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (nothing) Release()                            {}

// bareRaftCluster is three processes of bareRaft.
type bareRaftCluster struct {
	nodes []*localcluster.Process
	addrs []string // that serve /apply
}

// startBareRaft starts the processes below dir. The caller stops them.
func startBareRaft(dir string, commitTimeout time.Duration) (_ *bareRaftCluster, err error) {
	const nodes = 3
	ports, err := localcluster.ClaimPorts(2 * nodes)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range nodes {
		peers = append(peers, localcluster.Address(ports[2*i]))
	}
	c := new(bareRaftCluster)
	for i, p := range peers {
		own := filepath.Join(dir, strconv.Itoa(i+1))
		c.addrs = append(c.addrs, localcluster.Address(ports[2*i+1]))
		node, err := startBaseline(filepath.Join(own, "log"), "raft", "--http-addr", c.addrs[i], "--cluster-addr", p, "--data-dir", own,
			"--cluster-join", strings.Join(peers, ","), "--commit-timeout", commitTimeout.String())
		if err != nil {
			c.stop()
			return nil, err
		}
		c.nodes = append(c.nodes, node)
	}
	return c, nil
}

func (c *bareRaftCluster) stop() {
	for _, n := range c.nodes {
		n.Stop()
	}
}

// apply returns the median time of an Apply on the leader, in ms. It waits until there is one.
func (c *bareRaftCluster) apply(ctx context.Context) (float64, error) {
	ctx, cancel := localcluster.WithinReady(ctx)
	defer cancel()
	var errs []error
	for ctx.Err() == nil {
		errs = nil
		for _, addr := range c.addrs {
			text, err := getText(ctx, "http://"+addr+"/apply")
			if err != nil {
				errs = append(errs, err)
				continue
			}
			median, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, fmt.Errorf("apply on the bare raft: %w", err)
			}
			return median / 1000, nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return 0, fmt.Errorf("apply on the bare raft: %w", errors.Join(errs...))
}
