package replication

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// stateRow is a row of either table of operations.
type stateRow struct {
	name  string
	zero  any
	level byte
}

func stateRows() (rows []stateRow) {
	for _, r := range registry.Operations.Rows() {
		rows = append(rows, stateRow{r.Name, r.Zero, r.Level})
	}
	for _, r := range kv.Operations.Rows() {
		rows = append(rows, stateRow{"kv." + r.Name, r.Zero, r.Level})
	}
	return rows
}

// stateRowOf names the row of an item.
func stateRowOf(it fsm.Item) string {
	if it.KV != nil {
		return "kv." + kv.Operations.Name(it.KV)
	}
	return registry.Operations.Name(it.Op)
}

// stateDraw draws operations: from few names, so that they meet; from what is in the state of a site; and numbers at
// bounds.
type stateDraw struct {
	*rand.Rand
	site   *statesSite
	alone  bool                            // leases may end: otherwise each site would end its own
	level  byte                            // of an empty state; below 2 sites may disagree after the last timestamp
	values map[string]func(*stateDraw) any // see statesValues
}

// statesEnums has the last values of enumerations.
var statesEnums = map[reflect.Type]uint64{
	reflect.TypeFor[registry.Status]():            uint64(registry.OutOfService),
	reflect.TypeFor[registry.PreservationState](): uint64(registry.PreservationHeld),
	reflect.TypeFor[registry.CatalogVerb]():       uint64(registry.CatalogDeleteCAS),
	reflect.TypeFor[catalog.CheckStatus]():        uint64(catalog.Critical),
	reflect.TypeFor[kv.Verb]():                    uint64(kv.DeleteTree),
	reflect.TypeFor[kv.Kind]():                    uint64(kv.Semaphore),
	reflect.TypeFor[kv.Behavior]():                uint64(kv.DeleteKeys),
	reflect.TypeFor[access.Mode]():                uint64(access.On),
}

var (
	statesSessions = []string{"11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555", "bbbbbbbb-2222-3333-4444-555555555555"}
	statesKeys     = []string{"a", "a/1", "b", "c"}
	statesTokens   = []string{strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)}
	statesLong     = strings.Repeat("ü", 127)
	statesActs     = []registry.Act{{}, {Author: "ann", Reason: "maintenance"}, {Author: statesLong}}
	statesSpans    = []int64{0, 0, 1, 1000, 5000, 60_000, 500_000, math.MaxInt64, -1}
	statesTimes    = []int64{0, 0, 1, 5, 100, 300, 1_700_000_000_000, 1_700_000_000_001, 1_800_000_000_000, math.MaxInt64, -1}
)

