package trial

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestBookIsWrittenByManyClientsWhileListsAreJudged(t *testing.T) {
	const clients, each = 8, 50
	b := new(Book)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				id := strconv.Itoa(c*each + i)
				b.Registering(id, 1, time.Now())
				b.Registered(id, 1, time.Now())
				b.Renewed(id, time.Now())
			}
		})
	}
	all.Go(func() {
		for range each {
			b.Mark()
			b.Judge(0, Listing{"0": 1}, time.Now(), time.Now())
		}
	})
	all.Wait()
	expect.Equal(t, b.Expected(), clients*each, "instances that are expected:")
}

// call is a write under way.
type call struct {
	id      string
	version int64
	cancel  bool
	applied bool
	lost    bool // its client has abandoned it, and never gets the response
}

// modelLook is a list of the model under way.
type modelLook struct {
	asked  time.Time
	copied Listing // nil until it is made
}

// model is a server that performs each call at one moment between its beginning and its response, and the server's
// clients. Each instance has one client, which sends one call after the other.
type model struct {
	book     Book
	now      time.Time
	versions int64
	listed   Listing
	calls    map[string]*call
	dead     map[string]time.Time
	looks    map[int]*modelLook // by node
}

func newModel() *model {
	return &model{now: began, listed: Listing{}, calls: map[string]*call{}, dead: map[string]time.Time{}, looks: map[int]*modelLook{}}
}

var modelIDs = []string{"a", "b", "c"}

func (m *model) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "µs")) * time.Microsecond)
}

// draw picks one of the calls that fit.
func (m *model) draw(t *rapid.T, fits func(*call) bool) *call {
	var all []*call
	for _, id := range slices.Sorted(maps.Keys(m.calls)) {
		if fits(m.calls[id]) {
			all = append(all, m.calls[id])
		}
	}
	if len(all) == 0 {
		t.Skip("no call fits")
	}
	return rapid.SampledFrom(all).Draw(t, "call")
}

func (m *model) beginCall(t *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(t, "id")
	if c := m.calls[id]; c != nil && !c.lost {
		t.Skip("its client is busy")
	}
	if _, dead := m.dead[id]; dead {
		t.Skip("it is dead")
	}
	m.send(id, rapid.Bool().Draw(t, "cancel"))
}

// send begins a call. An earlier abandoned call that has not happened never will.
func (m *model) send(id string, cancel bool) *call {
	m.versions++
	c := &call{id: id, version: m.versions, cancel: cancel}
	m.calls[id] = c
	if cancel {
		m.book.Canceling(id, c.version, m.now)
	} else {
		m.book.Registering(id, c.version, m.now)
	}
	return c
}

func (m *model) apply(t *rapid.T) {
	m.do(m.draw(t, func(c *call) bool { return !c.applied }))
}

func (m *model) do(c *call) {
	c.applied = true
	if c.cancel {
		delete(m.listed, c.id)
	} else {
		m.listed[c.id] = c.version
	}
}

func (m *model) acknowledge(t *rapid.T) {
	m.ack(m.draw(t, func(c *call) bool { return c.applied && !c.lost }))
}

func (m *model) ack(c *call) {
	delete(m.calls, c.id)
	if c.cancel {
		m.book.Canceled(c.id, c.version, m.now)
	} else {
		m.book.Registered(c.id, c.version, m.now)
	}
}

func (m *model) refuse(t *rapid.T) {
	c := m.draw(t, func(c *call) bool { return !c.applied && !c.lost })
	delete(m.calls, c.id)
	m.book.NotDone(c.id, c.version)
}

func (m *model) lose(t *rapid.T) {
	m.draw(t, func(c *call) bool { return !c.lost }).lost = true
}

func (m *model) renew(t *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(t, "id")
	if _, listed := m.listed[id]; listed {
		m.book.Renewed(id, m.now)
	}
}

func (m *model) die(t *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(t, "id")
	if c := m.calls[id]; c != nil && !c.lost {
		t.Skip("its client is busy")
	}
	if _, dead := m.dead[id]; !dead {
		m.dead[id] = m.now
		m.book.Died(id, m.now)
	}
}

func (m *model) restart(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.dead)) {
		delete(m.dead, id)
		m.send(id, false)
		return
	}
	t.Skip("no instance is dead")
}

func (m *model) evict(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.dead)) {
		delete(m.listed, id)
		return
	}
	t.Skip("no instance is dead")
}

