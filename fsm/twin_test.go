package fsm

import (
	"bytes"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// twins apply the same log: one directly, one through snapshots, and one many entries at a time. All that they return
// must be equal: a node that restarts or joins is a twin of the others in this sense.
type twins struct {
	straight, restored *Machine
	together           *Machine
	waiting            []Entry   // entries that together has not applied yet
	brought            []Applied // what straight returned for them
	index, term        uint64
	stamp              registry.Stamp
	epoch              registry.Epoch
	handles            []registry.Handle // given out so far, dead ones too
	tokens             []kv.Index        // the same
	sent               [][]byte          // batches, to be sent again
	ids                map[string]BatchID
}

func newTwins() *twins {
	return &twins{straight: NewMachine(), restored: NewMachine(), together: NewMachine(), term: 1,
		stamp: registry.Stamp{Wall: 1_700_000_000_000}, ids: map[string]BatchID{}}
}

// actions are the things that happen to the twins.
func (tw *twins) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"write":      tw.write,
		"write 2":    tw.write, // more often than the rest
		"evict":      tw.evict,
		"establish":  tw.establish,
		"raise":      tw.raise,
		"restore":    tw.restore,
		"catch up":   tw.catchUp,
		"end":        tw.endDue,
		"preserve":   tw.preserve,
		"contact":    tw.contact,
		"expire":     tw.expire,
		"coordinate": tw.coordinate,
		"transact":   tw.transact,
	}
}

// write applies an entry of new and repeated batches.
func (tw *twins) write(t *rapid.T) {
	var batches [][]byte
	for range rapid.IntRange(0, 3).Draw(t, "batches") {
		if len(tw.sent) > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
			batches = append(batches, rapid.SampledFrom(tw.sent).Draw(t, "repeated"))
			continue
		}
		items := rapid.SliceOfN(tw.item(), 0, 4).Draw(t, "items")
		batches = append(batches, tw.batch(t, items))
	}
	tw.apply(t, batches)
}

// contact records a message from another server, or what it acknowledged.
func (tw *twins) contact(t *rapid.T) {
	peer := rapid.SampledFrom(twinDCs).Draw(t, "peer")
	op := rapid.SampledFrom([]registry.Op{
		registry.Contact{DC: peer, Sender: "s", Incarnation: 1, Clock: tw.stamp.Lease, Cut: 15_000},
		registry.Contact{DC: peer, Cut: 1000, Age: 500},
		registry.AckPeer{Peer: peer, Cursor: tw.straight.View().Index()},
		registry.PausePeer{Peer: peer, Paused: true, By: goldenAct},
		registry.PausePeer{Peer: peer},
		registry.ForgetSender{Sender: "s"},
	}).Draw(t, "op")
	tw.apply(t, [][]byte{tw.batch(t, []Item{{Op: op}})})
}

// coordinate applies an operation of coordination.
func (tw *twins) coordinate(t *rapid.T) {
	tw.apply(t, [][]byte{tw.batch(t, []Item{{KV: tw.kvOp(t)}})})
}

func (tw *twins) evict(t *rapid.T) {
	tw.pass(t)
	due := tw.straight.Expired(tw.stamp.Lease, 3)
	other := tw.restored.Expired(tw.stamp.Lease, 3)
	need.That(t, slices.Equal(due, other), "expired: %+v, and on the restored twin %+v", due, other)
	op := registry.Evict{Epoch: tw.epoch, Items: due}
	if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
		op.Epoch.Index--
	}
	tw.apply(t, [][]byte{tw.batch(t, []Item{{Op: op}})})
}

// endDue ends overrides and quarantines when they are due, or later, when others may have replaced them.
func (tw *twins) endDue(t *rapid.T) {
	tw.pass(t)
	due, other := tw.straight.Ending(tw.stamp.Lease), tw.restored.Ending(tw.stamp.Lease)
	need.That(t, reflect.DeepEqual(due, other), "ending: %+v, and on the restored twin %+v", due, other)
	if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		tw.write(t)
	}
	var items []Item
	for _, op := range due {
		items = append(items, Item{Op: op})
	}
	tw.apply(t, [][]byte{tw.batch(t, items)})
}

