package kv

import (
	"cmp"
	"sort"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// permitTable is the part of a View for locks and semaphores. Its trees are copy-on-write, like those of keyTable,
// and so are the semaphores in it: a semaphore with many waiters must not be copied whole whenever one comes or goes.
type permitTable struct {
	edition uint64 // counts the shares: a semaphore of an older edition may be in a View
	index   Index  // of the last change of any; Freeze and Thaw carry it
	all     order.Tree[named]
	stakes  order.Tree[stake]           // by session
	delays  order.Schedule[permitDelay] // nil in views
	waiting int                         // in all queues
	bytes   int                         // of all locks and semaphores, see semaphore.bytes
}

// permitDelay names a lock or semaphore with lock-delays that end at a time.
type permitDelay struct {
	kind Kind
	name string
}

func newPermitTable() permitTable {
	return permitTable{
		all:    order.NewBoxedTree(compareNamed),
		stakes: order.NewBoxedTree(compareStakes),
		delays: order.NewSchedule(func(a, b permitDelay) int {
			return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
		}),
	}
}

// named is an entry of the tree of semaphores. It has its own copy of the name: otherwise a search would need a
// semaphore to compare with.
type named struct {
	kind Kind
	name string
	sem  *semaphore
}

func compareNamed(a, b named) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}

// share returns a copy for views, which is never written again.
func (p *permitTable) share() permitTable {
	c := *p
	c.all, c.stakes, c.delays = p.all.Copy(), p.stakes.Copy(), nil
	p.edition++
	return c
}

// save returns a copy that the table can be restored from.
func (p *permitTable) save() permitTable {
	delays := p.delays.Copy()
	c := p.share()
	c.delays = delays
	return c
}

// find returns a lock or semaphore, or nil.
func (p *permitTable) find(kind Kind, name string) *semaphore {
	found, _ := p.all.Get(named{kind: kind, name: name})
	return found.sem
}

// open enters an empty semaphore.
func (p *permitTable) open(kind Kind, name string, limit uint32) *semaphore {
	sem := &semaphore{
		edition: p.edition, kind: kind, name: name, limit: limit, bytes: permitsWeight + len(name), ends: order.NewSchedule(cmp.Compare[uint64]),
		holders: order.NewBoxedMap[Index, Holder](0), queue: order.NewBoxedMap[uint64, Waiter](0), positions: order.NewBoxedMap[string, position](0), delays: order.NewBoxedMap[int64, int](0),
	}
	p.all.Set(sem.named())
	p.bytes += sem.bytes
	return sem
}

// editable returns a semaphore that no View shares, copying it if needed. The caller calls edited when it is done.
func (p *permitTable) editable(sem *semaphore) *semaphore {
	p.bytes -= sem.bytes
	if sem.edition == p.edition {
		return sem
	}
	c := sem.copy()
	c.edition = p.edition
	p.all.Set(c.named())
	return c
}

// edited counts the bytes of a semaphore, or removes an idle one.
func (p *permitTable) edited(sem *semaphore) {
	if sem.idle() {
		p.all.Delete(sem.named())
		return
	}
	p.bytes += sem.bytes
}

func (p *permitTable) addStake(sem *semaphore, session string) {
	p.stakes.Set(stake{session, sem.kind, sem.name})
}

func (p *permitTable) removeStake(sem *semaphore, session string) {
	p.stakes.Delete(stake{session, sem.kind, sem.name})
}

// addDelay keeps a free permit of a semaphore back until a time (lease clock, ms).
func (p *permitTable) addDelay(sem *semaphore, until int64) {
	n, _ := sem.delays.Get(until)
	sem.delays.Set(until, n+1)
	sem.delayed++
	sem.bytes += delayWeight
	p.delays.Set(until, permitDelay{sem.kind, sem.name})
}

// removeDelay ends one of the delays until a time.
func (p *permitTable) removeDelay(sem *semaphore, until int64) {
	sem.delayed--
	sem.bytes -= delayWeight
	if n, _ := sem.delays.Get(until); n > 1 {
		sem.delays.Set(until, n-1)
		return
	}
	sem.delays.Delete(until)
	p.delays.Delete(until, permitDelay{sem.kind, sem.name})
}

