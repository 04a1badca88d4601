package registry

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
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
	expect.Equal(t, g.View().Counts().HashCode(), "", "empty registry:")
	statuses := map[Status]int{Up: 10, Down: 1, OutOfService: 2, Unknown: 3, Starting: 4}
	for status, n := range statuses {
		for i := range n {
			g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(status, i)}, status, 100))
		}
	}
	expect.Equal(t, g.View().Counts().HashCode(), "DOWN_1_OUT_OF_SERVICE_2_STARTING_4_UNKNOWN_3_UP_10_", "got")
}

func TestViewDoesNotChange(t *testing.T) {
	g := withOrders(t, orders2)
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
		v.Counts().HashCode() != "UP_2_" || v.Stamp() != stamp {
		t.Errorf("index %d, changed %d, %d leases, hash %s at %v", v.Index(), app.Changed, v.Len(), v.Counts().HashCode(), v.Stamp())
	}
	changes, err := v.Changes(0, 0)
	expect.That(t, err == nil && len(changes) == 2, "changes %v, %v", changes, err)
}

func TestRenewalMovesTheViewsStampAndNotItsIndex(t *testing.T) {
	g := withOrders(t)
	old := g.View()
	g.pass(1000)
	g.client(Renew{Key: orders1})
	v := g.View()
	expect.That(t, v.Index() == old.Index() && v.Stamp() == g.now && v.tables == old.tables,
		"index %d at %v, want %d at %v, and the trees of before", v.Index(), v.Stamp(), old.Index(), g.now)
	expect.Equal(t, old.LastRenewal(g.lease(orders1)), g.now, "an old view shows the renewal of")
}

func TestLastRenewalInAViewFromBeforeTheRemovalIsThatOfTheViewsLease(t *testing.T) {
	g := withOrders(t)
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
	g := withOrders(t)
	old := g.View()
	l, _ := old.Lease(orders1)
	for i := range 3 * renewalsPerChunk {
		g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(i)}, Up, 100))
	}
	g.pass(1000)
	g.client(Renew{Key: orders1})
	expect.Equal(t, old.LastRenewal(l), g.now, "got")
}

// Many goroutines read views while the state goes on; the race detector watches.
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