func (m *model) ask(t *rapid.T) {
	node := rapid.IntRange(0, 1).Draw(t, "node")
	if m.looks[node] == nil {
		m.looks[node] = &modelLook{asked: m.now}
	}
}

func (m *model) copyLists(*rapid.T) {
	for _, l := range m.looks {
		if l.copied == nil {
			l.copied = maps.Clone(m.listed)
		}
	}
}

func (m *model) judgeList(t *rapid.T) {
	node := rapid.IntRange(0, 1).Draw(t, "node")
	l := m.looks[node]
	if l == nil || l.copied == nil {
		t.Skip("no list is ready")
	}
	delete(m.looks, node)
	got := m.book.Judge(node, l.copied, l.asked, m.now)
	ghosts := 0
	for id, died := range m.dead {
		if _, listed := l.copied[id]; listed && !died.After(l.asked) {
			ghosts++
		}
	}
	need.That(t, got.Ghosts == ghosts && got.Missing == 0 && got.Behind == 0 && got.Unhealed == 0 && got.Back == nil,
		"the list %v of a server that is right is judged %+v, want %d ghosts and nothing else", l.copied, got, ghosts)
}

func (m *model) mark(*rapid.T) { m.book.Mark() }

// actions are what may happen; each takes its time.
func (m *model) actions() map[string]func(*rapid.T) {
	timed := func(do func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			m.tick(t)
			do(t)
		}
	}
	return map[string]func(*rapid.T){
		"begin": timed(m.beginCall), "apply": timed(m.apply), "acknowledge": timed(m.acknowledge), "refuse": timed(m.refuse),
		"lose": timed(m.lose), "renew": timed(m.renew), "die": timed(m.die), "restart": timed(m.restart), "evict": timed(m.evict),
		"ask": timed(m.ask), "take": timed(m.copyLists), "answer": timed(m.judgeList), "mark": timed(m.mark),
	}
}

func TestJudgeNeverBlamesAConsistentServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(m.actions())
		lost, revived, _ := m.book.End(m.listed, m.now, 0)
		need.That(t, lost == nil && revived == nil, "a server that is right ends with %v missing and %v revived", lost, revived)
	})
}

func TestJudgeBlamesALaggingServerForOneWriteAfterItsAcknowledgement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(m.actions())
		clear(m.looks)
		for id := range m.dead {
			delete(m.listed, id)
		}
		var idle []string
		for _, id := range modelIDs {
			if _, dead := m.dead[id]; !dead && m.calls[id] == nil {
				idle = append(idle, id)
			}
		}
		if len(idle) == 0 {
			t.Skip("no instance can write")
		}
		id := rapid.SampledFrom(idle).Draw(t, "writer")
		_, listed := m.listed[id]
		cancel := listed && rapid.Bool().Draw(t, "cancel")
		old := maps.Clone(m.listed)
		m.tick(t)
		c := m.send(id, cancel)
		m.do(c)
		m.tick(t)
		m.ack(c)

		got := m.book.Judge(0, old, m.now, m.now)
		want := map[bool]string{true: "behind", false: "missing"}[listed]
		if cancel {
			want = "ghost"
		}
		is := fmt.Sprint(figures(got))
		need.That(t, is == "["+want+"]" && got.Ghosts+got.Missing+got.Behind == 1,
			"the list %v from before the write is judged %+v, want one %s", old, got, want)
	})
}

// began is the start of a trial whose moments are whole milliseconds.
var began = time.Unix(1767225600, 0)

func ms(n int) time.Time { return began.Add(time.Duration(n) * time.Millisecond) }

// step is one thing that is recorded of the instance "a".
type step func(*Book)

func registering(version int64, at int) step {
	return func(b *Book) { b.Registering("a", version, ms(at)) }
}

func registered(version int64, at int) step {
	return func(b *Book) { b.Registered("a", version, ms(at)) }
}

func canceling(version int64, at int) step {
	return func(b *Book) { b.Canceling("a", version, ms(at)) }
}

func canceled(version int64, at int) step {
	return func(b *Book) { b.Canceled("a", version, ms(at)) }
}

func renewed(at int) step { return func(b *Book) { b.Renewed("a", ms(at)) } }
func died(at int) step    { return func(b *Book) { b.Died("a", ms(at)) } }

func notDone(version int64) step { return func(b *Book) { b.NotDone("a", version) } }

func marking() step { return func(b *Book) { b.Mark() } }

// judging makes a node list the instance in a version, or not at all with -1.
func judging(node int, version int64, asked, answered int) step {
	return func(b *Book) { judgeList(b, node, version, asked, answered) }
}