// statesValues has the functions that draw fields of operations: by type and name, by name, or by type. If none of
// them draws a field, or what it consists of, the test fails.
func statesValues() map[string]func(*stateDraw) any {
	return map[string]func(*stateDraw) any{
		"registry.Key": func(d *stateDraw) any {
			if c, ok := d.change(); ok && d.IntN(3) > 0 {
				return c.Lease.Key()
			}
			return registry.NewKey(d.among("ORDERS", "ORDERS", "ORDERS", "BILLING", "WEB", statesLong), d.among("i1", "i1", "i2", "s1", "node1:s2", statesLong))
		},
		"registry.Handle": func(d *stateDraw) any { return pick(d, handles(d.site)) },
		"registry.Epoch": func(d *stateDraw) any {
			return pick(d, []registry.Epoch{{}, d.site.epoch(), d.site.epoch(), {Term: 1, Index: 1}})
		},
		"registry.Index":    func(d *stateDraw) any { return d.index() },
		"registry.Act":      func(d *stateDraw) any { return pick(d, statesActs) },
		"registry.Figures":  func(d *stateDraw) any { return registry.Figures{Leases: d.Uint32(), Counted: 3, Fresh: 1} },
		"registry.Instance": func(d *stateDraw) any { return *d.instance(d.draw(reflect.TypeFor[registry.Key](), "").(registry.Key)) },
		"registry.Status": func(d *stateDraw) any {
			return pick(d, append([]registry.Status{registry.Up}, registry.Statuses()...))
		},
		"registry.ChangeKind": func(d *stateDraw) any { return pick(d, []registry.ChangeKind{registry.Canceled, registry.Evicted}) },
		"[]registry.Pair": func(d *stateDraw) any {
			return pick(d, [][]registry.Pair{nil, {{Key: "k", Value: "v"}}, {{Key: "k", Value: "w"}, {Key: "", Value: statesLong}}})
		},
		"access.Rule": func(d *stateDraw) any {
			return pick(d, append(access.Everything(), access.Rule{Resource: access.App, Match: "a b", Verbs: access.Read}))
		},
		"catalog.Probe": func(d *stateDraw) any {
			return catalog.Probe{HTTP: "http://192.0.2.1/" + d.among("a", "b"), Interval: 1000}
		},
		"catalog.TaggedAddress": func(d *stateDraw) any {
			return catalog.TaggedAddress{Tag: "lan", Address: d.among("", "192.0.2.3"), Port: 80}
		},
		"[32]uint8": func(d *stateDraw) any { return [32]byte{byte(d.IntN(4))} },
		"kv.Op": func(d *stateDraw) any {
			for {
				op := d.draw(reflect.TypeOf(pick(d, kv.Operations.Rows()).Zero), "").(kv.Op)
				switch op.(type) {
				case kv.Once, kv.StagePart, kv.Restore, kv.DropStaged, kv.Access: // which a Once cannot hold
					continue
				}
				return op
			}
		},
		"[]uint8": func(d *stateDraw) any {
			return pick(d, [][]byte{nil, nil, []byte("v"), []byte("w"), make([]byte, kv.MaxPermitValue+1)})
		},
		"bool": func(d *stateDraw) any { return d.IntN(2) == 0 },

		"Yields":  func(d *stateDraw) any { return d.alone && d.IntN(2) == 0 }, // otherwise sites may disagree forever
		"Content": func(d *stateDraw) any { return d.part() },
		"KeyOp.Verb": func(d *stateDraw) any {
			return pick(d, []kv.Verb{kv.Verb(d.IntN(int(kv.DeleteTree) + 1)), kv.Verb(d.IntN(int(kv.DeleteTree) + 1)), kv.Acquire, kv.Set})
		},
		"Session": func(d *stateDraw) any { return d.session() }, "CreateSession.ID": func(d *stateDraw) any { return d.session() },
		"RenewSession.ID": func(d *stateDraw) any { return d.session() }, "DestroySession.ID": func(d *stateDraw) any { return d.session() },
		"ExpireSession.ID": func(d *stateDraw) any { return d.session() },
		"StagePart.ID":     texts("r", "r", "r", "r", "r", "r", "q", ""), "Restore.ID": texts("r", "r", "r", "r", "r", "r", "q", ""), "DropStaged.ID": texts("r", "q", ""),
		"KeyOp.Key": texts(append(statesKeys, "a", "a", "a", "a", "a/1", "b", "")...), "Pair.Key": texts(statesKeys...), "Once.Key": texts("o", "p", statesLong),
		"Fence.Name": texts("a", "p"), "EndDelay.Name": texts("a", "p", "q"), "AcquirePermit.Name": texts("p", "p", "q"), "ReleasePermit.Name": texts("p", "p", "q"),
		"LeaveQueue.Name": texts("p", "p", "q"), "Permits.Name": texts("p", "q"), "Session.ID": func(d *stateDraw) any { return d.session() },
		"Prefix": texts("", "", "", "", "", "a", "none"), "Name": texts("", "n", statesLong), "TTLText": texts("", "10s"), "Says": texts("", "so"),
		"Node": texts("", "", "node1", "node1", "node2"), "Node.Name": texts("node1", "node1", "node2", ""), "Service": texts("", "s1", "s1", "s2", "i1"), "Check": texts("c1", "c1", "c2", "serfHealth", ""),
		"Node.ID": texts("", "11"), "Address": texts("", "192.0.2.1", "192.0.2.2"), "Service.Name": texts("web", "web", "Web", "orders"), "Service.ID": texts("s1", "s1", "s2", "i1"),
		"CatalogOp.Check": texts("", "", "c1", "c2", "serfHealth"), "CatalogOp.Service": texts("", "s1", "s2", "i1", "node1:s2"),
		"Check.ID": texts("c1", "c1", "c2", "_node_maintenance"), "Notes": texts(""), "Output": texts("", "slow", statesLong), "Check.Type": texts("ttl", "alias", "http"),
		"Kind": texts(""), "SocketPath": texts(""), "Tags": func(d *stateDraw) any { return pick(d, [][]string{nil, {"v1"}, {"v1", "v2"}}) },
		"DC": texts("dc9", "dc9", "dc2", ""), "Sender": texts("of x", "of y", ""), "Principal": texts("", "ann"), "Reads": texts("", "ORDERS", "WEB", "node1"), "Peer": texts("dc9", "dc2"), "Owner": texts("", "", registry.Here, "dc9"),
		"Checks": func(d *stateDraw) any { return d.checkIDs() }, "NodeChecks": func(d *stateDraw) any { return d.checkIDs() }, "ServiceChecks": func(d *stateDraw) any { return d.checkIDs() },
		"Accessor": texts(append(statesTokens, statesTokens[0], statesTokens[0], "none")...), "DropRoles": texts2("r1", "r1", "r1", "r2", "none"), "Revoke": texts2(statesTokens[0], statesTokens[0], statesTokens[1], statesTokens[1], statesTokens[2], "none"), "Bootstrap": numbers(false, false, false, false, false, true), "Revoked": texts2(statesTokens[2]),
		"Role.Name": texts("r1", "r1", "r1", "r2", "r2", "operator", "operator", "operator", "operator", "no name"), "Token.Name": texts("ann", "ann", "ann", "bob", "bob", "bob", "bob", "nobody", ""), "Token.Roles": texts2("r1", "operator", "operator", "operator"), "App": texts("", "", "", "ORDERS", "ORDERS", "{"), "By": texts("", "ann"),

		"Life": numbers[uint32](0, 1, 1, 2, 3, 9, math.MaxUint32), "Edit": numbers[uint32](0, 0, 1, 2, math.MaxUint32), "Limit": numbers[uint32](1, 1, 1, 1, 2, 0, math.MaxUint32),
		"Incarnation": numbers[uint64](7, 8, 9, 10, 11, 12), "Flags": numbers[uint64](0, 1, math.MaxUint64), "LockIndex": numbers[uint64](0, 1, 2, math.MaxUint64),
		"AcquirePermit.Kind": numbers(kv.Lock, kv.Semaphore, kv.Semaphore, kv.Semaphore, kv.Key), "ReleasePermit.Kind": numbers(kv.Lock, kv.Semaphore, kv.Semaphore),
		"LeaveQueue.Kind": numbers(kv.Lock, kv.Semaphore, kv.Semaphore), "WithAuth": numbers(false, true), "Founding": numbers(false, false, true),
		"Part": numbers[uint64](0, 0, 0, 0, 1, 2, math.MaxUint64), "Parts": numbers[uint64](1, 1, 1, 1, 2, 0),
		"LastDirty": func(d *stateDraw) any { return d.timestamp() }, "Expires": numbers(statesTimes...), "Rotation.Until": numbers[int64](0, 1_800_000_000_000, 1_800_000_000_000), "Until": numbers(statesTimes...), "Secret.Until": numbers(statesTimes...), "Created": numbers(statesTimes...),
		"For": numbers[int64](0, 0, 1, 1000, 60_000, 500_000, 315_360_000_000, -1), "Age": numbers(append(statesSpans, registry.UnknownAge)...), "OverrideFor": numbers(statesSpans...), "QuarantineFor": numbers(statesSpans...), "Cut": numbers(statesSpans...),
		"Wait": numbers(statesSpans...), "TTL": numbers(append(statesSpans, 10_000, 10_000, 10_000)...), "ReapAfter": numbers(statesSpans...), "LockDelay": numbers[int64](0, 60_000_000_000, 60_000_000_000, 1, 1_000_000_000, 2_000_000_000, math.MaxInt64, -1),
		"Clock": func(d *stateDraw) any { return d.moment() }, "RenewedAt": func(d *stateDraw) any { return d.moment() }, "CriticalSince": func(d *stateDraw) any { return d.moment() },
		"EndDelay.Until": func(d *stateDraw) any { return d.moment() }, "CreatedAt": func(d *stateDraw) any { return d.moment() }, "CreatedWall": numbers(statesTimes...), "Since": func(d *stateDraw) any { return d.moment() },
		"Wall": numbers(statesTimes...), "int64": func(d *stateDraw) any { return d.moment() }, "Port": numbers[int32](0, 8080, math.MaxInt32),
		"WeightPassing": numbers[int32](1, 1, 0, 9), "WeightWarning": numbers[int32](1),
	}
}

