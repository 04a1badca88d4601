package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// localRig is a node without consensus, which can be stopped and started again on the same directory.
type localRig struct {
	t       *testing.T
	cfg     store.Config
	metrics prometheus.Registerer // for the next start; nil for new ones
	*Store
	stop context.CancelFunc
	done chan error
}

// startLocal starts a node on an empty directory.
func startLocal(t *testing.T, tune func(*store.Config)) *localRig {
	t.Helper()
	g := &localRig{t: t, cfg: store.Config{
		Node: "n1", Datacenter: "dc1", DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	if tune != nil {
		tune(&g.cfg)
	}
	g.start()
	t.Cleanup(func() { g.halt() })
	return g
}

// start opens the node's directory and runs it.
func (g *localRig) start() {
	g.t.Helper()
	g.cfg.Metrics = g.metrics
	if g.metrics == nil {
		g.cfg.Metrics = prometheus.NewRegistry()
	}
	s, err := Open(g.cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g.Store, g.stop, g.done = s, stop, make(chan error, 1)
	go func() { g.done <- s.Run(ctx) }()
}

// halt stops the node, if it runs, and returns what Run returned.
func (g *localRig) halt() error {
	g.stop()
	err := <-g.done
	g.done <- err
	return err
}

// restart stops the node properly and starts it again.
func (g *localRig) restart() {
	g.t.Helper()
	if err := g.halt(); err != nil {
		g.t.Fatal(err)
	}
	g.start()
}

func (g *localRig) apply(ops ...registry.Op) []registry.Result {
	g.t.Helper()
	res, err := g.Apply(context.Background(), registry.FromClient, ops...)
	if err != nil {
		g.t.Fatalf("apply %T: %v", ops[0], err)
	}
	return res
}

// register registers instances of application A with a lease of some seconds, renewed every second.
func (g *localRig) register(duration int32, ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		g.apply(registry.Register{Instance: instance("A", id, duration)})
	}
}

func (g *localRig) now() *registry.View {
	g.t.Helper()
	v, err := g.View(context.Background(), registry.Stale)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

func (g *localRig) has(id string) bool {
	_, ok := g.now().Find(registry.NewKey("A", id))
	return ok
}

// onDisk returns the index of the newest change that is on disk.
func (g *localRig) onDisk() registry.Index {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushed
}

// localBubble runs a test with a node in a bubble of virtual time.
func localBubble(t *testing.T, tune func(*store.Config), do func(t *testing.T, g *localRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := startLocal(t, tune)
		synctest.Wait()
		do(t, g)
	})
}

var syncs = map[string]store.Sync{"interval": store.SyncInterval, "always": store.SyncAlways, "none": store.SyncNone}

func TestStoreHasAfterAProperStopWhatItHadBefore(t *testing.T) {
	for name, sync := range syncs {
		t.Run(name, func(t *testing.T) {
			localBubble(t, func(c *store.Config) { c.Sync = sync }, func(t *testing.T, g *localRig) {
				g.register(90, "i0", "i1", "i2")
				g.apply(registry.SetOverride{Key: registry.NewKey("A", "i1"), Status: registry.OutOfService})
				g.apply(registry.Cancel{Key: registry.NewKey("A", "i2")})
				time.Sleep(20 * time.Second)
				g.apply(registry.Renew{Key: registry.NewKey("A", "i0")})
				before := g.now()
				g.restart()
				after := g.now()
				for l := range before.All() {
					got, ok := after.Find(l.Key())
					if !ok || got.Changed != l.Changed || got.Life != l.Life || got.Instance.Status != l.Instance.Status {
						t.Errorf("%v is %+v afterwards, want %+v", l.Key(), got, l)
					} else if after.LastRenewal(got) != before.LastRenewal(l) {
						t.Errorf("%v was renewed at %v, want %v", l.Key(), after.LastRenewal(got), before.LastRenewal(l))
					}
				}
				expect.That(t, after.Total() == 2, "%d instances, want 2", after.Total())
				_, ok := after.Removal(registry.NewKey("A", "i2"))
				expect.That(t, ok, "the record of a removal is gone")
			})
		})
	}
}

func TestEachStartIsAnEpochWithIndexesOfItsOwn(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		epochs := map[string]bool{}
		newest := registry.Index(0)
		for range 4 {
			g.register(90, "i0")
			v := g.now()
			id, boot := g.Identity()
			want := fmt.Sprintf("%s-%d", id, boot)
			expect.That(t, v.Epoch() == want && !epochs[want], "epoch %s, want %s, and no epoch twice", v.Epoch(), want)
			expect.That(t, v.Index() > newest, "index %d after %d", v.Index(), newest)
			epochs[v.Epoch()], newest = true, v.Index()
			g.restart()
		}
	})
}

