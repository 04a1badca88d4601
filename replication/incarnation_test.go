package replication

import (
	"context"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// A message in another server's name says whatever it likes of its clock. The server itself is heard as before.
func TestAMessageInAnothersNameMakesNobodyDeaf(t *testing.T) {
	tests := []struct {
		name  string
		forge func(*wire.Head)
		want  error // nil: it is taken
	}{
		{"a clock of 2^63-1", func(h *wire.Head) { h.Clock = 1<<63 - 1 }, ErrMalformed},
		{"years ahead, of an incarnation of its own", func(h *wire.Head) { h.Clock, h.Incarnation = 9*365*24*3600*1000, 77 }, nil},
		{"years ahead, of the incarnation itself", func(h *wire.Head) { h.Clock = 9 * 365 * 24 * 3600 * 1000 }, ErrAhead},
		{"as far ahead as is believed", func(h *wire.Head) { h.Clock += 9 * 60 * 1000 }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := twoNodes(t)
			registerAll(t, a, 1, "before")
			a.tellChanges(t, 0)
			forged := a.only().head()
			tt.forge(&forged)
			need.ErrorIs(t, expect.Err(b.Receive(context.Background(), write(forged))), tt.want, "the forged message:")
			after := a.view().Index()
			a.only().send(context.Background(), nil) // it may still count as late
			for range 3 {
				both(a, b, 20*time.Second)
				a.apply(t, registry.Renew{Key: ordersID("before"), LastDirty: 1})
				a.tell(t, task{key: ordersID("before"), facts: heartbeat})
			}
			b.evict()
			b.lease(t, "before")
			registerAll(t, a, 1, "after")
			a.tellChanges(t, after)
			b.lease(t, "after")
		})
	}
}

// A sender that goes on with an older copy of its data has a clock that went back.
func TestASenderThatWasRestoredIsHeardAtOnce(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			copied := a.registry.Freeze()
			a.pass(2 * time.Hour)
			b.pass(2 * time.Hour)
			registerAll(t, a, 1, "before")
			a.tellChanges(t, 0)
			a.set(func(m *memory) {
				restored := need.Got(registry.Thaw(copied))(t)
				m.registry, m.passed = restored, 0
			})
			a.config.incarnation.draw() // its process began anew
			registerAll(t, a, 1, "after")
			a.tellChanges(t, 0)
			b.lease(t, "after")
			both(a, b, 20*time.Second)
			if l, ok := b.view().Link("dc1"); ok && b.clock()-l.Heard > 60_000 {
				t.Errorf("the link is as old as %d ms", b.clock()-l.Heard)
			}
		})
	}
}