// readAll reads everything in a view, and returns an error if its parts do not fit together, as parts of one moment
// do.
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
	if d := v.Delta(); d.HashCode != v.Counts().HashCode() {
		return fmt.Errorf("delta of %s in a view of %s", d.HashCode, v.Counts().HashCode())
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

// An application's counts by status match a walk over its leases, whatever happened to them, even in older views.
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
			var want Counts
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

// A field that is added is compared, is in the fingerprint unless it is compared apart, and is weighed if it is a text.
func TestEveryFieldOfAnInstanceCounts(t *testing.T) {
	full := payload(7)
	full.DataCenter = DataCenter{Name: Amazon, Metadata: []Pair{{Key: "instance-id", Value: "i-1"}}}
	changed := *full
	need.That(t, full.Equal(&changed), "an instance does not equal its copy")
	apart := []string{".Status", ".Overridden"}
	seen := map[uint64]string{full.Fingerprint(): "the instance"}
	var each func(path string, v reflect.Value)
	each = func(path string, v reflect.Value) {
		old, before, heavier := reflect.ValueOf(v.Interface()), changed.weight(), 0
		switch v.Kind() {
		case reflect.Struct:
			for field, at := range v.Fields() {
				each(path+"."+field.Name, at)
			}
			return
		case reflect.String:
			v.SetString(v.String() + "12345")
			heavier = 5
		case reflect.Slice:
			v.Set(reflect.Append(v, reflect.ValueOf(Pair{Key: "12", Value: "345"})))
			heavier = 5 + pairWeight
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Uint8, reflect.Uint16:
			v.SetUint(v.Uint() + 1)
		case reflect.Int32, reflect.Int64:
			v.SetInt(v.Int() + 1)
		default:
			t.Fatalf("%s: no variation of a %s", path, v.Kind())
		}
		expect.That(t, !full.Equal(&changed), "a change of %s is not seen", path)
		other, same := seen[changed.Fingerprint()]
		expect.That(t, same == slices.Contains(apart, path), "the fingerprint with another %s equals that of %q", path, other)
		seen[changed.Fingerprint()] = path
		expect.Equal(t, changed.weight()-before, heavier, "the change of %s weighs", path)
		v.Set(old)
	}
	each("", reflect.ValueOf(&changed).Elem())
}

func TestFingerprintDiffersByTextsAndByEffectiveLeaseTimes(t *testing.T) {
	fingerprint := func(change func(*Instance)) uint64 {
		i := payload(7)
		change(i)
		return i.Fingerprint()
	}
	moved := fingerprint(func(i *Instance) { i.HostName, i.IPAddr = i.HostName+"1", i.IPAddr[1:] })
	paired := fingerprint(func(i *Instance) { i.Metadata = []Pair{{Key: "ab", Value: "c"}} })
	tests := []struct {
		name  string
		a, b  uint64
		equal bool
	}{
		{"text in another field", fingerprint(func(*Instance) {}), moved, false},
		{"text in another part of a pair", fingerprint(func(i *Instance) { i.Metadata = []Pair{{Key: "a", Value: "bc"}} }), paired, false},
		{"port", fingerprint(func(i *Instance) { i.Port.Number = 1 }), fingerprint(func(i *Instance) { i.Port.Number = 2 }), false},
		{"no duration is the default", fingerprint(func(i *Instance) { i.Duration = 0 }), fingerprint(func(i *Instance) { i.Duration = 90 }), true},
		{"too short an interval is the shortest", fingerprint(func(i *Instance) { i.Duration = 1 }), fingerprint(func(i *Instance) { i.Duration = 3 }), true},
	}
	for _, tt := range tests {
		expect.That(t, (tt.a == tt.b) == tt.equal, "%s: %#x and %#x, want them equal: %t", tt.name, tt.a, tt.b, tt.equal)
	}
}

func TestSumIsOfVersionAndDecisions(t *testing.T) {
	base := func() Lease { return Lease{Instance: instance(orders1, Up, 100), Life: 1} }
	tests := []struct {
		name   string
		change func(l *Lease)
		same   bool
	}{
		{"id", func(l *Lease) { l.Instance = instance(Key{App: "ORDERS", ID: "x"}, Up, 100) }, false},
		{"life", func(l *Lease) { l.Life++ }, false},
		{"lastDirtyTimestamp", func(l *Lease) { l.Instance = instance(orders1, Up, 101) }, false},
		{"edit", func(l *Lease) { l.Edit++ }, false},
		{"status", func(l *Lease) { l.Instance = instance(orders1, Down, 100) }, false},
		{"override", func(l *Lease) { l.Instance = l.Instance.with(Up, Down, 100) }, false},
		{"quarantine", func(l *Lease) { l.Quarantine = &Quarantined{} }, false},
		{"metadata", func(l *Lease) {
			i := *l.Instance
			i.Metadata = []Pair{{Key: "a", Value: "b"}}
			l.Instance = &i
		}, false},
		{"owner", func(l *Lease) { l.Owner = "dc2" }, true},
		{"what this server did with it", func(l *Lease) { l.Changed, l.ServiceUpAt, l.RenewedAt = 7, 7, Stamp{7, 7} }, true},
	}
	for _, tt := range tests {
		a, b := base(), base()
		tt.change(&b)
		expect.That(t, (a.Sum() == b.Sum()) == tt.same, "%s: %#x and %#x, want them equal: %t", tt.name, a.Sum(), b.Sum(), tt.same)
	}
	a, b := base(), base()
	a.Instance, a.Override = a.Instance.with(OutOfService, OutOfService, 100), &Override{Reported: Up, Until: 5}
	b.Instance, b.Override = b.Instance.with(OutOfService, OutOfService, 100), &Override{Reported: Up, Set: 9}
	expect.That(t, a.Sum() == b.Sum(), "the same override, known differently: %#x and %#x", a.Sum(), b.Sum())
}

func TestComparableYieldsLeasesOnWhichTwoServersCanAgree(t *testing.T) {
	g := withOrders(t, orders2)
	g.client(Quarantine{Key: orders2, For: 600_000})
	g.apply(fromDC2, Register{instance(billing1, Up, 100)})
	agreed := func(all bool, owner string) []Key { return keysOf(g.View().Comparable(g.now.Lease, all, owner)) }
	g.pass(9_999)
	wantKeys(t, "a moment too early", agreed(true, ""))
	g.pass(1)
	wantKeys(t, "all", agreed(true, ""), billing1, orders1, orders2)
	wantKeys(t, "own", agreed(false, ""), orders1, orders2)
	wantKeys(t, "of dc2", agreed(false, "dc2"), billing1)
	g.client(UpdateMetadata{orders1, []Pair{{Key: "a", Value: "b"}}})
	wantKeys(t, "changed lately", agreed(true, ""), billing1, orders2)
	g.pass(80_000)
	wantKeys(t, "at the end of a lease", agreed(true, ""), billing1, orders1, orders2)
	g.pass(1)
	wantKeys(t, "after it", agreed(true, ""), billing1, orders1)
	for range g.View().Comparable(g.now.Lease, true, "") {
		break // readers may stop
	}
}

// Renewals heard from others are not passed on as if they had happened here.
func TestRenewedAfterYieldsRenewalsByTheirOrigin(t *testing.T) {
	tests := []struct {
		name           string
		origin         Origin
		op             Op
		toAll, toNodes bool
	}{
		{"client", FromClient, Renew{Key: orders1}, true, true},
		{"Eureka server", FromEureka, Renew{Key: orders1, LastDirty: 100}, false, true},
		{"datacenter", fromDC2, Renew{Key: orders1, Life: 1, LastDirty: 100}, false, true},
		{"datacenter, not newer than what is known", fromDC2, Renew{Key: orders1, Life: 1, LastDirty: 100, Age: 5000}, false, false},
		{"datacenter's equal copy", fromDC2, replicaAt(Up, 100), false, true},
		{"node", fromNode, Renew{Key: orders1, Life: 1, LastDirty: 100}, false, false},
		{"node's equal copy", fromNode, replicaAt(Up, 100), false, false},
		{"datacenter, of another life", fromDC2, Renew{Key: orders1, Life: 2, LastDirty: 100}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t, orders2)
			g.client(Renew{Key: orders2})
			after := g.View().NewestBeat()
			g.pass(2000)
			g.apply(tt.origin, tt.op)
			want := func(told bool) []Key {
				if told {
					return []Key{orders1}
				}
				return nil
			}
			wantKeys(t, "to all", keysOf(g.View().RenewedAfter(after, false)), want(tt.toAll)...)
			wantKeys(t, "to nodes", keysOf(g.View().RenewedAfter(after, true)), want(tt.toNodes)...)
			wantKeys(t, "after that", keysOf(g.View().RenewedAfter(g.View().NewestBeat(), true)))
		})
	}
}

