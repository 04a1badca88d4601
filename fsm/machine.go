// Package fsm is the deterministic state machine behind the Raft log: the binary formats of log entries and
// snapshots, the memory of applied batches, and Apply. The registry's rules are in package fsm/registry; package
// store orders the entries.
//
// docs/reference/formats describes the formats. The files of this package:
//
//   - batch.go, entry.go: the formats of batches and log entries
//   - machine.go: Apply, and the views; coordination.go: its half for package kv
//   - memory.go: what makes a batch take effect only once
//   - snapshot.go, stream.go: snapshots
//   - disk.go: records for a registry without a log
package fsm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Machine is the replicated state: the registry and coordination, which share one counter of changes, the memory of
// applied batches, and the index of the newest applied entry. Its methods are safe for concurrent use: Raft's one
// goroutine calls Apply, Restore and Snapshot, the evictor calls Expired, and every reader calls View (which never
// blocks).
type Machine struct {
	// published is replaced as a whole by every entry, with mu held.
	published atomic.Pointer[published]
	// level is the level of the formats that the cluster writes. It is written with mu held.
	level atomic.Uint32

	mu       sync.Mutex // guards the following
	registry *registry.Registry
	kv       *kv.State
	memory   memory
	tenure   int64 // of the newest leadership, ms: the highest in its entries
	skipped  []uint64
	doing    doing
	// Performed is called at the end of each operation, if not nil, for tests of panics.
	Performed func(Item)
}

// doing is the operation in progress, to report where a panic came from.
type doing struct {
	entry uint64
	batch *batch
	item  int
}

// published is what readers see: one pointer, so that a view never comes with another view's index.
type published struct {
	index uint64
	view  *registry.View
	kv    *kv.View
}

// NewMachine returns an empty state. Its index is 1, because Consul's clients must never get index 0: a reader that
// waits for more than 1 must not miss the first change.
func NewMachine() *Machine {
	r := registry.NewAt(1)
	m := &Machine{registry: r, kv: kv.New(r), memory: memory{}}
	m.level.Store(codec.Oldest)
	m.publish(0)
	return m
}

// Applied is the result of an entry.
type Applied struct {
	Batches []BatchResult  // Write entries: one per batch, in order
	Epoch   registry.Epoch // Establish entries
	Clock   registry.Stamp // the lease clock after the entry; the new leader continues from there
	Raised  bool           // Raise entries
	Granted []string       // Raise entries: the roles that got access.Takeover
	Touched []kv.Topic     // topics whose watchers must be woken once the entry is visible
	// Restored: a new incarnation began, and all watchers must be woken.
	Restored bool
	Skipped  bool // Skip lists the entry
}

// Apply performs one log entry. An error means that this node cannot go on (the entry cannot be decoded, is of a
// newer version, out of order, or panics). Every replica must do the same with an entry, so the caller stops the
// node. The state is then unchanged, unless the error is a PanicError: after a panic the state holds half of an
// entry, and the machine stays locked, so that nobody reads it.
func (m *Machine) Apply(index, term uint64, b []byte) (Applied, error) {
	all, err := m.ApplyAll([]Entry{{index, term, b}})
	if err != nil {
		return Applied{}, err
	}
	return all[0], nil
}

// Entry is a log entry with its place in the log.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// AwaitApplied waits for the entries that are being applied, if any.
func (m *Machine) AwaitApplied() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

// ApplyAll performs log entries in their order, and returns the result of each one it has performed. An error is
// Apply's, for the entry after these. Readers see only the state after the last entry, which takes less time:
// anything that no reader shares is changed in place.
func (m *Machine) ApplyAll(entries []Entry) (all []Applied, err error) {
	m.mu.Lock() // a panic leaves it locked
	defer func() {
		if p := recover(); p != nil {
			all, err = nil, m.panicked(p)
		}
	}()
	all = make([]Applied, 0, len(entries))
	newest := m.Index()
	for _, at := range entries {
		var done Applied
		m.doing = doing{entry: at.Index}
		if done, err = m.step(newest, at); err != nil {
			break
		}
		all, newest = append(all, done), at.Index
	}
	if len(all) > 0 {
		m.publish(newest)
	}
	m.mu.Unlock()
	return all, err
}

