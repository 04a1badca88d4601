package client

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

func listOf(instances ...*registry.Instance) *Snapshot {
	edit := new(Snapshot).edit()
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
	var s Snapshot
	if s.Len() != 0 || len(s.Apps()) != 0 || keysOf(s.All()) != nil || s.HashCode() != "" ||
		s.App("orders") != nil || s.VIP("orders") != nil || s.SecureVIP("orders") != nil || s.Instance(registry.NewKey("orders", "1")) != nil {
		t.Errorf("the zero Snapshot has something: %+v", s)
	}
	next := s.edit()
	next.set(listed("ORDERS", "1"))
	got := next.list().Len()
	expect.That(t, got == 1 && s.Len() == 0, "after an instance was put: %d instances, and %d in the zero Snapshot; want 1 and 0", got, s.Len())
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
			expect.That(t, edit.list() == s, "another Snapshot, want the same")
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

// snapshotModel is a list of instances, implemented simply.
type snapshotModel map[registry.Key]*registry.Instance

// check compares everything that a Snapshot offers.
func (m snapshotModel) check(t *rapid.T, s *Snapshot) {
	t.Helper()
	all := slices.SortedFunc(maps.Values(m), func(a, b *registry.Instance) int {
		return cmp.Or(strings.Compare(a.App, b.App), strings.Compare(a.ID(), b.ID()))
	})
	got := slices.Collect(s.All())
	need.That(t, sameLists(got, all) && s.Len() == len(all), "%d instances %v, want %v", s.Len(), keysOf(s.All()), keysOf(slices.Values(all)))
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

func (m snapshotModel) checkList(t *rapid.T, what string, got, all []*registry.Instance, belongs func(*registry.Instance) bool) {
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
func (m snapshotModel) checkHash(t *rapid.T, s *Snapshot) {
	server := registry.New()
	index := int64(0)
	for _, i := range m {
		index++
		server.Apply(registry.Stamp{Lease: index, Wall: index}, 0, registry.FromClient, registry.Register{Instance: i})
	}
	need.Equal(t, s.HashCode(), server.View().Counts().HashCode(), "the hash is the server's:")
}

var listNames = []string{"a", "B", "ab", "ä"}

func drawInstance(t *rapid.T) *registry.Instance {
	name := rapid.SampledFrom(listNames)
	vips := rapid.SampledFrom([]string{"", "a", "A,b", "ab , ä", ",a,,A", "b"})
	return listed(strings.ToUpper(name.Draw(t, "app")), name.Draw(t, "id"), withVIPs(vips.Draw(t, "vip"), vips.Draw(t, "secure vip")),
		withStatus(rapid.SampledFrom(append([]registry.Status{registry.Up}, registry.Statuses()...)).Draw(t, "status")))
}

// It edits at random and compares every Snapshot with the model at that moment, again after all later edits.
func TestListsEqualTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := make(snapshotModel)
		s := new(Snapshot)
		type moment struct {
			model snapshotModel
			s     *Snapshot
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
func drawChange(t *rapid.T, model snapshotModel, edit *edit) {
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

// guardStep is one full response, or one instance that the server lists or removes, and the list afterwards. Lists
// are words such as a1 a2 b1: an application's letter and an id.
type guardStep struct {
	at       time.Duration
	response string
	change   string // instead of the response: the removal of this one, or with + its presence
	want     string
	held     int
}

func TestGuardHoldsWhatAFullResponseLacks(t *testing.T) {
	hold := Guard{}.withDefaults().Hold
	tests := []struct {
		name  string
		guard Guard
		known string
		steps []guardStep
	}{
		{"the first response is believed", Guard{}, "", []guardStep{
			{response: "a1 b1", want: "a1 b1"},
		}},
		{"an empty response is believed while nothing is known", Guard{}, "", []guardStep{
			{response: "", want: ""},
		}},
		{"an empty response holds all", Guard{}, "a1 a2 b1", []guardStep{
			{response: "", want: "a1 a2 b1", held: 3},
		}},
		{"an empty response is suspect also if all may be lacking", Guard{Share: 1}, "a1 a2", []guardStep{
			{response: "", want: "a1 a2", held: 2},
		}},
		{"all but one may be lacking if all may", Guard{Share: 1}, "a1 a2 a3", []guardStep{
			{response: "a1", want: "a1"},
		}},
		{"exactly the share is believed", Guard{}, "a1 a2", []guardStep{
			{response: "a1", want: "a1"},
		}},
		{"exactly another share is believed", Guard{Share: 0.7}, "a1 a2 a3 a4 a5 a6 a7 a8 a9 a0", []guardStep{
			{response: "a1 a2 a3", want: "a1 a2 a3"},
		}},
		{"exactly a share that is no exact binary fraction is believed", Guard{Share: 0.58}, sequence(50), []guardStep{
			{response: sequence(50 - 29), want: sequence(50 - 29)},
		}},
		{"more than another share is held", Guard{Share: 0.2}, "a1 a2 a3 a4", []guardStep{
			{response: "a1 a2 a3", want: "a1 a2 a3 a4", held: 1},
		}},
		{"more than the share of an application holds it, others are believed", Guard{}, "a1 a2 a3 b1 b2 b3 b4 b5", []guardStep{
			{response: "a1 b1 b2 b3 b4", want: "a1 a2 a3 b1 b2 b3 b4", held: 2},
		}},
		{"more than the share of all holds every application", Guard{}, "a1 a2 b1 b2 c1", []guardStep{
			{response: "a1 b1", want: "a1 a2 b1 b2 c1", held: 3},
		}},
		{"an application of one is held", Guard{}, "a1 b1 b2", []guardStep{
			{response: "b1 b2", want: "a1 b1 b2", held: 1},
		}},
		{"one that is in a response again is not held any more", Guard{}, "a1 a2 a3", []guardStep{
			{response: "", want: "a1 a2 a3", held: 3},
			{at: 30 * time.Second, response: "a1 a2 a3", want: "a1 a2 a3"},
			{at: hold, response: "a1 a2 a3", want: "a1 a2 a3"},
		}},
		{"the others stay held while they come back one by one", Guard{}, "a1 a2 a3", []guardStep{
			{response: "", want: "a1 a2 a3", held: 3},
			{at: 10 * time.Second, response: "a1", want: "a1 a2 a3", held: 2},
			{at: 20 * time.Second, response: "a1 a2", want: "a1 a2 a3", held: 1},
			{at: hold - 1, response: "a1 a2", want: "a1 a2 a3", held: 1},
			{at: hold, response: "a1 a2", want: "a1 a2"},
		}},
		{"a second bad response does not slip through because the first is held", Guard{}, "a1 a2 a3 a4 a5", []guardStep{
			{response: "a1 a2", want: "a1 a2 a3 a4 a5", held: 3},
			{at: 30 * time.Second, response: "a1", want: "a1 a2 a3 a4 a5", held: 4},
			{at: hold, response: "a1", want: "a1 a2", held: 1},
			{at: hold + 30*time.Second, response: "a1", want: "a1"},
		}},
		{"after the hold everything goes", Guard{}, "a1 b1 b2", []guardStep{
			{response: "", want: "a1 b1 b2", held: 3},
			{at: hold - 1, response: "", want: "a1 b1 b2", held: 3},
			{at: hold, response: "", want: ""},
		}},
		{"another hold", Guard{Hold: time.Second}, "a1", []guardStep{
			{response: "", want: "a1", held: 1},
			{at: time.Second - 1, response: "", want: "a1", held: 1},
			{at: time.Second, response: "", want: ""},
		}},
		{"without responses it stays held", Guard{}, "a1", []guardStep{
			{response: "", want: "a1", held: 1},
			{at: 10 * hold, response: "a1", want: "a1"},
			{at: 10*hold + 1, response: "", want: "a1", held: 1},
			{at: 11 * hold, response: "", want: "a1", held: 1},
			{at: 11*hold + 1, response: "", want: ""},
		}},
		{"one that was held for long enough does not make the next response suspect", Guard{}, "a1 a2 a3 a4", []guardStep{
			{response: "a1", want: "a1 a2 a3 a4", held: 3},
			{at: hold, response: "a1 a5", want: "a1 a5"},
			{at: 2 * hold, response: "a1", want: "a1"},
		}},
		{"one that was held for long enough does not count as lacking", Guard{}, "a1 a2 a3 a4 a5 a6", []guardStep{
			{response: "a1 a2", want: "a1 a2 a3 a4 a5 a6", held: 4},
			{at: hold, response: "a1", want: "a1"},
		}},
		{"a removal that the server names is believed at once", Guard{}, "a1 a2 a3", []guardStep{
			{response: "", want: "a1 a2 a3", held: 3},
			{at: time.Second, change: "a1", want: "a2 a3", held: 2},
			{at: 2 * time.Second, change: "a2", want: "a3", held: 1},
			{at: 3 * time.Second, change: "a3", want: ""},
			{at: 4 * time.Second, response: "", want: ""},
		}},
		{"one that is said to be listed is held anew when it is lacking again", Guard{}, "a1", []guardStep{
			{response: "", want: "a1", held: 1},
			{at: hold - 2, change: "+a1", want: "a1"},
			{at: hold, response: "", want: "a1", held: 1},
			{at: 2 * hold, response: "", want: ""},
		}},
		{"full responses are believed", Guard{Share: -1}, "a1 a2 a3", []guardStep{
			{response: "a1", want: "a1"},
			{response: "", want: ""},
		}},
		{"what is given twice counts once", Guard{}, "a1 a2 a3", []guardStep{
			{response: "a1 a1 a1", want: "a1 a2 a3", held: 2},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			g, list := guarded{guard: tt.guard.withDefaults()}, listOf(parseInstances(tt.known)...)
			for n, step := range tt.steps {
				list = step.apply(&g, list, start)
				got := shortNames(list)
				expect.That(t, got == step.want && g.held() == step.held, "after step %d, %+v: %q, %d of them held", n, step, got, g.held())
			}
		})
	}
}

func (s guardStep) apply(g *guarded, list *Snapshot, start time.Time) *Snapshot {
	if s.change == "" {
		next, suspect := g.full(list, parseInstances(s.response), start.Add(s.at))
		if suspect != (g.held() > 0) {
			panic(fmt.Sprintf("suspect is %v, and %d are held", suspect, g.held()))
		}
		return next
	}
	edit := list.edit()
	name, there := strings.CutPrefix(s.change, "+")
	i := parseInstances(name)[0]
	g.release(i.Key())
	if there {
		edit.set(i)
	} else {
		edit.remove(i.Key())
	}
	return edit.list()
}

// sequence returns a list of count instances of one application, in order.
func sequence(count int) string {
	words := make([]string, count)
	for n := range words {
		words[n] = fmt.Sprintf("a%02d", n)
	}
	return strings.Join(words, " ")
}

func parseInstances(words string) []*registry.Instance {
	var instances []*registry.Instance
	for word := range strings.FieldsSeq(words) {
		instances = append(instances, listed(strings.ToUpper(word[:1]), word[1:]))
	}
	return instances
}

func shortNames(s *Snapshot) string {
	var words []string
	for i := range s.All() {
		words = append(words, strings.ToLower(i.App)+i.ID())
	}
	return strings.Join(words, " ")
}

func TestGuardAppliesWhatAResponseSaysOfTheInstancesInIt(t *testing.T) {
	g := guarded{guard: Guard{}.withDefaults()}
	old := listOf(listed("A", "1"), listed("A", "2"), listed("A", "3"))
	next, suspect := g.full(old, []*registry.Instance{listed("A", "1", withStatus(registry.Down)), listed("B", "1")}, time.Now())
	got, want := next.HashCode(), "DOWN_1_UP_3_"
	expect.That(t, got == want && suspect, "hash %q, suspect %v; want %q and true", got, suspect, want)
	expect.That(t, old.HashCode() == "UP_3_", "the list before has hash %q now", old.HashCode())
	same, _ := (&guarded{guard: g.guard}).full(next, slices.Collect(next.All()), time.Now())
	expect.That(t, same == next, "the same response makes another Snapshot")
}

// It sends full responses and removals at random.
func TestGuardHoldsForItsTimeAtRandom(t *testing.T) {
	const hold = 90 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		g := guarded{guard: Guard{Share: rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "share")}.withDefaults()}
		list, start, now := new(Snapshot), time.Now(), time.Duration(0)
		lackingSince := make(map[registry.Key]time.Duration) // of those in the list that the last full responses lacked
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second
			if rapid.IntRange(0, 4).Draw(t, "remove") == 0 && list.Len() > 0 {
				i := rapid.SampledFrom(slices.Collect(list.All())).Draw(t, "removed")
				delete(lackingSince, i.Key())
				list = guardStep{change: strings.ToLower(i.App) + i.ID()}.apply(&g, list, start)
				need.That(t, list.Instance(i.Key()) == nil, "%s was removed and is there", i.Key())
				continue
			}
			response := parseInstances(strings.Join(rapid.SliceOfDistinct(
				rapid.SampledFrom(strings.Fields("a1 a2 a3 a4 b1 b2 c1")), rapid.ID[string]).Draw(t, "response"), " "))
			old := list
			list, _ = g.full(old, response, start.Add(now))
			checkFull(t, old, response, list, lackingSince, now, hold)
			got, want := g.held(), len(lackingSince)
			need.That(t, got == want, "%d are held, and %d are in the list that the response lacks", got, want)
		}
	})
}

// checkFull checks the list after a full response, and records since when which of its instances are lacking.
func checkFull(t *rapid.T, old *Snapshot, response []*registry.Instance, next *Snapshot, lackingSince map[registry.Key]time.Duration, now, hold time.Duration) {
	t.Helper()
	present := listOf(response...)
	for i := range present.All() {
		delete(lackingSince, i.Key())
		need.That(t, next.Instance(i.Key()) != nil, "%s is in the response and not in the list", i.Key())
	}
	for i := range next.All() {
		key := i.Key()
		if present.Instance(key) != nil {
			continue
		}
		need.That(t, old.Instance(key) != nil, "%s is in the list and was neither there nor in the response", key)
		if _, lacking := lackingSince[key]; !lacking {
			lackingSince[key] = now
		}
		since := lackingSince[key]
		need.That(t, now-since < hold, "%s is held for %v", key, now-since)
	}
	maps.DeleteFunc(lackingSince, func(key registry.Key, since time.Duration) bool {
		if next.Instance(key) != nil {
			return false
		}
		need.That(t, now-since >= hold, "%s is held no more after %v, and was not removed", key, now-since)
		return true
	})
}
