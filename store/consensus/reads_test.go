package consensus

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store/wait"
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

func TestAgeOfAFollowerWithASlowDiskIsThatOfItsState(t *testing.T) {
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
			wait.Pause(ctx, nil, 10*time.Millisecond)
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
	eventually(t, "it is fresh again", func() bool { return slow.Health().Age < 300*time.Millisecond })
}

func TestAgeOfANodeThatDoesNotKnowTheLogsEndIsThatOfItsNewestEntry(t *testing.T) {
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

func TestAgeOfANodeThatHasAppliedNothingIsGreat(t *testing.T) {
	c := &testCluster{t: t, dir: t.TempDir()}
	t.Cleanup(c.stopAll)
	c.nodes = append(c.nodes, c.open(0, []string{freeAddr(t), freeAddr(t), freeAddr(t)}, 3))
	age := c.nodes[0].Health().Age
	expect.That(t, age > 24*time.Hour, "the age of a state without an entry is %v, want that it is not known", age)
}
