package kv

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// permitTables is what a View shows of locks and semaphores. Its trees are copy-on-write, as those of
// tables are, and so are the semaphores in it: whoever has many that wait must not be copied whole
// with each that comes or goes.
type permitTables struct {
	edition uint64 // counts the shares: a semaphore of an older edition may be in a View
	index   Index  // of the last change of any; Freeze and Thaw carry it
	all     *btree.BTreeG[named]
	stakes  *btree.BTreeG[stake]        // by session
	delays  order.Schedule[permitDelay] // views have none
	waiting int                         // in all queues
	bytes   int                         // of all locks and semaphores, see semaphore.bytes
}

// stake says that a session holds or waits for a permit.
type stake struct {
	session string
	kind    Kind
	name    string
}

// permitDelay says that one or more lock-delays of a lock or semaphore end.
type permitDelay struct {
	kind Kind
	name string
}

func newPermitTables() permitTables {
	return permitTables{
		all: order.NewTree(compareNamed),
		stakes: order.NewTree(func(a, b stake) int {
			return cmp.Or(strings.Compare(a.session, b.session), cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
		}),
		delays: order.NewSchedule(func(a, b permitDelay) int {
			return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
		}),
	}
}

// named is a semaphore where it is found. It has the name itself: a tree of semaphores alone would take one to
// look for another.
type named struct {
	kind Kind
	name string
	sem  *semaphore
}

func compareNamed(a, b named) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}

// share returns a copy for views, which is never written again.
func (p *permitTables) share() permitTables {
	c := *p
	c.all, c.stakes, c.delays = p.all.Copy(), p.stakes.Copy(), order.Schedule[permitDelay]{}
	p.edition++
	return c
}

// find finds a lock or semaphore; nil: there is none.
func (p *permitTables) find(kind Kind, name string) *semaphore {
	found, _ := p.all.Get(named{kind: kind, name: name})
	return found.sem
}

// open enters an empty semaphore.
func (p *permitTables) open(kind Kind, name string, limit uint32) *semaphore {
	sem := &semaphore{edition: p.edition, kind: kind, name: name, limit: limit, ends: order.NewSchedule(cmp.Compare[uint64]), bytes: permitsWeight + len(name)}
	p.all.Set(sem.named())
	p.bytes += sem.bytes
	return sem
}

// editable returns a semaphore that no View has, copying it where needed. The caller calls edited when it is done.
func (p *permitTables) editable(sem *semaphore) *semaphore {
	p.bytes -= sem.bytes
	if sem.edition == p.edition {
		return sem
	}
	c := sem.copy()
	c.edition = p.edition
	p.all.Set(c.named())
	return c
}

// edited counts the bytes of a semaphore, unless nobody holds it, waits for it or is delayed for it: it is no more.
func (p *permitTables) edited(sem *semaphore) {
	if sem.idle() {
		p.all.Delete(sem.named())
		return
	}
	p.bytes += sem.bytes
}

// wait and unwait note that a session began and ceased to wait.
func (p *permitTables) wait(sem *semaphore, session string) {
	p.stakes.Set(stake{session, sem.kind, sem.name})
	p.waiting++
}

func (p *permitTables) unwait(sem *semaphore, session string) {
	p.stakes.Delete(stake{session, sem.kind, sem.name})
	p.waiting--
}

// delay keeps a free permit of a semaphore back until a time (lease clock, ms).
func (p *permitTables) delay(sem *semaphore, until int64) {
	n, _ := sem.delays.Get(until)
	sem.delays.Set(until, n+1)
	sem.delayed++
	sem.bytes += delayWeight
	p.delays.Set(until, permitDelay{sem.kind, sem.name})
}

// undelay ends one of the delays until a time.
func (p *permitTables) undelay(sem *semaphore, until int64) {
	sem.delayed--
	sem.bytes -= delayWeight
	if n, _ := sem.delays.Get(until); n > 1 {
		sem.delays.Set(until, n-1)
		return
	}
	sem.delays.Delete(until)
	p.delays.Delete(until, permitDelay{sem.kind, sem.name})
}

// stakesOf lists what a session holds and waits for, by kind and name.
func (p *permitTables) stakesOf(session string) (found []stake) {
	p.stakes.Ascend(stake{session: session}, func(s stake) bool {
		if s.session == session {
			found = append(found, s)
		}
		return s.session == session
	})
	return found
}