// holder returns the session that holds what a Fence names, and its token, 0 if no session does. Among a semaphore's
// holders it picks the given session, or else the one that the token names.
func (p *permitTable) holder(f Fence, session string) (by string, token Index) {
	sem := p.find(f.Kind, f.Name)
	switch {
	case sem == nil:
		return "", 0
	case f.Kind == Lock:
		_, h, _ := sem.holders.Min()
		return h.Session, h.Fence
	case session != "":
		at, _ := sem.positions.Get(session)
		return session, at.fence
	}
	h, _ := sem.holders.Get(f.Index)
	return h.Session, h.Fence
}

// semaphore is a lock or semaphore as operations change it: its holders, its queue, and what lock-delays keep back.
// While any session waits, all permits are held or kept back.
type semaphore struct {
	edition  uint64
	kind     Kind
	name     string
	limit    uint32
	modified Index
	// granted is the newest token. Only the operation that gave it needs it, so snapshots, which are taken between
	// operations, leave it out.
	granted Index

	holders   order.Map[Index, Holder]    // by token: in the order of acquisition
	queue     order.Map[uint64, Waiter]   // by ticket: in the order of asking
	ends      order.Schedule[uint64]      // of the waits, by ticket
	positions order.Map[string, position] // of holders and waiters, by session
	delays    order.Map[int64, int]       // how many end at a time (lease clock, ms)
	delayed   int                         // the total of delays
	bytes     int                         // of everything, roughly
}

// Roughly how many bytes a lock or semaphore, and a session that holds or waits for it, take besides their texts.
const (
	permitsWeight  = 512
	positionWeight = 512
)

// weightWith returns how many bytes a session takes that holds or waits with a value.
func weightWith(value []byte) int { return positionWeight + len(value) }

// position is a session's place in a semaphore.
type position struct {
	fence  Index  // 0: it waits
	ticket uint64 // while it waits
}

func (m *semaphore) named() named { return named{m.kind, m.name, m} }

// copy costs the same, however long the queue is.
func (m *semaphore) copy() *semaphore {
	c := *m
	c.holders, c.queue, c.positions = m.holders.Copy(), m.queue.Copy(), m.positions.Copy()
	c.ends, c.delays = m.ends.Copy(), m.delays.Copy()
	return &c
}

// full reports whether no permit is free.
func (m *semaphore) full() bool { return uint64(m.holders.Len()+m.delayed) >= uint64(m.limit) }

// idle reports whether no session holds or waits, and no lock-delay keeps a permit back.
func (m *semaphore) idle() bool {
	return m.holders.Len() == 0 && m.queue.Len() == 0 && m.delayed == 0
}

// lasts reports whether, at a time (lease clock, ms), a session holds or waits, or a lock-delay keeps a permit back.
func (m *semaphore) lasts(lease int64) bool {
	if m.holders.Len() > 0 {
		return true
	}
	wait, waits := m.ends.Last()
	delay, _, delayed := m.delays.Max()
	return waits && wait >= lease || delayed && delay > lease
}

// setHolder enters a holder, or gives it another value.
func (m *semaphore) setHolder(h Holder) {
	if old, ok := m.holders.Set(h.Fence, h); ok {
		m.bytes -= weightWith(old.Value)
	}
	m.bytes += weightWith(h.Value)
	m.positions.Set(h.Session, position{fence: h.Fence})
}

// addWaiter enters a waiter at the queue's end, and returns its ticket.
func (m *semaphore) addWaiter(w Waiter) (ticket uint64) {
	last, _, _ := m.queue.Max()
	ticket = last + 1
	m.enqueue(ticket, w)
	m.positions.Set(w.Session, position{ticket: ticket})
	return ticket
}

// enqueue enters a waiter under an unused ticket.
func (m *semaphore) enqueue(ticket uint64, w Waiter) {
	m.queue.Set(ticket, w)
	m.ends.Set(w.Until, ticket)
	m.bytes += weightWith(w.Value)
}

// dequeue removes the waiter of a ticket.
func (m *semaphore) dequeue(ticket uint64) Waiter {
	w, _ := m.queue.Delete(ticket)
	m.ends.Delete(w.Until, ticket)
	m.bytes -= weightWith(w.Value)
	return w
}

// place returns a ticket's place in the queue, from 1.
func (m *semaphore) place(ticket uint64) int {
	return 1 + sort.Search(m.queue.Len(), func(i int) bool {
		at, _, _ := m.queue.GetAt(i)
		return at >= ticket
	})
}

// permits returns the semaphore as readers see it.
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