// preserve proposes the due transition of self-preservation.
func (tw *twins) preserve(t *rapid.T) {
	tw.pass(t)
	now := tw.stamp.Lease
	v, w := tw.straight.View(), tw.restored.View()
	op, due := v.NextPreservation(now, v.Freshness(now))
	other, otherDue := w.NextPreservation(now, w.Freshness(now))
	need.That(t, other == op && otherDue == due, "transition: %+v %t, and on the restored twin %+v %t", op, due, other, otherDue)
	if !due {
		return
	}
	op.Epoch = tw.epoch
	tw.apply(t, [][]byte{tw.batch(t, []Item{{Op: op}})})
}

func (tw *twins) establish(t *rapid.T) {
	tw.term++
	e := Establish{Node: "n1", Cluster: "c1"}
	if rapid.IntRange(0, 3).Draw(t, "settings") > 0 {
		e.Settings = &registry.Settings{
			SelfPreservation:  rapid.IntRange(0, 3).Draw(t, "selfPreservation") > 0,
			Threshold:         rapid.SampledFrom([]registry.Share{0, 500_000, 850_000, registry.Whole}).Draw(t, "threshold"),
			Population:        rapid.Uint32Max(3).Draw(t, "population"),
			Bound:             rapid.SampledFrom([]int64{0, 30_000}).Draw(t, "bound"),
			Expectation:       rapid.IntRange(0, 3).Draw(t, "expectation") == 0,
			ExpectedInterval:  30,
			ExpectationUpdate: 60_000,
			DoubledLease:      rapid.Bool().Draw(t, "doubled"),
			OnCut:             rapid.SampledFrom([]string{"", "dc2=expire"}).Draw(t, "onCut"),
		}
	}
	done := tw.both(t, AppendEstablish(nil, codec.Newest, e))
	tw.epoch = done.Epoch
}

// raise raises the level by one, as long as a higher one exists.
func (tw *twins) raise(t *rapid.T) {
	if next := tw.straight.Level() + 1; next <= codec.Newest {
		tw.both(t, AppendRaise(nil, codec.Newest, next))
	}
}

func (tw *twins) restore(t *rapid.T) {
	tw.restored = restoredFrom(t, snapshotOf(t, tw.restored))
}

// catchUp makes the third twin apply the entries that it still lacks.
func (tw *twins) catchUp(t *rapid.T) {
	before := tw.together.View()
	brought := need.Got(tw.together.ApplyAll(tw.waiting))(t)
	need.That(t, len(brought) == len(tw.brought), "%d entries were applied together, want %d", len(brought), len(tw.brought))
	for i := range brought {
		need.That(t, reflect.DeepEqual(brought[i], tw.brought[i]), "entry %d: applied together with others %+v, alone %+v", tw.waiting[i].Index, brought[i], tw.brought[i])
	}
	need.That(t, before == tw.together.View() || len(tw.waiting) > 0, "there is another view although nothing was applied")
	need.That(t, tw.together.Index() == tw.straight.Index(), "applied up to %d, want %d", tw.together.Index(), tw.straight.Index())
	tw.waiting, tw.brought = nil, nil
}

// compare asks the twins for everything that readers and the leader ask for.
func (tw *twins) compare(t *rapid.T) {
	tw.compareSnapshots(t)
	tw.compareViews(t)
	tw.compareCoordination(t)
}

func (tw *twins) compareSnapshots(t *rapid.T) {
	a, b := snapshotOf(t, tw.straight), snapshotOf(t, tw.restored)
	need.That(t, bytes.Equal(a, b), "the snapshots differ:\n%x\n%x", a, b)
	tw.catchUp(t)
	b = snapshotOf(t, tw.together)
	need.That(t, bytes.Equal(a, b), "the snapshot of entries that were applied together differs:\n%x\n%x", a, b)
}