func judgeList(b *Book, node int, version int64, asked, answered int) List {
	return b.Judge(node, listing(version), ms(asked), ms(answered))
}

func listing(version int64) Listing {
	if version < 0 {
		return Listing{}
	}
	return Listing{"a": version}
}

func bookOf(steps ...step) *Book {
	b := new(Book)
	for _, s := range steps {
		s(b)
	}
	return b
}

const (
	ghost    = "ghost"
	missing  = "missing"
	behind   = "behind"
	unhealed = "unhealed"
	back     = "back"
)

func figures(l List) []string {
	var all []string
	for _, f := range []struct {
		name  string
		count int
	}{{ghost, l.Ghosts}, {missing, l.Missing}, {behind, l.Behind}, {unhealed, l.Unhealed}, {back, len(l.Back)}} {
		if f.count > 0 {
			all = append(all, f.name)
		}
	}
	return all
}

// lives is an instance registered at 10 ms, in version 1.
var lives = []step{registering(1, 9), registered(1, 10)}

// after returns lives and further steps.
func after(steps ...step) []step { return append(append([]step{}, lives...), steps...) }

// afterCancel is an instance that was canceled at 30 ms.
func afterCancel(steps ...step) []step {
	return after(append([]step{canceling(2, 20), canceled(2, 30)}, steps...)...)
}

// writtenOnce is an instance registered at 10 ms in version 0, which says that its client does not register it again.
func writtenOnce(steps ...step) []step {
	return append([]step{registering(0, 9), registered(0, 10)}, steps...)
}

// changedAndGone is an instance in version 2 from 12 ms on, canceled at 30 ms.
func changedAndGone(steps ...step) []step {
	return after(append([]step{registering(2, 11), registered(2, 12), canceling(3, 20), canceled(3, 30)}, steps...)...)
}

