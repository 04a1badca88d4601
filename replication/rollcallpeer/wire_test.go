package rollcallpeer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// goldens has the files by level.
var goldens = map[byte]golden.File{1: "testdata/level-1.txtar", 2: "testdata/level-2.txtar", 3: "testdata/level-3.txtar"}

// aReplica returns one with every field set.
func aReplica() registry.Replica {
	return registry.Replica{
		Instance: &registry.Instance{
			InstanceID: "orders-1", HostName: "orders-1.example", App: "ORDERS", IPAddr: "10.0.0.1", SID: "na",
			Status: registry.Up, Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 8443},
			CountryID: 1, DataCenter: registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{{Key: "ami-id", Value: "ami-1"}}},
			RenewalInterval: 10, Duration: 30, Metadata: []registry.Pair{{Key: "zone", Value: "b"}, {Key: "area", Value: "<a>"}, {Key: "zone", Value: ""}},
			AppGroup: "SHOP", HomePageURL: "http://orders-1.example/", StatusPageURL: "http://orders-1.example/info",
			HealthCheckURL: "http://orders-1.example/health", SecureHealthURL: "https://orders-1.example/health",
			VIP: "orders,shop", SecureVIP: "orders-secure", ASG: "orders-v1", LastDirty: 1_700_000_000_123,
		},
		Life: 2, Edit: 3, Owner: "dc3", Age: 4500,
		Overridden: registry.OutOfService, OverrideBy: registry.Act{Author: "ann", Reason: "new disk"}, OverrideFor: 60_000, Drain: true,
		QuarantineFor: 30_000, QuarantineBy: registry.Act{Author: "bob"},
	}
}

func aHead() Head {
	return Head{
		Datacenter: "dc1", Node: "n1", Sender: "n1-4f2a", Incarnation: 3, Clock: 123_456, Sequence: 77,
		Heard: map[string]int64{"dc3": 1200, "dc2": 0},
	}
}

// someOps returns operations as messages carry them.
func someOps() []registry.Op {
	return []registry.Op{
		aReplica(),
		registry.Replica{Instance: &registry.Instance{InstanceID: "orders-2", App: "ORDERS", Status: registry.Down, LastDirty: 5}, Life: 1},
		registry.Renew{Key: registry.NewKey("orders", "orders-1"), Life: 2, LastDirty: 7, Age: 80},
		registry.Remove{Key: registry.NewKey("orders", "orders-3"), Kind: registry.Canceled, Life: 1, LastDirty: 9},
		registry.Remove{Key: registry.NewKey("orders", "orders-4"), Kind: registry.Evicted, Life: 1, LastDirty: 9, Owner: "Zürich 3", Age: 95_000},
		registry.SelfPreservation{To: registry.PreservationHeld, For: 60_000, By: registry.Act{Author: "ann", Reason: "cut"}},
		registry.Replica{Instance: &registry.Instance{InstanceID: "web-1", App: "WEB"}, Life: registry.MaxCount, Edit: registry.MaxCount, Age: maxAge, Permanent: true},
	}
}

func aMessage(ops ...registry.Op) *Message { return aMessageAt(codec.Newest, ops...) }

func aMessageAt(level byte, ops ...registry.Op) *Message {
	m := &Message{Head: aHead()}
	for _, op := range ops {
		m.Items = append(m.Items, ItemOf(level, op))
	}
	return m
}

// bodies returns one of each kind, with items of a level.
func bodies(level byte) map[string]Body {
	item := ItemOf(level, aReplica())
	return map[string]Body{
		"message": aMessageAt(level, someOps()...),
		"answer": &Reply{Datacenter: "dc2", Node: "n4", Late: 7, Ignored: "dc9", Results: []result{
			{Status: resultDone}, {Status: Invalid, Error: "life 0"}, {Status: resultMissing, Error: "not registered here"},
			{Status: resultOlder, Stored: item}, {Status: resultGone, Stored: ItemOf(level, someOps()[3])},
		}},
		"state": &State{Head: aHead(), Items: 3},
		"item":  &item,
		"digests": &Digests{Datacenter: "dc1", Node: "n1", Owner: "dc1", After: "BILLING", Until: "ORDERS",
			Apps: map[string]registry.Digest{"ORDERS": {Count: 2, Sum: 0xfedcba9876543210}, "COINS": {}}},
		"differences": &differences{More: true, Apps: map[string][]Copy{
			"ORDERS": {{ID: "orders-1", Version: registry.Version{Life: 2, LastDirty: 1_700_000_000_123, Edit: 3}, Sum: 0xfedcba9876543210}}, "PRICES": nil}},
	}
}

