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
	// DefaultGuardShare is the largest share of the known instances (of one application, or of all) that a full
	// response may lack and still be believed.
	DefaultGuardShare = 0.5
	// DefaultGuardHold is a lease's default duration: every living instance has registered again by then.
	DefaultGuardHold = 90 * time.Second
)

// Guard keeps instances in the list that a full response suddenly lacks: a server that has just been restarted with
// nothing, or one that cannot see the others, must not take every address away. It judges only full responses. A
// removal that the server reports (a delta's DELETED, a watch's event) is believed at once, however many there are.
//
// A full response is suspect if it is empty while instances are known, or lacks more than Share of the instances of
// an application, or of all. An instance is known if it is in the list, so held instances count as lacking in the
// next response too. The instances that a suspect response lacks (if it is suspect only for some applications, those
// of them) are then held: they stay in the list, and everything is fetched again at every refresh, until a response
// contains them again, the server reports their removal, or every full response lacked them for Hold.
type Guard struct {
	Share float64       // between 0 and 1; 0 means DefaultGuardShare; if negative, full responses are believed
	Hold  time.Duration // 0 means DefaultGuardHold
}

// Validate reports every mistake at once.
func (g Guard) Validate() error {
	var mistakes []error
	if !(g.Share <= 1) { // also catches NaN
		mistakes = append(mistakes, fmt.Errorf("Guard.Share %v: it must be between 0 and 1, or negative to believe every answer", g.Share))
	}
	if g.Hold < 0 {
		mistakes = append(mistakes, fmt.Errorf("Guard.Hold %v: it must not be negative (0: %v)", g.Hold, DefaultGuardHold))
	}
	return errors.Join(mistakes...)
}

func (g Guard) withDefaults() Guard {
	return Guard{Share: cmp.Or(g.Share, DefaultGuardShare), Hold: cmp.Or(g.Hold, DefaultGuardHold)}
}

// guarded is a Guard at work. It belongs to one goroutine. Times are readings of the monotonic clock.
type guarded struct {
	guard Guard
	// for each held instance, which the list has, the time of the first full response that lacked it
	since map[registry.Key]time.Time
}

// full makes the next list from a full response: its instances, and the held ones of old. suspect reports whether
// something is held now.
func (g *guarded) full(old *Snapshot, response []*registry.Instance, now time.Time) (next *Snapshot, suspect bool) {
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
		case g.mayStay(key, now) && (!g.since[key].IsZero() || doubt.of(key.App)):
			held[key] = g.lackingSince(key, now)
		default:
			edit.remove(key)
		}
	}
	g.since = held
	return edit.list(), g.held() > 0
}

// release ends the hold of an instance that the server has listed, or reported as removed.
func (g *guarded) release(key registry.Key) { delete(g.since, key) }

// held returns the number of held instances.
func (g *guarded) held() int { return len(g.since) }

// lackingSince returns when an instance that the current response lacks was first missing.
func (g *guarded) lackingSince(key registry.Key, now time.Time) time.Time {
	if since, held := g.since[key]; held {
		return since
	}
	return now
}

// mayStay reports whether an instance that is lacking now may be held for longer.
func (g *guarded) mayStay(key registry.Key, now time.Time) bool {
	return now.Sub(g.lackingSince(key, now)) < g.guard.Hold
}

// doubt has the applications for which a full response is not believed.
type doubt struct {
	all  bool
	apps map[string]bool
}

func (d doubt) of(app string) bool { return d.all || d.apps[app] }

// doubt returns what to doubt in a full response. Instances that were held for long enough no longer count as known:
// their lack says nothing about the others.
func (g *guarded) doubt(old *Snapshot, present map[registry.Key]bool, now time.Time) doubt {
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

// tally counts known instances, and how many of them a response lacks.
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

// exceeds reports whether more than a share is lacking. It divides because a quotient is rounded as a written share
// is: 7 of 10 are not more than 0.7.
func (t tally) exceeds(share float64) bool {
	return t.known > 0 && float64(t.lacking)/float64(t.known) > share
}
