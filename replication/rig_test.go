package replication

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

var errRefused = errors.New("cannot connect: connection refused")

// fakePeer is a peer that understands everything. It holds what it has, and how it replies. It outlives the
// Replicator, so that a test can have another node send to it.
type fakePeer struct {
	mu  sync.Mutex
	has map[registry.Key]copied
	received
	result func([]link.Task) batcher.Result // called without tasks for a comparison or an act; nil means Success
	wait   time.Duration                    // before a reply
	slow   time.Duration                    // of comparisons
}

// received is what reached a peer.
type received struct {
	tasks   []link.Task
	beats   map[registry.Key]int
	acts    []registry.SelfPreservation
	runs    int // of the link
	calls   int
	repairs int // comparisons for a repair
}

// copied is what a peer knows of an instance.
type copied struct {
	version    registry.Version
	overridden registry.Status
}

func newFakePeer() *fakePeer {
	return &fakePeer{has: make(map[registry.Key]copied), received: received{beats: make(map[registry.Key]int)}}
}

// set changes how the peer behaves.
func (f *fakePeer) set(change func(f *fakePeer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// fail makes every call end with result.
func (f *fakePeer) fail(result batcher.Result) {
	f.set(func(f *fakePeer) { f.result = func([]link.Task) batcher.Result { return result } })
}

// got returns what reached the peer so far.
func (f *fakePeer) got() received {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.received
	h.tasks, h.acts, h.beats = slices.Clone(h.tasks), slices.Clone(h.acts), maps.Clone(h.beats)
	return h
}

// knows returns a copy of everything the peer has.
func (f *fakePeer) knows() map[registry.Key]copied {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.has)
}

// fakeLink is a link to a fakePeer.
type fakeLink struct {
	env link.Env
	far *fakePeer
}

func (l fakeLink) URL() string { return l.env.Peer.URLs[0] }

func (l fakeLink) Run(ctx context.Context) error {
	l.far.set(func(f *fakePeer) { f.runs++ })
	<-ctx.Done()
	return nil
}

func (l fakeLink) Process(ctx context.Context, t link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{t})
}

func (l fakeLink) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	l.far.mu.Lock()
	defer l.far.mu.Unlock()
	l.far.calls++
	if !l.waitFor(ctx) {
		return batcher.TransientError
	}
	if l.far.result != nil {
		if result := l.far.result(tasks); result != batcher.Success {
			l.env.Failed(errRefused)
			return result
		}
	}
	for _, t := range tasks {
		l.apply(t)
	}
	l.env.Succeeded()
	return batcher.Success
}