func TestRenewedAfterIgnoresBeatsOfASlotsEarlierLease(t *testing.T) {
	g := withOrders(t)
	before := g.View()
	g.client(Renew{Key: orders1})
	g.client(Cancel{orders1})
	g.register(instance(orders2, Up, 100))
	wantKeys(t, "now", keysOf(g.View().RenewedAfter(0, true)))
	g.client(Renew{Key: orders2})
	wantKeys(t, "renewed", keysOf(g.View().RenewedAfter(0, true)), orders2)
	wantKeys(t, "by an old view", keysOf(before.RenewedAfter(0, true)))
	for i := range 3 {
		g.register(instance(Key{App: "ORDERS", ID: fmt.Sprint(i)}, Up, 100))
		g.client(Renew{Key: Key{App: "ORDERS", ID: fmt.Sprint(i)}})
	}
	for range g.View().RenewedAfter(0, true) {
		break // readers may stop
	}
}

// The answers to a renewal from another Rollcall server; the stored copy is life 2 at 100, renewed 60 s ago.
func TestRenewComparesLivesFirst(t *testing.T) {
	tests := []struct {
		name    string
		op      Renew
		want    Outcome
		renewed bool
	}{
		{"the same", Renew{Life: 2, LastDirty: 100}, Done, true},
		{"no timestamp", Renew{Life: 2}, Done, true},
		{"newer", Renew{Life: 2, LastDirty: 101}, Newer, true},
		{"older", Renew{Life: 2, LastDirty: 99}, Older, true},
		{"a later life", Renew{Life: 3, LastDirty: 1}, Newer, true},
		{"an earlier life", Renew{Life: 1, LastDirty: 500}, Older, false},
	}
	for _, origin := range []Origin{fromNode, fromDC2} {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				g := newRig(t)
				g.apply(fromDC2, replicaAt(Up, 100, lifeOf(2)))
				l := g.lease(orders1)
				want := g.now
				g.pass(60_000)
				if tt.renewed {
					want = Stamp{g.now.Lease - 7000, g.now.Wall - 7000}
				}
				op := tt.op
				op.Key, op.Age = orders1, 7000
				expect.Equal(t, g.apply(origin, op), (Result{Outcome: tt.want}), "got")
				got := g.View().LastRenewal(l)
				expect.That(t, got == want && g.lease(orders1) == l, "renewed at %v, want %v", got, want)
			})
		}
	}
}