func TestIndexesAreNotUsedTwiceIfAStartWasKilled(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		g.register(90, "i0")
		need.OK(t, g.halt())
		killed := need.Got(Open(with(g.cfg, prometheus.NewRegistry())))(t)
		given := killed.view.Load().Index() + reserved/2
		need.OK(t, killed.disk.close())
		g.start()
		got := g.now().Index()
		expect.That(t, got >= given, "it begins at %d, but the start before may have come to %d", got, given)
	})
}

func with(c store.Config, metrics prometheus.Registerer) store.Config {
	c.Metrics = metrics
	return c
}

func TestLeaseClockOfAStoreGoesOnWhereItStood(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		g.register(90, "i0")
		time.Sleep(30 * time.Second)
		need.OK(t, g.halt())
		time.Sleep(time.Hour)
		g.start()
		synctest.Wait()
		got := g.now().Stamp().Lease
		expect.That(t, got >= 29_900 && got <= 30_100, "the lease clock shows %d ms after 30 s and an hour at rest, want 30 s", got)
	})
}

func TestChangesAreOnDiskWhenTheSettingSays(t *testing.T) {
	tests := []struct {
		name          string
		sync          store.Sync
		atOnce, later bool
	}{
		{"interval", store.SyncInterval, false, true},
		{"always", store.SyncAlways, true, true},
		{"none", store.SyncNone, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			localBubble(t, func(c *store.Config) { c.Sync, c.SyncInterval = tt.sync, 3*time.Second }, func(t *testing.T, g *localRig) {
				g.register(90, "i0")
				expect.Equal(t, g.onDisk() == 1, tt.atOnce, "with the answer: on disk")
				time.Sleep(3 * time.Second)
				synctest.Wait()
				expect.Equal(t, g.onDisk() == 1, tt.later, "after the interval: on disk")
			})
		})
	}
}

// What changes about a removal's record takes no index, and is as true after a crash as any other result.
func TestEndOfARemovalsQuarantineIsOnDiskWithTheResult(t *testing.T) {
	localBubble(t, func(c *store.Config) { c.Sync = store.SyncAlways }, func(t *testing.T, g *localRig) {
		key := registry.NewKey("A", "i0")
		g.register(90, "i0")
		g.apply(registry.Quarantine{Key: key, For: time.Hour.Milliseconds()})
		g.apply(registry.Cancel{Key: key})
		rec, ok := g.now().Removal(key)
		need.That(t, ok && rec.Lease.Quarantine != nil, "before: %+v, %v", rec, ok)
		g.apply(registry.Quarantine{Key: key})
		rec, ok = g.killed(t).Removal(key)
		expect.That(t, ok && rec.Lease.Quarantine == nil, "after a kill the record is %+v, %v", rec.Lease, ok)
	})
}

