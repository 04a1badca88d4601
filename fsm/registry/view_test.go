package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestViewIterationCanStopEarly(t *testing.T) {
	g := newRig(t)
	for _, key := range []Key{orders1, orders2, billing1} {
		g.register(instance(key, Up, 100))
	}
	v := g.View()
	for name, leases := range map[string]func(func(*Lease) bool){
		"Leases": v.Leases(), "ByVIP": v.ByVIP("ORDERS"), "ByID": v.ByID(orders1.ID),
	} {
		n := 0
		for range leases {
			n++
			break
		}
		expect.Equal(t, n, 1, "%s went on after break:", name)
	}
}

func TestByVIPMatchesPartsExactly(t *testing.T) {
	g := newRig(t)
	register := func(key Key, vip, secure string) {
		in := instance(key, Up, 100)
		in.VIP, in.SecureVIP = vip, secure
		g.register(in)
	}
	register(orders1, "a,b", "s")
	register(orders2, "b,b", "s,a")
	register(billing1, "A, b,", "")
	tests := []struct {
		vip    string
		want   []Key
		secure []Key
	}{
		{"a", []Key{orders1}, []Key{orders2}},
		{"b", []Key{orders1, orders2}, nil},
		{" b", []Key{billing1}, nil},
		{"A", []Key{billing1}, nil},
		{"s", nil, []Key{orders1, orders2}},
		{"a,b", nil, nil},
		{"", nil, nil},
	}
	for _, tt := range tests {
		wantKeys(t, "vip "+tt.vip, keysOf(g.View().ByVIP(tt.vip)), tt.want...)
		wantKeys(t, "secure vip "+tt.vip, keysOf(g.View().BySecureVIP(tt.vip)), tt.secure...)
	}
	register(orders1, "c", "s") // no longer a and b
	g.client(Cancel{orders2})
	wantKeys(t, "vip a after it moved", keysOf(g.View().ByVIP("a")))
	wantKeys(t, "vip b after it moved", keysOf(g.View().ByVIP("b")))
	wantKeys(t, "vip c after it moved", keysOf(g.View().ByVIP("c")), orders1)
	wantKeys(t, "secure vip s after a cancel", keysOf(g.View().BySecureVIP("s")), orders1)
}

func TestHashCodeCountsByStatusInLexicographicOrder(t *testing.T) {
	g := newRig(t)
	expect.Equal(t, g.View().HashCode(), "", "empty registry:")
	statuses := map[Status]int{Up: 10, Down: 1, OutOfService: 2, Unknown: 3, Starting: 4}
	for status, n := range statuses {
		for i := range n {
			g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(status, i)}, status, 100))
		}
	}
	expect.Equal(t, g.View().HashCode(), "DOWN_1_OUT_OF_SERVICE_2_STARTING_4_UNKNOWN_3_UP_10_", "got")
}

func TestViewDoesNotChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
	v := g.View()
	app, _ := v.App("ORDERS")
	stamp, first := v.Stamp(), g.lease(orders1)
	g.pass(1000)
	g.register(instance(orders1, Down, 200))
	g.register(instance(billing1, Up, 200))
	g.client(Cancel{orders2})
	wantKeys(t, "leases", keysOf(v.Leases()), orders1, orders2)
	wantKeys(t, "application", keysOf(app.Leases()), orders1, orders2)
	wantKeys(t, "by vip", keysOf(v.ByVIP("ORDERS")), orders1, orders2)
	if got, _ := v.Lease(orders1); got != first || v.Index() != 2 || app.Changed != 2 || v.Len() != 2 ||
		v.HashCode() != "UP_2_" || v.Stamp() != stamp {
		t.Errorf("index %d, changed %d, %d leases, hash %s at %v", v.Index(), app.Changed, v.Len(), v.HashCode(), v.Stamp())
	}
	changes, err := v.Changes(0, 0)
	expect.That(t, err == nil && len(changes) == 2, "changes %v, %v", changes, err)
}

func TestRenewalMovesTheViewsStampAndNotItsIndex(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	old := g.View()
	g.pass(1000)
	g.client(Renew{Key: orders1})
	v := g.View()
	expect.That(t, v.Index() == old.Index() && v.Stamp() == g.now && v.tables == old.tables,
		"index %d at %v, want %d at %v, and the trees of before", v.Index(), v.Stamp(), old.Index(), g.now)
	expect.Equal(t, old.LastRenewal(g.lease(orders1)), g.now, "an old view shows the renewal of")
}

func TestLastRenewalInAViewFromBeforeTheRemovalIsThatOfTheViewsLease(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	old := g.View()
	first, _ := old.Lease(orders1)
	g.pass(1000)
	g.client(Renew{Key: orders1})
	renewed := g.now
	g.pass(1000)
	g.client(Cancel{orders1})
	got := old.LastRenewal(first)
	expect.That(t, got == first.RenewedAt, "after the cancel: %v, want the lease's own %v", got, first.RenewedAt)
	rec := g.View().Delta().Leases[0]
	expect.That(t, rec.RenewedAt == renewed && g.View().LastRenewal(rec) == renewed,
		"the record says %v, want the last renewal %v", rec.RenewedAt, renewed)
	g.pass(1000)
	h := g.register(instance(orders2, Up, 100)).Handle
	need.That(t, h.Slot == first.Handle.Slot, "the slot was not used again: %v", h)
	expect.Equal(t, old.LastRenewal(first), first.RenewedAt, "after the slot got another lease:")
}

