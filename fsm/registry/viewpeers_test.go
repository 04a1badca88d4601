package registry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// All fields but those that are compared apart.
func TestFingerprintIsOfEveryFieldThatAClientSays(t *testing.T) {
	apart := []string{"Status", "Overridden"}
	full := payload(7)
	full.DataCenter = DataCenter{Name: Amazon, Metadata: []Pair{{Key: "instance-id", Value: "i-1"}}}
	seen := map[uint64]string{full.Fingerprint(): "the instance"}
	fields := reflect.TypeFor[Instance]()
	for i := range fields.NumField() {
		c := *full
		name := fields.Field(i).Name
		vary(t, reflect.ValueOf(&c).Elem().Field(i))
		before, same := seen[c.Fingerprint()]
		expect.That(t, same == slices.Contains(apart, name), "with another %s it is that of %q", name, before)
		seen[c.Fingerprint()] = name
	}
}

// vary changes a field of an instance.
func vary(t *testing.T, v reflect.Value) {
	switch field := v.Addr().Interface().(type) {
	case *string:
		*field += "x"
	case *Status:
		*field++
	case *Port:
		field.Enabled = !field.Enabled
	case *DataCenter:
		field.Metadata = append(slices.Clone(field.Metadata), Pair{Key: "a", Value: "b"})
	case *[]Pair:
		*field = append(slices.Clone(*field), Pair{Key: "a", Value: "b"})
	case *int32:
		*field++
	case *int64:
		*field++
	default:
		t.Fatalf("no variation of a %s", v.Type())
	}
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
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
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

// What is heard from others is not told as if it had happened here.
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
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.register(instance(orders2, Up, 100))
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
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
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

// The answers to a renewal that another Rollcall server tells; stored is life 2 at 100, renewed 60 s ago.
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

// A flood of removals forgets records within seconds, and with them how far back the change list reaches.
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

// Large records go before there are too many of them: as many as fit stay, the newest.
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

func TestWeightCountsEveryTextOfAnInstance(t *testing.T) {
	var i Instance
	v := reflect.ValueOf(&i).Elem()
	for n := range v.NumField() {
		f := v.Field(n)
		before := i.weight()
		switch name := v.Type().Field(n).Name; {
		case f.Kind() == reflect.String:
			f.SetString("12345")
			expect.Equal(t, i.weight()-before, 5, "five bytes of %s weigh", name)
		case f.Type() == reflect.TypeFor[[]Pair]():
			f.Set(reflect.ValueOf([]Pair{{Key: "12", Value: "345"}}))
			expect.Equal(t, i.weight()-before, 5+pairWeight, "an entry of %s with five bytes weighs", name)
		}
	}
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
	n := g.View().CatalogBytes()
	expect.That(t, n == 0, "%d bytes of no nodes", n)
}

// payload is an instance of about 1 KB in all, its strings its own as after decoding.
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