// semaphore is a lock or semaphore: its holders, its queue, and what lock-delays keep back. While
// somebody waits all permits are held or kept back.
type semaphore struct {
	edition  uint64
	kind     Kind
	name     string
	limit    uint32
	modified Index
	// granted is the newest token. It matters to the operation that gave it only, so that a snapshot,
	// which is taken between operations, need not know it.
	granted Index

	holders btree.Map[Index, Holder]  // by token: in the order of acquisition
	queue   btree.Map[uint64, Waiter] // by ticket: in the order of asking
	ends    order.Schedule[uint64]    // of the waits, by ticket
	members btree.Map[string, member] // holders and queue by session
	delays  btree.Map[int64, int]     // how many end at a time (lease clock, ms)
	delayed int                       // how many there are
	bytes   int                       // of all of it, about
}

// What a lock or semaphore, one who holds it or waits for it, and a lock-delay take beside their texts, in bytes,
// about.
const (
	permitsWeight = 512
	memberWeight  = 512
	delayWeight   = 128
)

// weight of a member is what its session and value take.
func weight(value []byte) int { return memberWeight + len(value) }

// member says where in a semaphore a session is.
type member struct {
	fence  Index  // 0: it waits
	ticket uint64 // while it waits
}

func (m *semaphore) named() named { return named{m.kind, m.name, m} }

// copy costs the same whatever the length of the queue.
func (m *semaphore) copy() *semaphore {
	c := *m
	c.holders, c.queue, c.members = *m.holders.Copy(), *m.queue.Copy(), *m.members.Copy()
	c.ends, c.delays = m.ends.Copy(), *m.delays.Copy()
	return &c
}

func (m *semaphore) topic() Topic {
	if m.kind == Lock {
		return Topic{Kind: LockTopic, Name: m.name}
	}
	return Topic{Kind: SemaphoreTopic, Name: m.name}
}

// full says that no permit is free.
func (m *semaphore) full() bool { return uint64(m.holders.Len()+m.delayed) >= uint64(m.limit) }

// idle says that nobody holds, waits or is delayed.
func (m *semaphore) idle() bool {
	return m.holders.Len() == 0 && m.queue.Len() == 0 && m.delayed == 0
}

// lasts says whether somebody holds, still waits or is delayed at a time (lease clock, ms).
func (m *semaphore) lasts(lease int64) bool {
	if m.holders.Len() > 0 {
		return true
	}
	wait, waits := m.ends.Last()
	delay, _, delayed := m.delays.Max()
	return waits && wait >= lease || delayed && delay > lease
}

// hold enters a holder, or replaces it by one with another value.
func (m *semaphore) hold(h Holder) {
	if old, ok := m.holders.Set(h.Fence, h); ok {
		m.bytes -= weight(old.Value)
	}
	m.bytes += weight(h.Value)
	m.members.Set(h.Session, member{fence: h.Fence})
}

// release takes a holder out.
func (m *semaphore) release(fence Index) Holder {
	h, _ := m.holders.Delete(fence)
	m.bytes -= weight(h.Value)
	m.members.Delete(h.Session)
	return h
}

// join enters a waiter at the queue's end, and returns its ticket.
func (m *semaphore) join(w Waiter) (ticket uint64) {
	last, _, _ := m.queue.Max()
	ticket = last + 1
	m.enqueue(ticket, w)
	m.members.Set(w.Session, member{ticket: ticket})
	return ticket
}

// enqueue enters a waiter under a ticket that nobody has.
func (m *semaphore) enqueue(ticket uint64, w Waiter) {
	m.queue.Set(ticket, w)
	m.ends.Set(w.Until, ticket)
	m.bytes += weight(w.Value)
}

// dequeue takes out the waiter of a ticket.
func (m *semaphore) dequeue(ticket uint64) Waiter {
	w, _ := m.queue.Delete(ticket)
	m.ends.Delete(w.Until, ticket)
	m.bytes -= weight(w.Value)
	return w
}

// leave takes a waiter out of the queue.
func (m *semaphore) leave(ticket uint64) Waiter {
	w := m.dequeue(ticket)
	m.members.Delete(w.Session)
	return w
}

// place is the place in the queue of a ticket that is in it, from 1.
func (m *semaphore) place(ticket uint64) int {
	return 1 + sort.Search(m.queue.Len(), func(i int) bool {
		at, _, _ := m.queue.GetAt(i)
		return at >= ticket
	})
}

// permits is the semaphore as readers see it.
func (m *semaphore) permits() *Permits {
	p := &Permits{Kind: m.kind, Name: m.name, Limit: m.limit, ModifyIndex: m.modified}
	if m.holders.Len() > 0 {
		p.Holders = m.holders.Values()
	}
	if m.queue.Len() > 0 {
		p.Queue = m.queue.Values()
	}
	m.delays.Scan(func(until int64, n int) bool {
		for range n {
			p.Delays = append(p.Delays, until)
		}
		return true
	})
	return p
}