func TestRenewOfAnUnknownInstanceIsRefusedAfterANewerCancel(t *testing.T) {
	tests := []struct {
		name string
		kind ChangeKind // of the removal of life 2 at 100
		op   Renew
		want Outcome
	}{
		{"never here", Live, Renew{Life: 2, LastDirty: 100}, NotFound},
		{"canceled", Canceled, Renew{Life: 2, LastDirty: 100}, Refused},
		{"canceled a later life", Canceled, Renew{Life: 1, LastDirty: 500}, Refused},
		{"canceled before", Canceled, Renew{Life: 2, LastDirty: 101}, NotFound},
		{"canceled an earlier life", Canceled, Renew{Life: 3, LastDirty: 1}, NotFound},
		{"evicted", Evicted, Renew{Life: 2, LastDirty: 100}, NotFound},
		{"canceled, by a Eureka server", Canceled, Renew{LastDirty: 100}, NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			if tt.kind != Live {
				g.apply(fromNode, Remove{Key: orders1, Kind: tt.kind, Life: 2, LastDirty: 100})
			}
			op := tt.op
			op.Key = orders1
			expect.Equal(t, g.apply(fromDC2, op), (Result{Outcome: tt.want}), "got")
		})
	}
}

// A flood of removals drops records within seconds, and shortens the reach of the change list.
func TestComparableIndexIsBelowANewerChangeThoughLaterRecordsWerePruned(t *testing.T) {
	g := newRig(t)
	g.register(instance(Key{App: "ORDERS", ID: "fresh"}, Up, 100))
	fresh := g.View().Index()
	for i := range maxRemovals + 1 {
		key := Key{App: "FLOOD", ID: fmt.Sprint(i)}
		g.register(instance(key, Up, 100))
		g.client(Cancel{key})
	}
	got := g.View().ComparableIndex(g.now.Lease)
	expect.That(t, got < fresh, "comparable up to %d, want less than %d, which is not", got, fresh)
	g.pass(comparisonWait)
	expect.Equal(t, g.View().ComparableIndex(g.now.Lease), g.View().Index(), "later: comparable up to")
}