func numbers[T any](values ...T) func(*stateDraw) any {
	return func(d *stateDraw) any { return pick(d, values) }
}
func texts(values ...string) func(*stateDraw) any { return numbers(values...) }
func texts2(values ...string) func(*stateDraw) any { // texts2 draws lists of up to two.
	return func(d *stateDraw) (list any) {
		all := make([]string, d.IntN(5)/2)
		for i := range all {
			all[i] = pick(d, values)
		}
		return all
	}
}

func pick[T any](d *stateDraw, values []T) T { return values[d.IntN(len(values))] }

func (d *stateDraw) among(values ...string) string { return pick(d, values) }

// session draws an existing session, one of few others, in either case, or none.
func (d *stateDraw) session() string {
	if d.site.consensus && d.IntN(2) == 0 {
		for s := range d.site.machine.KV().Sessions() {
			if d.IntN(2) == 0 {
				return s.ID
			}
		}
	}
	switch id := pick(d, statesSessions[:1+d.IntN(3)]); d.IntN(12) {
	case 0:
		return d.among("", "none")
	case 1:
		return strings.ToUpper(id)
	default:
		return id
	}
}

// change draws one of the newest changes of the site.
func (d *stateDraw) change() (drawn registry.Change, ok bool) {
	if d.site == nil {
		return drawn, false
	}
	n := 1
	for c := range d.site.view().NewestFirst() {
		if d.IntN(n) == 0 {
			drawn = c
		}
		if n++; n > 6 {
			break
		}
	}
	return drawn, n > 1
}

