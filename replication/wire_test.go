package replication

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var update = flag.Bool("update", false, "write the golden files anew")

// aReplica is one with every field filled in.
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
		Overridden: registry.OutOfService, OverrideBy: registry.Act{Author: "ann", Reason: "new disk"}, OverrideFor: 60_000,
		QuarantineFor: 30_000, QuarantineBy: registry.Act{Author: "bob"},
	}
}

func aMessage() (messageHead, []wireItem) {
	head := messageHead{
		Version: 1, Datacenter: "dc1", Node: "n1", Sender: "n1-4f2a", Incarnation: 3, Clock: 123_456, Sequence: 77,
		Heard: map[string]int64{"dc3": 1200},
	}
	items := []wireItem{
		replicaItem(aReplica()),
		replicaItem(registry.Replica{Instance: instance("ORDERS", "orders-2", 5), Life: 1}),
		renewItem(registry.NewKey("orders", "orders-1"), registry.Version{Life: 2, LastDirty: 7}, 80),
		removeItem(registry.Remove{Key: registry.NewKey("orders", "orders-3"), Kind: registry.Canceled, Life: 1, LastDirty: 9}),
		removeItem(registry.Remove{Key: registry.NewKey("orders", "orders-4"), Kind: registry.Evicted, Life: 1, LastDirty: 9, Owner: "dc3", Age: 95_000}),
		preserveItem(registry.SelfPreservation{To: registry.PreservationHeld, For: 60_000, By: registry.Act{Author: "ann", Reason: "cut"}}),
		replicaItem(registry.Replica{Instance: instance("WEB", "web-1", 5), Life: 1, Permanent: true}),
	}
	return head, items
}

func write(t testing.TB, head messageHead, items ...wireItem) []byte {
	t.Helper()
	texts := make([][]byte, len(items))
	for n := range items {
		var err error
		if texts[n], err = encode(&items[n]); err != nil {
			t.Fatal(err)
		}
	}
	body := need.Got(appendMessage(nil, head, texts))(t)
	return body
}

// The golden files are what other versions send and expect.
func TestMessagesKeepTheirForm(t *testing.T) {
	head, items := aMessage()
	item := replicaItem(aReplica())
	gone := removeItem(registry.Remove{Key: registry.NewKey("orders", "orders-3"), Kind: registry.Canceled, Life: 1, LastDirty: 9})
	values := map[string]any{
		"message.json": json.RawMessage(write(t, head, items...)),
		"answer.json": answer{Datacenter: "dc2", Node: "n4", Results: []itemResult{
			{Status: itemDone}, {Status: itemInvalid, Error: "a registration lacks its instance"}, {Status: itemUnknown, Error: "not registered here"},
			{Status: itemOlder, Register: &item}, {Status: itemGone, Remove: &gone},
		}},
		"digest.json": digestQuestion{Version: 1, Datacenter: "dc1", Node: "n1", Owner: "dc1", After: "BILLING", Until: "ORDERS",
			Apps: map[string]wireDigest{"ORDERS": {Count: 2, Sum: 0xfedcba9876543210}}},
		"digest-answer.json": digestAnswer{More: true, Apps: map[string][]digestEntry{
			"ORDERS": {{ID: "orders-1", Life: 2, Dirty: 1_700_000_000_123, Edit: 3, Sum: 0xfedcba9876543210}}, "PRICES": {}}},
	}
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			compact := need.Got(encode(value))(t)
			got := indented(t, compact)
			path := filepath.Join("testdata", name)
			if *update {
				need.OK(t, os.WriteFile(path, got, 0o644))
			}
			want := need.Got(os.ReadFile(path))(t)
			if string(got) != string(want) {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

func indented(t testing.TB, text []byte) []byte {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	need.OK(t, d.Decode(&v))
	b := need.Got(json.MarshalIndent(v, "", "  "))(t)
	return append(b, '\n')
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawReplica.Draw(t, "replica")
		item := replicaItem(want)
		got := reread(t, item)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v of %+v\nwant %+v of %+v", got, got.(registry.Replica).Instance, want, want.Instance)
		}
	})
}

func TestRenewalsAndRemovalsWrittenAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := registry.Key{App: drawName.Draw(t, "app"), ID: drawName.Draw(t, "id")}
		renew := registry.Renew{Key: key, Life: drawLife.Draw(t, "life"), LastDirty: drawTime.Draw(t, "dirty"), Age: drawTime.Draw(t, "age")}
		if got := reread(t, renewItem(key, registry.Version{Life: renew.Life, LastDirty: renew.LastDirty}, renew.Age)); got != registry.Op(renew) {
			t.Fatalf("got %+v, want %+v", got, renew)
		}
		remove := registry.Remove{
			Key: key, Kind: rapid.SampledFrom([]registry.ChangeKind{registry.Canceled, registry.Evicted}).Draw(t, "kind"),
			Life: renew.Life, LastDirty: renew.LastDirty, Owner: drawOwner.Draw(t, "owner"), Age: renew.Age,
		}
		if got := reread(t, removeItem(remove)); got != registry.Op(remove) {
			t.Fatalf("got %+v, want %+v", got, remove)
		}
	})
}

// reread is the operation of an item that was sent by a node of the own datacenter.
func reread(t rapid.TB, item wireItem) registry.Op {
	text, err := encode(&item)
	if err != nil {
		t.Fatalf("%v", err)
	}
	head, _ := aMessage()
	body, err := appendMessage(nil, head, [][]byte{text})
	if err != nil {
		t.Fatalf("%v", err)
	}
	m, err := decodeMessage(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	op, err := m.Items[0].op(itemContext{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return op
}

var (
	drawText  = rapid.OneOf(rapid.Just(""), rapid.StringN(0, 20, 60), rapid.SampledFrom([]string{"<&>", "\u2028\"\\\x7f", "a\nb\x00"}))
	drawName  = rapid.StringMatching(`[A-Z0-9:#?ÄÖ./-]{3,20}`)
	drawOwner = rapid.SampledFrom([]string{"", "dc2", "Zürich 3"})
	drawLife  = rapid.Uint32Range(1, maxCount)
	drawTime  = rapid.Int64Range(0, maxAge)
	drawAct   = rapid.Custom(func(t *rapid.T) registry.Act {
		word := rapid.StringMatching(`[a-zé <"]{0,12}`)
		return registry.Act{Author: word.Draw(t, "author"), Reason: word.Draw(t, "reason")}
	})
	drawPairs = rapid.Custom(func(t *rapid.T) []registry.Pair {
		pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) registry.Pair {
			return registry.Pair{Key: drawText.Draw(t, "key"), Value: drawText.Draw(t, "value")}
		}), 0, 4).Draw(t, "pairs")
		if len(pairs) == 0 {
			return nil
		}
		return pairs
	})
	drawPort = rapid.Custom(func(t *rapid.T) registry.Port {
		return registry.Port{Number: rapid.Uint16().Draw(t, "number"), Enabled: rapid.Bool().Draw(t, "enabled")}
	})
	drawStatus   = rapid.SampledFrom([]registry.Status{registry.Unknown, registry.Up, registry.Down, registry.Starting, registry.OutOfService})
	drawInstance = rapid.Custom(func(t *rapid.T) *registry.Instance {
		text := func(name string) string { return drawText.Draw(t, name) }
		i := &registry.Instance{
			InstanceID: drawName.Draw(t, "id"), HostName: text("host"), App: drawName.Draw(t, "app"), IPAddr: text("ip"), SID: text("sid"),
			Status: drawStatus.Draw(t, "status"), Port: drawPort.Draw(t, "port"), SecurePort: drawPort.Draw(t, "secure port"),
			CountryID: rapid.Int32().Draw(t, "country"), DataCenter: registry.DataCenter{Name: text("data center"), Metadata: drawPairs.Draw(t, "data")},
			RenewalInterval: rapid.Int32().Draw(t, "interval"), Duration: rapid.Int32().Draw(t, "duration"), Metadata: drawPairs.Draw(t, "metadata"),
			AppGroup: text("group"), HomePageURL: text("home"), StatusPageURL: text("status page"), HealthCheckURL: text("health"),
			SecureHealthURL: text("secure health"), VIP: text("vip"), SecureVIP: text("secure vip"), ASG: text("asg"),
			LastDirty: rapid.Int64Min(0).Draw(t, "dirty"),
		}
		if rapid.Bool().Draw(t, "named by its host") {
			i.InstanceID, i.HostName, i.DataCenter = "", i.InstanceID, registry.DataCenter{Name: registry.MyOwn}
		}
		return i
	})
	drawReplica = rapid.Custom(func(t *rapid.T) registry.Replica {
		r := registry.Replica{
			Instance: drawInstance.Draw(t, "instance"), Life: drawLife.Draw(t, "life"), Edit: rapid.Uint32Range(0, maxCount).Draw(t, "edit"),
			Owner: drawOwner.Draw(t, "owner"), Age: drawTime.Draw(t, "age"),
			Permanent: rapid.Bool().Draw(t, "permanent"),
		}
		if r.Overridden = drawStatus.Draw(t, "override"); r.Overridden != registry.Unknown {
			r.OverrideBy, r.OverrideFor = drawAct.Draw(t, "by"), drawTime.Draw(t, "for")
		}
		if rapid.Bool().Draw(t, "quarantined") {
			r.QuarantineBy, r.QuarantineFor = drawAct.Draw(t, "hidden by"), rapid.Int64Range(1, maxFor).Draw(t, "hidden for")
		}
		return r
	})
)