// Large records go before there are too many of them: the newest stay, as many as fit.
func TestRemovalRecordsAreBoundedByBytes(t *testing.T) {
	g := newRig(t)
	large := []Pair{{Key: "k", Value: strings.Repeat("v", 4<<20)}}
	most := maxRemoved / (4 << 20)
	for n := range most + 10 {
		i := instance(Key{App: "ORDERS", ID: fmt.Sprint(n)}, Up, 1)
		i.Metadata = large
		g.register(i)
		g.client(Cancel{i.Key()})
	}
	f := g.Freeze()
	if n := len(f.Removals); n < most-2 || n >= most || f.Pruned == 0 || f.Removals[n-1].Lease.Instance.ID() != fmt.Sprint(most+9) {
		t.Errorf("%d records of 4 MiB, pruned to %d; want just below %d, and the newest among them", n, f.Pruned, most)
	}
	expect.That(t, g.recordBytes <= maxRemoved, "%d bytes of records, want at most %d", g.recordBytes, maxRemoved)
	thawed := need.Got(Thaw(f))(t)
	expect.That(t, thawed.recordBytes == g.recordBytes, "%d bytes of records after a restore, want %d", thawed.recordBytes, g.recordBytes)
	g.pass(deltaWindow + 2*deltaStep)
	g.Advance(g.now)
	per := g.recordBytes / len(f.Removals)
	expect.That(t, per <= 4096, "a record that was reduced counts %d bytes, want at most 4096", per)
}

func TestCatalogGrowthIsTheGrowthByARegistration(t *testing.T) {
	g := newRig(t)
	node := func(value string) *catalog.Node {
		return &catalog.Node{Name: "n", Address: "10.0.0.1", Meta: []Pair{{Key: "k", Value: value}}}
	}
	check := func(id, output string) []*catalog.Check { return []*catalog.Check{{ID: id, Name: id, Output: output}} }
	for _, row := range []struct {
		name string
		op   RegisterCatalog
	}{
		{"a node", RegisterCatalog{Node: node("small")}},
		{"the same again", RegisterCatalog{Node: node("small")}},
		{"with larger metadata", RegisterCatalog{Node: node(strings.Repeat("x", 1000))}},
		{"with less", RegisterCatalog{Node: node("")}},
		{"a check of it", RegisterCatalog{Node: node(""), Checks: check("c", "fine")}},
		{"the same check", RegisterCatalog{Node: node(""), Checks: check("c", "fine")}},
		{"another one of a node that is kept", RegisterCatalog{Node: node("not taken"), KeepNode: true, Checks: check("d", strings.Repeat("x", 300))}},
		{"with less output", RegisterCatalog{Node: node(""), KeepNode: true, Checks: check("d", "")}},
	} {
		before := g.View()
		res := g.client(row.op)
		need.That(t, res.Outcome == Done, "%s: %+v", row.name, res)
		got, want := before.CatalogGrowth(row.op), g.View().CatalogBytes()-before.CatalogBytes()
		expect.That(t, got == want, "%s: a growth of %d bytes, and it grew by %d", row.name, got, want)
	}
	g.client(DeregisterCatalog{Node: "n"})
	expect.Equal(t, g.View().CatalogBytes(), 0, "bytes of no nodes:")
}

// payload returns an instance of about 1 KB in all, with strings of its own as after decoding.
func payload(i int) *Instance {
	id := fmt.Sprintf("host-%06d.example.internal:orders:8080", i)
	host := fmt.Sprintf("host-%06d.example.internal", i)
	return &Instance{
		InstanceID: id, HostName: host, App: fmt.Sprintf("APPLICATION-%03d", i%200), IPAddr: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
		Status: Up, LastDirty: startOfWall, Port: Port{Number: 8080, Enabled: true}, SecurePort: Port{Number: 443}, CountryID: 1,
		DataCenter: DataCenter{Name: MyOwn}, RenewalInterval: 30, Duration: 90,
		Metadata:    []Pair{{Key: "management.port", Value: "8081"}, {Key: "zone", Value: strings.Clone("eu-1a")}, {Key: "build", Value: strings.Repeat("x", 200)}},
		HomePageURL: "http://" + host + ":8080/", StatusPageURL: "http://" + host + ":8080/actuator/info",
		HealthCheckURL: "http://" + host + ":8080/actuator/health",
		VIP:            fmt.Sprintf("application-%03d", i%200), SecureVIP: fmt.Sprintf("application-%03d", i%200),
	}
}