// index draws an index of the state: of the newest changes, of a key or permit, or at a bound.
func (d *stateDraw) index() registry.Index {
	v := d.site.view()
	all := []registry.Index{0, 1, v.Index(), v.Index() + 1, math.MaxUint64}
	for c := range v.NewestFirst() {
		if all = append(all, c.Index, c.Lease.Registered); len(all) > 12 {
			break
		}
	}
	if d.site.consensus {
		for _, key := range statesKeys {
			if p, _ := d.site.machine.KV().Get(key); p != nil {
				all = append(all, p.ModifyIndex)
			}
		}
		for _, h := range d.site.held() {
			all = append(all, h.Fence)
		}
	}
	return pick(d, all)
}

// moment draws a time of the lease clock: around now, or at a bound.
func (d *stateDraw) moment() int64 {
	now := d.site.now.Lease
	return pick(d, []int64{0, now, now, now - 1000, now - 11_000, now + 1000, now + 3_600_000, math.MaxInt64, -1})
}

// timestamp draws one that a client gives.
func (d *stateDraw) timestamp() int64 {
	drawn := pick(d, statesTimes)
	if !d.alone && d.level < 2 {
		return min(drawn, 1<<62)
	}
	return drawn
}

func (d *stateDraw) checkIDs() []string {
	return pick(d, [][]string{nil, nil, nil, nil, nil, slices.Repeat([]string{"c1"}, 200), {"c1"}, {"c2"}, {"serfHealth"}, {"c1", "none"}, {}})
}

