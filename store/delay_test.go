package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Time stands still in a bubble while the disk really works.
func timed(t *testing.T, write func() error) time.Duration {
	t.Helper()
	began := time.Now()
	need.OK(t, write())
	return time.Since(began)
}

func TestADelayedDiskTakesLongerForEachDurableWrite(t *testing.T) {
	tests := []struct {
		name   string
		write  func(*disk) error
		writes time.Duration // durable ones
	}{
		{"append to the log", func(d *disk) error { return d.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}) }, 1},
		{"truncate the log", func(d *disk) error { return d.DeleteRange(1, 2) }, 1},
		{"store the term", func(d *disk) error { return d.SetUint64([]byte("CurrentTerm"), 7) }, 1},
		{"hold the vote's term back", func(d *disk) error { return d.SetUint64([]byte(keyVoteTerm), 7) }, 0},
		{"store the vote's candidate and term", func(d *disk) error { return d.Set([]byte(keyVoteCand), []byte("n1")) }, 2},
		{"read", func(d *disk) error { _, err := d.LastIndex(); return err }, 0},
	}
	synctest.Test(t, func(t *testing.T) {
		d := need.Got(openDisk(t.TempDir(), nil, func(err error) { t.Error(err) }))(t)
		defer d.close()
		for _, tt := range tests {
			d.delay.set(time.Second)
			got, want := timed(t, func() error { return tt.write(d) }), tt.writes*time.Second
			expect.That(t, got == want, "%s: it takes %v longer, want %v", tt.name, got, want)
		}
		d.delay.set(0)
		if got := timed(t, func() error { return d.StoreLog(&raft.Log{Index: 3, Term: 1}) }); got != 0 {
			t.Errorf("after the end of the delay a write takes %v longer", got)
		}
	})
}

func TestADelayedFlushKeepsThoseWhoWaitForItAndNobodyElse(t *testing.T) {
	tune := func(c *Config) { c.Sync, c.SyncInterval, c.Test.SyncDelay = SyncAlways, time.Hour, time.Second }
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

func TestADiskIsDelayedFromTheStartIfTheSettingsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		startLocal(t, func(c *Config) { c.Test.SyncDelay = time.Second })
		got := time.Since(began)
		expect.That(t, got == time.Second, "the start, which writes once, takes %v, want 1 s", got)
	})
}
