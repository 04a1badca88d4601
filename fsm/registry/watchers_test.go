package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// watched is a registry with watchers, as a store has it.
type watched struct {
	*rig
	Watchers
	newest atomic.Pointer[View]
	asked  atomic.Int64 // calls of newestView, that is, how often waits looked at the state
}

func newWatched(t testing.TB) *watched {
	w := &watched{rig: newRig(t)}
	w.publish()
	return w
}

func (w *watched) publish() {
	view := w.View()
	w.newest.Store(view)
	w.Publish(view)
}

// do performs operations, each with its own view.
func (w *watched) do(ops ...Op) {
	for _, op := range ops {
		w.client(op)
		w.publish()
	}
}

func (w *watched) newestView() *View {
	w.asked.Add(1)
	return w.newest.Load()
}

// wait is an Await in progress.
type wait struct {
	changes Changes
	err     error
	done    bool
}

func (w *watched) await(ctx context.Context, after Index, app string) *wait {
	wait := new(wait)
	go func() {
		wait.changes, wait.err = w.Await(ctx, w.newestView, after, Selector{App: app})
		wait.done = true
	}()
	synctest.Wait()
	return wait
}

func (w *wait) want(t *testing.T, keys ...Key) {
	t.Helper()
	synctest.Wait()
	need.That(t, w.done && w.err == nil, "done %t, %v; want changes of %v", w.done, w.err, keys)
	var got []Key
	for _, c := range w.changes.Items {
		got = append(got, c.Lease.Key())
	}
	wantKeys(t, "changes", got, keys...)
}

func (w *wait) wantNone(t *testing.T) {
	t.Helper()
	synctest.Wait()
	need.That(t, !w.done, "got %+v, %v; want it to wait", w.changes, w.err)
}

// inBubble runs a test whose waits end with it.
func inBubble(t *testing.T, test func(t *testing.T, ctx context.Context, w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			synctest.Wait()
		}()
		test(t, ctx, newWatched(t))
	})
}

func TestAwaitWakesForWhatWasSelected(t *testing.T) {
	changes := []struct {
		name string
		op   Op
		kind ChangeKind
	}{
		{"registration", Register{instance(orders2, Up, 100)}, Live},
		{"override", SetOverride{Key: orders1, Status: Down}, Live},
		{"cancel", Cancel{orders1}, Canceled},
		{"quarantine", Quarantine{Key: orders1, For: 60_000}, Hidden},
	}
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
				w.do(Register{instance(orders1, Up, 100)}, Register{instance(billing1, Up, 100)})
				orders, billing, all := w.await(ctx, 2, "ORDERS"), w.await(ctx, 2, "BILLING"), w.await(ctx, 2, "")
				w.do(Renew{Key: orders1}) // no change
				orders.wantNone(t)
				w.do(tt.op)
				for _, wait := range []*wait{orders, all} {
					synctest.Wait()
					expect.That(t, wait.done && len(wait.changes.Items) == 1 && wait.changes.Items[0].Kind == tt.kind && wait.changes.Items[0].Index == 3,
						"got %+v, %v; want kind %d at 3", wait.changes, wait.err, tt.kind)
				}
				billing.wantNone(t)
				w.do(Cancel{billing1})
				billing.want(t, billing1)
			})
		})
	}
}

func TestAwaitIsNotWokenByOtherApplications(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
		orders := w.await(ctx, 0, "ORDERS")
		asked := w.asked.Load()
		for i := range 100 {
			w.do(Register{instance(Key{App: "BILLING", ID: fmt.Sprint(i)}, Up, 100)})
			orders.wantNone(t)
		}
		expect.Equal(t, w.asked.Load(), asked, "looks at states, in none of which something selected had changed:")
		w.do(Register{instance(orders1, Up, 100)})
		orders.want(t, orders1)
	})
}

