package list

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Guard says which full responses are refused, as client.Guard does, with its defaults in the place of zeros.
type Guard struct {
	Share float64 // between 0 and 1; negative: full responses are believed
	Hold  time.Duration
}

// guarded is a Guard at work. It belongs to one goroutine. Times are readings of the monotonic clock.
type guarded struct {
	guard Guard
	since map[registry.Key]time.Time // of the held instances, which the list has: the time of the full response that lacked them first
}

// full makes the next list of a full response: its instances, and those of old that are held. suspect says that
// something is held now.
func (g *guarded) full(old *List, response []*registry.Instance, now time.Time) (next *List, suspect bool) {
	edit := old.edit()
	present := make(map[registry.Key]bool, len(response))
	for _, i := range response {
		edit.set(i)
		present[i.Key()] = true
	}
	doubt := g.doubt(old, present, now)
	held := make(map[registry.Key]time.Time)
	for i := range old.All() {
		switch key := i.Key(); {
		case present[key]:
		case g.mayStay(key, now) && (g.isHeld(key) || doubt.of(key.App)):
			held[key] = g.lackingSince(key, now)
		default:
			edit.remove(key)
		}
	}
	g.since = held
	return edit.list(), g.held() > 0
}

// release ends the hold of an instance of which the server said that it is listed, or that it was removed.
func (g *guarded) release(key registry.Key) { delete(g.since, key) }

// held is the number of instances that are held.
func (g *guarded) held() int { return len(g.since) }

func (g *guarded) isHeld(key registry.Key) bool {
	_, held := g.since[key]
	return held
}

// lackingSince is when the first full response lacked an instance that the one of now lacks.
func (g *guarded) lackingSince(key registry.Key, now time.Time) time.Time {
	if since, held := g.since[key]; held {
		return since
	}
	return now
}

// mayStay says whether an instance that is lacking now may be held for longer.
func (g *guarded) mayStay(key registry.Key, now time.Time) bool {
	return now.Sub(g.lackingSince(key, now)) < g.guard.Hold
}

// doubt is the applications about which a full response is not believed.
type doubt struct {
	all  bool
	apps map[string]bool
}

func (d doubt) of(app string) bool { return d.all || d.apps[app] }

// doubt says what to doubt in a full response. Instances that were held for long enough are not known any
// more: their lack says nothing about the others.
func (g *guarded) doubt(old *List, present map[registry.Key]bool, now time.Time) doubt {
	share := g.guard.Share
	if share < 0 {
		return doubt{}
	}
	var all tally
	d := doubt{apps: make(map[string]bool)}
	for _, listed := range old.all {
		app := g.tally(listed.members, present, now)
		d.apps[listed.name] = app.exceeds(share)
		all.known += app.known
		all.lacking += app.lacking
	}
	d.all = len(present) == 0 || all.exceeds(share)
	return d
}

// tally is how many instances are known, and how many of them a response lacks.
type tally struct{ known, lacking int }

func (g *guarded) tally(instances []*registry.Instance, present map[registry.Key]bool, now time.Time) tally {
	var t tally
	for _, i := range instances {
		switch key := i.Key(); {
		case present[key]:
			t.known++
		case g.mayStay(key, now):
			t.known++
			t.lacking++
		}
	}
	return t
}

// exceeds says whether more than a share is lacking. It divides because a quotient is rounded as a written
// share is: 7 of 10 are not more than 0.7.
func (t tally) exceeds(share float64) bool {
	return t.known > 0 && float64(t.lacking)/float64(t.known) > share
}