// killed returns what a kill of the process would leave at this moment.
func (g *localRig) killed(t *testing.T) *registry.View {
	t.Helper()
	b := need.Got(os.ReadFile(filepath.Join(g.cfg.DataDir, disk.LocalFile)))(t)
	dir := t.TempDir()
	need.OK(t, os.WriteFile(filepath.Join(dir, disk.LocalFile), b, 0o600))
	d := need.Got(openRegistryFile(dir))(t)
	defer d.close()
	return need.Got(d.load())(t).View()
}

func TestIndexesDoNotPassHalfOfTheReserveWithoutAWrite(t *testing.T) {
	localBubble(t, func(c *store.Config) { c.Sync = store.SyncNone }, func(t *testing.T, g *localRig) {
		g.register(90, "i0")
		g.restart()
		g.mu.Lock()
		g.flushed = g.now().Index() - reserved/2 // as if it had done that much since
		g.mu.Unlock()
		g.register(90, "i1")
		synctest.Wait()
		expect.Equal(t, g.onDisk(), g.now().Index(), "the disk has")
	})
}

func TestRenewalsAreWrittenSeldomAndNotPublished(t *testing.T) {
	localBubble(t, func(c *store.Config) { c.Sync = store.SyncAlways }, func(t *testing.T, g *localRig) {
		g.register(90, "i0")
		time.Sleep(2*time.Second + expiry.ClockInterval/2) // the level has risen, and everything was rewritten
		before, writes := g.now(), g.writes()
		for range 100 {
			g.apply(registry.Renew{Key: registry.NewKey("A", "i0")})
		}
		expect.That(t, g.now() == before, "a renewal published a view")
		got := g.writes()
		expect.That(t, got == writes, "%d renewals made %d writes", 100, got-writes)
		time.Sleep(renewalsAge + 2*time.Second)
		got = g.writes()
		expect.That(t, got == writes+1, "%d writes after %v, want 1: for the clock and the renewals", got-writes, renewalsAge)
	})
}

// writes returns how often the node wrote its disk.
func (g *localRig) writes() uint64 {
	g.t.Helper()
	families, err := g.cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "rollcall_store_sync_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	g.t.Fatal("no metric of the writes")
	return 0
}

// busyBubble is localBubble for a node whose callers wait for the disk, which is busy until free is called.
func busyBubble(t *testing.T, do func(t *testing.T, g *localRig, free func())) {
	t.Helper()
	var busy chan struct{}
	localBubble(t, func(c *store.Config) {
		c.Sync, c.SyncInterval = store.SyncAlways, time.Hour
		c.Test.Write = func(_ string, write func() error) error {
			if busy != nil {
				<-busy
			}
			return write()
		}
	}, func(t *testing.T, g *localRig) {
		busy = make(chan struct{})
		do(t, g, func() { close(busy) })
	})
}

func TestFlushIsSharedByAllCallersThatWait(t *testing.T) {
	busyBubble(t, func(t *testing.T, g *localRig, free func()) {
		const callers = 50
		before := g.writes()
		done := make(chan error, callers)
		for i := range callers {
			go func() {
				done <- expect.Err(g.Apply(t.Context(), registry.FromClient, registry.Register{Instance: instance("A", fmt.Sprint("i", i), 90)}))
			}()
		}
		synctest.Wait()
		expect.Equal(t, g.now().Total(), callers, "performed are")
		expect.Equal(t, len(done), 0, "answered before anything was written are")
		free()
		for range callers {
			expect.OK(t, <-done)
		}
		got := g.writes() - before
		expect.That(t, got <= 2, "%d writes for %d callers, want the one under way and the next", got, callers)
	})
}

func TestFlushWithoutItsCallerIsUnknown(t *testing.T) {
	busyBubble(t, func(t *testing.T, g *localRig, free func()) {
		defer free()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Apply(ctx, registry.FromClient, registry.Register{Instance: instance("A", "i0", 90)})
		expect.That(t, errors.Is(err, registry.ErrUnknownOutcome) && errors.Is(err, context.Canceled),
			"got %v, want ErrUnknownOutcome and the context's error", err)
	})
}

func TestFlushThatIsNotMadeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := need.Got(Open(store.Config{Node: "n1", DataDir: t.TempDir(), Sync: store.SyncAlways}))(t)
		s.admitOperations()
		done := make(chan error, 1)
		go func() {
			_, err := s.Apply(t.Context(), registry.FromClient, registry.Register{Instance: instance("A", "i0", 90)})
			done <- err
		}()
		synctest.Wait()
		s.refuseOperations()
		reason := errors.New("disk gone")
		err := s.close(reason)
		expect.That(t, errors.Is(err, reason), "the node ended with %v, want the reason", err)
		expect.ErrorIs(t, <-done, registry.ErrUnknownOutcome, "got")
	})
}

func TestStoreStopsAtADiskError(t *testing.T) {
	for name, sync := range syncs {
		t.Run(name, func(t *testing.T) {
			localBubble(t, func(c *store.Config) { c.Sync = sync }, func(t *testing.T, g *localRig) {
				need.OK(t, g.disk.close())
				_, err := g.Apply(t.Context(), registry.FromClient, registry.Register{Instance: instance("A", "i0", 90)})
				if waits := sync == store.SyncAlways; errors.Is(err, registry.ErrUnknownOutcome) != waits || !waits && err != nil {
					t.Errorf("a caller that waits for the disk was told %v", err)
				}
				if sync != store.SyncNone { // it finds out when it stops
					time.Sleep(2 * time.Second)
					synctest.Wait()
					expect.ErrorIs(t, expect.Err(g.Apply(t.Context(), registry.FromClient, registry.Cancel{Key: registry.NewKey("A", "i0")})), registry.ErrClosed,
						"a call after the error was told")
				}
				if err := g.halt(); err == nil || !strings.Contains(err.Error(), disk.LocalFile) {
					t.Errorf("Run returned %v, want an error that names %s", err, disk.LocalFile)
				}
			})
		})
	}
}

func TestStoreIsReadyWhenItHasCopiedTheOtherNodes(t *testing.T) {
	var copied chan error // of the bubble
	copying := func(ctx context.Context) error {
		select {
		case err := <-copied:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name, result := range map[string]error{"they have been asked": nil, "none could be asked": errors.New("unreachable")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				copied = make(chan error)
				g := startLocal(t, func(c *store.Config) { c.Copy = copying })
				g.register(90, "i0")
				time.Sleep(time.Minute)
				synctest.Wait()
				h := g.Health()
				expect.That(t, !h.Ready && !h.Quorum && h.Suspended, "before: %+v, want it not ready", h)
				expect.That(t, g.has("i0"), "what was written before the node was ready is not there")
				copied <- result
				synctest.Wait()
				h = g.Health()
				expect.That(t, h.Ready && h.Quorum && !h.Leads, "afterwards: %+v, want it ready, and no leader", h)
			})
		})
	}
	t.Run("it is stopped before", func(t *testing.T) {
		localBubble(t, func(c *store.Config) { copied, c.Copy = make(chan error), copying }, func(t *testing.T, g *localRig) {
			err := g.halt()
			expect.That(t, err == nil && !g.Health().Ready, "Run returned %v, ready %v, want neither", err, g.Health().Ready)
		})
	})
}

func TestStoreEndsLeases(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		g.register(90, "stays")
		g.register(6, "goes")
		time.Sleep(6 * time.Second)
		expect.That(t, g.has("goes"), "it went before its time")
		time.Sleep(2 * expiry.ClockInterval)
		expect.That(t, !g.has("goes") && g.has("stays"), "a moment later: %v and %v, want it gone and the other there", g.has("goes"), g.has("stays"))
	})
}