// A wait that others' changes have overtaken must not read the change list from its own beginning, nor be told that
// it is too old when the records from then are dropped.
func TestAwaitSkipsChangesThatAreNotSelected(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
		w.do(Register{instance(orders1, Up, 100)})
		orders := w.await(ctx, 1, "ORDERS")
		w.do(Register{instance(billing1, Up, 100)}, Cancel{billing1})
		all := w.await(ctx, 3, "")
		w.pruneRemovals()
		w.publish()
		need.Equal(t, w.View().tables.pruned, 3, "pruned to")
		need.ErrorIs(t, expect.Err(w.View().ChangesOf(1, Selector{})), ErrTooOld, "changes after 1:")
		w.do(Cancel{orders1})
		orders.want(t, orders1)
		all.want(t, orders1)
	})
}

func TestAwaitOfAnIndexAheadWaitsForTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
		wait := w.await(ctx, 2, "")
		w.do(Register{instance(orders1, Up, 100)}, Register{instance(orders1, Up, 200)})
		wait.wantNone(t)
		w.do(Register{instance(orders2, Up, 100)})
		wait.want(t, orders2)
	})
}

func TestAwaitOfAPrunedIndexIsTooOld(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
		w.do(Register{instance(orders1, Up, 100)}, Cancel{orders1})
		w.pruneRemovals()
		w.publish()
		for _, app := range []string{"", "BILLING"} {
			wait := w.await(ctx, 1, app)
			expect.That(t, wait.done && errors.Is(wait.err, ErrTooOld), "application %q: done %t, %v; want ErrTooOld", app, wait.done, wait.err)
		}
		w.await(ctx, 2, "").wantNone(t)
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		w.do(Register{instance(billing1, Up, 100)})
		first, second := w.await(ctx, 0, "ORDERS"), w.await(ctx, 0, "ORDERS")
		other := w.await(t.Context(), 1, "BILLING")
		time.Sleep(30 * time.Second)
		for _, wait := range []*wait{first, second} {
			synctest.Wait()
			expect.That(t, wait.done && errors.Is(wait.err, context.DeadlineExceeded), "done %t, %v; want the context's error", wait.done, wait.err)
			expect.That(t, wait.changes.View != nil && wait.changes.View.Index() == 1 && len(wait.changes.Items) == 0,
				"got %+v, want a view of 1 to go on from, without items", wait.changes)
		}
		n := w.waiters.Len()
		expect.That(t, n == 1, "%d wait, want only the one that goes on", n)
		w.do(Cancel{billing1})
		other.want(t, billing1)
		expect.Equal(t, w.waiters.Len(), 0, "waiting:")
	})
}

// A snapshot can replace the present state, which is at 6 here, by another.
func TestAwaitAcrossARestore(t *testing.T) {
	tests := []struct {
		name     string
		restored func(g *rig) // over a cancel of billing-1 at 2
		after    Index
		orders   string // what a wait for ORDERS returns
		billing  string
	}{
		{"newer", func(g *rig) { g.registerUpTo(10) }, 6, "orders-1", ""},
		{"newer, with removals forgotten", func(g *rig) {
			g.registerUpTo(10)
			g.client(Cancel{orders1})
			g.pruneRemovals()
		}, 6, "too old", "too old"},
		{"older", func(g *rig) { g.registerUpTo(3) }, 1, "orders-1", "billing-1"},
		{"older than what was waited for", func(g *rig) { g.registerUpTo(3) }, 6, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, w *watched) {
				for range 6 {
					w.do(Register{instance(Key{App: "USERS", ID: "1"}, Up, 100)})
				}
				orders, billing := w.await(ctx, tt.after, "ORDERS"), w.await(ctx, tt.after, "BILLING")
				other := newRig(t)
				other.register(instance(billing1, Up, 100))
				other.client(Cancel{billing1})
				tt.restored(other)
				w.rig = other
				w.publish()
				expect.Equal(t, orders.result(), tt.orders, "ORDERS: got")
				expect.Equal(t, billing.result(), tt.billing, "BILLING: got")
				for w.index < 12 { // life goes on
					w.do(Register{instance(orders1, Up, 100)})
				}
				expect.That(t, orders.result() != "", "the wait was not woken by what came after the restore")
			})
		})
	}
}

