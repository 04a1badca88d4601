package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// diskRig is a registry and its file, without a node.
type diskRig struct {
	registry *registry.Registry
	disk     *registryFile
	dir      string
	clock    registry.Stamp
	flushed  registry.Index
}

func newDiskRig(dir string) (*diskRig, error) {
	g := &diskRig{registry: registry.New(), dir: dir}
	g.registry.WithoutConsensus()
	return g, g.open()
}

func (g *diskRig) open() (err error) {
	if g.disk, err = openRegistryFile(g.dir); err == nil {
		g.disk.bolt.NoSync = true // no power is lost
	}
	return err
}

func (g *diskRig) apply(op registry.Op) { g.applyFrom(registry.FromClient, op) }

func (g *diskRig) applyFrom(origin registry.Origin, op registry.Op) {
	g.registry.Apply(g.clock, 1, origin, op)
}

// pass moves the lease clock in steps that the registry accepts.
func (g *diskRig) pass(d time.Duration) {
	for ; d > 0; d -= time.Hour {
		step := min(d, time.Hour).Milliseconds()
		g.clock.Lease += step
		g.clock.Wall += step
		g.registry.Advance(g.clock)
	}
}

// flush writes what changed, as a node does.
func (g *diskRig) flush(renewals bool) error {
	what := capture(g.registry, g.flushed, codec.Newest, false)
	if what.renewed = renewals; renewals {
		for _, l := range what.renewedSince(math.MinInt64) {
			what.addRenewal(g.registry.StateOf(l.Handle))
		}
	}
	g.flushed = what.frozen.Index
	return g.disk.write(what)
}

// reopen loads the file again and returns its contents.
func (g *diskRig) reopen() (registry.Frozen, error) {
	if err := g.disk.close(); err != nil {
		return registry.Frozen{}, err
	}
	if err := g.open(); err != nil {
		return registry.Frozen{}, err
	}
	r, err := g.disk.load()
	if err != nil {
		return registry.Frozen{}, err
	}
	return r.Freeze(), nil
}

// asLoaded returns a state as it is after a start: with handles of its own, indexes that begin later, and only as
// much of the histories of live instances as was written with their last change.
func asLoaded(f registry.Frozen) registry.Frozen {
	f.Index += reserved
	f.Cluster, f.Free = "", nil
	f.Slots, f.Generation = uint32(len(f.Leases)), uint64(len(f.Leases))
	f.Leases = slices.Clone(f.Leases)
	for i, s := range f.Leases {
		l := *s.Lease
		l.Handle = registry.Handle{Slot: uint32(i), Gen: uint64(i + 1)}
		f.Leases[i].Lease, f.Leases[i].History = &l, registry.History{}
	}
	return f
}

func withoutHistories(f registry.Frozen) registry.Frozen {
	for i := range f.Leases {
		f.Leases[i].History = registry.History{}
	}
	return f
}

func TestRegistryFileLoadsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := need.Got(os.MkdirTemp("", "rollcall"))(t)
		defer os.RemoveAll(dir)
		g := need.Got(newDiskRig(dir))(t)
		defer func() { g.disk.close() }()
		g.clock = registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			g.step(t)
		}
		need.OK(t, g.flush(true))
		loaded := need.Got(g.reopen())(t)
		got, want := withoutHistories(loaded), asLoaded(g.registry.Freeze())
		need.Deep(t, got, want, "loaded")
	})
}