func TestStoreEndsNoLeaseBeforeItsClientHadTimeToComeBack(t *testing.T) {
	var copied chan struct{}
	localBubble(t, func(c *store.Config) {
		copied = make(chan struct{})
		c.Copy = func(context.Context) error { <-copied; return nil }
	}, func(t *testing.T, g *localRig) {
		g.register(6, "i0")
		time.Sleep(time.Minute) // no node could tell it of a renewal meanwhile
		copied <- struct{}{}
		time.Sleep(5 * time.Second)
		h := g.Health()
		expect.That(t, g.has("i0") && h.Suspended, "5 s after the node was ready: there %v, suspended %v, want both", g.has("i0"), h.Suspended)
		time.Sleep(2 * time.Second)
		expect.That(t, !g.has("i0"), "after the grace it is still there: %+v", g.Health())
	})
}

func TestHealthIsSuspendedUntilTheGraceIsOver(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		g.register(90, "i0")
		g.restart()
		synctest.Wait()
		expect.That(t, g.Health().Suspended, "not suspended although no lease can end")
		time.Sleep(8 * time.Second) // interval + 5 s, noticed within a second
		expect.That(t, !g.Health().Suspended, "suspended although the lease can end")
	})
}

func TestChangesWakeTheirReaders(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		type told struct {
			changes registry.Changes
			err     error
		}
		await := func(app string) <-chan told {
			done := make(chan told, 1)
			go func() {
				changes, err := g.Changes(t.Context(), g.now().Index(), registry.Selector{App: app})
				done <- told{changes, err}
			}()
			synctest.Wait()
			return done
		}
		a, b := await("A"), await("B")
		g.register(90, "i0")
		got := <-a
		expect.That(t, got.err == nil && len(got.changes.Items) == 1 && got.changes.Items[0].Index == 1, "got %+v, want the change 1", got)
		expect.That(t, len(b) == 0, "a reader that waits for another application was told of it")
		need.OK(t, g.halt())
		if got := <-b; !errors.Is(got.err, registry.ErrClosed) {
			t.Errorf("at the end: %+v, want ErrClosed", got)
		}
	})
}

func TestApplyDoesNothingIfAnOperationIsTooLargeForALog(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		_, err := g.Apply(t.Context(), registry.FromClient, padded("small", 10), padded("huge", store.MaxOpBytes))
		expect.That(t, errors.Is(err, registry.ErrTooLarge) && g.now().Total() == 0,
			"got %v and %d instances, want ErrTooLarge and none", err, g.now().Total())
	})
}

func TestApplyPerformsALargeBatchInOrder(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		var ops []registry.Op
		for i := range 3*applyStep + 1 {
			ops = append(ops, registry.Register{Instance: instance("A", fmt.Sprint("i", i), 90)})
		}
		for i, r := range g.apply(ops...) {
			need.That(t, r.Outcome == registry.Done && r.Index == registry.Index(i+1), "operation %d: %+v, want it done with index %d", i, r, i+1)
		}
	})
}

func TestApplyBeforeRunWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := need.Got(Open(store.Config{Node: "n1", DataDir: t.TempDir()}))(t)
		impatient, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		register := registry.Register{Instance: instance("A", "i0", 90)}
		expect.ErrorIs(t, expect.Err(s.Apply(impatient, registry.FromClient, register)), context.DeadlineExceeded, "a caller that gave up was told")
		done := make(chan error, 1)
		go func() {
			_, err := s.Apply(t.Context(), registry.FromClient, register)
			done <- err
		}()
		synctest.Wait()
		need.That(t, len(done) == 0, "answered before Run")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		expect.OK(t, <-done)
		stop()
		expect.OK(t, <-ended)
	})
}

func TestOpenRefusesADirectoryInUse(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		s, err := Open(g.cfg)
		expect.That(t, err != nil && strings.Contains(err.Error(), "another process"),
			"got %v and %v, want an error that says another process has it", s, err)
	})
}

