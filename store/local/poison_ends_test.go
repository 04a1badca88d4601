package local

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

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
