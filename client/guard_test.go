package client

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// guardStep is one full answer, or one instance that the server tells of, and the list afterwards.
// Lists are words such as a1 a2 b1: an application's letter and an id.
type guardStep struct {
	at     time.Duration
	answer string
	told   string // instead of the answer: the removal of this one
	want   string
	held   int
}

func TestGuard(t *testing.T) {
	const hold = DefaultGuardHold
	tests := []struct {
		name  string
		guard Guard
		known string
		steps []guardStep
	}{
		{"the first answer is believed", Guard{}, "", []guardStep{
			{answer: "a1 b1", want: "a1 b1"},
		}},
		{"an empty answer is believed while nothing is known", Guard{}, "", []guardStep{
			{answer: "", want: ""},
		}},
		{"an empty answer holds all", Guard{}, "a1 a2 b1", []guardStep{
			{answer: "", want: "a1 a2 b1", held: 3},
		}},
		{"an empty answer is suspect also if all may be lacking", Guard{Share: 1}, "a1 a2", []guardStep{
			{answer: "", want: "a1 a2", held: 2},
		}},
		{"all but one may be lacking if all may", Guard{Share: 1}, "a1 a2 a3", []guardStep{
			{answer: "a1", want: "a1"},
		}},
		{"exactly the share is believed", Guard{}, "a1 a2", []guardStep{
			{answer: "a1", want: "a1"},
		}},
		{"exactly another share is believed", Guard{Share: 0.7}, "a1 a2 a3 a4 a5 a6 a7 a8 a9 a0", []guardStep{
			{answer: "a1 a2 a3", want: "a1 a2 a3"},
		}},
		{"exactly a share that is no exact binary fraction is believed", Guard{Share: 0.58}, sequence(50), []guardStep{
			{answer: sequence(50 - 29), want: sequence(50 - 29)},
		}},
		{"more than another share is held", Guard{Share: 0.2}, "a1 a2 a3 a4", []guardStep{
			{answer: "a1 a2 a3", want: "a1 a2 a3 a4", held: 1},
		}},
		{"more than the share of an application holds it, others are believed", Guard{}, "a1 a2 a3 b1 b2 b3 b4 b5", []guardStep{
			{answer: "a1 b1 b2 b3 b4", want: "a1 a2 a3 b1 b2 b3 b4", held: 2},
		}},
		{"more than the share of all holds every application", Guard{}, "a1 a2 b1 b2 c1", []guardStep{
			{answer: "a1 b1", want: "a1 a2 b1 b2 c1", held: 3},
		}},
		{"an application of one is held", Guard{}, "a1 b1 b2", []guardStep{
			{answer: "b1 b2", want: "a1 b1 b2", held: 1},
		}},
		{"who is in an answer again is not held any more", Guard{}, "a1 a2 a3", []guardStep{
			{answer: "", want: "a1 a2 a3", held: 3},
			{at: 30 * time.Second, answer: "a1 a2 a3", want: "a1 a2 a3"},
			{at: hold, answer: "a1 a2 a3", want: "a1 a2 a3"},
		}},
		{"the others stay held while they come back one by one", Guard{}, "a1 a2 a3", []guardStep{
			{answer: "", want: "a1 a2 a3", held: 3},
			{at: 10 * time.Second, answer: "a1", want: "a1 a2 a3", held: 2},
			{at: 20 * time.Second, answer: "a1 a2", want: "a1 a2 a3", held: 1},
			{at: hold - 1, answer: "a1 a2", want: "a1 a2 a3", held: 1},
			{at: hold, answer: "a1 a2", want: "a1 a2"},
		}},
		{"a second bad answer does not slip through because the first is held", Guard{}, "a1 a2 a3 a4 a5", []guardStep{
			{answer: "a1 a2", want: "a1 a2 a3 a4 a5", held: 3},
			{at: 30 * time.Second, answer: "a1", want: "a1 a2 a3 a4 a5", held: 4},
			{at: hold, answer: "a1", want: "a1 a2", held: 1},
			{at: hold + 30*time.Second, answer: "a1", want: "a1"},
		}},
		{"after the hold everything goes", Guard{}, "a1 b1 b2", []guardStep{
			{answer: "", want: "a1 b1 b2", held: 3},
			{at: hold - 1, answer: "", want: "a1 b1 b2", held: 3},
			{at: hold, answer: "", want: ""},
		}},
		{"another hold", Guard{Hold: time.Second}, "a1", []guardStep{
			{answer: "", want: "a1", held: 1},
			{at: time.Second - 1, answer: "", want: "a1", held: 1},
			{at: time.Second, answer: "", want: ""},
		}},
		{"without answers it stays held", Guard{}, "a1", []guardStep{
			{answer: "", want: "a1", held: 1},
			{at: 10 * hold, answer: "a1", want: "a1"},
			{at: 10*hold + 1, answer: "", want: "a1", held: 1},
			{at: 11 * hold, answer: "", want: "a1", held: 1},
			{at: 11*hold + 1, answer: "", want: ""},
		}},
		{"who was held for long enough does not make the next answer suspect", Guard{}, "a1 a2 a3 a4", []guardStep{
			{answer: "a1", want: "a1 a2 a3 a4", held: 3},
			{at: hold, answer: "a1 a5", want: "a1 a5"},
			{at: 2 * hold, answer: "a1", want: "a1"},
		}},
		{"who was held for long enough does not count as lacking", Guard{}, "a1 a2 a3 a4 a5 a6", []guardStep{
			{answer: "a1 a2", want: "a1 a2 a3 a4 a5 a6", held: 4},
			{at: hold, answer: "a1", want: "a1"},
		}},
		{"a removal that was told of is believed at once", Guard{}, "a1 a2 a3", []guardStep{
			{answer: "", want: "a1 a2 a3", held: 3},
			{at: time.Second, told: "a1", want: "a2 a3", held: 2},
			{at: 2 * time.Second, told: "a2", want: "a3", held: 1},
			{at: 3 * time.Second, told: "a3", want: ""},
			{at: 4 * time.Second, answer: "", want: ""},
		}},
		{"who was told to be there is held anew when it is lacking again", Guard{}, "a1", []guardStep{
			{answer: "", want: "a1", held: 1},
			{at: hold - 2, told: "+a1", want: "a1"},
			{at: hold, answer: "", want: "a1", held: 1},
			{at: 2 * hold, answer: "", want: ""},
		}},
		{"full answers are believed", Guard{Share: -1}, "a1 a2 a3", []guardStep{
			{answer: "a1", want: "a1"},
			{answer: "", want: ""},
		}},
		{"what is given twice counts once", Guard{}, "a1 a2 a3", []guardStep{
			{answer: "a1 a1 a1", want: "a1 a2 a3", held: 2},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			g, list := guarded{guard: tt.guard}, listOf(parseInstances(tt.known)...)
			for n, step := range tt.steps {
				list = step.take(&g, list, start)
				if got := shortNames(list); got != step.want || g.held() != step.held {
					t.Errorf("after step %d, %+v: %q, of which %d are held", n, step, got, g.held())
				}
			}
		})
	}
}

