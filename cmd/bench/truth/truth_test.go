package truth

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
	got := b.Expected()
	expect.That(t, got == clients*each, "%d instances are expected, want %d", got, clients*each)
}

// call is a write under way.
type call struct {
	id      string
	version int64
	cancel  bool
	applied bool
	lost    bool // its client has given up, and never gets the response
}

// modelLook is a list of the model under way.
type modelLook struct {
	asked  time.Time
	copied Listing // nil: not yet
}

// model is a server that performs each call at one moment between its begin and its response, and the server's clients. Each
// instance has one client, which sends one call after the other.
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

// send begins a call. An earlier call that was given up and has not happened never will.
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