// step makes something happen to a node: operations, time, writes.
func (g *diskRig) step(t *rapid.T) {
	key := registry.NewKey(rapid.SampledFrom([]string{"A", "AB", "B"}).Draw(t, "app"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "id"))
	by := registry.Act{Author: "a", Reason: "r"}
	dc2 := registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}
	number := func(what string) int64 { return int64(rapid.IntRange(1, 5).Draw(t, what)) }
	eureka := registry.Origin{Kind: registry.RemoteDC, DC: "eureka"}
	switch rapid.IntRange(0, 17).Draw(t, "what") {
	case 0, 1:
		g.apply(registry.Register{Instance: instance(key.App, key.ID, 90)})
	case 2:
		g.apply(registry.Renew{Key: key})
	case 3:
		g.apply(registry.Cancel{Key: key})
	case 4:
		g.apply(registry.SetOverride{Key: key, Status: registry.OutOfService, For: 1000, By: by})
	case 5:
		g.apply(registry.Quarantine{Key: key, For: 5000})
	case 6:
		g.applyFrom(dc2, registry.Replica{
			Instance: instance(key.App, key.ID, 90), Life: uint32(number("life")), Edit: uint32(number("edit")),
			Age: 100 * number("age"), Overridden: registry.Down, OverrideBy: by, OverrideFor: 9000,
		})
	case 7:
		g.applyFrom(dc2, registry.Remove{Key: key, Kind: registry.Canceled, Life: uint32(number("life")), LastDirty: number("dirty")})
	case 8:
		g.applyFrom(dc2, registry.Renew{Key: key, Life: uint32(number("life")), LastDirty: number("dirty"), Age: 100 * number("age")})
	case 9:
		g.applyFrom(dc2, registry.Contact{DC: "dc2", Sender: "s2", Incarnation: 1, Clock: 1000 * number("clock"), Cut: 15_000})
	case 10:
		g.apply(registry.AckPeer{Peer: "dc2", Cursor: registry.Index(number("cursor"))})
		g.apply(registry.PausePeer{Peer: "dc3", Paused: true, By: by})
	case 11:
		g.pass(time.Duration(rapid.SampledFrom([]int{1, 30, 300, 10_000, 90_000}).Draw(t, "seconds")) * time.Second)
	case 12:
		g.apply(registry.Quarantine{Key: key, By: by})
	case 13:
		g.applyFrom(eureka, registry.Contact{DC: "eureka", Cut: 90_000})
		g.applyFrom(eureka, registry.Cancel{Key: key})
	case 14: // the Eureka server takes its cancel back
		g.applyFrom(eureka, registry.Renew{Key: key, LastDirty: g.clock.Wall})
	default:
		need.OK(t, g.flush(rapid.Bool().Draw(t, "renewals")))
	}
}

// A record that is reduced when it changes must not end up behind one that is not on disk yet.
func TestRegistryFileLoadsAfterAnOldRemovalChanged(t *testing.T) {
	g := need.Got(newDiskRig(t.TempDir()))(t)
	defer func() { g.disk.close() }()
	keys := []registry.Key{registry.NewKey("A", "x"), registry.NewKey("A", "y"), registry.NewKey("A", "z")}
	for _, key := range keys {
		g.apply(registry.Register{Instance: instance("A", key.ID, 90)})
		g.apply(registry.Quarantine{Key: key, For: 10 * time.Hour.Milliseconds()})
		g.apply(registry.Cancel{Key: key})
	}
	need.OK(t, g.flush(false))
	g.pass(time.Hour)
	g.apply(registry.Quarantine{Key: keys[1]})
	need.OK(t, g.flush(false))
	expect.Deep(t, need.Got(g.reopen())(t).Removals, g.registry.Freeze().Removals, "loaded the records")
}

