package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Recovery makes a cluster go on with what one of its nodes has, after the majority of its nodes was lost for good.
type Recovery struct {
	DataDir string
	// Members has the nodes of the cluster, by name, with their node-to-node addresses: this one, and those that will
	// join it.
	Members map[string]string
	Log     *slog.Logger
	World   *world.World // nil means the real machine
}

// Recovered is the result of a recovery.
type Recovered struct {
	Node, Cluster string
	Entry         uint64         // the last log entry in the directory
	Before, Index registry.Index // the index before, and that of the new incarnation
	Instances     int
	Keys          int
	Others        []string // the other former voters
	Old           string   // where the old directory was moved
}

// Recover turns a data directory into that of a cluster of one node, with a new incarnation (fsm.Machine.Recover). It
// works on a copy, which replaces the directory at the end. It refuses, and changes nothing, while a majority of the
// cluster's nodes answers, and while a node runs with the directory.
func (r Recovery) Recover(ctx context.Context) (done Recovered, err error) {
	id, err := disk.ReadIdentity(r.DataDir)
	switch {
	case err != nil:
		return done, err
	case isMounted(r.DataDir):
		return done, fmt.Errorf("data directory %s is a mount point, which no other directory can replace: copy it to a directory elsewhere, recover that, and copy that back", r.DataDir)
	case id.Mode != disk.ModeCP:
		return done, fmt.Errorf("data directory %s is of mode %s, where every node works without the others: start the node", r.DataDir, id.Mode)
	case id.Cluster == "":
		return done, fmt.Errorf("data directory %s belongs to no cluster yet: there is nothing to recover", r.DataDir)
	case r.Members[id.Node] == "":
		return done, fmt.Errorf("data directory %s belongs to node %s, which is not among the named members %v: name it with its address", r.DataDir, id.Node, slices.Sorted(maps.Keys(r.Members)))
	}
	lock, err := raftio.Lock(r.DataDir)
	if err != nil {
		return done, err
	}
	defer lock.Close()
	if err := r.refuseWhileAnswered(ctx, id.Node, r.Members); err != nil {
		return done, err
	}
	work := r.DataDir + disk.Recovering
	if err := copyTree(r.DataDir, work); err != nil {
		return done, fmt.Errorf("copy %s: %w", r.DataDir, errors.Join(err, os.RemoveAll(work)))
	}
	done = Recovered{Node: id.Node, Cluster: id.Cluster, Old: r.DataDir + ".before-" + r.World.Now().UTC().Format("20060102T150405.000Z")}
	if err := r.recoverCopy(ctx, work, id, &done); err != nil {
		return done, errors.Join(err, os.RemoveAll(work))
	}
	if err := markRecovered(work, done.Index); err != nil {
		return done, errors.Join(err, os.RemoveAll(work))
	}
	if err := os.Rename(r.DataDir, done.Old); err != nil {
		return done, errors.Join(err, os.RemoveAll(work))
	}
	if err := os.Rename(work, r.DataDir); err != nil {
		return done, errors.Join(err, os.Rename(done.Old, r.DataDir))
	}
	return done, disk.SyncDir(filepath.Dir(r.DataDir))
}

// ConvertLog turns the log in the data directory of a stopped node into one of another kind (store.Config.RaftLog),
// with the same entries, term and vote, and returns the number of entries. Until its last step the directory keeps
// its old log.
func ConvertLog(dir string, to store.RaftLog) (entries uint64, err error) {
	id, err := disk.ReadIdentity(dir)
	if err != nil {
		return 0, err
	}
	if id.Mode != disk.ModeCP {
		return 0, fmt.Errorf("data directory %s is of mode %s, which has no log", dir, id.Mode)
	}
	return raftio.Convert(dir, to)
}

// markRecovered keeps the old cluster's nodes from taking this one back.
func markRecovered(dir string, at registry.Index) error {
	id, err := disk.ReadIdentity(dir)
	if err != nil {
		return err
	}
	id.Recovered = uint64(at)
	return id.Save()
}

