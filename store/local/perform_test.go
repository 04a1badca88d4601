package local

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// panicking has operations about an instance panic after they have changed the registry, as long as on is true.
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

// poisoned runs a test with a node on which operations about the instance "bad" panic.
func poisoned(t *testing.T, sync store.Sync, do func(t *testing.T, g *localRig, p *panicking, log *keptLog)) {
	t.Helper()
	p, log := &panicking{id: "bad", on: true}, &keptLog{}
	localBubble(t, func(c *store.Config) {
		c.Sync, c.Test.Performed, c.Log = sync, p.performed, slog.New(slog.NewTextHandler(log, nil))
	}, func(t *testing.T, g *localRig) { do(t, g, p, log) })
}

// replicas are what a peer sends of instances of application A.
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

// A record that changes without an index is in no list of changes: after a panic all is written.
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

// A registry that can neither go on nor be made anew must not reach the disk.
func TestNodeEndsWhoseRegistryCannotBeMadeAnew(t *testing.T) {
	poisoned(t, store.SyncInterval, func(t *testing.T, g *localRig, _ *panicking, _ *keptLog) {
		g.register(600, "own")
		time.Sleep(2*time.Second + 7*time.Millisecond) // no tick shows a view again meanwhile
		g.view.Store(nil)                              // which no registry is made from
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

// An override whose end panics keeps neither another one nor a lease from ending.
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