func TestFailureAtTheMomentOfAStopIsReturned(t *testing.T) {
	var s *Store
	copying := make(chan struct{})
	s, err := Open(store.Config{Node: "n1", DataDir: t.TempDir(), Copy: func(ctx context.Context) error {
		close(copying)
		<-ctx.Done()
		s.fatal <- errBroken // as runSaving does, whose last write may end after the stop began
		return nil
	}})
	need.OK(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-copying
	before := s.flushed
	stop()
	expect.ErrorIs(t, <-done, errBroken, "Run returned")
	expect.That(t, s.flushed == before, "it wrote once more to a disk that had failed")
}

func TestRunWithAnEndedContextOnlyCloses(t *testing.T) {
	s, err := Open(store.Config{Node: "n1", DataDir: t.TempDir(), Copy: func(context.Context) error {
		t.Error("it copies")
		return nil
	}})
	need.OK(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	expect.OK(t, s.Run(ended))
}

// After a pause, the sender to other nodes may run before the clock ticks.
func TestHealthClockMakesNoLeaseYoungerAfterAStall(t *testing.T) {
	s := need.Got(Open(store.Config{Node: "n1", DataDir: t.TempDir(), Metrics: prometheus.NewRegistry()}))(t)
	s.admitOperations() // and nothing ticks
	defer func() {
		s.refuseOperations()
		expect.OK(t, s.close(nil))
	}()
	if _, _, err := s.perform(nil, nil, call{origin: registry.FromClient}, []registry.Op{registry.Register{Instance: instance("ORDERS", "i1", 90)}}); err != nil {
		t.Fatal(err)
	}
	view := s.view.Load()
	lease, _ := view.Lease(registry.Key{App: "ORDERS", ID: "i1"})
	age := view.Age(lease, s.Health().Clock)
	need.That(t, age <= limit.Milliseconds(), "its age is told as %d ms, want a moment", age)
	s.clock.PauseBy(2 * maxLost)
	age = view.Age(lease, s.Health().Clock)
	expect.That(t, age == registry.UnknownAge, "after a pause its age is told as %d ms, want that it is unknown", age)
}

// errBroken is the error of a broken disk.
var errBroken = errors.New("broken")

func instance(app, id string, duration int32) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, App: app, HostName: id + ".example", IPAddr: "10.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 1, Duration: duration,
	}
}

// padded returns a registration of about size bytes.
func padded(id string, size int) registry.Register {
	i := instance("A", id, 90)
	i.Metadata = []registry.Pair{{Key: "pad", Value: strings.Repeat("x", size)}}
	return registry.Register{Instance: i}
}

// limit is how long a test waits for something that normally takes well under a second, or a few.
const limit = time.Minute

// A start gives leases new handles, and those of removed leases date from the start before: they name other leases
// now.
func TestRemovalOfAnEarlierStartIsNotShownWithAnotherLeasesRenewals(t *testing.T) {
	localBubble(t, nil, func(t *testing.T, g *localRig) {
		g.register(90, "i0", "i1")
		g.apply(registry.Cancel{Key: registry.NewKey("A", "i0")})
		before, _ := g.now().Removal(registry.NewKey("A", "i0"))
		g.restart()
		synctest.Wait()
		time.Sleep(20 * time.Second)
		g.apply(registry.Renew{Key: registry.NewKey("A", "i1")})
		v := g.now()
		live, ok := v.Find(registry.NewKey("A", "i1"))
		need.That(t, ok && live.Handle == before.Lease.Handle, "i1 has handle %v, want that of the removed i0, %v", live.Handle, before.Lease.Handle)
		rec, _ := v.Removal(registry.NewKey("A", "i0"))
		expect.Equal(t, v.LastRenewal(rec.Lease), before.Lease.RenewedAt, "last renewal of what was removed before the start")
		why, ok := v.Why(registry.Change{Index: rec.Lease.Changed, Lease: rec.Lease, Kind: rec.Kind})
		expect.That(t, ok && why == registry.EventCanceled, "its reason is %s, %t", why, ok)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