func TestAMessageIsRefusedAsAWholeOnlyIfAllOfItIsWrong(t *testing.T) {
	head, items := aMessage()
	good := string(write(t, head, items...))
	many := strings.Repeat("{},", maxItems)
	for _, c := range []struct{ name, body, says string }{
		{"nothing", ``, "unexpected end"},
		{"garbage", "\x00\xff<html>", "invalid character"},
		{"cut off", good[:len(good)/2], "unexpected end"},
		{"something after it", good + "{}", "after top-level value"},
		{"another kind of value", `[1]`, "cannot unmarshal array"},
		{"a newer version", strings.Replace(good, `"version":1`, `"version":2`, 1), "version 2 is not known here; this node speaks version 1"},
		{"no version", strings.Replace(good, `"version":1,`, ``, 1), "version 0"},
		{"no datacenter", strings.Replace(good, `"datacenter":"dc1"`, `"datacenter":""`, 1), "datacenter, node and sender"},
		{"no node", strings.Replace(good, `"node":"n1"`, `"node":""`, 1), "datacenter, node and sender"},
		{"no sender", strings.Replace(good, `"sender":"n1-4f2a"`, `"sender":"\u0007"`, 1), "datacenter, node and sender"},
		{"a clock before the beginning", strings.Replace(good, `"clock":123456`, `"clock":-1`, 1), "-1 ms is not in 0 to"},
		{"heard in the future", strings.Replace(good, `"dc3":1200`, `"dc3":-1`, 1), `"dc3" was heard -1 ms ago`},
		{"items that are no array", strings.Replace(good, `"items":[`, `"items":{"x":[`, 1)[:len(good)+3] + `]}}`, "items must be an array"},
		{"too many items", strings.Replace(good, `"items":[`, `"items":[`+many, 1), "more than 10000 items"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeMessage([]byte(c.body))
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want ErrMalformed that says %q", err, c.says)
			}
		})
	}
	if _, err := decodeMessage([]byte(good)); err != nil {
		t.Errorf("the message itself: %v", err)
	}
}