func (tw *twins) compareViews(t *rapid.T) {
	v, w := tw.straight.View(), tw.restored.View()
	d, e := v.Delta(), w.Delta()
	if got, want := tw.known(e.Leases), tw.known(d.Leases); !bytes.Equal(got, want) || d.HashCode != e.HashCode || d.Version != e.Version {
		t.Fatalf("the deltas differ:\n%+v\n%+v", d, e)
	}
	tw.compareChanges(t, v, w)
	for l := range v.Leases() {
		got, want := w.LastRenewal(l), v.LastRenewal(l)
		need.That(t, got == want, "%s was renewed at %+v, and on the restored twin at %+v", l.Key(), want, got)
	}
	far := tw.stamp.Lease + 1_000_000
	due, other := tw.straight.Expired(far, 100), tw.restored.Expired(far, 100)
	need.That(t, slices.Equal(due, other), "expired: %+v, and on the restored twin %+v", due, other)
	need.Deep(t, tw.restored.Ending(far), tw.straight.Ending(far), "ending on the restored twin are")
	tw.compareExplanations(t, v, w)
	tw.compareReplicated(t, v, w)
}

// compareReplicated compares what other servers get, and the sums that they compare.
func (tw *twins) compareReplicated(t *rapid.T, v, w *registry.View) {
	now := tw.stamp.Lease
	for l := range v.All() {
		other, _ := w.Find(l.Key())
		if a, b := v.ReplicaOf(l, now), w.ReplicaOf(other, now); !reflect.DeepEqual(a, b) || l.Sum() != other.Sum() {
			t.Fatalf("replicated of %s: %+v (sum %x), and by the restored twin %+v (sum %x)", l.Key(), a, l.Sum(), b, other.Sum())
		}
	}
	removes := func(v *registry.View) (all []registry.Remove) {
		for rec := range v.Removals() {
			all = append(all, v.RemoveOf(rec, now))
		}
		return all
	}
	need.Slice(t, removes(w), removes(v), "removals that the restored twin replicates are")
	for _, owner := range append(twinDCs, "") {
		a, b := slices.Collect(v.Comparable(now+20_000, false, owner)), slices.Collect(w.Comparable(now+20_000, false, owner))
		need.That(t, bytes.Equal(tw.known(a), tw.known(b)), "comparable leases of %q: %+v, and on the restored twin %+v", owner, a, b)
	}
}

func (tw *twins) compareChanges(t *rapid.T, v, w *registry.View) {
	changes, err := v.Changes(0, 0)
	others, otherErr := w.Changes(0, 0)
	need.That(t, len(changes) == len(others) && (err == nil) == (otherErr == nil),
		"the change lists differ:\n%+v %v\n%+v %v", changes, err, others, otherErr)
	for i, a := range changes {
		b := others[i]
		same := bytes.Equal(tw.known([]*registry.Lease{a.Lease}), tw.known([]*registry.Lease{b.Lease}))
		need.That(t, same && a.Index == b.Index && a.Kind == b.Kind, "change %+v of %+v, and on the restored twin %+v of %+v", a, a.Lease, b, b.Lease)
	}
}

// known returns what the twins must agree on about leases.
func (tw *twins) known(leases []*registry.Lease) []byte {
	var b []byte
	for _, l := range leases {
		c := codec.Writer(b, codec.Newest)
		l.Fields(&c)
		b = c.Written()
	}
	return b
}

// compareExplanations compares what operators see.
func (tw *twins) compareExplanations(t *rapid.T, v, w *registry.View) {
	for _, now := range []int64{tw.stamp.Lease, tw.stamp.Lease + 50_000} {
		a, b := v.FreshnessByApp(now), w.FreshnessByApp(now)
		need.That(t, reflect.DeepEqual(a, b), "freshness at %d: %+v, and on the restored twin %+v", now, a, b)
	}
	for what, explain := range map[string]func(*registry.View) any{
		"preservation": func(v *registry.View) any { return v.Preservation() },
		"transitions":  func(v *registry.View) any { return v.Transitions() },
		"settings":     func(v *registry.View) any { return v.Settings() },
		"expectation":  func(v *registry.View) any { return v.Expectation() },
		"quarantined":  func(v *registry.View) any { return slices.Collect(v.Quarantined) },
		"histories":    histories,
		"peers":        peers,
	} {
		a, b := explain(v), explain(w)
		need.That(t, reflect.DeepEqual(a, b), "%s: %+v, and on the restored twin %+v", what, a, b)
	}
}

