package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// heard is what a function was told, as lists before and after.
type heard struct {
	before, after []string
	entered       chan struct{} // takes a value at every call, if there is one
	release       chan struct{} // lets each call return, if there is one
}

func (h *heard) each(old, new *Snapshot) {
	h.before, h.after = append(h.before, words(old)), append(h.after, words(new))
	if h.entered != nil {
		h.entered <- struct{}{}
	}
	if h.release != nil {
		<-h.release
	}
}

// want compares with the lists that follow on each other.
func (h *heard) want(t *testing.T, lists ...string) {
	t.Helper()
	if len(lists) == 0 {
		lists = []string{""}
	}
	expect.That(t, slices.Equal(h.before, lists[:len(lists)-1]) && slices.Equal(h.after, lists[1:]),
		"told of the lists %q, then %q; want one after the other of %q", h.before, h.after, lists)
}

func TestEveryChangeIsToldWithTheListsBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, late heard
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: first.each}, s)
		synctest.Wait()
		d.OnChange(late.each)
		synctest.Wait()
		s.put(orders("o1", registry.Down))
		synctest.Wait()
		s.remove(orders("o1", registry.Down))
		synctest.Wait()
		first.want(t, "", "ORDERS/o1=UP", "ORDERS/o1=DOWN", "")
		late.want(t, "ORDERS/o1=UP", "ORDERS/o1=DOWN", "")
	})
}

func TestWhoIsSlowIsToldOfManyChangesAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := heard{release: make(chan struct{})}, heard{}
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{OnChange: slow.each}, s)
		d.OnChange(quick.each)
		synctest.Wait()
		want := []string{""}
		for n := range 4 {
			s.put(orders(fmt.Sprint(n), registry.Up))
			synctest.Wait()
			want = append(want, s.words(""))
		}
		d.wantList(t, "although somebody is slow", s.words(""))
		quick.want(t, want...)
		close(slow.release)
		synctest.Wait()
		slow.want(t, "", want[1], want[4])
	})
}

func TestWhoIsStoppedIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := heard{entered: make(chan struct{}), release: make(chan struct{})}
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{}, s)
		synctest.Wait()
		stop := d.OnChange(told.each)
		s.put(orders("o1", registry.Up))
		<-told.entered
		s.put(orders("o2", registry.Up))
		stop() // does not wait for the call under way
		close(told.release)
		stop()
		synctest.Wait()
		told.want(t, "", "ORDERS/o1=UP")
	})
}

func TestWithinACallItCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{}, s)
		synctest.Wait()
		calls := 0
		var stop func()
		stop = d.OnChange(func(_, _ *Snapshot) {
			calls++
			stop()
		})
		for n := range 3 {
			s.put(orders(fmt.Sprint(n), registry.Up))
			synctest.Wait()
		}
		expect.That(t, calls == 1, "it is told %d times, want once", calls)
	})
}

func TestAFunctionThatHangsKeepsNobodyFromClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := heard{release: make(chan struct{})}
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: hangs.each}, s)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Close returns %v after %v, want the end of its context after 1s", err, time.Since(start))
		}
		close(hangs.release)
		expect.OKf(t, d.Close(t.Context()), "Close, when it has returned")
	})
}

func TestWhoStoppedItselfIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e"), true)
		d := discover(t, DiscoveryConfig{}, s)
		synctest.Wait()
		release := make(chan struct{})
		var stop func()
		stop = d.OnChange(func(_, _ *Snapshot) {
			stop()
			<-release
		})
		s.put(orders("o1", registry.Up))
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- d.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close returns %v during a call", err)
		default:
		}
		close(release)
		expect.OK(t, <-closed)
	})
}

func TestAClosedListTellsNobodyAndStaysReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, late heard
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{OnChange: told.each}, s)
		synctest.Wait()
		for range 2 {
			need.OK(t, d.Close(t.Context()))
		}
		d.OnChange(late.each)
		s.put(orders("o2", registry.Up))
		pass(time.Hour)
		told.want(t, "", "ORDERS/o1=UP")
		late.want(t)
		d.wantList(t, "after Close", "ORDERS/o1=UP")
		expect.OKf(t, d.Ready(t.Context()), "Ready")
		s.wantAsked(t, "in all", "full watch@e-1")
	})
}

func TestAListThatNeverWasIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e"), true)
		s.instead("", silent)
		d := discover(t, DiscoveryConfig{}, s)
		waits := make(chan error)
		go func() { waits <- d.Ready(context.Background()) }()
		synctest.Wait()
		need.OK(t, d.client.Close(t.Context()))
		expect.ErrorIs(t, <-waits, ErrClosed, "who waits gets")
		expect.ErrorIs(t, d.Ready(t.Context()), ErrClosed, "who comes later gets")
		expect.ErrorIs(t, expect.Err(d.client.StartDiscovery(DiscoveryConfig{})), ErrClosed, "who starts another gets")
		expect.ErrorIs(t, d.client.Watch(t.Context(), WatchConfig{}, nil), ErrClosed, "who watches gets")
	})
}