func TestRegistryFileDropsWhatIsForgotten(t *testing.T) {
	counts := func(t *testing.T, g *diskRig) (n [5]int) {
		err := g.disk.bolt.View(func(tx *bbolt.Tx) error {
			for i, name := range buckets {
				n[i] = tx.Bucket(name).Stats().KeyN
			}
			return nil
		})
		need.OK(t, err)
		return n
	}
	key := registry.NewKey("A", "x")
	tests := []struct {
		name string
		do   func(*diskRig)
		want [5]int // state, leases, renewals, removals, removed
	}{
		{"a lease that was renewed", func(g *diskRig) { g.pass(time.Minute); g.apply(registry.Renew{Key: key}) }, [5]int{1, 1, 1, 0, 0}},
		{"a removal", func(g *diskRig) { g.apply(registry.Cancel{Key: key}) }, [5]int{1, 0, 0, 1, 1}},
		{"a registration after it", func(g *diskRig) {
			g.apply(registry.Cancel{Key: key})
			g.flush(true)
			g.apply(registry.Register{Instance: instance("A", "x", 90)})
		}, [5]int{1, 1, 0, 0, 0}},
		{"a second removal", func(g *diskRig) {
			g.apply(registry.Cancel{Key: key})
			g.flush(true)
			g.apply(registry.Register{Instance: instance("A", "x", 90)})
			g.apply(registry.Cancel{Key: key})
		}, [5]int{1, 0, 0, 1, 1}},
		{"a record that was pruned", func(g *diskRig) {
			g.apply(registry.Cancel{Key: key})
			g.flush(true)
			g.pass(25 * time.Hour)
		}, [5]int{1, 0, 0, 0, 0}},
		{"a record that was pruned before it was written", func(g *diskRig) {
			g.apply(registry.Cancel{Key: key})
			g.pass(25 * time.Hour)
		}, [5]int{1, 0, 0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := need.Got(newDiskRig(t.TempDir()))(t)
			defer func() { g.disk.close() }()
			g.apply(registry.Register{Instance: instance("A", "x", 90)})
			need.OK(t, g.flush(true))
			tt.do(g)
			need.OK(t, g.flush(true))
			expect.Equal(t, counts(t, g), tt.want, "the buckets %s have", buckets)
			expect.OK(t, expect.Err(g.reopen()))
		})
	}
}

func TestRegistryFileHasOneNameForAnInstance(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	keys := []registry.Key{
		{App: "A", ID: "b"}, {App: "A", ID: "B"}, {App: "Ab"}, {App: "", ID: "Ab"}, {App: "A\x00b"}, {App: "A", ID: "\x00b"},
		{App: "A\x00", ID: "b"}, {App: long, ID: "a"}, {App: long + "a"}, {App: "A", ID: long}, {},
	}
	names := map[string]registry.Key{}
	for _, k := range keys {
		name := nameOnDisk(k)
		expect.That(t, len(name) != 0 && len(name) <= maxName, "%.20v has a name of %d bytes, want 1 to %d", k, len(name), maxName)
		other, twice := names[string(name)]
		expect.That(t, !twice, "%.20v and %.20v have the name %q", k, other, name)
		names[string(name)] = k
	}
	expect.That(t, bytes.Compare(nameOnDisk(registry.Key{App: "A", ID: "z"}), nameOnDisk(registry.Key{App: "AB", ID: "a"})) < 0,
		"the names are not in the order of application and id")
}

