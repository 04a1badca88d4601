package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// newTestCommitter returns a committer that nobody takes anything from.
func newTestCommitter() *committer {
	return newCommitter(&Raft{peers: newPeers(nil, nil), cfg: Config{InFlight: 1}, metrics: newMetrics(prometheus.NewRegistry())})
}

// waiting is how many calls are queued, and how many wait for company.
func (c *committer) waiting() (queued, gathered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls), len(c.gathered)
}

func renewal() []fsm.Item { return []fsm.Item{{KV: kv.RenewSession{ID: sessionID(1)}}} }

func TestRenewalsWaitForCompanyAndAreQueuedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		began := time.Now()
		for range 10 {
			all.Go(func() { c.gather(ctx, renewal(), 50) })
			time.Sleep(gatherFor / 20)
		}
		synctest.Wait()
		if queued, _ := c.waiting(); queued != 0 {
			t.Errorf("%d renewals are queued after half the time, want none", queued)
		}
		time.Sleep(gatherFor / 2)
		synctest.Wait()
		if queued, gathered := c.waiting(); queued != 10 || gathered != 0 || len(c.wake) != 1 {
			t.Errorf("%d are queued, %d are not, want all; woken: %d", queued, gathered, len(c.wake))
		}
		c.mu.Lock()
		for _, k := range c.calls {
			if got := k.arrived.Sub(began); got != gatherFor {
				t.Errorf("counted as arrived %v after the first came, want when they were queued", got)
			}
		}
		c.mu.Unlock()
		cancel()
		all.Wait()
	})
}

func TestAWriteDoesNotWaitForRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, renewal(), 50) })
		synctest.Wait()
		all.Go(func() { c.commit(ctx, []fsm.Item{{KV: kv.KeyOp{Key: "k"}}}, 50) })
		synctest.Wait()
		if queued, gathered := c.waiting(); queued != 1 || gathered != 1 {
			t.Errorf("%d are queued and %d wait, want the write queued and the renewal not", queued, gathered)
		}
		cancel()
		all.Wait()
	})
}

func TestWithoutBatchingARenewalDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCommitter(&Raft{peers: newPeers(nil, nil), cfg: Config{InFlight: 1, Test: TestConfig{NoBatching: true}}, metrics: newMetrics(prometheus.NewRegistry())})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, renewal(), 50) })
		synctest.Wait()
		if queued, _ := c.waiting(); queued != 1 {
			t.Errorf("%d are queued, want it queued at once", queued)
		}
		cancel()
		all.Wait()
	})
}

func TestARenewalWhoseCallerGoesHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithTimeout(t.Context(), gatherFor/2)
		defer cancel()
		if _, err := c.gather(ctx, renewal(), 50); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, registry.ErrUnknownOutcome) {
			t.Errorf("got %v, want the context's error: it certainly had no effect", err)
		}
		time.Sleep(gatherFor)
		if b, _ := c.take(); b != nil {
			t.Errorf("%d calls were taken", len(b.calls))
		}
	})
}

func TestARenewalUnderWayWhoseCallerGoesIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		c.s.id = &identity{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*gatherFor)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(ctx, renewal(), 50)
			done <- err
		}()
		time.Sleep(gatherFor)
		synctest.Wait()
		if b, _ := c.take(); b == nil {
			t.Fatal("nothing was taken")
		}
		if err := <-done; !errors.Is(err, registry.ErrUnknownOutcome) {
			t.Errorf("got %v, want ErrUnknownOutcome", err)
		}
	})
}

func TestRenewalsAreAnsweredWhenTheNodeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(t.Context(), renewal(), 50)
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		c.shut()
		if err := <-done; !errors.Is(err, registry.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("got %v after %v, want ErrClosed at once", err, time.Since(began))
		}
		if _, err := c.gather(t.Context(), renewal(), 50); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("after the end: got %v, want ErrClosed", err)
		}
		time.Sleep(2 * gatherFor)
	})
}

func TestRenewalsThroughAllNodesHoldSessions(t *testing.T) {
	c := startCluster(t, 3, nil)
	const sessions = 30
	for i := range sessions {
		c.nodes[0].createSession(t, sessionID(i), time.Hour, 0)
	}
	before := c.nodes[0].keys(t)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			got := c.nodes[i%3].coordinate(t, kv.RenewSession{ID: sessionID(i)})
			if !got.OK || got.Session == nil || got.Session.ID != sessionID(i) || got.Index != 0 {
				t.Errorf("renewal of session %d: %+v, want it done, with the session and without an index", i, got)
			}
		})
	}
	all.Wait()
	if got := c.nodes[1].coordinate(t, kv.RenewSession{ID: sessionID(sessions)}); got.OK {
		t.Errorf("renewal of an unknown session: %+v", got)
	}
	if after := c.nodes[0].keys(t); after.Index() != before.Index() {
		t.Errorf("the index went from %d to %d by renewals", before.Index(), after.Index())
	}
}

func TestOnlyHeartbeatsThatChangeNothingAreGathered(t *testing.T) {
	c := startCluster(t, 1, nil)
	n := c.nodes[0]
	for i, status := range []registry.CheckStatus{registry.Passing, registry.Critical} {
		n.apply(t, registry.RegisterCatalog{Checks: []*registry.Check{{
			ID: fmt.Sprint(i), Name: "c", Type: "ttl", TTL: 60_000, Status: status, Output: "as before",
		}}})
	}
	tests := []struct {
		name string
		op   registry.Op
		want bool
	}{
		{"passing as before", registry.SetCheck{Check: "0", TTL: true, Output: "as before"}, true},
		{"passing with another output", registry.SetCheck{Check: "0", TTL: true, Output: "other"}, true},
		{"another state", registry.SetCheck{Check: "0", TTL: true, Status: registry.Warning, Output: "as before"}, false},
		{"critical as before", registry.SetCheck{Check: "1", TTL: true, Status: registry.Critical, Output: "as before"}, true},
		{"critical with another output", registry.SetCheck{Check: "1", TTL: true, Status: registry.Critical, Output: "other"}, false},
		{"not a heartbeat", registry.SetCheck{Check: "0", Output: "as before"}, false},
		{"an unknown check", registry.SetCheck{Check: "2", TTL: true}, false},
		{"a renewal of a lease", registry.Renew{}, false},
	}
	for _, tt := range tests {
		if got := n.repeatsCheck(tt.op); got != tt.want {
			t.Errorf("%s: gathered %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := n.apply(t, registry.SetCheck{Check: "0", TTL: true}); got.Outcome != registry.Done || got.Index != 0 {
		t.Errorf("a gathered heartbeat: %+v, want it done without an index", got)
	}
}
