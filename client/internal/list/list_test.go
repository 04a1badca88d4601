package list

import (
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func listed(app, id string, change ...func(*registry.Instance)) *registry.Instance {
	i := &registry.Instance{
		InstanceID: id, HostName: id + ".example.com", App: app, IPAddr: "10.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: 30, Duration: 90, VIP: strings.ToLower(app), LastDirty: 1767225599500,
	}
	for _, c := range change {
		c(i)
	}
	return i
}

func withStatus(s registry.Status) func(*registry.Instance) {
	return func(i *registry.Instance) { i.Status = s }
}

func withVIPs(vip, secure string) func(*registry.Instance) {
	return func(i *registry.Instance) { i.VIP, i.SecureVIP = vip, secure }
}

func listOf(instances ...*registry.Instance) *List {
	edit := new(List).edit()
	for _, i := range instances {
		edit.set(i)
	}
	return edit.list()
}

func keysOf(instances iter.Seq[*registry.Instance]) []string {
	var keys []string
	for i := range instances {
		keys = append(keys, i.Key().String())
	}
	return keys
}

func TestZeroListIsEmpty(t *testing.T) {
	var s List
	if s.Len() != 0 || len(s.Apps()) != 0 || keysOf(s.All()) != nil || s.HashCode() != "" ||
		s.App("orders") != nil || s.VIP("orders") != nil || s.SecureVIP("orders") != nil || s.Instance(registry.NewKey("orders", "1")) != nil {
		t.Errorf("the zero List has something: %+v", s)
	}
	next := s.edit()
	next.set(listed("ORDERS", "1"))
	if got := next.list().Len(); got != 1 || s.Len() != 0 {
		t.Errorf("after an instance was put: %d instances, and %d in the zero List; want 1 and 0", got, s.Len())
	}
}

func TestListFindsInstancesThatAreUp(t *testing.T) {
	s := listOf(
		listed("ORDERS", "2"), listed("ORDERS", "1"),
		listed("ORDERS", "3", withStatus(registry.OutOfService)),
		listed("LEDGER", "1", withVIPs("orders, Ledger,,LEDGER", "ledger-s")),
		listed("LEDGER", "2", withVIPs(" , ", ""), withStatus(registry.Starting)),
		listed("ÄPFEL", "1", withVIPs("äpfel", "")),
	)
	tests := []struct {
		name string
		got  []*registry.Instance
		want []string
	}{
		{"an application", s.App("ORDERS"), []string{"ORDERS/1", "ORDERS/2"}},
		{"an application in another case", s.App("oRders"), []string{"ORDERS/1", "ORDERS/2"}},
		{"an application beyond ASCII", s.App("äpfel"), []string{"ÄPFEL/1"}},
		{"the beginning of a name", s.App("ORDER"), nil},
		{"a name behind all", s.App("ZZZ"), nil},
		{"no name", s.App(""), nil},
		{"a VIP of two applications", s.VIP("orders"), []string{"LEDGER/1", "ORDERS/1", "ORDERS/2"}},
		{"a VIP given twice in two cases", s.VIP("ledger"), []string{"LEDGER/1"}},
		{"the empty VIP", s.VIP(""), nil},
		{"a secure VIP", s.SecureVIP("LEDGER-S"), []string{"LEDGER/1"}},
		{"a VIP is not a secure one", s.SecureVIP("orders"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect.Slice(t, keysOf(slices.Values(tt.got)), tt.want, "got")
		})
	}
	expect.Equal(t, s.HashCode(), "OUT_OF_SERVICE_1_STARTING_1_UP_4_", "hash")
	expect.Slice(t, s.Apps(), []string{"LEDGER", "ORDERS", "ÄPFEL"}, "applications")
	for range s.All() { // may be left early
		break
	}
}

func TestListIsNotReachedByAnAppend(t *testing.T) {
	s := listOf(listed("ORDERS", "1"), listed("ORDERS", "2"), listed("ORDERS", "3"))
	edit := s.edit()
	edit.remove(registry.NewKey("orders", "2"))
	s = edit.list()
	_ = append(s.App("ORDERS")[:2:2], listed("X", "1"))
	up := s.App("ORDERS")
	expect.That(t, cap(up) == len(up), "the list has room for %d instances more: two callers that append would write to the same place", cap(up)-len(up))
}

func TestEditWithoutDifferenceReturnsTheSameList(t *testing.T) {
	one, two := listed("ORDERS", "1"), listed("ORDERS", "2")
	s := listOf(one)
	tests := []struct {
		name string
		edit func(e *edit) (changed bool)
		want bool
	}{
		{"nothing", func(*edit) bool { return false }, false},
		{"an equal instance is put", func(e *edit) bool { return e.set(listed("ORDERS", "1")) }, false},
		{"what is not there is removed", func(e *edit) bool { return e.remove(two.Key()) }, false},
		{"an instance is put and removed", func(e *edit) bool { return e.set(two) && e.remove(two.Key()) }, true},
		{"an instance is removed and put", func(e *edit) bool { return e.remove(one.Key()) && e.set(listed("ORDERS", "1")) }, true},
		{"an instance is changed there and back", func(e *edit) bool {
			return e.set(listed("ORDERS", "1", withStatus(registry.Down))) && e.set(listed("ORDERS", "1"))
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			edit := s.edit()
			expect.Equal(t, tt.edit(edit), tt.want, "changed is")
			expect.That(t, edit.list() == s, "another List, want the same")
		})
	}
}

func TestEditTakesAnyFieldOfAnInstanceForAChange(t *testing.T) {
	one := func() *registry.Instance {
		return listed("ORDERS", "1", func(i *registry.Instance) {
			i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{{Key: "ami-id", Value: "a"}}}
			i.Metadata = []registry.Pair{{Key: "zone", Value: "a"}, {Key: "build", Value: "7"}}
		})
	}
	differ := func(name string, other *registry.Instance) {
		t.Helper()
		expect.That(t, !sameInstance(one(), other) && !sameInstance(other, one()), "instances that differ in %s are the same", name)
	}
	for n := range reflect.TypeFor[registry.Instance]().NumField() {
		other := one()
		field := reflect.ValueOf(other).Elem().Field(n)
		field.Set(otherValue(t, field))
		differ(reflect.TypeFor[registry.Instance]().Field(n).Name, other)
	}
	other := one()
	other.DataCenter.Metadata = []registry.Pair{{Key: "ami-id", Value: "b"}}
	differ("the data center's metadata", other)
	other = one()
	other.Metadata = []registry.Pair{{Key: "zone", Value: "7"}, {Key: "build", Value: "a"}}
	differ("what belongs to which key", other)

	other = one()
	slices.Reverse(other.Metadata)
	expect.That(t, sameInstance(one(), other), "instances that differ in the order of their metadata are not the same")
}