// histories returns the histories of all instances that the twins know.
func histories(v *registry.View) any {
	all := make(map[registry.Key][]registry.Event)
	for _, app := range twinApps {
		for _, id := range twinIDs {
			key := registry.Key{App: app, ID: id}
			all[key] = v.History(key)
		}
	}
	return all
}

// peers returns what is known about the other servers that the twins hear from.
func peers(v *registry.View) any {
	all := make(map[string]any)
	for _, dc := range twinDCs {
		link, ok := v.Link(dc)
		all[dc] = []any{link, ok, v.Peer(dc)}
	}
	return []any{all, v.Senders()}
}

var twinDCs = []string{"dc2", "eureka"}

var twinApps, twinIDs = []string{"A", "B"}, []string{"1", "2", "3"}

// pass lets time go by: mostly little, sometimes more than a lease or the delta window.
func (tw *twins) pass(t *rapid.T) {
	ms := rapid.OneOf(rapid.Int64Range(0, 2000), rapid.Int64Range(0, 200_000)).Draw(t, "ms")
	tw.stamp.Lease += ms
	tw.stamp.Wall += ms
}

func (tw *twins) apply(t *rapid.T, batches [][]byte) {
	tw.pass(t)
	done := tw.both(t, AppendWrite(nil, codec.Newest, tw.stamp, 0, batches...))
	for _, b := range done.Batches {
		for _, r := range b.Registry {
			if r.Handle.Gen != 0 {
				tw.handles = append(tw.handles, r.Handle)
			}
		}
		for _, r := range b.KV {
			if r.Fence != 0 {
				tw.tokens = append(tw.tokens, r.Fence)
			}
		}
	}
}

func (tw *twins) both(t *rapid.T, entry []byte) Applied {
	tw.index += rapid.Uint64Range(1, 2).Draw(t, "step")
	done := need.Got(tw.straight.Apply(tw.index, tw.term, entry))(t)
	tw.waiting, tw.brought = append(tw.waiting, Entry{tw.index, tw.term, entry}), append(tw.brought, done)
	other, err := tw.restored.Apply(tw.index, tw.term, entry)
	need.That(t, err == nil && reflect.DeepEqual(done, other), "entry %d: %+v, and on the restored twin %+v, %v", tw.index, done, other, err)
	return done
}

// batch numbers items as one of two nodes does, which restarts now and then.
func (tw *twins) batch(t *rapid.T, items []Item) []byte {
	node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
	id := tw.ids[node]
	if id.Boot == 0 || rapid.IntRange(0, 20).Draw(t, "reboot") == 0 {
		id = BatchID{Node: node, Boot: id.Boot + 1}
	}
	id.Seq++
	if rapid.Bool().Draw(t, "report") {
		id.Finished = rapid.Uint64Range(id.Finished, id.Seq-1).Draw(t, "answered")
	}
	tw.ids[node] = id
	b := AppendBatch(nil, codec.Newest, id, items)
	tw.sent = append(tw.sent, b)
	return b
}

func (tw *twins) item() *rapid.Generator[Item] {
	return rapid.Custom(func(t *rapid.T) Item {
		origin := rapid.SampledFrom([]registry.Origin{registry.FromClient, registry.FromClient, registry.FromEureka, {Kind: registry.LocalPeer},
			{Kind: registry.RemoteDC, DC: "dc2"}})
		if rapid.IntRange(0, 2).Draw(t, "which") == 0 {
			return Item{KV: tw.kvOp(t), By: access.Sender{Name: rapid.SampledFrom([]string{"", "anna"}).Draw(t, "sender")}}
		}
		return Item{Origin: origin.Draw(t, "origin"), Op: tw.op(t)}
	})
}