// instance draws what a client says of an instance.
func (d *stateDraw) instance(key registry.Key) *registry.Instance {
	i := peertest.Instance(key.App, key.ID, max(0, d.timestamp()))
	i.Status = d.draw(reflect.TypeFor[registry.Status](), "").(registry.Status)
	i.Duration = pick(d, []int32{600, 600, 600, 600, 0, 10, math.MaxInt32, -1})
	i.VIP = d.among("orders", "orders,other", "", statesLong)
	i.Metadata = d.draw(reflect.TypeFor[[]registry.Pair](), "").([]registry.Pair)
	if !d.alone {
		i.Duration = 7200
	}
	switch d.IntN(8) {
	case 0:
		i.Overridden = registry.OutOfService
	case 1:
		i.DataCenter.Name = registry.Amazon
	}
	return i
}

// part draws a part of a snapshot for people, or something invalid.
func (d *stateDraw) part() []byte {
	if d.IntN(6) == 0 {
		return []byte("no part")
	}
	return d.packed(d.draw(reflect.TypeFor[kv.Image](), "").(kv.Image))
}

// packed encodes an image as a part.
func (d *stateDraw) packed(m kv.Image) []byte {
	packer, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	defer packer.Close()
	return packer.EncodeAll(m.Encode(codec.Oldest), nil)
}

// draw draws a value of a type; name is the field's, with its struct.
func (d *stateDraw) draw(t reflect.Type, name string) any {
	v := reflect.New(t).Elem()
	d.fill(v, name)
	return v.Interface()
}

func (d *stateDraw) fill(v reflect.Value, name string) {
	_, field, _ := strings.Cut(name, ".")
	text := strings.ReplaceAll(strings.ReplaceAll(v.Type().String(), "order.", "registry."), "codec.", "registry.")
	for _, key := range []string{name, field, text} {
		if draw := d.values[key]; draw != nil && key != "" {
			if given := reflect.ValueOf(draw(d)); !given.IsValid() {
				return
			} else if given.CanConvert(v.Type()) {
				v.Set(given.Convert(v.Type()))
				return
			}
		}
	}
	switch last, enum := statesEnums[v.Type()]; {
	case enum:
		v.SetUint(d.Uint64N(last + 1))
	case v.Kind() == reflect.Pointer:
		if d.IntN(3) > 0 || slices.Contains([]string{"registry.Instance"}, text[1:]) {
			v.Set(reflect.New(v.Type().Elem()))
			d.fill(v.Elem(), field)
		}
	case v.Kind() == reflect.Slice:
		n := d.IntN(3) + d.IntN(2)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if at := v.Index(i); at.Kind() == reflect.Pointer { // lists have no absent elements
				at.Set(reflect.New(at.Type().Elem()))
				d.fill(at.Elem(), "")
			} else {
				d.fill(at, "")
			}
		}
		if n == 0 {
			v.SetZero()
		}
	case v.Kind() == reflect.Struct:
		for f, at := range v.Fields() {
			if f.IsExported() {
				d.fill(at, v.Type().Name()+"."+f.Name)
			}
		}
		d.fit(v.Addr().Interface())
	default:
		panic(fmt.Sprintf("statesValues do not draw %s (%s)", cmp.Or(name, "an element"), text))
	}
}