func otherValue(t *testing.T, field reflect.Value) reflect.Value {
	switch v := field.Interface().(type) {
	case string:
		return reflect.ValueOf(v + "x")
	case int32:
		return reflect.ValueOf(v + 1)
	case int64:
		return reflect.ValueOf(v + 1)
	case registry.Status:
		return reflect.ValueOf(v + 1)
	case registry.Port:
		return reflect.ValueOf(registry.Port{Number: v.Number + 1, Enabled: v.Enabled})
	case registry.DataCenter:
		return reflect.ValueOf(registry.DataCenter{Name: registry.Netflix, Metadata: v.Metadata})
	case []registry.Pair:
		return reflect.ValueOf(append(slices.Clone(v), registry.Pair{Key: "another", Value: "one"}))
	}
	t.Fatalf("no other value is known for a %v", field.Type())
	panic("not reached")
}

// listModel is a list of instances, done simply.
type listModel map[registry.Key]*registry.Instance

// check compares all that can be asked of a List.
func (m listModel) check(t *rapid.T, s *List) {
	t.Helper()
	all := slices.SortedFunc(maps.Values(m), func(a, b *registry.Instance) int {
		return cmp.Or(strings.Compare(a.App, b.App), strings.Compare(a.ID(), b.ID()))
	})
	if got := slices.Collect(s.All()); !sameLists(got, all) || s.Len() != len(all) {
		t.Fatalf("%d instances %v, want %v", s.Len(), keysOf(s.All()), keysOf(slices.Values(all)))
	}
	var apps []string
	for _, i := range all {
		apps = append(apps, i.App)
	}
	need.Slice(t, s.Apps(), slices.Compact(apps), "applications")
	for _, name := range listNames {
		m.checkList(t, "application "+name, s.App(name), all, func(i *registry.Instance) bool { return i.App == strings.ToUpper(name) })
		m.checkList(t, "VIP "+name, s.VIP(name), all, func(i *registry.Instance) bool { return hasAddress(i.VIP, name) })
		m.checkList(t, "secure VIP "+name, s.SecureVIP(name), all, func(i *registry.Instance) bool { return hasAddress(i.SecureVIP, name) })
		for _, id := range listNames {
			key := registry.NewKey(name, id)
			need.Deep(t, s.Instance(key), m[key], "%s is", key)
		}
	}
	m.checkHash(t, s)
}