// op draws operations on few instances, so that they meet.
func (tw *twins) op(t *rapid.T) registry.Op {
	key := registry.Key{App: rapid.SampledFrom(twinApps).Draw(t, "app"), ID: rapid.SampledFrom(twinIDs).Draw(t, "id")}
	dirty := rapid.Int64Range(0, 5).Draw(t, "dirty")
	status := gen[registry.Status]().Draw(t, "status")
	by := rapid.SampledFrom([]registry.Act{{}, {Author: "amy"}, {Author: "bob", Reason: "disk is full"}}).Draw(t, "by")
	length := rapid.SampledFrom([]int64{0, 1000, 100_000}).Draw(t, "for")
	switch rapid.IntRange(0, 19).Draw(t, "kind") {
	case 0, 1, 2:
		i := tw.instance(t, key, status, dirty)
		i.Overridden = gen[registry.Status]().Draw(t, "override")
		return registry.Register{Instance: i}
	case 3, 4:
		if len(tw.handles) > 0 {
			return registry.Renew{Handle: rapid.SampledFrom(tw.handles).Draw(t, "handle"), LastDirty: dirty}
		}
		fallthrough
	case 5:
		return registry.Renew{Key: key, LastDirty: dirty, Overridden: status, Status: gen[registry.Status]().Draw(t, "said")}
	case 6:
		return registry.Cancel{Key: key}
	case 7:
		return registry.SetOverride{Key: key, Status: status, LastDirty: dirty, For: length, By: by, Drain: rapid.Bool().Draw(t, "drain")}
	case 8:
		return registry.DeleteOverride{Key: key, Fallback: status, LastDirty: dirty, By: by}
	case 10:
		return registry.Quarantine{Key: key, For: length, By: by}
	case 11:
		to := rapid.SampledFrom([]registry.PreservationState{registry.PreservationReleased, registry.PreservationHeld}).Draw(t, "to")
		return registry.SelfPreservation{To: to, For: length, By: by}
	case 12, 13, 14, 15:
		return tw.replicated(t, key, status, dirty, by, length)
	case 16, 17, 18, 19:
		return tw.catalogOp(t)
	}
	return registry.UpdateMetadata{Key: key, Pairs: []registry.Pair{{Key: "k", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "value")}}}
}

// replicated draws what another Rollcall server might send.
func (tw *twins) replicated(t *rapid.T, key registry.Key, status registry.Status, dirty int64, by registry.Act, length int64) registry.Op {
	life := rapid.Uint32Range(1, 3).Draw(t, "life")
	age := rapid.SampledFrom([]int64{0, 1000, 50_000, 200_000}).Draw(t, "age")
	owner := rapid.SampledFrom([]string{"", "dc2"}).Draw(t, "owner")
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		return registry.Renew{Key: key, LastDirty: dirty, Life: life, Age: age}
	case 1:
		kind := rapid.SampledFrom([]registry.ChangeKind{registry.Canceled, registry.Evicted}).Draw(t, "removal")
		return registry.Remove{Key: key, Kind: kind, Life: life, LastDirty: dirty, Owner: owner, Age: age}
	}
	op := registry.Replica{Instance: tw.instance(t, key, status, dirty), Life: life, Edit: rapid.Uint32Max(3).Draw(t, "edit"), Owner: owner, Age: age,
		Permanent: rapid.Bool().Draw(t, "permanent"), Said: rapid.Int64Range(0, 5).Draw(t, "said"), Drain: rapid.Bool().Draw(t, "drain"), Yields: rapid.Bool().Draw(t, "yields")}
	if op.Overridden = gen[registry.Status]().Draw(t, "override"); op.Overridden != registry.Unknown {
		op.OverrideBy, op.OverrideFor = by, length
	}
	if op.QuarantineFor = length; length > 0 {
		op.QuarantineBy = by
	}
	return op
}

func (tw *twins) instance(t *rapid.T, key registry.Key, status registry.Status, dirty int64) *registry.Instance {
	i := instance(key.App, key.ID)
	i.Status, i.LastDirty = status, dirty
	i.Duration = rapid.SampledFrom([]int32{0, 20, 90}).Draw(t, "duration")
	i.Metadata = nilIfEmpty(rapid.SliceOfN(rapid.SampledFrom([]registry.Pair{{Key: "k", Value: "v"}, {Key: "l"}}), 0, 2).Draw(t, "metadata"))
	return i
}