// The golden files are what other versions send and expect.
func TestMessagesKeepTheirBytes(t *testing.T) {
	for level := byte(codec.Oldest); level <= codec.Newest; level++ {
		for name, body := range bodies(level) {
			got := Encode(level, body)
			goldens[level].Check(t, name, got)
			read := reflect.New(reflect.TypeOf(body).Elem()).Interface().(Body)
			err := Decode(got, read)
			expect.That(t, err == nil && bytes.Equal(Encode(level, sendable(level, read)), got), "%s of level %d is read as %+v, %v", name, level, read, err)
		}
	}
}

// sendable returns what was read in a form that can be sent on.
func sendable(level byte, b Body) Body {
	again := func(i *Item) {
		if i.Op != nil {
			*i = ItemOf(level, i.Op)
		}
	}
	switch b := b.(type) {
	case *Item:
		again(b)
	case *Message:
		for i := range b.Items {
			again(&b.Items[i])
		}
	case *Reply:
		for i := range b.Results {
			again(&b.Results[i].Stored)
		}
	}
	return b
}

// reread returns the operation of an item sent by a node of the same datacenter.
func reread(op registry.Op) (registry.Op, error) {
	var m Message
	if err := Decode(Encode(codec.Newest, aMessage(op)), &m); err != nil {
		return nil, err
	}
	return m.Items[0].Check(Context{})
}

func TestAMessageIsRefusedAsAWholeOnlyIfAllOfItIsWrong(t *testing.T) {
	headed := func(change func(h *Head)) []byte {
		m := aMessage()
		change(&m.Head)
		return Encode(codec.Newest, m)
	}
	good := Encode(codec.Newest, aMessage(someOps()...))
	newer := append([]byte{codec.Newest + 1}, good[1:]...)
	many := make(map[string]int64)
	for n := range maxHeard + 1 {
		many[strings.Repeat("n", n%200+1)+string(rune('A'+n/200))] = 1
	}
	for _, c := range []struct {
		name string
		body []byte
		says string
	}{
		{"nothing", nil, "ends too early"},
		{"JSON", []byte(`{"version":1}`), "newer version"},
		{"cut off", good[:len(good)/2], "corrupt"},
		{"something after it", append(bytes.Clone(good), 0), "1 bytes too many"},
		{"a newer version", newer, fmt.Sprintf("written by a newer version: level %d of the formats, this program reads 1 to %d", codec.Newest+1, codec.Newest)},
		{"no datacenter", headed(func(h *Head) { h.Datacenter = "" }), "datacenter, node and sender"},
		{"no node", headed(func(h *Head) { h.Node = "" }), "datacenter, node and sender"},
		{"no sender", headed(func(h *Head) { h.Sender = "\a" }), "datacenter, node and sender"},
		{"a sender that is no text", headed(func(h *Head) { h.Sender = "\xff" }), "datacenter, node and sender"},
		{"a clock before the beginning", headed(func(h *Head) { h.Clock = -1 }), "-1 ms is not in 0 to"},
		{"heard in the future", headed(func(h *Head) { h.Heard["dc3"] = -1 }), `"dc3" was heard -1 ms ago`},
		{"heard of too many", headed(func(h *Head) { h.Heard = many }), "1001 names, want at most 1000"},
		{"heard in another order", bytes.Replace(good, []byte("dc2"), []byte("dc4"), 1), `"dc3" after "dc4"`},
		{"too many items", Encode(codec.Newest, &Message{Head: aHead(), Items: make([]Item, maxItems+1)}), "10001 items, want at most 10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Decode(c.body, new(Message))
			expect.That(t, errors.Is(err, ErrMalformed) && strings.Contains(err.Error(), c.says), "got %v, want ErrMalformed that says %q", err, c.says)
		})
	}
	need.OK(t, Decode(good, new(Message)))
}