func TestJudgeGoesByWhatIsCertain(t *testing.T) {
	const absent = -1
	for _, c := range []struct {
		name            string
		steps           []step
		listed          int64 // version
		asked, answered int
		want            []string
	}{
		{"an instance that was never registered", nil, 7, 50, 51, nil},
		{"registered", lives, 1, 50, 51, nil},
		{"registered, in a document without versions", lives, 0, 50, 51, nil},
		{"registered, but not listed", lives, absent, 50, 51, []string{missing}},
		{"acknowledged while the list was under way", lives, absent, 9, 51, nil},
		{"registration under way", []step{registering(1, 9)}, absent, 50, 51, nil},
		{"registration under way, listed", []step{registering(1, 9)}, 1, 50, 51, nil},
		{"registration not done", []step{registering(1, 9), notDone(1)}, absent, 50, 51, nil},

		{"next version under way", after(registering(2, 20)), 1, 50, 51, nil},
		{"next version under way, listed", after(registering(2, 20)), 2, 50, 51, nil},
		{"next version under way, listed in none", after(registering(2, 20)), absent, 50, 51, []string{missing}},
		{"older version", after(registering(2, 20), registered(2, 30)), 1, 50, 51, []string{behind}},
		{"older version, acknowledged while the list was under way", after(registering(2, 20), registered(2, 30)), 1, 29, 51, nil},
		{"older version than the one before that", after(registering(2, 20), registered(2, 30), registering(3, 31), registered(3, 60)), 1, 50, 61, []string{behind}},
		{"acknowledgements out of order", after(registering(2, 20), registering(3, 21), registered(3, 30), registered(2, 31)), 2, 50, 51, []string{behind}},

		{"cancel under way", after(canceling(2, 20)), 1, 50, 51, nil},
		{"cancel under way, not listed", after(canceling(2, 20)), absent, 50, 51, nil},
		{"cancel that began after the answer", after(canceling(2, 60)), absent, 50, 51, []string{missing}},
		{"cancel not done", after(canceling(2, 20), notDone(2)), absent, 50, 51, []string{missing}},
		{"cancel not done at the second try", after(canceling(2, 20), canceling(2, 30), notDone(2)), absent, 50, 51, nil},
		{"cancel done at the second try", after(canceling(2, 20), canceling(2, 30), canceled(2, 31)), 1, 50, 51, []string{ghost}},
		{"canceled", afterCancel(), absent, 50, 51, nil},
		{"canceled, but listed", afterCancel(), 1, 50, 51, []string{ghost}},
		{"canceled, but listed in an older version", after(registering(2, 11), registered(2, 12), canceling(3, 20), canceled(3, 30)), 1, 50, 51, []string{ghost}},
		{"canceled while the list was under way", afterCancel(), 1, 29, 51, nil},
		{"canceled, and being registered again", afterCancel(registering(3, 40)), 3, 50, 51, nil},
		{"canceled, and registered again after the answer", afterCancel(registering(3, 52)), 1, 50, 51, []string{ghost}},
		{"canceled, and registered again", afterCancel(registering(3, 40), registered(3, 45)), absent, 50, 51, []string{missing}},
		{"canceled, and registered again, in the old version", afterCancel(registering(3, 40), registered(3, 45)), 1, 50, 51, []string{behind}},

		{"cancel of unknown outcome, then registered", after(canceling(2, 20), registering(3, 40), registered(3, 45)), absent, 50, 51, []string{missing}},
		{"cancel of unknown outcome, then registered while the list was under way", after(canceling(2, 20), registering(3, 40), registered(3, 45)), absent, 44, 51, nil},
		{"registration of unknown outcome, then canceled", []step{registering(1, 9), canceling(2, 20), canceled(2, 30)}, 1, 50, 51, []string{ghost}},

		{"registering again, after a heartbeat that was answered 404", after(registering(2, 21)), absent, 50, 51, []string{missing}},

		{"dead", after(died(20)), 1, 50, 51, []string{ghost}},
		{"dead, and not listed", after(died(20)), absent, 50, 51, nil},
		{"died while the list was under way", after(died(50)), 1, 49, 51, nil},
		{"died while the list was under way, and not listed", after(died(50)), absent, 49, 51, nil},
		{"dead, and about to return", after(died(20), registering(2, 30)), 1, 50, 51, nil},
		{"dead, and about to return, and not listed", after(died(20), registering(2, 30)), absent, 50, 51, nil},
		{"dead, and returned", after(died(20), registering(2, 30), registered(2, 40)), absent, 50, 51, []string{missing}},

		{"marked and listed", after(marking()), 1, 50, 51, nil},
		{"marked and missing", after(marking()), absent, 50, 51, []string{missing, unhealed}},
		{"registered after the mark", append([]step{marking()}, lives...), absent, 50, 51, []string{missing}},
		{"marked, listed in an older version", after(registering(2, 20), registered(2, 30), marking()), 1, 50, 51, []string{behind, unhealed}},
		{"written again after the mark, listed in the marked version", after(marking(), registering(2, 20), registered(2, 30)), 1, 50, 51, []string{behind}},
		{"marked, then canceled", after(marking(), canceling(2, 20), canceled(2, 30)), absent, 50, 51, nil},
		{"marked, then dead", after(marking(), died(20)), absent, 50, 51, nil},
		{"marked, then canceled and registered again", after(marking(), canceling(2, 20), canceled(2, 30), registering(3, 40), registered(3, 41)), absent, 50, 51, []string{missing}},
		{"marked, then dead and registered again", after(marking(), died(20), registering(2, 30), registered(2, 40)), absent, 50, 51, []string{missing}},
		{"dead when marked, then registered again", after(died(20), marking(), registering(2, 30), registered(2, 40)), absent, 50, 51, []string{missing}},
		{"marked while its cancel was under way, then registered again", after(canceling(2, 20), marking(), registering(3, 40), registered(3, 41)), absent, 50, 51, []string{missing}},
		{"marked while its cancel was under way", after(canceling(2, 20), marking()), absent, 50, 51, nil},
		{"its cancel marked, but listed", afterCancel(marking()), 1, 50, 51, []string{ghost, unhealed}},
		{"its cancel marked while it was being registered again, then canceled", afterCancel(registering(3, 31), marking(), canceling(4, 40), canceled(4, 41)), 1, 50, 51, []string{ghost}},
		{"its cancel marked, then registered and canceled again", afterCancel(marking(), registering(3, 31), registered(3, 32), canceling(4, 40), canceled(4, 41)), 1, 50, 51, []string{ghost}},
		{"its cancel marked, then registered again", afterCancel(marking(), registering(3, 40), registered(3, 45)), 3, 50, 51, nil},
		{"dead when marked", after(died(20), marking()), 1, 50, 51, []string{ghost}},

		{"written once, and missing", writtenOnce(), absent, 50, 51, []string{missing}},
		{"written once, marked and missing", writtenOnce(marking()), absent, 50, 51, []string{missing}},
		{"written once, then canceled, and listed", writtenOnce(canceling(0, 20), canceled(0, 30)), 0, 50, 51, []string{ghost}},

		{"listed again after its cancel", afterCancel(judging(1, 1, 31, 32), judging(1, absent, 40, 41)), 1, 50, 51, []string{ghost, back}},
		{"listed after its cancel for the first time in a version from before it", changedAndGone(judging(1, 1, 13, 14), judging(1, absent, 40, 41)), 2, 50, 51, []string{ghost}},
		{"listed again after its cancel in such a version", changedAndGone(judging(1, 1, 13, 14), judging(1, absent, 40, 41), judging(1, 2, 42, 43), judging(1, absent, 44, 45)), 2, 50, 51, []string{ghost, back}},
		{"never not listed after its cancel", afterCancel(judging(1, 1, 31, 32)), 1, 50, 51, []string{ghost}},
		{"not listed by another node", afterCancel(judging(0, 1, 31, 32), judging(0, absent, 40, 41)), 1, 50, 51, []string{ghost}},
		{"listed for the first time after its cancel", afterCancel(judging(1, absent, 40, 41)), 1, 50, 51, []string{ghost}},
		{"listed again, told before", afterCancel(judging(1, 1, 31, 32), judging(1, absent, 40, 41), judging(1, 1, 42, 43)), 1, 50, 51, []string{ghost}},
		{"listed again, registered by a write of unknown outcome", after(registering(2, 11), judging(1, 1, 12, 13), canceling(3, 20), canceled(3, 30), judging(1, absent, 40, 41)), 2, 50, 51, []string{ghost}},
		{"listed again after its death", after(judging(1, 1, 15, 16), died(20), judging(1, absent, 40, 41)), 1, 50, 51, []string{ghost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Deep(t, figures(judgeList(bookOf(c.steps...), 1, c.listed, c.asked, c.answered)), c.want, "a list with version %d is judged", c.listed)
			if c.listed == absent { // the reader of a list that does not come misses the same
				got := bookOf(c.steps...).Unanswered(2, ms(c.asked), ms(c.answered))
				expect.Deep(t, got, List{Node: 2, Failed: true, Missing: count(slices.Contains(c.want, missing))}, "no list is judged")
			}
		})
	}
}