func (m listModel) checkList(t *rapid.T, what string, got, all []*registry.Instance, belongs func(*registry.Instance) bool) {
	t.Helper()
	var want []*registry.Instance
	for _, i := range all {
		if i.Status == registry.Up && belongs(i) {
			want = append(want, i)
		}
	}
	need.That(t, sameLists(got, want), "%s: %v, want %v", what, keysOf(slices.Values(got)), keysOf(slices.Values(want)))
}

func sameLists(a, b []*registry.Instance) bool {
	return slices.EqualFunc(a, b, func(a, b *registry.Instance) bool { return reflect.DeepEqual(a, b) })
}

func hasAddress(list, address string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(part), address) {
			return true
		}
	}
	return false
}

// checkHash compares the hash with that of a server that has the same instances.
func (m listModel) checkHash(t *rapid.T, s *List) {
	server := registry.New()
	index := int64(0)
	for _, i := range m {
		index++
		server.Apply(registry.Stamp{Lease: index, Wall: index}, 0, registry.FromClient, registry.Register{Instance: i})
	}
	need.Equal(t, s.HashCode(), server.View().HashCode(), "the hash is the server's:")
}

var listNames = []string{"a", "B", "ab", "ä"}

func drawInstance(t *rapid.T) *registry.Instance {
	name := rapid.SampledFrom(listNames)
	vips := rapid.SampledFrom([]string{"", "a", "A,b", "ab , ä", ",a,,A", "b"})
	return listed(strings.ToUpper(name.Draw(t, "app")), name.Draw(t, "id"), withVIPs(vips.Draw(t, "vip"), vips.Draw(t, "secure vip")),
		withStatus(rapid.SampledFrom([]registry.Status{registry.Up, registry.Up, registry.Down, registry.Starting, registry.OutOfService, registry.Unknown}).Draw(t, "status")))
}

// TestListsEqualTheModel edits at random and compares every List with the model of its moment,
// again after all later edits.
func TestListsEqualTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := make(listModel)
		s := new(List)
		type moment struct {
			model listModel
			s     *List
		}
		var moments []moment
		for range rapid.IntRange(1, 8).Draw(t, "edits") {
			edit := s.edit()
			for range rapid.IntRange(0, 12).Draw(t, "changes") {
				drawChange(t, model, edit)
			}
			s = edit.list()
			moments = append(moments, moment{maps.Clone(model), s})
		}
		for _, m := range moments {
			m.model.check(t, m.s)
		}
	})
}

// drawChange makes one change in both.
func drawChange(t *rapid.T, model listModel, edit *edit) {
	i := drawInstance(t)
	was, there := model[i.Key()]
	if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
		delete(model, i.Key())
		need.Equal(t, edit.remove(i.Key()), there, "remove of %s: changed is", i.Key())
		return
	}
	want := !there || !reflect.DeepEqual(was, i)
	if want {
		model[i.Key()] = i
	}
	need.Equal(t, edit.set(i), want, "put of %s: changed is", i.Key())
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
