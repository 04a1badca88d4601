package kv_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/need"
)

type permitName struct {
	kind kv.Kind
	name string
}

func comparePermitNames(a, b permitName) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}

// modelPermits is a semaphore, and the operation that gave its newest permit.
type modelPermits struct {
	kv.Permits
	granted kv.Index
}

func (p *modelPermits) full() bool { return len(p.Holders)+len(p.Delays) >= int(p.Limit) }

func (p *modelPermits) holder(session string) int {
	return slices.IndexFunc(p.Holders, func(h kv.Holder) bool { return h.Session == session })
}

func (p *modelPermits) waiter(session string) int {
	return slices.IndexFunc(p.Queue, func(w kv.Waiter) bool { return w.Session == session })
}

// over reports whether nothing of it lasts: no session holds it, and waits and lock-delays have passed.
func (p *modelPermits) over(lease int64) bool {
	return len(p.Holders) == 0 &&
		!slices.ContainsFunc(p.Queue, func(w kv.Waiter) bool { return w.Until >= lease }) &&
		!slices.ContainsFunc(p.Delays, func(until int64) bool { return until > lease })
}

// permitsOf returns a writable copy of a semaphore.
func (m *model) permitsOf(name permitName) (p modelPermits, there bool) {
	p, there = m.permits[name]
	p.Holders, p.Queue, p.Delays = slices.Clone(p.Holders), slices.Clone(p.Queue), slices.Clone(p.Delays)
	return p, there
}

// changed stores a semaphore that an operation changed.
func (m *model) changed(at kv.At, p modelPermits) {
	p.ModifyIndex = at.Index
	m.index, m.permitsIndex = at.Index, at.Index
	name := permitName{p.Kind, p.Name}
	m.permits[name] = p
	if len(p.Holders)+len(p.Queue)+len(p.Delays) == 0 {
		delete(m.permits, name)
	}
}

// serve brings a semaphore's queue in order, and reports whether that changed anything.
func (m *model) serve(at kv.At, p *modelPermits) (changed bool) {
	n := len(p.Queue) + len(p.Delays)
	given := p.granted
	p.Queue = slices.DeleteFunc(p.Queue, func(w kv.Waiter) bool {
		_, lives := m.sessions[w.Session]
		return w.Until < m.lease || !lives
	})
	if len(p.Queue) > 0 && p.granted != at.Index {
		if p.full() && len(p.Delays) > 0 && p.Delays[0] <= m.lease {
			p.Delays = p.Delays[1:]
		}
		if !p.full() {
			w := p.Queue[0]
			p.Queue = p.Queue[1:]
			m.grant(at, p, w.Session, w.Value)
		}
	}
	if len(p.Queue) == 0 {
		p.Delays = slices.DeleteFunc(p.Delays, func(until int64) bool { return until <= m.lease })
	}
	for len(p.Queue) > 0 && !p.full() {
		p.Delays = append(p.Delays, m.lease)
		slices.Sort(p.Delays)
	}
	return len(p.Queue)+len(p.Delays) != n || p.granted != given
}

func (m *model) grant(at kv.At, p *modelPermits, session string, value []byte) {
	p.granted = at.Index
	p.Holders = append(p.Holders, kv.Holder{Session: session, Fence: at.Index, Since: m.lease, Wall: at.Wall, Value: value})
}