// fit makes the drawn operation consistent where every sender does.
func (d *stateDraw) fit(drawn any) {
	switch v := drawn.(type) {
	case *registry.Renew:
		if d.IntN(3) > 0 {
			v.Handle = registry.Handle{}
		} else if v.Handle != (registry.Handle{}) {
			v.Key, v.Overridden, v.Life, v.Age, v.Status, v.Yields = registry.Key{}, 0, 0, 0, 0, false
		}
	case *registry.RegisterCatalog:
		d.fitRegistration(v, "")
	case *registry.CatalogOp:
		d.fitCatalogOp(v)
	case *registry.Saved:
		if !d.alone { // otherwise a file with it is refused, see Saved.Check
			v.Life, v.Edit = v.Life%10, v.Edit%10
			v.Owner = strings.TrimPrefix(v.Owner, registry.Here)
			v.OverrideFor, v.QuarantineFor = min(v.OverrideFor, 500_000), min(v.QuarantineFor, 500_000)
		}
		if v.Service != nil {
			v.Instance = d.instance(registry.NewKey(v.Service.Name, v.Service.ID))
		}
	case *catalog.Check:
		if v.Alias != nil {
			v.Type, v.TTL, v.Probe = "alias", 0, nil
		}
	case *kv.Image:
		slices.SortFunc(v.Pairs, func(a, b *kv.Pair) int { return strings.Compare(a.Key, b.Key) })
	case *kv.TxnOp:
		switch session := v.Session; d.IntN(30) {
		case 0:
			*v = kv.TxnOp{}
		case 1:
			*v = kv.TxnOp{Session: session}
		case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14:
			op := d.draw(reflect.TypeFor[registry.CatalogOp](), "").(registry.CatalogOp)
			*v = kv.TxnOp{Catalog: &op}
		default:
			op := d.draw(reflect.TypeFor[kv.KeyOp](), "").(kv.KeyOp)
			*v = kv.TxnOp{Key: &op}
		}
	case *kv.KeyOp:
		if d.IntN(4) > 0 {
			v.Fence = nil
		}
	case *kv.Restore:
		if v.KeysOnly = v.KeysOnly || v.Prefix != "" && d.IntN(4) > 0; d.IntN(4) > 0 && (v.KeysOnly || v.Founding && v.WithAuth) {
			v.WithAuth, v.Founding = false, v.Founding && !v.KeysOnly
		}
	case *access.Token:
		if len(v.Secrets) == 0 {
			v.Secrets = []access.Secret{{Hash: [32]byte{1}}}
		}
	case *kv.Access:
		v.Sure = d.IntN(3) > 0
		for _, forget := range []func(){func() { v.PutRoles = nil }, func() { v.DropRoles = nil }, func() { v.Create = nil }, func() { v.Rotate = nil }, func() { v.Revoke = nil }} {
			if d.IntN(2) == 0 { // otherwise hardly any would be accepted
				forget()
			}
		}
	}
}

// fitRegistration makes one service the instance of its key, and its checks belong to one node.
func (d *stateDraw) fitRegistration(op *registry.RegisterCatalog, node string) {
	if op.Node != nil {
		node = op.Node.Name
	}
	if node == "" {
		op.Node = nil
	}
	if op.Instance = nil; op.Service != nil {
		key := registry.NewKey(op.Service.Name, op.Service.ID)
		if op.Service.Node, op.Service.Checks = node, nil; node != "" {
			key.ID = node + ":" + key.ID
		}
		op.Instance = d.instance(key)
		op.Instance.Overridden, op.Instance.DataCenter.Name = registry.Unknown, registry.MyOwn
	}
	if d.IntN(30) == 0 {
		for i := range catalog.MaxChecks + 1 {
			op.Checks = append(op.Checks, &catalog.Check{ID: fmt.Sprint("many", i)})
		}
	}
	slices.SortFunc(op.Checks, func(a, b *catalog.Check) int { return strings.Compare(a.ID, b.ID) })
	op.Checks = slices.CompactFunc(op.Checks, func(a, b *catalog.Check) bool { return a.ID == b.ID })
	for _, c := range op.Checks {
		if c.Node = node; d.IntN(2) == 0 && op.Service != nil {
			c.Service = op.Service.ID
		}
	}
}