func TestRegistryFileThatIsDamagedIsRefusedWithWords(t *testing.T) {
	in := func(bucket, key, value []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			bolt, err := openLocalBolt(path)
			need.OK(t, err)
			err = bolt.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, disk.Sealed(key, value)) })
			need.OK(t, errors.Join(err, bolt.Close()))
		}
	}
	name := nameOnDisk(registry.NewKey("A", "x"))
	tests := []struct {
		name   string
		damage func(*testing.T, string)
		want   string
	}{
		{"overwritten", func(t *testing.T, path string) {
			need.OK(t, os.WriteFile(path, bytes.Repeat([]byte{0xff}, 64<<10), 0o600))
		}, "damaged"},
		{"cut short", func(t *testing.T, path string) {
			need.OK(t, os.Truncate(path, 5000))
		}, "damaged"},
		{"a lease that is none", in(bucketLeases, name, []byte{1, 0xff}), "damaged"},
		{"a lease of a newer version", in(bucketLeases, name, []byte{99}), "newer version"},
		{"a renewal that is none", in(bucketRenewals, name, []byte{1, 2}), "damaged"},
		{"a renewal of a newer version", in(bucketRenewals, name, []byte{99}), "newer version"},
		{"a removal that is none", in(bucketRemovals, indexOnDisk(7), nil), "damaged"},
		{"a state that is none", in(bucketState, keyRegistry, []byte{1}), "damaged"},
		{"a state that does not fit the leases", func(t *testing.T, path string) {
			other := need.Got(newDiskRig(t.TempDir()))(t)
			defer other.disk.close()
			need.OK(t, other.flush(true))
			var state []byte
			err := other.disk.bolt.View(func(tx *bbolt.Tx) error {
				state, _ = disk.Unsealed(keyRegistry, bytes.Clone(tx.Bucket(bucketState).Get(keyRegistry)))
				return nil
			})
			need.OK(t, err)
			in(bucketState, keyRegistry, state)(t, path)
		}, "damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := need.Got(newDiskRig(t.TempDir()))(t)
			g.apply(registry.Register{Instance: instance("A", "x", 90)})
			need.OK(t, errors.Join(g.flush(true), g.disk.close()))
			tt.damage(t, filepath.Join(g.dir, disk.LocalFile))
			d, err := openRegistryFile(g.dir)
			if err == nil {
				defer d.close()
				_, err = d.load()
			}
			expect.That(t, err != nil && strings.Contains(err.Error(), tt.want) && strings.Contains(err.Error(), disk.LocalFile),
				"got %v, want an error that names %s and says %q", err, disk.LocalFile, tt.want)
		})
	}
}

// Time stands still in a bubble while the disk really works.
func timed(t *testing.T, write func() error) time.Duration {
	t.Helper()
	began := time.Now()
	need.OK(t, write())
	return time.Since(began)
}

func TestFlushThatIsSlowKeepsOnlyItsOwnCallersWaiting(t *testing.T) {
	tune := func(c *store.Config) {
		c.Sync, c.SyncInterval, c.Test.SyncDelay = store.SyncAlways, time.Hour, time.Second
	}
	localBubble(t, tune, func(t *testing.T, g *localRig) {
		for _, tt := range []struct {
			name  string
			delay time.Duration
			op    registry.Op
			want  time.Duration
		}{
			{"a registration", time.Second, registry.Register{Instance: instance("A", "x", 3600)}, time.Second},
			{"a renewal, which waits for no disk", time.Second, registry.Renew{Key: registry.NewKey("A", "x")}, 0},
			{"a cancel after the delay was changed", 3 * time.Second, registry.Cancel{Key: registry.NewKey("A", "x")}, 3 * time.Second},
			{"a registration after its end", 0, registry.Register{Instance: instance("A", "x", 3600)}, 0},
		} {
			g.SetSyncDelay(tt.delay)
			expect.Equal(t, timed(t, func() error { _, err := g.Apply(t.Context(), registry.FromClient, tt.op); return err }), tt.want, "%s takes", tt.name)
		}
	})
}

func TestRegistryFileThatIsDamagedIsRefusedInWordsOrReadAsItWasWritten(t *testing.T) {
	g, err := newDiskRig(t.TempDir())
	need.OK(t, err)
	for i := range 60 {
		g.apply(registry.Register{Instance: instance("A", fmt.Sprint("i", i), 90)})
		if i%5 == 0 {
			g.apply(registry.Cancel{Key: registry.NewKey("A", fmt.Sprint("i", i))})
			err = errors.Join(err, g.flush(true))
		}
	}
	need.OK(t, errors.Join(err, g.flush(true), g.disk.close()))
	read := func() (registry.Frozen, error) {
		d, err := openRegistryFile(g.dir)
		if err != nil {
			return registry.Frozen{}, err
		}
		defer d.close()
		f, err := d.read()
		if err != nil {
			return registry.Frozen{}, fmt.Errorf("%s: %w", d.path, explainLocal(err))
		}
		return *f, nil
	}
	want := need.Got(read())(t)
	golden.EachDamage(t, g.dir, disk.LocalFile, func(t *testing.T, _, how string) {
		got, err := read()
		switch {
		case err == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%s: the file has something else than was written", how)
		case err != nil && (!strings.Contains(err.Error(), disk.LocalFile) || !strings.Contains(err.Error(), "remove it")):
			t.Errorf("%s: got %v, want an error that names %s and says what to do", how, err, disk.LocalFile)
		}
	})
}