func (m *model) acquirePermit(at kv.At, op kv.AcquirePermit) kv.Result {
	session := strings.ToLower(op.Session)
	limit := op.Limit
	if op.Kind == kv.Lock {
		limit = 1
	}
	if op.Session == "" {
		return kv.Result{Refusal: "missing session"}
	}
	if _, known := m.sessions[session]; !known {
		return kv.Result{Refusal: fmt.Sprintf("invalid session %q", op.Session)}
	}
	if limit == 0 {
		return kv.Result{Refusal: fmt.Sprintf("semaphore %q needs a limit of 1 or more, not 0", op.Name)}
	}
	p, there := m.permitsOf(permitName{op.Kind, op.Name})
	if there && p.Limit != limit && !p.over(m.lease) {
		text := "semaphore %q has limit %d, not %d: the first that acquired it set it, and it stays until nobody holds it or waits for it"
		return kv.Result{Refusal: fmt.Sprintf(text, op.Name, p.Limit, limit), Limit: p.Limit}
	}
	if !there || p.over(m.lease) {
		p = modelPermits{Permits: kv.Permits{Kind: op.Kind, Name: op.Name, Limit: limit}}
	}
	changed := m.serve(at, &p)
	res := kv.Result{Limit: limit}
	holder, waiter := p.holder(session), p.waiter(session)
	switch {
	case holder >= 0:
		h := &p.Holders[holder]
		changed = changed || !bytes.Equal(h.Value, op.Value)
		h.Value = nonEmpty(op.Value)
		res.OK, res.Fence = true, h.Fence
	case waiter >= 0:
		w := &p.Queue[waiter]
		if op.Wait > 0 {
			changed = changed || w.Until != m.lease+op.Wait || !bytes.Equal(w.Value, op.Value)
			w.Until, w.Value = m.lease+op.Wait, nonEmpty(op.Value)
		}
		res.Place = waiter + 1
	case len(p.Queue) == 0 && !p.full() && p.granted != at.Index:
		m.grant(at, &p, session, nonEmpty(op.Value))
		res.OK, res.Fence, changed = true, at.Index, true
	case op.Wait > 0:
		p.Queue = append(p.Queue, kv.Waiter{Session: session, Since: m.lease, Until: m.lease + op.Wait, Value: nonEmpty(op.Value)})
		m.serve(at, &p)
		res.Place, changed = len(p.Queue), true
	}
	if changed {
		m.changed(at, p)
	}
	return res
}

func (m *model) releasePermit(at kv.At, op kv.ReleasePermit) kv.Result {
	if op.Session == "" {
		return kv.Result{Refusal: "missing session"}
	}
	p, _ := m.permitsOf(permitName{op.Kind, op.Name})
	holder := p.holder(strings.ToLower(op.Session))
	if holder < 0 || op.Index != 0 && op.Index != p.Holders[holder].Fence {
		return kv.Result{}
	}
	m.free(at, p, holder, 0)
	return kv.Result{OK: true}
}

// free takes a permit from a holder; for delay ms no session gets it.
func (m *model) free(at kv.At, p modelPermits, holder int, delay int64) {
	p.Holders = slices.Delete(p.Holders, holder, holder+1)
	if delay > 0 {
		p.Delays = append(p.Delays, m.lease+delay)
		slices.Sort(p.Delays)
	}
	m.serve(at, &p)
	m.changed(at, p)
}

func (m *model) leaveQueue(at kv.At, op kv.LeaveQueue) kv.Result {
	if op.Session == "" {
		return kv.Result{Refusal: "missing session"}
	}
	p, _ := m.permitsOf(permitName{op.Kind, op.Name})
	session := strings.ToLower(op.Session)
	holder, waiter := p.holder(session), p.waiter(session)
	switch {
	case holder >= 0 && !op.Release:
		return kv.Result{OK: true, Fence: p.Holders[holder].Fence}
	case holder >= 0:
		m.free(at, p, holder, 0)
	case waiter >= 0:
		p.Queue = slices.Delete(p.Queue, waiter, waiter+1)
		m.serve(at, &p)
		m.changed(at, p)
	}
	return kv.Result{}
}

func (m *model) endPermitDelay(at kv.At, op kv.EndDelay) kv.Result {
	p, _ := m.permitsOf(permitName{op.Kind, op.Name})
	if !slices.Contains(p.Delays, op.Until) {
		return kv.Result{}
	}
	m.serve(at, &p)
	m.changed(at, p)
	return kv.Result{OK: true}
}

// losePermits takes everything that an ended session holds and waits for.
func (m *model) losePermits(at kv.At, session string, delay int64) {
	for _, name := range slices.SortedFunc(maps.Keys(m.permits), comparePermitNames) {
		p, _ := m.permitsOf(name)
		switch {
		case p.holder(session) >= 0:
			m.free(at, p, p.holder(session), delay)
		case p.waiter(session) >= 0:
			m.serve(at, &p)
			m.changed(at, p)
		}
	}
}

// holds reports whether an acquisition lasts, and whose does now.
func (m *model) holds(f kv.Fence, session string) (holds bool, now kv.Index) {
	by := session
	switch f.Kind {
	case kv.Key:
		by, now = m.pairs[f.Name].Session, m.token(f.Name)
	default:
		for _, h := range m.permits[permitName{f.Kind, f.Name}].Holders {
			if f.Kind == kv.Lock || session == h.Session || session == "" && h.Fence == f.Index {
				by, now = h.Session, h.Fence
			}
		}
	}
	return now != 0 && now == f.Index && (session == "" || by == session), now
}