// waitFor waits as long as the peer is slow; it ends with the call.
func (l fakeLink) waitFor(ctx context.Context) bool {
	if l.far.wait == 0 {
		return true
	}
	wait := l.far.wait
	l.far.mu.Unlock()
	defer l.far.mu.Lock()
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// apply is what the peer does with a task: it reads the current state, as real links do.
func (l fakeLink) apply(t link.Task) {
	l.far.tasks = append(l.far.tasks, t)
	if t.Facts&link.Canceled != 0 {
		if c, ok := l.far.has[t.Key]; ok && c.version.Life <= t.Remove.Life {
			delete(l.far.has, t.Key)
		}
		return
	}
	lease, ok := l.env.View().Find(t.Key)
	if !ok {
		return
	}
	if t.Facts&link.Heartbeat != 0 {
		l.far.beats[t.Key]++
		if _, ok := l.far.has[t.Key]; !ok {
			l.env.Submit(link.Task{Key: t.Key, Facts: link.Registered})
		}
		return
	}
	l.far.has[t.Key] = copyOf(lease)
}

func copyOf(l *registry.Lease) copied {
	return copied{version: l.Version(), overridden: l.Instance.Overridden}
}

// Compare finds which of the owner's instances the peer lacks, and which it should not have.
func (l fakeLink) Compare(ctx context.Context, repair bool) (api.PeerDiff, []link.Task, error) {
	l.far.mu.Lock()
	defer l.far.mu.Unlock()
	if repair {
		l.far.repairs++
	}
	slow := l.far.slow
	l.far.mu.Unlock()
	time.Sleep(slow)
	l.far.mu.Lock()
	if l.far.result != nil && l.far.result(nil) != batcher.Success {
		l.env.Failed(errRefused)
		return api.PeerDiff{}, nil, errRefused
	}
	var d api.PeerDiff
	var tasks []link.Task
	here := make(map[registry.Key]bool)
	for lease := range l.env.View().All() {
		here[lease.Key()] = true
		if c, ok := l.far.has[lease.Key()]; lease.Local() && (!ok || c != copyOf(lease)) {
			d.Missing++
			tasks = append(tasks, link.Task{Key: lease.Key(), Facts: link.Registered | link.Overridden})
		}
	}
	for key, c := range l.far.has {
		if !here[key] {
			d.Extra++
			tasks = append(tasks, link.Task{Key: key, Facts: link.Canceled, Remove: registry.Remove{Key: key, Kind: registry.Evicted, Life: c.version.Life}})
		}
	}
	if !repair {
		return d, nil, nil
	}
	return d, tasks, nil
}

// Act makes it an Actor.
func (l fakeLink) Act(_ context.Context, op registry.SelfPreservation) batcher.Result {
	l.far.mu.Lock()
	defer l.far.mu.Unlock()
	if l.far.result != nil {
		return l.far.result(nil)
	}
	l.far.acts = append(l.far.acts, op)
	return batcher.Success
}

// replicating is a running Replicator.
type replicating struct {
	*Replicator
	t    testing.TB
	ends context.CancelFunc
	done chan error
}

// datacenter is a peer of that kind, configured for tests.
func datacenter(name string) link.PeerConfig {
	return link.PeerConfig{Name: name, Kind: link.Datacenter, URLs: []string{"http://" + name + ":8761"}}
}

// replicate runs a Replicator of a datacenter with consensus. fars has the fake peers by name.
func replicate(t testing.TB, m registry.Service, fars map[string]*fakePeer, peers ...link.PeerConfig) *replicating {
	t.Helper()
	return replicateAs(t, Config{Side: link.Side{Service: m, Consensus: true}}, fars, peers...)
}

func replicateAs(t testing.TB, c Config, fars map[string]*fakePeer, peers ...link.PeerConfig) *replicating {
	t.Helper()
	c.Datacenter, c.Node, c.Peers = "dc1", "n1", peers
	c.Sender = func() string { return "dc1" }
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	r := need.Got(newReplicator(c, func(env link.Env) link.Link { return fakeLink{env, fars[env.Peer.Name]} }))(t)
	run := &replicating{Replicator: r, t: t}
	run.start()
	return run
}

func (r *replicating) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.ends, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.Run(ctx) }()
}

// stop stops sending, and waits for its end.
func (r *replicating) stop() {
	r.t.Helper()
	r.ends()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

// only returns the status of the one peer.
func (r *replicating) only() api.Peer {
	r.t.Helper()
	all := r.Status()
	need.That(r.t, len(all) == 1, "%d peers, want 1", len(all))
	return all[0]
}

// owned returns what a peer should have of a state: everything that belongs to its datacenter.
func owned(v *registry.View) map[registry.Key]copied {
	all := make(map[registry.Key]copied)
	for l := range v.All() {
		if l.Local() {
			all[l.Key()] = copyOf(l)
		}
	}
	return all
}

// elapse lets time pass, and then every goroutine come to rest.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// applyAs performs operations that another server had first, which must not fail.
func applyAs(t testing.TB, m *fsmtest.Memory, origin registry.Origin, ops ...registry.Op) {
	t.Helper()
	need.Got(m.Apply(context.Background(), origin, ops...))(t)
}