// panicking makes operations on an instance panic after they have changed the registry, while on is true.
type panicking struct {
	id string
	on bool
}

func (p *panicking) performed(it fsm.Item) {
	if key, _ := registry.KeyOf(it.Op); p.on && key.ID == p.id {
		panic("planted")
	}
}

// keptLog keeps a log.
type keptLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *keptLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *keptLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// poisoned runs a test with a node where operations on the instance "bad" panic.
func poisoned(t *testing.T, sync store.Sync, do func(t *testing.T, g *localRig, p *panicking, log *keptLog)) {
	t.Helper()
	p, log := &panicking{id: "bad", on: true}, &keptLog{}
	localBubble(t, func(c *store.Config) {
		c.Sync, c.Test.Performed, c.Log = sync, p.performed, slog.New(slog.NewTextHandler(log, nil))
	}, func(t *testing.T, g *localRig) { do(t, g, p, log) })
}

// replicas returns what a peer sends of instances of application A.
func replicas(ids ...string) []registry.Op {
	ops := make([]registry.Op, len(ids))
	for i, id := range ids {
		ops[i] = registry.Replica{Instance: instance("A", id, 30), Life: 1}
	}
	return ops
}

var fromNode = registry.Origin{Kind: registry.LocalPeer}

func (g *localRig) receive(t *testing.T, ops ...registry.Op) []registry.Outcome {
	t.Helper()
	results, err := g.Apply(access.FromServer(context.Background(), "n2"), fromNode, ops...)
	need.OKf(t, err, "receive")
	outcomes := make([]registry.Outcome, len(results))
	for i, r := range results {
		outcomes[i] = r.Outcome
	}
	return outcomes
}

func TestItemThatPanicsIsRefusedAndTheOthersOfItsBatchArePerformed(t *testing.T) {
	for _, sync := range []store.Sync{store.SyncInterval, store.SyncAlways} {
		t.Run(string(sync), func(t *testing.T) {
			poisoned(t, sync, func(t *testing.T, g *localRig, p *panicking, log *keptLog) {
				g.register(600, "own")
				time.Sleep(5 * time.Second)
				g.apply(registry.Renew{Key: registry.NewKey("A", "own")})
				own, _ := g.now().Find(registry.NewKey("A", "own"))
				renewed := g.now().LastRenewal(own)
				const panicked = registry.Panicked
				need.Slice(t, g.receive(t, replicas("1", "bad", "2", "3")...), []registry.Outcome{0, panicked, 0, 0}, "outcomes")
				for _, id := range []string{"own", "1", "2", "3"} {
					expect.That(t, g.has(id), "%s is not there", id)
				}
				expect.That(t, !g.has("bad"), "what panicked is there")
				expect.Equal(t, g.now().LastRenewal(own), renewed, "a renewal from before the panic")
				all := g.Refusals()
				need.Equal(t, len(all), 1, "refusals")
				f := all[0]
				expect.That(t, f.Key == registry.NewKey("A", "bad") && f.Server == "n2" && f.Cause == "planted" && f.Operation == "replica of A/bad" && f.Times == 1, "%+v", f)
				expect.Equal(t, testutil.ToFloat64(g.Store.metrics.panics), 1, "panics counted")
				g.restart()
				for _, id := range []string{"own", "1", "2", "3"} {
					expect.That(t, g.has(id), "%s was lost by a restart", id)
				}
				expect.That(t, !g.has("bad"), "what panicked is there after a restart")

				p.on = false
				need.Slice(t, g.receive(t, replicas("bad")...), []registry.Outcome{0}, "outcomes")
				expect.That(t, g.has("bad"), "it is not there")
				expect.Equal(t, log.count("level=ERROR"), 1, "lines at ERROR")
			})
		})
	}
}

