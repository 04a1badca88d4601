package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// localRig is a node without consensus, which can be stopped and started again on the same directory.
type localRig struct {
	t   *testing.T
	cfg LocalConfig
	*Local
	stop context.CancelFunc
	done chan error
}

// startLocal starts a node on an empty directory.
func startLocal(t *testing.T, tune func(*LocalConfig)) *localRig {
	t.Helper()
	g := &localRig{t: t, cfg: LocalConfig{Node: "n1", Datacenter: "dc1", DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	if tune != nil {
		tune(&g.cfg)
	}
	g.start()
	t.Cleanup(func() { g.halt() })
	return g
}

func (g *localRig) start() {
	g.t.Helper()
	s, err := OpenLocal(g.cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g.Local, g.stop, g.done = s, stop, make(chan error, 1)
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
	return g.applyFrom(registry.FromClient, ops...)
}

func (g *localRig) applyFrom(origin registry.Origin, ops ...registry.Op) []registry.Result {
	g.t.Helper()
	res, err := g.Apply(context.Background(), origin, ops...)
	if err != nil {
		g.t.Fatalf("apply %T: %v", ops[0], err)
	}
	return res
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

func TestWhatWasStoppedProperlyIsThereAfterwards(t *testing.T) {
	for _, sync := range []Sync{SyncInterval, SyncAlways, SyncNone} {
		t.Run(fmt.Sprint(sync), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := startLocal(t, func(c *LocalConfig) { c.Sync = sync })
				for i := range 5 {
					g.apply(registry.Register{Instance: instance("A", fmt.Sprint("i", i), 90)})
				}
				before := g.now()
				g.restart()
				for l := range before.All() {
					if got, ok := g.now().Find(l.Key()); !ok || got.Changed != l.Changed || got.Life != l.Life {
						t.Errorf("%v is %+v afterwards, want %+v", l.Key(), got, l)
					}
				}
				if got := g.now(); got.Total() != 5 || got.Epoch() == before.Epoch() || got.Index() <= before.Index() {
					t.Errorf("%d instances in epoch %s at %d; before: %s at %d", got.Total(), got.Epoch(), got.Index(), before.Epoch(), before.Index())
				}
			})
		})
	}
}

func TestOtherReadsThanStaleAreNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startLocal(t, nil)
		for _, read := range []registry.Consistency{registry.Linearizable, registry.Leader} {
			if _, err := g.View(t.Context(), read); !errors.Is(err, registry.ErrNotOffered) {
				t.Errorf("%v read: %v, want ErrNotOffered", read, err)
			}
		}
	})
}

func TestALoneNodeIsReadyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startLocal(t, nil)
		synctest.Wait()
		h := g.Health()
		if !h.Ready || !h.Quorum || h.Leads {
			t.Errorf("%+v, want it ready, with a quorum and no leader", h)
		}
		time.Sleep(time.Second)
		if now := g.Health().Clock; now < 900 {
			t.Errorf("the clock shows %d ms after a second", now)
		}
	})
}
