package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// awaited is what a call of Changes came to.
type awaited struct {
	changes registry.Changes
	err     error
}

// await calls Changes on a node, from the node's present index on.
func (n *testNode) await(t *testing.T, app string) <-chan awaited {
	t.Helper()
	after := n.read(t, registry.Linearizable).Index()
	done := make(chan awaited, 1)
	go func() {
		changes, err := n.Changes(context.Background(), after, registry.Selector{App: app})
		done <- awaited{changes, err}
	}()
	return done
}

func receive(t *testing.T, done <-chan awaited) awaited {
	t.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(limit):
		t.Fatal("nobody was woken")
		return awaited{}
	}
}

func TestAChangeOnOneNodeWakesThoseWhoWaitOnEveryNode(t *testing.T) {
	c := startCluster(t, 3, nil)
	var waiting, elsewhere []<-chan awaited
	for _, n := range c.nodes {
		waiting = append(waiting, n.await(t, "ORDERS"))
		elsewhere = append(elsewhere, n.await(t, "BILLING"))
	}
	want := c.nodes[0].apply(t, registry.Register{Instance: instance("ORDERS", "o1", 90)})
	for i, done := range waiting {
		got := receive(t, done)
		expect.That(t, got.err == nil && len(got.changes.Items) == 1 && got.changes.Items[0].Index == want.Index && got.changes.View.Index() >= want.Index,
			"%s: %+v, want the change %d", c.nodes[i].cfg.Node, got, want.Index)
	}
	want = c.nodes[1].apply(t, registry.Register{Instance: instance("BILLING", "b1", 90)})
	for i, done := range elsewhere {
		got := receive(t, done)
		expect.That(t, got.err == nil && len(got.changes.Items) == 1 && got.changes.Items[0].Index == want.Index,
			"%s: %+v, want only the change %d: the other application is none of its business", c.nodes[i].cfg.Node, got, want.Index)
	}
}

func TestWhoWaitsForChangesIsToldThatTheNodeCloses(t *testing.T) {
	c := startCluster(t, 1, nil)
	done := c.nodes[0].await(t, "")
	need.OK(t, c.nodes[0].halt())
	got := receive(t, done)
	expect.That(t, errors.Is(got.err, registry.ErrClosed), "got %+v, want ErrClosed", got)
}

func TestWhoGivesUpWaitingForChangesGetsItsOwnError(t *testing.T) {
	c := startCluster(t, 1, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.nodes[0].Changes(ctx, c.nodes[0].read(t, registry.Linearizable).Index(), registry.Selector{})
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want the context's error", err)
}