// step performs the entry after the newest one. Readers do not see it yet.
func (m *Machine) step(newest uint64, at Entry) (Applied, error) {
	index, term := at.Index, at.Term
	e, err := parseEntry(at.Data)
	if err != nil {
		return Applied{}, fmt.Errorf("log entry %d: %w", index, err)
	}
	if index <= newest {
		return Applied{}, fmt.Errorf("log entry %d: out of order, entry %d was applied before it", index, newest)
	}
	if first := m.registry.Epoch() == (registry.Epoch{}); first && e.establish != nil && e.establish.Level > codec.Newest {
		return Applied{}, fmt.Errorf("log entry %d: the cluster was founded at level %d: %w", index, e.establish.Level, ErrNewerVersion)
	}
	var done Applied
	if _, done.Skipped = slices.BinarySearch(m.skipped, index); done.Skipped {
		return m.skip(done, e), nil
	}
	restored := m.kv.Restored()
	switch {
	case e.establish != nil:
		done.Epoch = registry.Epoch{Term: term, Index: index}
		m.establish(done.Epoch, *e.establish)
	case e.raise != 0:
		done.Raised = true
		done.Granted = m.raise(e.raise)
	default:
		done.Batches = m.write(term, e)
	}
	done.Clock = m.registry.Clock()
	done.Touched, done.Restored = m.kv.Touched(), m.kv.Restored() != restored
	return done, nil
}

func (m *Machine) establish(epoch registry.Epoch, e Establish) {
	if e.Settings != nil {
		m.registry.Configure(*e.Settings)
	}
	if m.registry.Epoch() == (registry.Epoch{}) { // the cluster's first
		m.raise(e.Level)
	}
	m.registry.Establish(epoch, e.Cluster)
	m.tenure = 0
	m.kv.Establish(epoch, m.registry.Clock().Lease)
}

// raise raises the cluster's level, which never goes back. It returns the peers' roles that got the right which level
// 3 demands for what peers could already do.
func (m *Machine) raise(to byte) (granted []string) {
	if before := byte(m.level.Load()); before < registry.Level3 && to >= registry.Level3 {
		if granted = m.kv.GrantTakeover(m.at(0)); granted != nil {
			m.registry.ReserveIndex()
		}
	}
	m.level.Store(max(m.level.Load(), uint32(to)))
	m.obeyLevel()
	return granted
}

// obeyLevel makes both halves of the state follow the rules of the cluster's level.
func (m *Machine) obeyLevel() {
	m.registry.SetLevel(byte(m.level.Load()))
	m.kv.SetLevel(byte(m.level.Load()))
}

// Level returns the level of the formats that the cluster writes: no node writes anything above it.
func (m *Machine) Level() byte { return gated(byte(m.level.Load())) }

func (m *Machine) write(term uint64, e entry) []BatchResult {
	m.tenure = max(m.tenure, e.tenure)
	m.registry.Advance(e.stamp) // the rest may be empty or without effect
	m.kv.Advance(m.registry.Clock().Lease)
	if len(e.batches) == 0 {
		return nil
	}
	results := make([]BatchResult, len(e.batches))
	for i, b := range e.batches {
		m.doing.batch = &e.batches[i]
		results[i] = m.once(term, e.stamp, b)
	}
	return results
}

// once applies a batch unless it was applied before, or its time is over. The newest stamp counts, because an entry
// may be behind others that its leader stamped later. From level 3 on, a batch of a lower level comes too late as well:
// its node did not know of the rise yet, and left out what the lower level has no field for.
func (m *Machine) once(term uint64, stamp registry.Stamp, b batch) BatchResult {
	result := BatchResult{ID: b.id}
	result.ID.Bound = Bound{}
	standing, before := m.memory.classify(b.id)
	switch {
	case standing == refused:
		result.Refused = true
	case standing == repeated:
		result.Results = before.results
	case !b.id.Bound.permits(m.registry.Epoch(), m.tenure), b.level < m.Level() && m.Level() >= registry.Level3:
		result.Late = true
	default:
		result.Results = m.perform(term, stamp, b.items)
		m.memory.remember(b.id, result.Results)
	}
	return result
}

