package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// acked is what was acknowledged when.
type acked struct {
	mu   sync.Mutex
	when map[string]time.Time
}

// missing returns a registration that was acknowledged before a time and is not in a view; "": none.
func (a *acked) missing(v *registry.View, before time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, at := range a.when {
		if _, there := v.Lease(registry.NewKey("A", id)); !there && at.Before(before) {
			return id
		}
	}
	return ""
}

func TestTheAgeOfAFollowerWithASlowDiskIsThatOfItsState(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.nodes[c.leader()]
	slow := c.nodes[(c.leader()+1)%3]
	slow.SetSyncDelay(time.Second)

	all := acked{when: map[string]time.Time{}}
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprintf("i%d", i)
			if _, err := leader.Apply(ctx, registry.FromClient, registry.Register{Instance: instance("A", id, 600)}); err == nil {
				all.mu.Lock()
				all.when[id] = time.Now()
				all.mu.Unlock()
			}
			pause(ctx, nil, 10*time.Millisecond)
		}
	})
	defer writer.Wait()
	defer stop()
	var oldest time.Duration
	eventually(t, "the disk is late by several writes", func() bool {
		age, asked := slow.Health().Age, time.Now()
		v := slow.read(t, registry.Stale)
		if id := all.missing(v, asked.Add(-age)); id != "" {
			t.Fatalf("age %v, but %s is missing, which was acknowledged %v ago", age, id, time.Since(all.when[id]))
		}
		oldest = max(oldest, age)
		return oldest > 1500*time.Millisecond
	})
	stop()
	writer.Wait()
	slow.SetSyncDelay(0)
	eventually(t, "it is fresh again", func() bool { return slow.Health().Age < freshInterval*3 })
}

func TestTheAgeCountsFromTheNewestProofThatIsApplied(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var f freshness
	if got := f.newest(100); !got.IsZero() {
		t.Errorf("without a proof: %v, want none", got)
	}
	f.note(at(1), 10, 9)
	f.note(at(2), 20, 9)
	f.note(at(3), 30, 9)
	for _, row := range []struct {
		applied uint64
		want    time.Time
	}{{9, time.Time{}}, {10, at(1)}, {19, at(1)}, {30, at(3)}, {30, at(3)}} {
		got := f.newest(row.applied)
		expect.That(t, got.Equal(row.want), "applied %d: since %v, want %v", row.applied, got, row.want)
	}
	f.note(at(2), 25, 30) // answered late, by an earlier leader
	if got := f.newest(30); !got.Equal(at(3)) {
		t.Errorf("an older proof: since %v, want %v", got, at(3))
	}
	for i := range 10 * maxPending {
		f.note(at(10+i), uint64(1000+i), 30)
	}
	if got, want := f.newest(1_000_000), at(10+maxPending-1); !got.Equal(want) || len(f.pending) != 0 {
		t.Errorf("after more than are remembered: since %v, want %v", got, want)
	}
}

func TestTimeInWhichAMachineSleptCounts(t *testing.T) {
	now := time.Now()
	expect.Equal(t, elapsed(now.Add(-time.Second), now), time.Second, "both clocks say one second:")
	// A time without its monotonic reading stands for a wall clock that says something else.
	expect.Equal(t, elapsed(now.Round(0).Add(-time.Minute), now), time.Minute, "the wall clock says one minute:")
	got := elapsed(now.Round(0).Add(time.Hour), now)
	expect.That(t, got == 0, "the wall clock was set back: %v, want what the other clock says", got)
}

func TestANodeThatHasNotHeardOfTheLogsEndDoesNotCallItsStateFresh(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i", 600)})
	c.stopAll()
	alone := c.start(c.nodes[0].cfg)
	c.nodes[0] = alone
	asked := time.Now()
	age, newest := alone.Health().Age, time.UnixMilli(alone.read(t, registry.Stale).Stamp().Wall)
	if age < asked.Sub(newest) {
		t.Errorf("age %v, but its newest entry is of %v ago", age, asked.Sub(newest))
	}
}
