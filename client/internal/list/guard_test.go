package list

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// usual is a Guard with the client's defaults in the place of zeros.
func (g Guard) usual() Guard {
	return Guard{Share: cmp.Or(g.Share, 0.5), Hold: cmp.Or(g.Hold, 90*time.Second)}
}

// guardStep is one full response, or one instance of which the server says that it is listed or removed, and the list afterwards.
// Lists are words such as a1 a2 b1: an application's letter and an id.
type guardStep struct {
	at       time.Duration
	response string
	change   string // instead of the response: the removal of this one; with + its presence
	want     string
	held     int
}

func TestGuardHoldsWhatAFullResponseLacks(t *testing.T) {
	hold := Guard{}.usual().Hold
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
			g, list := guarded{guard: tt.guard.usual()}, listOf(parseInstances(tt.known)...)
			for n, step := range tt.steps {
				list = step.apply(&g, list, start)
				if got := shortNames(list); got != step.want || g.held() != step.held {
					t.Errorf("after step %d, %+v: %q, of which %d are held", n, step, got, g.held())
				}
			}
		})
	}
}

func (s guardStep) apply(g *guarded, list *List, start time.Time) *List {
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

// sequence is a list of a count of instances of one application, in their order.
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

func shortNames(s *List) string {
	var words []string
	for i := range s.All() {
		words = append(words, strings.ToLower(i.App)+i.ID())
	}
	return strings.Join(words, " ")
}

func TestGuardAppliesWhatAResponseSaysOfTheInstancesInIt(t *testing.T) {
	g := guarded{guard: Guard{}.usual()}
	old := listOf(listed("A", "1"), listed("A", "2"), listed("A", "3"))
	next, suspect := g.full(old, []*registry.Instance{listed("A", "1", withStatus(registry.Down)), listed("B", "1")}, time.Now())
	got, want := next.HashCode(), "DOWN_1_UP_3_"
	expect.That(t, got == want && suspect, "hash %q, suspect %v; want %q and true", got, suspect, want)
	expect.That(t, old.HashCode() == "UP_3_", "the list before has hash %q now", old.HashCode())
	same, _ := (&guarded{guard: g.guard}).full(next, slices.Collect(next.All()), time.Now())
	expect.That(t, same == next, "the same response makes another List")
}

// TestGuardHoldsForItsTimeAtRandom sends full responses and removals at random.
func TestGuardHoldsForItsTimeAtRandom(t *testing.T) {
	const hold = 90 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		g := guarded{guard: Guard{Share: rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "share")}.usual()}
		list, start, now := new(List), time.Now(), time.Duration(0)
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

// checkFull checks the list after a full response, and records since when which of its instances are
// lacking.
func checkFull(t *rapid.T, old *List, response []*registry.Instance, next *List, lackingSince map[registry.Key]time.Duration, now, hold time.Duration) {
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