// registerUpTo registers orders-1 until the state has an index.
func (g *rig) registerUpTo(index Index) {
	for g.index < index {
		g.register(instance(orders1, Up, 100))
	}
}

// pruneRemovals lets a day pass.
func (g *rig) pruneRemovals() {
	for at := g.now.Lease; g.now.Lease < at+MaxRemovalAge+deltaStep; {
		g.pass(maxLead)
		g.Advance(g.now)
	}
}

// result returns the last instance that changed, "too old", or "" while it waits.
func (w *wait) result() string {
	synctest.Wait()
	switch {
	case errors.Is(w.err, ErrTooOld):
		return "too old"
	case !w.done:
		return ""
	default:
		return w.changes.Items[len(w.changes.Items)-1].Lease.Key().ID
	}
}

// Watchers that follow the changes see the last change of every instance that they selected, whatever happens between
// two waits, and each change once.
func TestAwaitMissesNoChangeBetweenWaits(t *testing.T) {
	const apps, watchersPerApp, steps = 8, 4, 3000
	w := newWatched(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	random := rand.New(rand.NewPCG(1, 2))
	name := func(app int) string { return fmt.Sprintf("APP-%d", app) }

	var following sync.WaitGroup
	for app := range apps + 1 { // the last ones follow everything
		which := Selector{App: name(app)}
		if app == apps {
			which.App = ""
		}
		for range watchersPerApp {
			following.Go(func() {
				expect.OKf(t, w.follow(ctx, which, steps), "watcher of %q", which.App)
			})
		}
	}
	for i := range steps {
		key := Key{App: name(random.IntN(apps)), ID: fmt.Sprint(random.IntN(3))}
		switch op := random.IntN(4); {
		case i == steps-1: // the end of the story, for all readers
			for app := range apps {
				w.client(Register{instance(Key{App: name(app), ID: "last"}, Up, 100)})
			}
		case op == 0:
			w.client(Cancel{key})
		case op == 1:
			w.client(Quarantine{Key: key, For: int64(random.IntN(2)) * 1000})
		default:
			w.client(Register{instance(key, Up, int64(100+i))})
		}
		if random.IntN(4) > 0 || i == steps-1 { // several changes in one view
			w.publish()
		}
	}
	following.Wait()
}

// follow follows the changes until it has seen the last instance of each selected application, and compares the
// content that it built from them with the content at the end.
func (w *watched) follow(ctx context.Context, which Selector, most int) error {
	content := map[Key]*Lease{}
	var after Index
	for range most {
		changes, err := w.Await(ctx, w.newestView, after, which)
		if err != nil {
			return err
		}
		for _, c := range changes.Items {
			switch {
			case c.Index <= after || !which.Selects(c.Lease.Key()):
				return fmt.Errorf("after %d: got %s at %d", after, c.Lease.Key(), c.Index)
			case c.Kind == Live:
				content[c.Lease.Key()] = c.Lease
			default:
				delete(content, c.Lease.Key())
			}
		}
		after = changes.View.Index()
		want, last := map[Key]*Lease{}, 0
		for l := range changes.View.Leases() {
			if which.Selects(l.Key()) {
				want[l.Key()] = l
			}
			if l.Key().ID == "last" {
				last++
			}
		}
		if err := sameContent(content, want); err != nil {
			return fmt.Errorf("at %d: %w", after, err)
		}
		if last > 0 {
			return nil
		}
	}
	return fmt.Errorf("more than %d answers", most)
}

func sameContent(got, want map[Key]*Lease) error {
	for key, l := range want {
		if got[key] != l {
			return fmt.Errorf("%s: got %v, want %v", key, got[key], l)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d instances, want %d", len(got), len(want))
	}
	return nil
}

func TestJoinIsWokenByItsServiceAndItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := RegisterCatalog{Node: &catalog.Node{Name: "n1"}}
		nodeCheck := RegisterCatalog{Checks: []*catalog.Check{checkOf("", "n", catalog.Passing)}}
		for _, tt := range []struct {
			name        string
			op          Op
			orders, all bool
		}{
			{"its application", Register{instance(orders1, Up, 200)}, true, true},
			{"another application", Register{instance(billing1, Up, 200)}, false, true},
			{"a removal in it", Cancel{orders1}, true, true},
			{"a check's output", SetCheck{Check: "a", Status: catalog.Critical, Output: "x"}, false, true},
			{"another node", node, false, true},
			{"its node's check", nodeCheck, true, true},
			{"nothing new", SetCheck{Check: "a", Status: catalog.Critical}, false, false},
			{"a renewal", Renew{Key: orders1}, false, false},
		} {
			w := newWatched(t)
			w.do(Register{instance(orders1, Up, 100)}, service("web", "web-1", checkOf("web-1", "a", catalog.Critical)))
			orders, leaveOrders := w.Join(Topic{HealthTopic, "ORDERS"})
			all, leaveAll := w.Join(Topic{Kind: AllTopic})
			waits := w.await(t.Context(), w.View().Index(), "PAYMENTS")
			asked := w.asked.Load()
			w.do(tt.op)
			synctest.Wait()
			expect.That(t, isClosed(orders) == tt.orders && isClosed(all) == tt.all,
				"%s: ORDERS woken %t, all %t; want %t, %t", tt.name, isClosed(orders), isClosed(all), tt.orders, tt.all)
			expect.That(t, !waits.done && w.asked.Load() == asked, "%s: a reader that waits for changes of another application was woken", tt.name)
			leaveOrders()
			leaveAll()
			w.do(Register{instance(Key{App: "PAYMENTS", ID: "1"}, Up, 1)})
			waits.want(t, Key{App: "PAYMENTS", ID: "1"})
			expect.Equal(t, w.waiters.Len(), 0, "%s: still waiting:", tt.name)
		}
	})
}