func TestLastRenewalIsLiveInAViewFromBeforeTheTableGrew(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	old := g.View()
	l, _ := old.Lease(orders1)
	for i := range 3 * renewalsPerChunk {
		g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(i)}, Up, 100))
	}
	g.pass(1000)
	g.client(Renew{Key: orders1})
	expect.Equal(t, old.LastRenewal(l), g.now, "got")
}

// Views are read by many goroutines while the state goes on; the race detector looks on.
func TestViewsAreReadWhileOperationsAreApplied(t *testing.T) {
	g := newRig(t)
	for i := range 100 {
		g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(i)}, Up, 100))
	}
	views := make(chan *View)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for v := range views {
				expect.OK(t, readAll(v))
			}
		})
	}
	for i := range 300 {
		views <- g.View()
		key := Key{App: "ORDERS", ID: fmt.Sprint(i % 120)}
		g.client(Renew{Key: key})
		g.client(Register{instance(Key{App: "ORDERS", ID: fmt.Sprint(i % 130)}, Down, int64(100+i))})
		g.client(SetOverride{Key: key, Status: OutOfService})
		g.client(Cancel{Key{App: "ORDERS", ID: fmt.Sprint(i * 7 % 150)}})
		g.pass(1000)
	}
	close(views)
	readers.Wait()
}

// readAll reads everything in a view, and returns how its parts contradict each other, as parts of one moment do not.
func readAll(v *View) error {
	n := 0
	for l := range v.Leases() {
		n++
		v.LastRenewal(l)
		if !slices.Contains(keysOf(v.ByID(l.Key().ID)), l.Key()) {
			return fmt.Errorf("%s is not found by its id", l.Key())
		}
	}
	if byVIP := len(keysOf(v.ByVIP("ORDERS"))); n != v.Len() || n != byVIP {
		return fmt.Errorf("%d leases in the list, %d by VIP, %d counted", n, byVIP, v.Len())
	}
	changes, err := v.Changes(0, 0)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Index > v.Index() {
			return fmt.Errorf("change %d in a view of %d", c.Index, v.Index())
		}
	}
	if d := v.Delta(); d.HashCode != v.HashCode() {
		return fmt.Errorf("delta of %s in a view of %s", d.HashCode, v.HashCode())
	}
	if n := len(slices.Collect(v.RecentlyRegistered())); n > recentLength {
		return fmt.Errorf("%d recent registrations", n)
	}
	return nil
}

func TestByVIPFindsAnInstanceByABoundedNumberOfParts(t *testing.T) {
	g := newRig(t)
	in := &Instance{InstanceID: "orders-1", App: "ORDERS", HostName: "h", Status: Up, LastDirty: 1}
	in.VIP = strings.Repeat("x,", MaxVIPs-1) + "last,beyond" + strings.Repeat(",beyond", 100_000)
	g.client(Register{Instance: in})
	for vip, want := range map[string]int{"x": 1, "last": 1, "beyond": 0} {
		n := 0
		for range g.View().ByVIP(vip) {
			n++
		}
		expect.That(t, n == want, "%d instances of VIP %q, want %d", n, vip, want)
	}
}

// What an application counts by status is what a walk over its leases finds, whatever happened to them; also in views of before.
func TestCountsOfAnApplicationAreWhatAWalkFinds(t *testing.T) {
	g := newRig(t)
	r := rand.New(rand.NewPCG(1, 2))
	keys := []Key{orders1, orders2, billing1}
	var views []*View
	for range 2000 {
		key := keys[r.IntN(len(keys))]
		switch r.IntN(7) {
		case 0, 1:
			g.client(Register{instance(key, Status(r.IntN(int(OutOfService)+1)), 0)})
		case 2:
			g.client(Cancel{Key: key})
		case 3:
			g.client(SetOverride{Key: key, Status: OutOfService})
		case 4:
			g.client(DeleteOverride{Key: key})
		case 5:
			g.client(Quarantine{Key: key, For: int64(r.IntN(2)) * 60_000})
		case 6:
			g.client(Renew{Key: key})
		}
		g.pass(10)
		views = append(views, g.View())
	}
	for i, v := range views {
		for app := range v.Apps() {
			var want [OutOfService + 1]uint32
			for l := range app.Leases() {
				want[l.Instance.Status]++
			}
			need.Equal(t, app.Counts(), want, "after operation %d, %s:", i+1, app.Name)
		}
	}
}

func TestChangeSaysWhyByTheLastEvent(t *testing.T) {
	g := newRig(t)
	for _, step := range []struct {
		name string
		op   Op
		kind ChangeKind
		why  EventKind
	}{
		{"registered", Register{instance(orders1, Up, 0)}, Live, EventRegistered},
		{"status", SetOverride{Key: orders1, Status: OutOfService}, Live, EventOverridden},
		{"quarantined", Quarantine{Key: orders1, For: 60_000}, Hidden, EventQuarantined},
		{"end of the quarantine", Quarantine{Key: orders1}, Live, EventQuarantineEnded},
		{"canceled", Cancel{Key: orders1}, Canceled, EventCanceled},
	} {
		before := g.View().Index()
		g.client(step.op)
		v := g.View()
		changes := need.Got(v.Changes(before, 0))(t)
		need.That(t, len(changes) == 1, "%s: %d changes", step.name, len(changes))
		why, ok := v.Why(changes[0])
		expect.That(t, ok && why == step.why && changes[0].Kind == step.kind, "%s: %v %v %v, want %v of kind %v", step.name, why, ok, changes[0].Kind, step.why, step.kind)
	}
}