// take performs a step.
func (s guardStep) take(g *guarded, list *Snapshot, start time.Time) *Snapshot {
	if s.told == "" {
		next, suspect := g.full(list, parseInstances(s.answer), start.Add(s.at))
		if suspect != (g.held() > 0) {
			panic(fmt.Sprintf("suspect is %v, and %d are held", suspect, g.held()))
		}
		return next
	}
	edit := list.edit()
	name, there := strings.CutPrefix(s.told, "+")
	i := parseInstances(name)[0]
	g.told(i.Key())
	if there {
		edit.put(i)
	} else {
		edit.remove(i.Key())
	}
	return edit.snapshot()
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

func shortNames(s *Snapshot) string {
	var words []string
	for i := range s.All() {
		words = append(words, strings.ToLower(i.App)+i.ID())
	}
	return strings.Join(words, " ")
}

func TestGuardTakesWhatAnAnswerSaysOfThoseThatItHas(t *testing.T) {
	var g guarded
	old := listOf(listed("A", "1"), listed("A", "2"), listed("A", "3"))
	next, suspect := g.full(old, []*registry.Instance{listed("A", "1", withStatus(registry.Down)), listed("B", "1")}, time.Now())
	got, want := next.HashCode(), "DOWN_1_UP_3_"
	expect.That(t, got == want && suspect, "hash %q, suspect %v; want %q and true", got, suspect, want)
	expect.That(t, old.HashCode() == "UP_3_", "the list before has hash %q now", old.HashCode())
	same, _ := new(guarded).full(next, slices.Collect(next.All()), time.Now())
	expect.That(t, same == next, "the same answer makes another Snapshot")
}

func TestGuardValidate(t *testing.T) {
	tests := []struct {
		name  string
		guard Guard
		want  []string // in the error, in this order; none: it is valid
	}{
		{"zero", Guard{}, nil},
		{"all", Guard{Share: 1, Hold: time.Second}, nil},
		{"off", Guard{Share: -1}, nil},
		{"a share above all", Guard{Share: 1.5}, []string{"Guard.Share 1.5", "between 0 and 1"}},
		{"no number", Guard{Share: math.NaN()}, []string{"Guard.Share NaN"}},
		{"both", Guard{Share: 50, Hold: -time.Second}, []string{"Guard.Share 50", "Guard.Hold -1s", "must not be negative"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.guard.Validate()
			need.That(t, (err == nil) == (tt.want == nil), "error %v, want %q", err, tt.want)
			rest := fmt.Sprint(err)
			for _, part := range tt.want {
				_, after, found := strings.Cut(rest, part)
				expect.That(t, found, "error %q lacks %q", err, part)
				rest = after
			}
		})
	}
}

// TestGuardKeepsItsPromises sends full answers and removals at random.
func TestGuardKeepsItsPromises(t *testing.T) {
	const hold = 90 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		g := guarded{guard: Guard{Share: rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "share")}}
		list, start, now := new(Snapshot), time.Now(), time.Duration(0)
		lackingSince := make(map[registry.Key]time.Duration) // of those in the list that the last full answers lacked
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second
			if rapid.IntRange(0, 4).Draw(t, "tell") == 0 && list.Len() > 0 {
				i := rapid.SampledFrom(slices.Collect(list.All())).Draw(t, "told")
				delete(lackingSince, i.Key())
				list = guardStep{told: strings.ToLower(i.App) + i.ID()}.take(&g, list, start)
				if list.Instance(i.Key()) != nil {
					t.Fatalf("%s was told to be removed and is there", i.Key())
				}
				continue
			}
			answer := parseInstances(strings.Join(rapid.SliceOfDistinct(
				rapid.SampledFrom(strings.Fields("a1 a2 a3 a4 b1 b2 c1")), rapid.ID[string]).Draw(t, "answer"), " "))
			old := list
			list, _ = g.full(old, answer, start.Add(now))
			checkFull(t, old, answer, list, lackingSince, now, hold)
			got, want := g.held(), len(lackingSince)
			need.That(t, got == want, "%d are held, and %d are in the list that the answer lacks", got, want)
		}
	})
}

