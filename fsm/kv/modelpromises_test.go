package kv_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// promises are kept whatever the model says: they are checked on views alone, each against the one
// before.
type promises struct {
	before  *kv.View
	touched []kv.Topic // since the view before
	reads   map[string]read
	tokens  map[kv.Fence]kv.Index  // the highest there was, by kind and name
	kept    map[permitName][]int64 // ends of the lock-delays that there were
	keys    map[string]int64       // the same of keys
}

// read is what was read, and its index.
type read struct {
	text  string
	index kv.Index
}

func newPromises() *promises {
	return &promises{
		reads: map[string]read{}, tokens: map[kv.Fence]kv.Index{}, kept: map[permitName][]int64{}, keys: map[string]int64{},
	}
}

func (p *promises) check(t *rapid.T, v *kv.View) {
	if p.before != nil {
		p.delay(v)
		p.checkKeys(t, v)
		p.checkPermits(t, v)
	}
	p.checkReads(t, v)
	p.before = v
}

// delay notes the lock-delays of sessions that have ended since the view before.
func (p *promises) delay(v *kv.View) {
	for s := range p.before.Sessions() {
		now, _ := v.Session(s.ID)
		delay := min(s.LockDelay, kv.MaxLockDelay) / 1_000_000
		if now != nil && now.CreateIndex == s.CreateIndex || delay <= 0 {
			continue
		}
		for f := range p.before.Held(s.ID) {
			until := v.Lease() + delay
			if f.Kind == kv.Key {
				p.keys[f.Name] = until
				continue
			}
			name := permitName{f.Kind, f.Name}
			p.kept[name] = append(p.kept[name], until)
		}
	}
}

func (p *promises) checkKeys(t *rapid.T, v *kv.View) {
	for _, key := range keys {
		e, _ := v.Get(key)
		if e == nil || e.Session == "" {
			continue
		}
		name := kv.Fence{Kind: kv.Key, Name: key}
		if last := p.tokens[name]; e.Fence < last {
			t.Fatalf("key %s is held by token %d, and was by %d", key, e.Fence, last)
		} else if e.Fence > last && p.keys[key] > v.Lease() {
			t.Fatalf("key %s was acquired at %d, before the end of its lock-delay at %d", key, v.Lease(), p.keys[key])
		}
		p.tokens[name] = e.Fence
	}
}

func (p *promises) checkPermits(t *rapid.T, v *kv.View) {
	for _, name := range permitNames {
		old, _ := p.before.Permits(name.kind, name.name)
		now, _ := v.Permits(name.kind, name.name)
		if now == nil {
			now = &kv.Permits{Kind: name.kind, Name: name.name}
		}
		p.kept[name] = slices.DeleteFunc(p.kept[name], func(until int64) bool { return until <= v.Lease() })
		n := len(now.Holders) + len(p.kept[name])
		need.That(t, n <= int(now.Limit), "%+v: of %d permits %d are held, while lock-delays last until %v", name, now.Limit, len(now.Holders), p.kept[name])
		p.checkTokens(t, now)
		if old != nil {
			p.checkOrder(t, old, now)
		}
	}
}

// checkTokens verifies that who holds now and did not before has a token that is higher than any before.
func (p *promises) checkTokens(t *rapid.T, now *kv.Permits) {
	name := kv.Fence{Kind: now.Kind, Name: now.Name}
	highest := p.tokens[name]
	for _, h := range now.Holders {
		if held, _ := p.before.Holds(kv.Fence{Kind: now.Kind, Name: now.Name, Index: h.Fence}, h.Session); held {
			continue
		}
		need.That(t, h.Fence > highest, "%s holds %+v by token %d, and there was %d", h.Session, name, h.Fence, highest)
		highest = h.Fence
	}
	p.tokens[name] = highest
}

// checkOrder verifies that those who were in the queue before and now hold were woken, and were not
// behind anybody who still waits.
func (p *promises) checkOrder(t *rapid.T, old, now *kv.Permits) {
	waits := false
	for _, w := range old.Queue {
		holds := slices.ContainsFunc(now.Holders, func(h kv.Holder) bool { return h.Session == w.Session })
		still := slices.ContainsFunc(now.Queue, func(n kv.Waiter) bool { return n.Session == w.Session && n.Since == w.Since })
		woken := slices.Contains(p.touched, kv.Topic{Kind: kv.PermitTopic, Name: kv.PermitName(now.Kind, now.Name, w.Session)})
		switch {
		case holds && waits:
			t.Fatalf("%s was given a permit of %s, and somebody was before it in %+v", w.Session, now.Name, old.Queue)
		case holds && !woken:
			t.Fatalf("%s was given a permit of %s, and woken were %+v", w.Session, now.Name, p.touched)
		}
		waits = waits || still
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
		entries, index, _ := v.List(prefix)
		var text string
		for _, e := range entries {
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

// orNothing writes down what a pointer points at.
func orNothing[T any](p *T) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprintf("%+v", *p)
}