// fitCatalogOp makes an operation of a transaction register what it names.
func (d *stateDraw) fitCatalogOp(op *registry.CatalogOp) {
	if op.Register == nil || op.Verb != registry.CatalogSet && op.Verb != registry.CatalogCAS {
		op.Register = nil
		return
	}
	r := op.Register
	r.Node, r.KeepNode = nil, true
	if op.Node != "" {
		r.Node = &catalog.Node{Name: op.Node, Address: d.among("192.0.2.1", "192.0.2.2")}
	}
	switch {
	case op.Check != "":
		r.Service, r.Checks = nil, []*catalog.Check{{ID: op.Check, Service: d.among("", "s1", "i2"), Status: catalog.CheckStatus(d.IntN(3))}}
	case op.Service != "":
		r.Checks = nil
		r.Service = &catalog.Service{Name: d.among("web", "web", "web", "Web", "orders"), ID: op.Service}
	default:
		r.Service, r.Checks, r.KeepNode = nil, nil, false
	}
	d.fitRegistration(r, op.Node)
}

// row draws an operation of a row: often one that the leader would propose now, or later.
func (d *stateDraw) row(r stateRow) fsm.Item {
	if due := d.due(r.zero); len(due) > 0 && d.IntN(3) > 0 {
		return pick(d, due)
	}
	switch op := d.draw(reflect.TypeOf(r.zero), "").(type) {
	case kv.Op:
		return fsm.Item{KV: op, By: d.sender()}
	case registry.Op:
		return fsm.Item{Origin: registry.FromClient, Op: op, By: d.sender()}
	default:
		panic(fmt.Sprintf("%T is no operation", op))
	}
}

func (d *stateDraw) sender() access.Sender {
	if d.IntN(12) > 0 || !d.site.consensus {
		return access.Sender{}
	}
	return access.Sender{Accessor: pick(d, statesTokens), Name: "ann"}
}

// due returns the operations of a type that the leader would propose now, or at another time.
func (d *stateDraw) due(zero any) (all []fsm.Item) {
	at := d.site.now.Lease + pick(d, []int64{0, 0, 1_000_000})
	var ops []any
	add := func(op any) { ops = append(ops, op) }
	for _, op := range d.site.ending(at) {
		add(op)
	}
	v := d.site.view()
	if next, ok := v.NextPreservation(at, v.Freshness(at)); ok {
		next.Epoch = d.site.epoch()
		add(next)
	}
	if items := d.site.expired(at); len(items) > 0 {
		add(registry.Evict{Epoch: d.site.epoch(), Items: items})
	}
	if d.site.consensus {
		for _, op := range d.site.machine.KVDue(at, 4) {
			add(op)
		}
	}
	for _, op := range ops {
		switch op := op.(type) {
		case kv.Op:
			if reflect.TypeOf(op) == reflect.TypeOf(zero) {
				all = append(all, fsm.Item{KV: op})
			}
		case registry.Op:
			if reflect.TypeOf(op) == reflect.TypeOf(zero) {
				all = append(all, fsm.Item{Op: op})
			}
		}
	}
	return all
}

// handles returns those of live leases, of removed ones, and some that were never handed out.
func handles(s *statesSite) []registry.Handle {
	all := []registry.Handle{{}, {Slot: 0, Gen: 1 << 40}, {Slot: 255, Gen: 9}, {Slot: 256, Gen: 9}, {Slot: 1<<32 - 1, Gen: 1<<64 - 1}}
	for c := range s.view().NewestFirst() {
		if all = append(all, c.Lease.Handle); len(all) > 12 {
			break
		}
	}
	return all
}

// stateNeeds returns the level of the formats that an item needs.
func stateNeeds(it fsm.Item) byte { return max(fsm.Need(it), codec.Oldest) }
