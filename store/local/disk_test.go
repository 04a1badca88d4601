package local

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/disktest"
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

// pass moves the lease clock in steps that the registry believes.
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

// reopen loads the file anew and returns what is in it.
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

// asLoaded is a state as it is after a start: with handles of its own, indexes that begin later, and of the
// histories of live instances as much as was written with their last change.
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

// step is something that happens to a node: operations, time, writes.
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

// A record that is reduced by the time it changes must not come to stand behind one that is not on disk yet.
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
	loaded := need.Got(g.reopen())(t)
	expect.Deep(t, loaded.Removals, g.registry.Freeze().Removals, "loaded the records")
}

func TestRegistryFileHasNothingThatIsNoLongerKnown(t *testing.T) {
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

func TestRegistryFileWritesManyLeasesInOneGo(t *testing.T) {
	g := need.Got(newDiskRig(t.TempDir()))(t)
	defer func() { g.disk.close() }()
	const many = 20_000
	for i := range many {
		g.apply(registry.Register{Instance: instance(fmt.Sprint("A", i%7), fmt.Sprint("i", i), 90)})
	}
	need.OK(t, g.flush(true))
	loaded := need.Got(g.reopen())(t)
	expect.That(t, len(loaded.Leases) == many, "%d leases, want %d", len(loaded.Leases), many)
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

func TestDiskIsSlowFromTheStartIfTheSettingsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		startLocal(t, func(c *store.Config) { c.Test.SyncDelay = time.Second })
		expect.Equal(t, time.Since(began), time.Second, "the start, which writes once, takes")
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
	disktest.EachDamage(t, g.dir, disk.LocalFile, func(t *testing.T, _, how string) {
		got, err := read()
		switch {
		case err == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%s: the file has something else than was written", how)
		case err != nil && (!strings.Contains(err.Error(), disk.LocalFile) || !strings.Contains(err.Error(), "remove it")):
			t.Errorf("%s: got %v, want an error that names %s and says what to do", how, err, disk.LocalFile)
		}
	})
}
