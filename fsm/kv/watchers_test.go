package kv

import (
	"fmt"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// woken says whether a wait is over.
func woken(w *Wait) bool {
	select {
	case <-w.Woken():
		return true
	default:
		return false
	}
}

func TestWatchersWakeOnlyThoseOfTheTopic(t *testing.T) {
	topics := []Topic{
		{KeyTopic, "a/b"}, {KeyTopic, "a"}, {KeyTopic, "a/b/c"},
		{PrefixTopic, ""}, {PrefixTopic, "a"}, {PrefixTopic, "a/"}, {PrefixTopic, "a/b"}, {PrefixTopic, "a/bc"}, {PrefixTopic, "b"},
		{Kind: SessionsTopic}, {LockTopic, "a/b"}, {SemaphoreTopic, "a/b"},
	}
	tests := []struct {
		touched []Topic
		want    []Topic
	}{
		{nil, nil},
		{[]Topic{{KeyTopic, "a/b"}}, []Topic{{KeyTopic, "a/b"}, {PrefixTopic, ""}, {PrefixTopic, "a"}, {PrefixTopic, "a/"}, {PrefixTopic, "a/b"}}},
		{[]Topic{{KeyTopic, "c"}}, []Topic{{PrefixTopic, ""}}},
		{[]Topic{{KeyTopic, "b"}, {KeyTopic, "bc"}}, []Topic{{PrefixTopic, ""}, {PrefixTopic, "b"}}},
		{[]Topic{{Kind: SessionsTopic}}, []Topic{{Kind: SessionsTopic}}},
		{[]Topic{{LockTopic, "a/b"}}, []Topic{{LockTopic, "a/b"}}},
		{[]Topic{{SemaphoreTopic, "a/b"}, {SemaphoreTopic, "a"}}, []Topic{{SemaphoreTopic, "a/b"}}},
	}
	for _, test := range tests {
		var w Watchers
		waits := make([]*Wait, len(topics))
		for i, topic := range topics {
			waits[i] = w.Join(topic)
		}
		w.Wake(test.touched)
		var got []Topic
		for i, wait := range waits {
			if woken(wait) {
				got = append(got, topics[i])
			}
		}
		expect.Slice(t, got, test.want, "%v wakes", test.touched)
		n := w.Len()
		expect.That(t, n == len(topics)-len(test.want), "after %v %d wait, want %d", test.touched, n, len(topics)-len(test.want))
		for _, wait := range waits {
			wait.Leave()
		}
		n = w.Len()
		expect.That(t, n == 0 && len(w.lengths) == 0, "after all left %d wait, for %d lengths of prefixes", n, len(w.lengths))
	}
}

func TestWatchersWakeAllOfATopic(t *testing.T) {
	for _, topic := range []Topic{{KeyTopic, "a"}, {PrefixTopic, "a"}} {
		var w Watchers
		waits := make([]*Wait, 100)
		for i := range waits {
			waits[i] = w.Join(topic)
		}
		w.Wake([]Topic{{KeyTopic, "a"}})
		for i, wait := range waits {
			need.That(t, woken(wait), "%v: wait %d goes on", topic, i)
		}
	}
}

func TestWatchersKeepOthersWaitingWhenOneLeaves(t *testing.T) {
	var w Watchers
	topic := Topic{KeyTopic, "a"}
	stays, leaves := w.Join(topic), w.Join(topic)
	leaves.Leave()
	leaves.Leave()
	n := w.Len()
	expect.That(t, n == 1, "%d wait, want 1", n)
	w.Wake([]Topic{topic})
	expect.That(t, woken(stays), "the one that stayed was not woken")
	next := w.Join(topic)
	stays.Leave() // late, and of the wait before
	expect.That(t, !woken(next) && w.Len() == 1, "the next wait is over: %t, %d wait", woken(next), w.Len())
}

func TestWatchersAreAllWokenByANewState(t *testing.T) {
	var w Watchers
	var waits []*Wait
	for _, topic := range []Topic{{KeyTopic, "a"}, {PrefixTopic, "b"}, {PrefixTopic, "bb"}, {Kind: SessionsTopic}, {LockTopic, "c"}} {
		waits = append(waits, w.Join(topic))
	}
	w.WakeAll()
	for i, wait := range waits {
		expect.That(t, woken(wait), "wait %d goes on", i)
	}
	n := w.Len()
	expect.That(t, n == 0, "%d wait", n)
}

// A watcher that joins, then reads, then waits misses nothing: each waits until it has seen the last write.
func TestWatchersMissNoChange(t *testing.T) {
	const readers, writes = 8, 500
	var w Watchers
	var mutex sync.Mutex
	r := newRig(t)
	view := r.View()
	read := func() *View {
		mutex.Lock()
		defer mutex.Unlock()
		return view
	}
	var done sync.WaitGroup
	for i := range readers {
		topic := []Topic{{KeyTopic, "a/b"}, {PrefixTopic, "a/"}}[i%2]
		done.Go(func() {
			for {
				wait := w.Join(topic)
				if e, _ := read().Get("a/b"); e != nil && string(e.Value) == fmt.Sprint(writes) {
					wait.Leave()
					return
				}
				<-wait.Woken()
				wait.Leave()
			}
		})
	}
	for i := range writes {
		r.yes(set("a/b", fmt.Sprint(i+1)))
		touched := r.Touched()
		next := r.View()
		mutex.Lock()
		view = next
		mutex.Unlock()
		w.Wake(touched)
	}
	done.Wait() // forever, if one is lost
	n := w.Len()
	expect.That(t, n == 0, "%d wait", n)
}

func TestViewsAreReadWhileTheStateGoesOn(t *testing.T) {
	r := newRig(t)
	s := r.session(s1, ttl(10_000))
	var done sync.WaitGroup
	for i := range 300 {
		r.yes(set(fmt.Sprint("k/", i%7), fmt.Sprint(i)))
		if i%10 == 0 {
			view, want := r.View(), min(i+1, 7)
			done.Go(func() {
				for range 5 {
					pairs, _, _ := view.List("k/")
					expect.That(t, len(pairs) == want, "the view has %d keys, want %d", len(pairs), want)
					renewed := view.Renewed(s)
					expect.That(t, renewed >= s.CreatedAt, "renewed at %d, before its creation at %d", renewed, s.CreatedAt)
				}
			})
		}
		r.pass(1)
		r.yes(RenewSession{s1})
		r.no(KeyTxn([]KeyOp{{Verb: DeleteTree}, {Verb: Get, Key: "x"}}))
	}
	done.Wait()
}