// checkFull checks the list after a full answer, and notes since when which of its instances are
// lacking.
func checkFull(t *rapid.T, old *Snapshot, answer []*registry.Instance, next *Snapshot, lackingSince map[registry.Key]time.Duration, now, hold time.Duration) {
	t.Helper()
	answered := listOf(answer...)
	for i := range answered.All() {
		delete(lackingSince, i.Key())
		if next.Instance(i.Key()) == nil {
			t.Fatalf("%s is in the answer and not in the list", i.Key())
		}
	}
	for i := range next.All() {
		key := i.Key()
		if answered.Instance(key) != nil {
			continue
		}
		need.That(t, old.Instance(key) != nil, "%s is in the list and was neither there nor in the answer", key)
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
		need.That(t, now-since >= hold, "%s is held no more after %v, and nobody told of it", key, now-since)
		return true
	})
}

// BenchmarkFullAnswer is a full answer of 10,000 instances of which one has changed: read, judged and
// made a list.
func BenchmarkFullAnswer(b *testing.B) {
	instances := manyInstances(10_000, 100)
	list := listOf(instances...)
	changed := *instances[4711]
	changed.Status = registry.Down
	edit := list.edit()
	edit.put(&changed)
	next := edit.snapshot()
	documents := make([][]byte, 2)
	for n, s := range []*Snapshot{list, next} {
		documents[n] = eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, s.HashCode(), leasesOf(s))
	}
	var answers [2][]*registry.Instance
	read := func(n int) {
		apps, err := eureka.DecodeApplications(documents[n])
		if err != nil {
			b.Fatal(err)
		}
		answers[n] = answers[n][:0]
		for _, l := range apps.Leases {
			answers[n] = append(answers[n], l.Instance)
		}
	}
	b.Run("read and applied", func(b *testing.B) {
		b.ReportAllocs()
		var g guarded
		for n := 0; b.Loop(); n++ {
			read(n % 2)
			list, _ = g.full(list, answers[n%2], time.Now())
		}
	})
	b.Run("applied", func(b *testing.B) {
		b.ReportAllocs()
		read(0)
		read(1)
		var g guarded
		for n := 0; b.Loop(); n++ {
			list, _ = g.full(list, answers[n%2], time.Now())
		}
	})
}