func TestAliveMeansRegisteredAndSendingHeartbeats(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []step
		want  bool
	}{
		{"unknown", nil, false},
		{"being registered", []step{registering(1, 9)}, false},
		{"registered", lives, true},
		{"forgotten, and being registered again", after(registering(2, 21)), true},
		{"being canceled", after(canceling(2, 20)), false},
		{"not canceled after all", after(canceling(2, 20), notDone(2)), true},
		{"canceled", afterCancel(), false},
		{"dead", after(died(20)), false},
		{"registered by a call that was under way when it died", []step{registering(1, 9), died(10), registered(1, 11)}, false},
		{"returned", after(died(20), registering(2, 30), registered(2, 40)), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bookOf(c.steps...)
			expect.Equal(t, b.Alive("a"), c.want, "alive:")
			expect.Equal(t, b.Expected() == 1, c.want, "expected:")
		})
	}
}

func TestEndForgivesWhatMayBeLateWork(t *testing.T) {
	const (
		absent = -1
		lease  = 20 * time.Millisecond
	)
	for _, c := range []struct {
		name   string
		steps  []step
		listed int64
		want   string
	}{
		{"listed", lives, 1, ""},
		{"lost", lives, absent, missing},
		{"lost, after a cancel that was not done", after(canceling(2, 20), notDone(2), registering(3, 30), registered(3, 31)), absent, missing},
		{"not listed, after a cancel of unknown outcome", after(canceling(2, 20), registering(3, 30), registered(3, 31)), absent, ""},
		{"revived", afterCancel(), 1, back},
		{"listed in a version of unknown outcome", after(registering(2, 11), canceling(3, 20), canceled(3, 30)), 2, ""},
		{"listed in another version than that", after(registering(2, 11), canceling(3, 20), canceled(3, 30)), 1, back},
		{"written once, and lost", writtenOnce(), absent, ""},
		{"written once, canceled and listed", writtenOnce(canceling(0, 20), canceled(0, 30)), 0, back},
		{"written again after the first time, and lost", writtenOnce(registering(1, 20), registered(1, 30)), absent, missing},
		{"dead for less than its lease", after(died(81)), 1, ""},
		{"dead for longer than its lease", after(died(80)), 1, ghost},
		{"dead and gone", after(died(20)), absent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			lost, revived, dead := bookOf(c.steps...).End(listing(c.listed), ms(100), lease)
			got := ""
			for name, ids := range map[string][]string{missing: lost, back: revived, ghost: dead} {
				if len(ids) > 0 {
					got += name
				}
			}
			expect.Equal(t, got, c.want, "it ends as")
		})
	}
}