// promises holds promises to readers that the model does not know. They are checked on views alone, each against the
// one before.
type promises struct {
	before  *kv.View
	checks  int
	old     *kv.View // from some steps ago, and what it showed
	shown   string
	touched []kv.Topic // since the view before
	reads   map[string]read
}

type read struct {
	text  string
	index kv.Index
}

func (p *promises) check(t *rapid.T, v *kv.View) {
	if p.before != nil {
		need.That(t, v.Index() != p.before.Index() || len(p.touched) == 0, "nothing has changed, and woken are %+v", p.touched)
		p.checkWoken(t, v)
	}
	p.checkReads(t, v)
	p.before = v
	if p.old != nil {
		need.Equal(t, show(p.old), p.shown, "a view that was kept shows")
	}
	if p.checks++; p.checks%10 == 1 {
		p.old, p.shown = v, show(v)
	}
}

// show returns what a view shows as text.
func show(v *kv.View) string {
	pairs, index, _ := v.List("")
	text := fmt.Sprint(v.Index(), index, v.SessionIndex(), v.Lease())
	for _, e := range pairs {
		text += orNothing(e) + fmt.Sprint(v.Delayed(e.Key))
	}
	for s := range v.Sessions() {
		text += orNothing(s) + fmt.Sprint(slices.Collect(v.Held(s.ID)))
	}
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		for p := range v.AllPermits(kind) {
			text += orNothing(p)
		}
	}
	return text
}

// checkWoken verifies that sessions were woken that moved from a queue to holding.
func (p *promises) checkWoken(t *rapid.T, v *kv.View) {
	for _, name := range permitNames {
		old, _ := p.before.Permits(name.kind, name.name)
		now, _ := v.Permits(name.kind, name.name)
		if old == nil || now == nil {
			continue
		}
		for _, w := range old.Queue {
			holds := slices.ContainsFunc(now.Holders, func(h kv.Holder) bool { return h.Session == w.Session })
			woken := slices.Contains(p.touched, kv.Topic{Kind: kv.PermitTopic, Name: kv.PermitName(name.kind, name.name, w.Session)})
			need.That(t, !holds || woken, "%s was given a permit of %s, and woken were %+v", w.Session, name.name, p.touched)
		}
	}
}

// checkReads verifies that no index goes back, that it grows with what is read, and that a change wakes.
func (p *promises) checkReads(t *rapid.T, v *kv.View) {
	check := func(topic kv.Topic, index kv.Index, what any) {
		name, now := fmt.Sprintf("%+v", topic), read{fmt.Sprintf("%+v", what), index}
		before, ok := p.reads[name]
		p.reads[name] = now
		switch {
		case index < max(before.index, 1):
			t.Fatalf("the index of %s is %d, and was %d", name, index, before.index)
		case !ok || now.text == before.text:
		case index == before.index:
			t.Fatalf("%s was %s, is %s, and the index is still %d", name, before.text, now.text, index)
		case topic.Kind != kv.PrefixTopic && !slices.Contains(p.touched, topic):
			t.Fatalf("%s was %s, is %s, and only %+v are woken", name, before.text, now.text, p.touched)
		}
	}
	for _, key := range keys {
		e, index := v.Get(key)
		check(kv.Topic{Kind: kv.KeyTopic, Name: key}, index, orNothing(e))
	}
	for _, prefix := range []string{"", "a", "a/", "none"} {
		pairs, index, _ := v.List(prefix)
		var text string
		for _, e := range pairs {
			text += orNothing(e)
		}
		check(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, index, text)
	}
	var sessions string
	for s := range v.Sessions() {
		sessions += orNothing(s)
	}
	check(kv.Topic{Kind: kv.SessionsTopic}, v.SessionIndex(), sessions)
	for _, name := range permitNames {
		kind := map[kv.Kind]kv.TopicKind{kv.Lock: kv.LockTopic, kv.Semaphore: kv.SemaphoreTopic}[name.kind]
		permits, index := v.Permits(name.kind, name.name)
		check(kv.Topic{Kind: kind, Name: name.name}, index, orNothing(permits))
	}
}

// orNothing returns what a pointer points at as text.
func orNothing[T any](p *T) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("%+v", *p)
}