func TestItemThatWentOnPanickingIsNotTriedForAMinute(t *testing.T) {
	poisoned(t, store.SyncInterval, func(t *testing.T, g *localRig, p *panicking, log *keptLog) {
		const panicked = registry.Panicked
		for range 5 {
			need.Slice(t, g.receive(t, replicas("bad", "1")...), []registry.Outcome{panicked, 0}, "outcomes")
		}
		expect.Equal(t, testutil.ToFloat64(g.Store.metrics.panics), panicsTried, "times that it was tried")
		expect.Equal(t, g.Refusals()[0].Times, 5, "times that it was refused")
		p.on = false
		need.Slice(t, g.receive(t, replicas("bad", "2")...), []registry.Outcome{panicked, 0}, "outcomes within the minute")
		time.Sleep(panicsPause)
		need.Slice(t, g.receive(t, replicas("bad")...), []registry.Outcome{0}, "outcomes after the minute")
		expect.That(t, g.has("bad") && len(g.Refusals()) == 0, "it is refused: %+v", g.Refusals())
		expect.That(t, log.count("level=ERROR") == 1 && log.count("an operation that had panicked was performed") == 1, "log: %s", &log.text)
	})
}

func TestCallOfAClientThatPanicsChangesNothing(t *testing.T) {
	poisoned(t, store.SyncAlways, func(t *testing.T, g *localRig, _ *panicking, _ *keptLog) {
		g.register(600, "own")
		before := g.now().Index()
		_, err := g.Apply(context.Background(), registry.FromClient, registry.Register{Instance: instance("A", "1", 30)},
			registry.Cancel{Key: registry.NewKey("A", "own")}, registry.Register{Instance: instance("A", "bad", 30)})
		need.That(t, errors.Is(err, registry.ErrPanicked), "got %v, want %v", err, registry.ErrPanicked)
		expect.That(t, g.has("own") && !g.has("1") && !g.has("bad"), "something of the call took effect")
		expect.Equal(t, g.now().Index(), before, "index")
		g.register(600, "2")
		g.restart()
		expect.That(t, g.has("own") && g.has("2") && !g.has("1") && !g.has("bad"), "after a restart something of the call is there, or something else is not")
	})
}

// A record that changes without an index is in no list of changes: after a panic everything is written.
func TestRecordOfARemovalThatChangedBeforeAPanicReachesTheDisk(t *testing.T) {
	poisoned(t, store.SyncNone, func(t *testing.T, g *localRig, _ *panicking, _ *keptLog) {
		key := registry.NewKey("A", "own")
		g.register(600, "own")
		g.apply(registry.Quarantine{Key: key, For: time.Hour.Milliseconds()})
		g.apply(registry.Cancel{Key: key})
		need.OKf(t, g.save(false), "save")
		g.apply(registry.Quarantine{Key: key})
		g.receive(t, replicas("bad", "1")...)
		need.OKf(t, g.save(false), "save")
		rec, ok := g.killed(t).Removal(key)
		expect.That(t, ok && rec.Lease.Quarantine == nil, "on disk the record is %+v, %v; want it without a quarantine", rec.Lease, ok)
	})
}