func TestBadItemSpoilsNoOther(t *testing.T) {
	good := registry.Renew{Key: registry.NewKey("orders", "1"), Life: 1, LastDirty: 5}
	register := func(change func(r *registry.Replica)) registry.Op {
		r := aReplica()
		change(&r)
		return r
	}
	renew := func(change func(r *registry.Renew)) registry.Op {
		r := good
		change(&r)
		return r
	}
	pairs := make([]registry.Pair, 257)
	raw := func(b ...byte) Item { return Item{encoded: b} }
	for _, c := range []struct {
		name string
		item Item
		says string
	}{
		{"nothing", raw(), "without an operation"},
		{"an unknown kind", raw(63), "unknown kind 63"},
		{"one that is cut off", raw(registry.Operations.Kind(good), 0, 6), "corrupt"},
		{"one with something after it", Item{encoded: append(ItemOf(codec.Newest, good).encoded, 0)}, "1 bytes too many"},
		{"an operation of clients", ItemOf(codec.Newest, registry.Cancel{Key: good.Key}), "cancel, which servers do not send each other"},
		{"a renewal by handle", ItemOf(codec.Newest, registry.Renew{Handle: registry.Handle{Slot: 1, Gen: 1}}), "Invalid appName"},
		{"no application", ItemOf(codec.Newest, renew(func(r *registry.Renew) { r.Key.App = "" })), "Invalid appName"},
		{"no id", ItemOf(codec.Newest, renew(func(r *registry.Renew) { r.Key.ID = "" })), "Invalid instanceId"},
		{"lower case", ItemOf(codec.Newest, renew(func(r *registry.Renew) { r.Key.App = "orders" })), "upper case"},
		{"no life", ItemOf(codec.Newest, renew(func(r *registry.Renew) { r.Life = 0 })), "life 0 must be 1 to"},
		{"too many lives", ItemOf(codec.Newest, renew(func(r *registry.Renew) { r.Life = registry.MaxCount + 1 })), "life 2147483649 must be"},
		{"owner with a control character", ItemOf(codec.Newest, registry.Remove{Key: good.Key, Life: 1, Owner: "\n"}), "owner"},
		{"an unknown status", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.Instance.Status = 9 })), "status 9"},
		{"an override in the instance", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.Instance.Overridden = registry.Up })), "belongs in a field of its own"},
		{"too much metadata", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.Instance.Metadata = pairs })), "Invalid metadata"},
		{"too much of the data center", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.Instance.DataCenter.Metadata = pairs })), "Invalid metadata"},
		{"dirty before the beginning", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.Instance.LastDirty = -1 })), "lastDirty -1 is negative"},
		{"override that ended", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.OverrideFor = -1 })), "override: -1 ms"},
		{"quarantine that ended", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.QuarantineFor = -1 })), "quarantine: -1 ms"},
		{"quarantine by a bell", ItemOf(codec.Newest, register(func(r *registry.Replica) { r.QuarantineBy.Author = "\a" })), "control characters"},
		{"a transition by itself", ItemOf(codec.Newest, registry.SelfPreservation{To: registry.PreservationHeld, For: 1000}), "lacks its author"},
		{"a transition to nowhere", ItemOf(codec.Newest, registry.SelfPreservation{To: registry.PreservationOn, By: registry.Act{Author: "ann"}}), `it must be released or held`},
		{"a transition for ever", ItemOf(codec.Newest, registry.SelfPreservation{To: registry.PreservationHeld, For: maxAge + 1, By: registry.Act{Author: "ann"}}), "ms are not in 0 to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			need.OK(t, Decode(Encode(codec.Newest, &Message{Head: aHead(), Items: []Item{ItemOf(codec.Newest, good), c.item, ItemOf(codec.Newest, good)}}), &m))
			for _, n := range []int{0, 2} {
				op, err := m.Items[n].Check(Context{})
				expect.That(t, err == nil && op == registry.Op(good), "item %d beside it: %+v, %v", n, op, err)
			}
			op, err := m.Items[1].Check(Context{})
			expect.That(t, err != nil && strings.Contains(err.Error(), c.says), "got %+v, %v; want an error that says %q", op, err, c.says)
		})
	}
}

