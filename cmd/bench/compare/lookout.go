package compare

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Pauses between two looks for one registration.
const (
	shortestLook = 4 * time.Millisecond
	// lookShare makes the pause grow with the time that the registration has been looked for: the delay is known to
	// within this share of itself, and a registration that stays unseen for seconds is not asked for hundreds of
	// times.
	lookShare = 6
	// lookLoad bounds the share of its time that a lookout spends reading documents to one in lookLoad.
	lookLoad = 5
)

// glance is a way of looking.
type glance struct {
	way  trial.Way
	path string // with {id} for the id; empty if a stream of changes shows it
	// together means that one document shows all registrations that are searched for.
	together bool
}

const instancePath = registryPath + "/" + sightApp + "/{id}"

// byStaleRead is a way that only Rollcall's nodes have.
var byStaleRead = glance{way: trial.ByStale, path: instancePath + "?consistency=stale"}

// glances are the ways of looking that all nodes have.
var glances = []glance{
	{way: trial.ByRead, path: instancePath},
	{way: trial.ByList, path: registryPath + "/" + sightApp, together: true},
	{way: trial.ByDelta, path: registryPath + "/delta", together: true},
}

// lookout looks for registrations at one node in one way.
type lookout struct {
	observer *observer
	node     int
	glance   glance
	asker    *asker
	arrived  chan struct{} // has an element if a search was added since the last look

	mu      sync.Mutex
	waiting map[*sighting]time.Time // when the next look is due
	// Of a watch: since when its stream has shown everything (zero: it has not begun), and when it showed
	// registrations, which may be before their acknowledgements.
	since time.Time
	shown map[string]time.Time
}

func newLookout(o *observer, node int, g glance) *lookout {
	return &lookout{
		observer: o, node: node, glance: g, asker: o.asker(node), arrived: make(chan struct{}, 1),
		waiting: make(map[*sighting]time.Time), shown: make(map[string]time.Time),
	}
}

// begin begins the search for a just acknowledged registration. A stream may leave out what was sent before it began.
func (l *lookout) begin(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[g] = g.acked
	at, shown := l.shown[g.id]
	switch {
	case l.glance.path != "":
		select {
		case l.arrived <- struct{}{}:
		default:
		}
	case l.since.IsZero() || g.sent.Before(l.since):
		l.finish(g, false, 0)
	case shown:
		l.see(g, at)
	}
}

// finish ends a search, if it is still going on. Its result may count. The lookout is locked.
func (l *lookout) finish(g *sighting, counts bool, delay trial.Micros) {
	if _, searched := l.waiting[g]; !searched {
		return
	}
	delete(l.waiting, g)
	if counts {
		l.observer.add(func(t *trial.Trial) {
			t.Sightings = append(t.Sightings, trial.Sighting{From: g.from, To: l.node, Way: l.glance.way, Acked: l.observer.at(g.acked), Delay: delay})
		})
	}
	g.found.Done()
}

// see ends a search because the registration was seen at a time. The lookout is locked.
func (l *lookout) see(g *sighting, at time.Time) {
	l.finish(g, true, max(trial.Of(at.Sub(g.acked)), 0))
}

// giveUp ends a search without success, which counts unless it is young or the node is lost.
func (l *lookout) giveUp(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish(g, time.Since(g.acked) >= sightLeast && !l.observer.isDropped(l.node), -1)
}

// changed receives an event of the node's stream of changes. It begins once, however often it is interrupted; a reset
// means that it left out what happened until now.
func (l *lookout) changed(event, id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch event {
	case "start":
		if l.since.IsZero() {
			l.since = at
		}
	case "reset":
		l.since = at
		for g := range l.waiting {
			l.finish(g, false, 0)
		}
	case "change":
		if _, before := l.shown[id]; !before && strings.HasPrefix(id, sightPrefix) {
			l.shown[id] = at
		}
		for g := range l.waiting {
			if g.id == id {
				l.see(g, at)
			}
		}
	}
}

// run looks until ctx ends.
func (l *lookout) run(ctx context.Context) {
	for ctx.Err() == nil {
		due, next := l.due(time.Now())
		for _, of := range due {
			l.ask(ctx, of)
		}
		if len(due) > 0 {
			continue
		}
		wait.Pause(ctx, l.arrived, next)
	}
}

// due returns what to ask for now, one question each, or the pause until there is something. A document that shows all
// is asked for all.
func (l *lookout) due(now time.Time) (due [][]*sighting, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = longPause
	var all []*sighting
	for g, at := range l.waiting {
		all = append(all, g)
		if left := at.Sub(now); left <= 0 {
			due = append(due, []*sighting{g})
		} else {
			next = min(next, left)
		}
	}
	if len(due) > 0 && l.glance.together {
		due = [][]*sighting{all}
	}
	return due, next
}

// ask asks one question, except of a lost node. A registration counts as seen when the response that shows it has
// come: before that no client knows of it. Ids are unique, so a quoted id stands for nothing else.
func (l *lookout) ask(ctx context.Context, of []*sighting) {
	lost := l.observer.isDropped(l.node)
	var resp response
	var err error
	if !lost {
		if resp, err = l.asker.find(ctx, strings.Replace(l.glance.path, "{id}", of[0].id, 1)); ctx.Err() != nil {
			return
		}
	}
	now, least := time.Now(), shortestLook
	if err == nil {
		least = max(least, (lookLoad-1)*now.Sub(resp.firstByte))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range of {
		pause := max(least, now.Sub(g.acked)/lookShare)
		if l.glance.together && l.observer.config.caches() {
			pause = cachedLook
		}
		_, searched := l.waiting[g]
		switch {
		case lost:
			l.finish(g, false, 0)
		case err == nil && bytes.Contains(resp.body, []byte(`"`+g.id+`"`)):
			l.see(g, now)
		case searched:
			l.waiting[g] = now.Add(pause)
		}
	}
}