// recoverCopy recovers a copy of the directory.
func (r Recovery) recoverCopy(ctx context.Context, dir string, id *disk.Identity, done *Recovered) error {
	var fatal error
	stored, logs, err := raftio.Open(dir, "", func(err error) { fatal = errors.Join(fatal, err) })
	if err != nil {
		return err
	}
	defer stored.Close()
	voters, err := lastVoters(dir, logs, id)
	if err != nil {
		return err
	}
	known := map[string]string{id.Node: r.Members[id.Node]}
	for _, v := range voters {
		name := disk.NodeName(string(v.ID))
		known[name] = cmp.Or(r.Members[name], string(v.Address))
		done.Others = append(done.Others, name)
	}
	if err := r.refuseWhileAnswered(ctx, id.Node, known); err != nil {
		return err
	}
	snapshots, err := raftio.OpenSnapshots(dir, snapshotsKept, raftio.NewLogger(r.Log))
	if err != nil {
		return err
	}
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = raft.ServerID(id.ServerID), raftio.NewLogger(r.Log)
	state := &recovering{machine: fsm.NewMachine(), world: r.World, done: done}
	state.machine.Skip(id.Skipped)
	_, transport := raft.NewInmemTransport(raft.ServerAddress(r.Members[id.Node]))
	self := raft.Configuration{Servers: []raft.Server{{ID: conf.LocalID, Address: raft.ServerAddress(r.Members[id.Node])}}}
	err = raft.RecoverCluster(conf, state, logs, stored.Stable(), snapshots, transport, self)
	return errors.Join(err, state.err, fatal)
}

// lastVoters returns the voters of the newest configuration in a directory.
func lastVoters(dir string, logs raft.LogStore, id *disk.Identity) ([]raft.Server, error) {
	snapshots, err := raftio.OpenSnapshots(dir, snapshotsKept, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	var newest raft.Configuration
	if metas, err := snapshots.List(); err == nil && len(metas) > 0 {
		newest = metas[0].Configuration
	}
	first, err := logs.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := logs.LastIndex()
	for index := max(first, 1); err == nil && index <= last; index++ {
		var entry raft.Log
		if err = logs.GetLog(index, &entry); err == nil && entry.Type == raft.LogConfiguration {
			newest = raft.DecodeConfiguration(entry.Data)
		}
	}
	var voters []raft.Server
	for _, server := range newest.Servers {
		if server.Suffrage == raft.Voter && string(server.ID) != id.ServerID {
			voters = append(voters, server)
		}
	}
	return voters, err
}

// answerLimit is how long a node may take to accept a connection.
const answerLimit = 2 * time.Second

// refuseWhileAnswered refuses while a majority of the nodes accepts connections at their node-to-node addresses.
func (r Recovery) refuseWhileAnswered(ctx context.Context, own string, members map[string]string) error {
	var others, answered []string
	for name, address := range members {
		if name != own {
			others = append(others, address)
		}
	}
	for _, reply := range port.AskAll(ctx, others, answerLimit, func(ctx context.Context, address string) (string, error) {
		conn, err := r.World.DialContext(ctx, "tcp", address)
		if err != nil {
			return "", err
		}
		return address, conn.Close()
	}) {
		if reply.Err == nil {
			answered = append(answered, reply.Value)
		}
	}
	if 2*len(answered) > len(members) {
		slices.Sort(answered)
		return fmt.Errorf("%d of %d nodes answer (%v), which are a majority: the cluster can go on without a recovery, and what it acknowledged would be lost by one", len(answered), len(members), answered)
	}
	return nil
}

// recovering is the state machine of a directory that is being recovered.
type recovering struct {
	machine *fsm.Machine
	world   *world.World
	done    *Recovered
	err     error // of the first entry that could not be applied
}

// Apply implements raft.FSM.
func (f *recovering) Apply(l *raft.Log) any {
	if f.err == nil {
		_, f.err = f.machine.Apply(l.Index, l.Term, l.Data)
	}
	return f.err
}

// Restore implements raft.FSM.
func (f *recovering) Restore(r io.ReadCloser) error {
	return errors.Join(f.machine.Restore(r), r.Close())
}

// Snapshot implements raft.FSM. It returns the state of the new incarnation.
func (f *recovering) Snapshot() (raft.FSMSnapshot, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.done.Entry, f.done.Before = f.machine.Index(), max(f.machine.View().Index(), f.machine.KV().Index())
	f.machine.Recover(f.world.Now().UnixMilli())
	f.done.Index, f.done.Instances, f.done.Keys = f.machine.KV().Index(), f.machine.View().Total(), f.machine.KV().Len()
	return frozen{f.machine.Snapshot()}, nil
}

// copyTree copies a directory with its files, and syncs them. It leaves out sockets.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil { // left over from an interrupted attempt
		return err
	}
	var made []string
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		if entry.IsDir() {
			made = append(made, target)
			return os.MkdirAll(target, 0o700)
		}
		if entry.Type()&os.ModeSocket != 0 {
			return nil
		}
		return copyFile(path, target)
	})
	for _, path := range made {
		if err == nil {
			err = disk.SyncDir(path)
		}
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
