package trial

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Book is what the clients of a trial know for certain: which instances they registered, which they canceled, and
// which died. Judges compare the nodes' lists with it. It never asks a server. Its zero value is empty. Safe for
// concurrent use. Times are from the clients' process; a version orders the writes on one instance.
//
// Between the beginning of a write and its acknowledgement both states are right, the one before and the one after.
// They stay so after a write that is never acknowledged, until a later write on its instance is.
//
// The beginning of a write must be recorded before the write is sent, and its acknowledgement after it came, or lists
// are judged too harshly.
type Book struct {
	mu      sync.Mutex
	records map[string]*record
	marked  time.Time
}

// Registering records that a registration is about to be sent: from now on the instance may be listed, in this
// version. Version 0 is for an instance that its client registers once, and does not register again if it is lost.
func (b *Book) Registering(id string, version int64, at time.Time) {
	b.update(id, func(r *record) { r.beginWrite(write{version: version, at: at}) })
}

// Registered records that a registration was acknowledged.
func (b *Book) Registered(id string, version int64, at time.Time) {
	b.update(id, func(r *record) { r.registered(version, at) })
}

// Canceling records that a cancel is about to be sent: from now on the instance may be missing.
func (b *Book) Canceling(id string, version int64, at time.Time) {
	b.update(id, func(r *record) { r.beginWrite(write{version: version, at: at, cancel: true}) })
}

// Canceled records that a cancel was acknowledged.
func (b *Book) Canceled(id string, version int64, at time.Time) {
	b.update(id, func(r *record) {
		r.acknowledge(absent, version, at)
		r.depart(departure{canceled: true, from: at, last: at})
	})
}

// NotDone records that the write of a version, a registration or a cancel, certainly took no effect and never will: no
// node accepted it, or it was refused. What was certain before it is certain again. A write that was sent several
// times is recorded as often: each try that got no response may still take effect.
func (b *Book) NotDone(id string, version int64) {
	b.update(id, func(r *record) { r.withdraw(version) })
}

// Renewed records that a heartbeat was acknowledged. A heartbeat answered 404 is not recorded: the instance is missing
// somewhere and its client registers it again, but the client has done nothing that could excuse a server.
func (b *Book) Renewed(id string, at time.Time) {
	b.update(id, func(r *record) { r.updateLast(at) })
}

// Died records that the client of an instance sends nothing any longer. From now on it counts as a ghost wherever it
// is listed, although its lease lasts a while longer: until then clients call an instance that does not respond. An
// instance that is registered again later lives again.
func (b *Book) Died(id string, at time.Time) {
	b.update(id, func(r *record) { r.die(at) })
}

// update changes the record of an instance.
func (b *Book) update(id string, change func(*record)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records == nil {
		b.records = make(map[string]*record)
	}
	if b.records[id] == nil {
		b.records[id] = new(record)
	}
	change(b.records[id])
}

// Alive reports whether an instance is registered and its client sends heartbeats.
func (b *Book) Alive(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[id]
	return r != nil && r.alive()
}

// Expected counts the instances that should be listed now.
func (b *Book) Expected() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, r := range b.records {
		n += count(r.alive())
	}
	return n
}

// Mark records what is acknowledged now. The Unhealed of later judgements refers to the last mark.
func (b *Book) Mark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marked = time.Now()
	for _, r := range b.records {
		r.mark()
	}
}

// Marked returns the time of the last Mark, or zero.
func (b *Book) Marked() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.marked
}

// Listing is the list of a node: versions by instance id (0 if the document lacks it).
type Listing map[string]int64

// Judge fills in the figures of a list that was requested and answered at the given times (the caller fills in the
// times of the result); node says whose list it is, because Back and Departures compare it with the node's earlier
// ones. A change between the two times is right either way. The lists of one node must come in the order of the
// requests.
func (b *Book) Judge(node int, listed Listing, asked, answered time.Time) List {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := List{Node: node, Listed: len(listed)}
	for id, r := range b.records {
		version, is := listed[id]
		l := look{node: node, listed: is, version: version, asked: asked, answered: answered}
		sum.Ghosts += count(r.ghost(l))
		sum.Missing += count(r.missing(l))
		sum.Behind += count(r.behind(l))
		sum.Unhealed += count(r.unhealed(l))
		if r.follow(l) {
			sum.Back = append(sum.Back, id)
		}
	}
	slices.Sort(sum.Back)
	return sum
}

// Unanswered returns a list that was requested and did not come: its reader misses everything that should be in it.
func (b *Book) Unanswered(node int, asked, answered time.Time) List {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := List{Node: node, Failed: true}
	for _, r := range b.records {
		sum.Missing += count(r.missing(look{node: node, asked: asked, answered: answered}))
	}
	return sum
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Departures lists, for every instance that died or was canceled and every node that listed it, when it was gone from
// that node's lists; sorted by id, in the order of their times, by node. began is the start of the  A node that
// still listed an instance when it was registered again is left out.
func (b *Book) Departures(began time.Time) []Departure {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Departure
	for _, id := range slices.Sorted(maps.Keys(b.records)) {
		r := b.records[id]
		for _, d := range r.departures(!r.underWay(false, time.Time{})) {
			departure := Departure{ID: id, Canceled: d.canceled, Last: Since(began, d.last), Node: d.node, Gone: -1}
			if !d.firstWithout.IsZero() {
				departure.Gone = Since(began, d.firstWithout)
			}
			all = append(all, departure)
		}
	}
	return all
}

// End compares a node's last list, fetched when the nodes agreed or time was up, with what is known; at is when it was
// requested. An instance that died less than lease ago is right either way. Nor is a difference that a late write
// of unknown outcome may have made. The ids are sorted.
func (b *Book) End(listed Listing, at time.Time, lease time.Duration) (missing, revived, dead []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.records)) {
		r := b.records[id]
		version, is := listed[id]
		l := look{listed: is, version: version, asked: at, answered: at}
		mayBeCanceled := slices.ContainsFunc(r.open, func(w write) bool { return w.cancel })
		switch {
		case r.missing(l) && !mayBeCanceled && !r.single():
			missing = append(missing, id)
		case r.revived(l):
			revived = append(revived, id)
		case is && r.deadFor(lease, at):
			dead = append(dead, id)
		}
	}
	return missing, revived, dead
}