// A registry that can neither go on nor be rebuilt must not reach the disk.
func TestNodeWhoseRegistryCannotBeRebuiltStops(t *testing.T) {
	poisoned(t, store.SyncInterval, func(t *testing.T, g *localRig, _ *panicking, _ *keptLog) {
		g.register(600, "own")
		time.Sleep(2*time.Second + 7*time.Millisecond) // no tick publishes a view meanwhile
		g.view.Store(nil)                              // no registry can be built from it
		_, err := g.Apply(context.Background(), fromNode, replicas("1", "bad")...)
		need.That(t, errors.Is(err, registry.ErrClosed), "got %v, want %v", err, registry.ErrClosed)
		g.mu.Lock()
		g.dirty = true
		g.mu.Unlock()
		need.OKf(t, g.save(false), "save")
		err = <-g.done
		g.done <- nil
		need.That(t, err != nil && strings.Contains(err.Error(), "planted"), "the node ended with %v, want what the operation panicked with", err)
		v := g.killed(t)
		_, own := v.Find(registry.NewKey("A", "own"))
		_, half := v.Find(registry.NewKey("A", "1"))
		expect.That(t, own && !half, "on disk: own %t, what was performed beside what panicked %t", own, half)
	})
}

// A lease whose end panics keeps no other lease from ending.
func TestLeaseWhoseEndPanicsKeepsNoOtherFromEnding(t *testing.T) {
	var bad registry.Handle
	panics := func(it fsm.Item) {
		if e, is := it.Op.(registry.Evict); is && slices.ContainsFunc(e.Items, func(i registry.EvictItem) bool { return i.Handle == bad }) {
			panic("planted")
		}
	}
	localBubble(t, func(c *store.Config) { c.Test.Performed = panics }, func(t *testing.T, g *localRig) {
		g.register(600, "bad", "1", "2", "3")
		evict := func(ids ...string) (op registry.Evict) {
			op.Epoch = g.reign.Load().Epoch
			for _, id := range ids {
				l, _ := g.now().Find(registry.NewKey("A", id))
				op.Items = append(op.Items, registry.EvictItem{Handle: l.Handle, Registered: l.Registered, RenewedAt: g.now().LastRenewal(l).Lease})
			}
			return op
		}
		bad = evict("bad").Items[0].Handle
		all := need.Got(g.applyOwn(context.Background(), evict("1", "bad", "2", "3")))(t)
		expect.That(t, len(all) == 1 && all[0].Count == 3, "got %+v, want three leases that ended", all)
		for _, id := range []string{"1", "2", "3"} {
			expect.That(t, !g.has(id), "%s has not ended", id)
		}
		expect.That(t, g.has("bad") && !g.paused(evict("bad")), "what panicked took effect, or is not tried again")
		for range panicsTried {
			need.Got(g.applyOwn(context.Background(), evict("bad")))(t)
		}
		expect.That(t, g.paused(evict("bad")), "it is tried for ever")
		g.register(600, "1")
		expect.That(t, !g.paused(evict("1")), "another lease is not ended for a minute")
		time.Sleep(panicsPause)
		expect.That(t, !g.paused(evict("bad")), "it is not tried after a minute")
	})
}

// An override whose end panics keeps neither another override nor a lease from ending.
func TestOverrideWhoseEndPanicsKeepsNothingElseFromEnding(t *testing.T) {
	var bad registry.Handle
	panics := func(it fsm.Item) {
		if e, is := it.Op.(registry.EndOverride); is && e.Handle == bad {
			panic("planted")
		}
	}
	localBubble(t, func(c *store.Config) { c.Test.Performed = panics }, func(t *testing.T, g *localRig) {
		g.register(3600, "bad", "other", "a", "b", "c", "d")
		l, _ := g.now().Find(registry.NewKey("A", "bad"))
		bad = l.Handle
		for _, id := range []string{"bad", "other"} {
			g.apply(registry.SetOverride{Key: registry.NewKey("A", id), Status: registry.OutOfService, For: 1000})
		}
		g.register(6, "goes")
		time.Sleep(10 * time.Minute)
		l, _ = g.now().Find(registry.NewKey("A", "other"))
		expect.That(t, l.Instance.Overridden == registry.Unknown, "the other override has not ended: %+v", l)
		expect.That(t, !g.has("goes"), "the lease has not ended")
	})
}
