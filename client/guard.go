package client

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Defaults of a Guard.
const (
	// DefaultGuardShare is the share of the known instances (of one application, or of all) of which a
	// full answer may lack no more than that.
	DefaultGuardShare = 0.5
	// DefaultGuardHold is a lease's default duration: whoever is alive has registered again by then.
	DefaultGuardHold = 90 * time.Second
)

// Guard keeps instances in the list that a full answer suddenly lacks: a server that has just been
// restarted with nothing, or one that cannot see the others, must not take everybody's address away. It
// judges full answers only. A removal that the server tells of (a delta's DELETED, a watch's event) is
// believed at once, however many there are.
//
// A full answer is suspect if it is empty while instances are known, or lacks more than Share of the
// instances of an application, or of all. Known is what is in the list, so that what is held counts as
// lacking in the next answer too. The instances that a suspect answer lacks are held then (if it is
// suspect only for some applications, those of them): they stay in the list, and the full answer is asked
// for again at every refresh, until they are in one again, are told to be removed, or were lacking in
// every full answer for Hold.
type Guard struct {
	Share float64       // between 0 and 1; 0: DefaultGuardShare; negative: full answers are believed
	Hold  time.Duration // 0: DefaultGuardHold
}

// Validate reports every mistake at once.
func (g Guard) Validate() error {
	var mistakes []error
	if !(g.Share <= 1) { // NaN too
		mistakes = append(mistakes, fmt.Errorf("Guard.Share %v: it must be between 0 and 1, or negative to believe every answer", g.Share))
	}
	if g.Hold < 0 {
		mistakes = append(mistakes, fmt.Errorf("Guard.Hold %v: it must not be negative (0: %v)", g.Hold, DefaultGuardHold))
	}
	return errors.Join(mistakes...)
}

// guarded is a guard at work: what it holds, and since when. It belongs to one goroutine. Times are
// readings of the monotonic clock.
type guarded struct {
	guard Guard
	since map[registry.Key]time.Time // of the held instances, the full answer that lacked them first
}

// full turns a full answer into the next list: the answer, and what is held of old. suspect says that
// something is held now.
func (g *guarded) full(old *Snapshot, answer []*registry.Instance, now time.Time) (next *Snapshot, suspect bool) {
	edit := old.edit()
	answered := make(map[registry.Key]bool, len(answer))
	for _, i := range answer {
		edit.put(i)
		answered[i.Key()] = true
	}
	doubt := g.judge(old, answered, now)
	held := make(map[registry.Key]time.Time)
	for i := range old.All() {
		switch key := i.Key(); {
		case answered[key]:
		case g.mayStay(key, now) && (g.isHeld(key) || doubt.of(key.App)):
			held[key] = g.lackingSince(key, now)
		default:
			edit.remove(key)
		}
	}
	g.since = held
	return edit.snapshot(), g.held() > 0
}

// told notes that the server told of an instance (that it is there, or that it was removed), so that it
// is not held any more.
func (g *guarded) told(key registry.Key) { delete(g.since, key) }

// held is the number of instances that are held.
func (g *guarded) held() int { return len(g.since) }

func (g *guarded) isHeld(key registry.Key) bool {
	_, held := g.since[key]
	return held
}

// lackingSince is when the first full answer lacked an instance that the one of now lacks.
func (g *guarded) lackingSince(key registry.Key, now time.Time) time.Time {
	if since, held := g.since[key]; held {
		return since
	}
	return now
}

// mayStay says whether an instance that is lacking now may be held for longer.
func (g *guarded) mayStay(key registry.Key, now time.Time) bool {
	return now.Sub(g.lackingSince(key, now)) < cmp.Or(g.guard.Hold, DefaultGuardHold)
}

// doubt is what a full answer is not believed about.
type doubt struct {
	all  bool
	apps map[string]bool
}

func (d doubt) of(app string) bool { return d.all || d.apps[app] }

// judge says what to doubt in a full answer. Instances that were held for long enough are not known any
// more: that they are lacking says nothing about the others.
func (g *guarded) judge(old *Snapshot, answered map[registry.Key]bool, now time.Time) doubt {
	share := cmp.Or(g.guard.Share, DefaultGuardShare)
	if share < 0 {
		return doubt{}
	}
	var all tally
	d := doubt{apps: make(map[string]bool)}
	for _, listed := range old.all {
		app := g.tally(listed.members, answered, now)
		d.apps[listed.name] = app.exceeds(share)
		all.known += app.known
		all.lacking += app.lacking
	}
	d.all = len(answered) == 0 || all.exceeds(share)
	return d
}

// tally is how many instances are known, and how many of them an answer lacks.
type tally struct{ known, lacking int }

func (g *guarded) tally(instances []*registry.Instance, answered map[registry.Key]bool, now time.Time) tally {
	var t tally
	for _, i := range instances {
		switch key := i.Key(); {
		case answered[key]:
			t.known++
		case g.mayStay(key, now):
			t.known++
			t.lacking++
		}
	}
	return t
}

// exceeds says whether more than a share is lacking. It divides because a quotient is rounded as the
// share is that somebody wrote: 7 of 10 are not more than 0.7.
func (t tally) exceeds(share float64) bool {
	return t.known > 0 && float64(t.lacking)/float64(t.known) > share
}