func TestItemAgesAreThoseThatReceiversAccept(t *testing.T) {
	for age, want := range map[int64]int64{-1: 0, maxAge + 1: maxAge} {
		op, err := reread(registry.Renew{Key: registry.NewKey("orders", "1"), Life: 1, Age: age})
		expect.That(t, err == nil && op.(registry.Renew).Age == want, "an age of %d ms: %+v, %v, want %d", age, op, err, want)
	}
	bad := Item{Op: registry.Renew{Key: registry.NewKey("orders", "1"), Life: 1, Age: -1}}
	expect.That(t, expect.Err(bad.Check(Context{})) != nil, "an age of -1 ms is accepted")
}

func TestItemsOfALateMessageAreOlder(t *testing.T) {
	var ops []registry.Op
	for _, op := range someOps() {
		item := ItemOf(codec.Newest, op)
		ops = append(ops, need.Got(item.Check(Context{Late: 40_000}))(t))
	}
	r := ops[0].(registry.Replica)
	got := []int64{r.Age, r.OverrideFor, r.QuarantineFor, ops[1].(registry.Replica).OverrideFor, ops[2].(registry.Renew).Age, ops[4].(registry.Remove).Age, ops[5].(registry.SelfPreservation).For}
	// An expired quarantine has a moment left, so that it still has an end.
	expect.Deep(t, got, []int64{44_500, 20_000, 1, 0, 40_080, 135_000, 20_000}, "got")
}

func TestItemOwnerIsHereOnlyInMessagesOfAnotherDatacenter(t *testing.T) {
	r := aReplica()
	r.Owner = "dc1"
	item := ItemOf(codec.Newest, r)
	for here, want := range map[string]string{"": "dc1", "dc1": registry.Here, "dc3": "dc1"} {
		expect.Equal(t, need.Got(item.Check(Context{Here: here}))(t).(registry.Replica).Owner, want, "at %q the owner is", here)
	}
}

func TestOperatorsActsAreAcceptedFromTheSameDatacenterOnly(t *testing.T) {
	item := ItemOf(codec.Newest, someOps()[5])
	op, err := item.Check(Context{Here: "dc1"})
	expect.That(t, err != nil, "got %+v, want an error", op)
	need.Got(item.Check(Context{}))(t)
}

func TestFramesAreBounded(t *testing.T) {
	item := ItemOf(codec.Newest, aReplica())
	frame := appendFrame(nil, codec.Newest, &item)
	for name, c := range map[string]struct {
		text []byte
		want error
	}{
		"whole": {frame, nil}, "nothing": {nil, io.ErrUnexpectedEOF}, "cut off": {frame[:len(frame)-1], io.ErrUnexpectedEOF},
		"length alone": {frame[:2], io.ErrUnexpectedEOF}, "too long": {[]byte{0, 0x80, 0, 1}, ErrMalformed},
		"without a version": {make([]byte, 4), ErrMalformed},
	} {
		expect.ErrorIs(t, ReadFrame(bytes.NewReader(c.text), new(Item)), c.want, "%s: got", name)
	}
}

// FuzzMessage checks that any input is refused, or understood in a way that can be sent on.
func FuzzMessage(f *testing.F) {
	f.Add(Encode(codec.Newest, aMessage(someOps()...)))
	f.Add(Encode(codec.Newest, aMessage(registry.Renew{Handle: registry.Handle{Slot: 1, Gen: 1}}, registry.Cancel{})))
	f.Fuzz(func(t *testing.T, body []byte) {
		var m Message
		if err := Decode(body, &m); err != nil {
			need.That(t, errors.Is(err, ErrMalformed), "%v is not ErrMalformed", err)
			return
		}
		for n := range m.Items {
			op, err := m.Items[n].Check(Context{})
			if err != nil {
				continue
			}
			if got, err := reread(op); err != nil || !reflect.DeepEqual(got, op) {
				t.Fatalf("%+v became %+v, %v", op, got, err)
			}
		}
	})
}