func TestABadItemSpoilsNoOther(t *testing.T) {
	const good = `{"do":"renew","app":"ORDERS","id":"1","life":1,"dirty":5}`
	register := func(change func(i *wireItem)) string {
		item := replicaItem(aReplica())
		change(&item)
		text := need.Got(encode(&item))(t)
		return string(text)
	}
	pairs := make([]wirePair, 257)
	for _, c := range []struct{ name, item, says string }{
		{"no object", `7`, "cannot unmarshal number"},
		{"a wrong type", `{"do":"renew","app":["ORDERS"],"id":"1","life":1}`, "cannot unmarshal array"},
		{"a number that does not fit", `{"do":"renew","app":"ORDERS","id":"1","life":4294967296}`, "cannot unmarshal number"},
		{"nothing", `{}`, `do "": it must be`},
		{"an unknown thing to do", `{"do":"explode"}`, `do "explode": it must be register, renew, remove or self-preservation`},
		{"no application", `{"do":"renew","id":"1","life":1}`, "Invalid appName"},
		{"no id", `{"do":"renew","app":"ORDERS","life":1}`, "Invalid instanceId"},
		{"lower case", `{"do":"renew","app":"orders","id":"1","life":1}`, "upper case"},
		{"no life", `{"do":"renew","app":"ORDERS","id":"1"}`, "life 0 must be 1 to"},
		{"too many lives", `{"do":"remove","why":"canceled","app":"ORDERS","id":"1","life":2147483649}`, "life 2147483649 must be"},
		{"renewed in the future", `{"do":"renew","app":"ORDERS","id":"1","life":1,"age":-1}`, "an age of -1 ms"},
		{"older than the world", `{"do":"renew","app":"ORDERS","id":"1","life":1,"age":9223372036854775807}`, "an age of 9223372036854775807 ms"},
		{"removed for no reason", `{"do":"remove","app":"ORDERS","id":"1","life":1}`, `removed why "": it must be canceled or evicted`},
		{"owner with a control character", `{"do":"remove","why":"canceled","app":"ORDERS","id":"1","life":1,"owner":"\n"}`, "owner"},
		{"no instance", register(func(i *wireItem) { i.Instance = nil }), "lacks its instance"},
		{"another instance", register(func(i *wireItem) { i.ID = "orders-2" }), `the instance's id is "orders-1", that of the item "orders-2"`},
		{"an unknown status", register(func(i *wireItem) { i.Instance.Status = "up" }), `status "up" is none of`},
		{"too much metadata", register(func(i *wireItem) { i.Instance.Metadata = pairs }), "Invalid metadata"},
		{"too much of the data center", register(func(i *wireItem) { i.Instance.DataCenter.Metadata = pairs }), "Invalid metadata"},
		{"dirty before the beginning", register(func(i *wireItem) { i.Instance.LastDirty = -1 }), "lastDirty -1 is negative"},
		{"override to nothing", register(func(i *wireItem) { i.Override.Status = "UNKNOWN" }), `override to "UNKNOWN"`},
		{"override that ended", register(func(i *wireItem) { i.Override.For = -1 }), "override: -1 ms"},
		{"override by a novel", register(func(i *wireItem) { i.Override.Reason = strings.Repeat("x", maxText+1) }), "at most 4096 bytes"},
		{"quarantine without an end", register(func(i *wireItem) { i.Quarantine.For = 0 }), "must have an end"},
		{"quarantine by a bell", register(func(i *wireItem) { i.Quarantine.Author = "\a" }), "control characters"},
		{"a transition by itself", `{"do":"self-preservation","to":"held","for":1000}`, "lacks its author"},
		{"a transition to nowhere", `{"do":"self-preservation","to":"on","author":"ann"}`, `self-preservation to "on": it must be released or held`},
	} {
		t.Run(c.name, func(t *testing.T) {
			head, _ := aMessage()
			body := need.Got(appendMessage(nil, head, [][]byte{[]byte(good), []byte(c.item), []byte(good)}))(t)
			m := need.Got(decodeMessage(body))(t)
			for _, n := range []int{0, 2} {
				if _, err := m.Items[n].op(itemContext{}); err != nil {
					t.Errorf("item %d beside it: %v", n, err)
				}
			}
			if op, err := m.Items[1].op(itemContext{}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %+v, %v; want an error that says %q", op, err, c.says)
			}
		})
	}
}

func TestUnknownKeysAreIgnored(t *testing.T) {
	const body = `{"version":1,"datacenter":"dc1","node":"n1","sender":"s","incarnation":1,"clock":1,"color":"red",
		"items":[{"do":"renew","app":"ORDERS","id":"1","life":1,"mood":{"good":[true]}}]}`
	m := need.Got(decodeMessage([]byte(body)))(t)
	if _, err := m.Items[0].op(itemContext{}); err != nil {
		t.Error(err)
	}
}