func TestDeparturesAreOfEveryNodeThatListed(t *testing.T) {
	const absent = -1
	gone := Departure{ID: "a", Canceled: true, Last: 30_000, Node: 0, Gone: 45_000} // by its cancel
	for _, c := range []struct {
		name  string
		steps []step
		want  []Departure
	}{
		{"no instance departed", lives, nil},
		{"canceled",
			after(judging(0, 1, 15, 16), canceling(2, 20), judging(0, absent, 25, 26), canceled(2, 30), judging(0, 1, 35, 36), judging(0, absent, 45, 46), judging(0, absent, 55, 56)),
			[]Departure{gone}},
		{"died",
			after(renewed(15), judging(0, 1, 16, 17), judging(1, 1, 16, 17), died(20), judging(0, absent, 45, 46), judging(1, 1, 45, 46)),
			[]Departure{{ID: "a", Last: 15_000, Node: 0, Gone: 45_000}, {ID: "a", Last: 15_000, Node: 1, Gone: -1}}},
		{"its last heartbeat was acknowledged after its death",
			after(judging(0, 1, 16, 17), died(20), renewed(21), judging(0, absent, 45, 46)),
			[]Departure{{ID: "a", Last: 21_000, Node: 0, Gone: 45_000}}},
		{"a node that never listed it", after(judging(0, absent, 15, 16), canceling(2, 20), canceled(2, 30), judging(0, absent, 35, 36)), nil},
		{"registered again",
			afterCancel(judging(0, 1, 35, 36), judging(0, absent, 45, 46), registering(3, 50), registered(3, 51), judging(0, 3, 55, 56)),
			[]Departure{gone}},
		{"canceled while the list was under way", afterCancel(judging(0, 1, 15, 16), judging(0, absent, 29, 31), judging(0, absent, 45, 46)), []Departure{gone}},
		{"registered by a call that was under way when it died",
			after(judging(0, 1, 15, 16), registering(2, 19), died(20), registered(2, 21), judging(0, absent, 45, 46)),
			[]Departure{{ID: "a", Last: 21_000, Node: 0, Gone: 45_000}}},
		{"dead, and about to return", after(judging(0, 1, 15, 16), died(20), registering(2, 30), judging(0, absent, 45, 46)), nil},
		{"gone, registered again and dead before it was listed",
			afterCancel(judging(0, 1, 35, 36), judging(0, absent, 45, 46), registering(3, 50), registered(3, 51), died(52), judging(0, absent, 55, 56)),
			[]Departure{gone}},
		{"registered again before it was gone", afterCancel(judging(0, 1, 35, 36), registering(3, 50), registered(3, 51), judging(0, 3, 55, 56)), nil},
		{"perhaps registered again before it was gone", afterCancel(judging(0, 1, 35, 36), registering(3, 50), judging(0, 3, 55, 56)), nil},
		{"gone twice",
			afterCancel(judging(0, 1, 35, 36), judging(0, absent, 45, 46), registering(3, 50), registered(3, 51), judging(0, 3, 55, 56), died(60), judging(0, absent, 65, 66)),
			[]Departure{gone, {ID: "a", Last: 51_000, Node: 0, Gone: 65_000}}},
		{"died after its cancel",
			afterCancel(judging(0, 1, 35, 36), died(40), judging(0, absent, 45, 46)), []Departure{gone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Deep(t, bookOf(c.steps...).Departures(began), c.want, "told:")
		})
	}
}

func TestBookKeepsNoWriteOfUnknownOutcomeForEver(t *testing.T) {
	b := new(Book)
	for version := range int64(10 * mostOpen) {
		b.Registering("a", version, ms(int(version)))
	}
	got := len(b.records["a"].open)
	expect.That(t, got <= mostOpen, "%d writes are kept, want at most %d", got, mostOpen)
}

func TestBookForgetsOldAcknowledgements(t *testing.T) {
	b := new(Book)
	for version := range int64(100) {
		b.Registering("a", version, ms(int(version)*1000))
		b.Registered("a", version, ms(int(version)*1000))
	}
	got, most := len(b.records["a"].acks), int(keepAcks/time.Second)+2
	expect.That(t, got <= most, "%d acknowledgements are kept, want at most %d", got, most)
}