// perform applies the operations of a batch.
func (m *Machine) perform(term uint64, stamp registry.Stamp, items []Item) Results {
	results := newResults(items)
	read := 0
	for i, it := range items {
		m.doing.item = i
		it.Origin.Principal = it.By.Name
		allowed := m.allows(it)
		switch {
		case allowed && it.KV == nil:
			results.Registry[i] = m.registry.Apply(stamp, term, it.Origin, it.Op)
			m.lose(term, results.Registry[i].Index)
		case allowed:
			results.KV[i] = m.coordinate(term, read, it.Origin.Principal, it.KV)
			read += results.KV[i].Weight()
		case it.KV == nil:
			results.Registry[i].Outcome = registry.Revoked
		default:
			results.KV[i].Revoked = true
		}
		if allowed && m.Performed != nil {
			m.Performed(it)
		}
	}
	return results
}

// allows decides again about an operation that a node has allowed: since then its token may have been revoked, or its
// roles changed.
func (m *Machine) allows(it Item) bool {
	if it.By.Accessor == "" {
		return true
	}
	table := m.kv.Access()
	h := table.Holder(it.By.Accessor)
	if h == nil || it.By.Judged == 0 || table.Revision <= it.By.Judged {
		return h != nil
	}
	var needs []access.Need
	if it.KV != nil {
		needs = kv.Needs(it.KV, m.registry.View())
	} else {
		needs = registry.Needs(it.Op, m.registry.View())
	}
	return !slices.ContainsFunc(needs, func(n access.Need) bool {
		return !n.Counted && !h.Policy.AllowsAs(it.By.Name, n, m.kv.Owner)
	})
}

func (m *Machine) publish(index uint64) {
	p := &published{index: index, view: m.registry.View(), kv: m.kv.View()}
	p.kv.Registry = p.view
	m.published.Store(p)
}

// Recover prepares the state for a cluster that goes on after losing all its other nodes, outside the log: anything
// they had applied beyond it is lost. A new incarnation begins (Registry.Raise), sessions end and their lock-delays
// start, and leases begin again. wall is the time, ms since the epoch.
func (m *Machine) Recover(wall int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registry.RenewAll()
	at := m.at(0)
	at.Wall = wall
	m.kv.Recover(at)
	m.kv.Touched()
	m.registry.ReserveIndex()
	m.publish(m.Index())
}

// Index returns the Raft index of the newest applied entry. A View requested afterwards contains that entry.
func (m *Machine) Index() uint64 { return m.published.Load().index }

// Boot returns the newest boot of a node in applied batches, 0 before the first.
func (m *Machine) Boot(node string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.memory[node]; ok {
		return n.boot
	}
	return 0
}

// View returns the registry after the newest applied entry.
func (m *Machine) View() *registry.View { return m.published.Load().view }

// Expired calls Registry.Expired.
func (m *Machine) Expired(now int64, limit int) []registry.EvictItem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.Expired(now, limit)
}

// Ending calls Registry.Ending.
func (m *Machine) Ending(now int64) []registry.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.Ending(now)
}

// Owner calls Registry.Owner.
func (m *Machine) Owner(h registry.Handle) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.Owner(h)
}

// Ignores calls Registry.Ignores.
func (m *Machine) Ignores(op registry.Renew) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.Ignores(op)
}

// Snapshot freezes the state; the frozen copy is written while Apply goes on.
func (m *Machine) Snapshot() *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Snapshot{level: m.Level(), index: m.Index(), tenure: m.tenure, nodes: m.memory.freeze(), captured: m.registry.Capture(), kv: m.kv.Freeze()}
}