func TestWhatComesLateIsOlder(t *testing.T) {
	_, items := aMessage()
	late := itemContext{late: 40_000}
	var ops []registry.Op
	for n := range items {
		op := need.Got(items[n].op(late))(t)
		ops = append(ops, op)
	}
	r := ops[0].(registry.Replica)
	got := []int64{r.Age, r.OverrideFor, r.QuarantineFor, ops[1].(registry.Replica).OverrideFor, ops[2].(registry.Renew).Age, ops[4].(registry.Remove).Age, ops[5].(registry.SelfPreservation).For}
	// A quarantine whose time has passed has a moment left, so that it is one that ends.
	want := []int64{44_500, 20_000, 1, 0, 40_080, 135_000, 20_000}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheOwnDatacentersNameIsHereToOthersOnly(t *testing.T) {
	item := replicaItem(registry.Replica{Instance: instance("ORDERS", "1", 7), Life: 1, Owner: "dc1"})
	for here, want := range map[string]string{"": "dc1", "dc1": registry.Here, "dc3": "dc1"} {
		op := need.Got(item.op(itemContext{here: here}))(t)
		if got := op.(registry.Replica).Owner; got != want {
			t.Errorf("at %q the owner is %q, want %q", here, got, want)
		}
	}
}

func TestOperatorsActsAreTakenFromTheOwnDatacenterOnly(t *testing.T) {
	item := preserveItem(registry.SelfPreservation{To: registry.PreservationHeld, For: 1000, By: registry.Act{Author: "ann"}})
	if op, err := item.op(itemContext{here: "dc1"}); err == nil {
		t.Errorf("got %+v, want an error", op)
	}
	if _, err := item.op(itemContext{}); err != nil {
		t.Error(err)
	}
}

func TestMessagesAreCutWhereTheyGetTooLarge(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		want  []int // items per message
	}{
		{"none", nil, nil},
		{"all fit", []int{1 << 20, 1 << 20, 1 << 20}, []int{3}},
		{"nine of a MiB", []int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, []int{7, 2}},
		{"one too large alone", []int{5, 9 << 20, 5}, []int{1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tells []tell
			for _, size := range c.sizes {
				tells = append(tells, tell{item: []byte(`"` + strings.Repeat("x", size-2) + `"`)})
			}
			var got []int
			for _, part := range cutTells(tells) {
				got = append(got, len(part))
				items := make([][]byte, len(part))
				for n := range part {
					items[n] = part[n].item
				}
				head, _ := aMessage()
				if body, err := appendMessage(nil, head, items); err != nil || len(part) > 1 && len(body) > maxMessage {
					t.Errorf("a message of %d bytes, %v", len(body), err)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// FuzzMessage: whatever comes is refused, or understood in a way that can be sent on.
func FuzzMessage(f *testing.F) {
	head, items := aMessage()
	f.Add(write(f, head, items...))
	f.Add([]byte(`{"version":1,"datacenter":"d","node":"n","sender":"s","items":[{"do":"register","app":"A","id":"1","life":1,"instance":{"status":"UP","metadata":[["a"],["b","c","d"]]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeMessage(body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		for n := range m.Items {
			op, err := m.Items[n].op(itemContext{})
			if err != nil {
				continue
			}
			again := itemFor(op)
			if got := reread(t, again); !reflect.DeepEqual(got, op) {
				t.Fatalf("%s became %s", fmt.Sprintf("%+v", op), fmt.Sprintf("%+v", got))
			}
		}
	})
}

// itemFor is the item that asks for an operation.
func itemFor(op registry.Op) wireItem {
	switch op := op.(type) {
	case registry.Replica:
		return replicaItem(op)
	case registry.Renew:
		return renewItem(op.Key, registry.Version{Life: op.Life, LastDirty: op.LastDirty}, op.Age)
	case registry.Remove:
		return removeItem(op)
	default:
		return preserveItem(op.(registry.SelfPreservation))
	}
}