func isClosed(woken <-chan struct{}) bool {
	select {
	case <-woken:
		return true
	default:
		return false
	}
}

// A change from a time when nobody waited wakes no later reader.
func TestJoinIsNotWokenByEarlierChanges(t *testing.T) {
	w := newWatched(t)
	w.do(Register{instance(orders1, Up, 100)}, RegisterCatalog{Node: &catalog.Node{Name: "n1"}})
	woken, leave := w.Join(Topic{HealthTopic, "ORDERS"})
	defer leave()
	w.do(Register{instance(billing1, Up, 100)})
	expect.That(t, !isClosed(woken), "it was woken by what it had seen")
}

// The last change of a topic never goes back, and readers that wait for the topic are woken when it moves. Two
// exceptions: readers that wait for something that did not exist before and still does not, and removals whose record
// was pruned.
func TestTopicsMoveWithAWakeAndNotBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, now := New(), Stamp{Lease: 1000, Wall: startOfWall}
		var w Watchers
		for i, s := range drawSteps.Draw(t, "steps") {
			old, before := r.View(), lastChanges(r.View())
			woken := map[Topic]<-chan struct{}{}
			var leave []func()
			for topic := range before {
				wake, stop := w.Join(topic)
				woken[topic] = wake
				leave = append(leave, stop)
			}
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.apply(r, now)
			w.Publish(r.View())
			pruned := r.tables.pruned
			for topic, at := range lastChanges(r.View()) {
				need.That(t, at >= before[topic], "step %d %+v: the last change of %+v went from %d back to %d", i, s, topic, before[topic], at)
				_, absent := old.LastChange(topic)
				_, still := r.View().LastChange(topic)
				need.That(t, at == before[topic] || at == pruned || isClosed(woken[topic]) || absent && still,
					"step %d %+v: the last change of %+v went from %d to %d, and no reader was woken", i, s, topic, before[topic], at)
			}
			for _, stop := range leave {
				stop()
			}
		}
	})
}