func (s *State) freezePermits() []*Permits {
	frozen := make([]*Permits, 0, s.permits.all.Len())
	s.permits.all.Scan(func(n named) bool {
		frozen = append(frozen, n.sem.permits())
		return true
	})
	return frozen
}

// thawPermits enters the permits of a snapshot, whose sessions and clock are in the state already.
func (s *State) thawPermits(permits []*Permits) error {
	var last named
	for i, p := range permits {
		at := named{kind: p.Kind, name: p.Name}
		if i > 0 && compareNamed(last, at) >= 0 {
			return fmt.Errorf("permits of %q are not after those of %q", p.Name, last.name)
		}
		if err := s.verifyPermits(p); err != nil {
			return fmt.Errorf("permits of %q: %w", p.Name, err)
		}
		if err := s.thawSemaphore(p); err != nil {
			return fmt.Errorf("permits of %q: %w", p.Name, err)
		}
		last = at
	}
	return nil
}

// verifyPermits checks what a semaphore's own operations keep true.
func (s *State) verifyPermits(p *Permits) error {
	// Counted in 64 bits: a limit may be any of 32.
	taken, limit := uint64(len(p.Holders))+uint64(len(p.Delays)), uint64(p.Limit)
	switch {
	case p.Kind != Lock && p.Kind != Semaphore:
		return fmt.Errorf("kind %d is neither a lock nor a semaphore", p.Kind)
	case limit == 0 || p.Kind == Lock && limit != 1:
		return fmt.Errorf("a limit of %d", limit)
	case taken > limit:
		return fmt.Errorf("%d are held or kept back, of %d", taken, limit)
	case taken == 0:
		return errors.New("nobody holds it, and no lock-delay keeps it back")
	case len(p.Queue) > 0 && taken < limit:
		return fmt.Errorf("%d wait, while one is free", len(p.Queue))
	case p.ModifyIndex == 0 || p.ModifyIndex > s.permits.index:
		return fmt.Errorf("modified at %d, but the last change of a lock or semaphore was %d", p.ModifyIndex, s.permits.index)
	case !slices.IsSorted(p.Delays):
		return errors.New("its lock-delays are not in the order of time")
	}
	return nil
}

// thawSemaphore enters the permits of one name.
func (s *State) thawSemaphore(p *Permits) error {
	sem := s.permits.editable(s.permits.open(p.Kind, p.Name, p.Limit))
	sem.modified = p.ModifyIndex
	for _, h := range p.Holders {
		if err := s.thawHolder(sem, h); err != nil {
			return err
		}
	}
	for _, w := range p.Queue {
		if err := s.verifyMember(sem, w.Session, w.Since, w.Value); err != nil {
			return err
		}
		sem.join(w)
		s.permits.wait(sem, w.Session)
	}
	for _, until := range p.Delays {
		if until > order.Later(s.lease, MaxLockDelay/1_000_000) {
			return fmt.Errorf("the end of a lock-delay at %d is too far from the lease clock's %d", until, s.lease)
		}
		s.permits.delay(sem, until)
	}
	s.permits.edited(sem)
	return nil
}

func (s *State) thawHolder(sem *semaphore, h Holder) error {
	if err := s.verifyMember(sem, h.Session, h.Since, h.Value); err != nil {
		return err
	}
	if last, _, _ := sem.holders.Max(); h.Fence <= last || h.Fence > sem.modified {
		return fmt.Errorf("session %q holds it by token %d, which is not in %d to %d", h.Session, h.Fence, last+1, sem.modified)
	}
	sem.hold(h)
	s.permits.stakes.Set(stake{h.Session, sem.kind, sem.name})
	return nil
}

// verifyMember checks that a session may hold or wait.
func (s *State) verifyMember(sem *semaphore, session string, since int64, value []byte) error {
	if _, ok := s.tables.sessions.Get(session); !ok {
		return fmt.Errorf("session %q, which holds it or waits for it, is not there", session)
	}
	if _, twice := sem.members.Get(session); twice {
		return fmt.Errorf("session %q holds it or waits for it twice", session)
	}
	if len(value) > MaxPermitValue {
		return fmt.Errorf("session %q has a value of %d bytes, more than %d", session, len(value), MaxPermitValue)
	}
	if since > s.lease {
		return fmt.Errorf("session %q holds it or waits for it since %d, after the lease clock's %d", session, since, s.lease)
	}
	return nil
}
