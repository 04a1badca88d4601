package observe

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
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
	path func(id string) string // nil if a stream of changes shows it
	// together means that one document shows all registrations that are searched for.
	together bool
}

var (
	byRead      = glance{way: trial.ByRead, path: instancePath}
	byStaleRead = glance{way: trial.ByStale, path: func(id string) string { return instancePath(id) + "?consistency=stale" }}
	byList      = glance{way: trial.ByList, path: func(string) string { return registryPath + "/" + sightApp }, together: true}
	byDelta     = glance{way: trial.ByDelta, path: func(string) string { return registryPath + "/delta" }, together: true}
)

func instancePath(id string) string { return registryPath + "/" + sightApp + "/" + id }

// lookout looks for registrations at one node in one way.
type lookout struct {
	observer *Observer
	node     int
	glance   glance
	asker    *asker
	arrived  chan struct{} // has an element if a search was added since the last look

	mu      sync.Mutex
	streams bool                    // for a watch: its stream has begun once
	waiting map[*sighting]time.Time // when the next look is due
	// when a stream showed a registration before its acknowledgement; zero if it has not
	early map[*sighting]time.Time
}

func newLookout(o *Observer, node int, g glance) *lookout {
	return &lookout{
		observer: o, node: node, glance: g, asker: o.asker(node), arrived: make(chan struct{}, 1),
		waiting: make(map[*sighting]time.Time), early: make(map[*sighting]time.Time),
	}
}

// expect lets a stream show a registration before it is acknowledged. A stream that has not begun never will.
func (l *lookout) expect(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams {
		l.early[g] = time.Time{}
	}
}

// forget ends the expectation of a registration that failed.
func (l *lookout) forget(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.early, g)
}

// begin begins the search for a just acknowledged registration.
func (l *lookout) begin(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[g] = g.acked
	if l.glance.path == nil {
		shown, expected := l.early[g]
		delete(l.early, g)
		switch {
		case !expected:
			l.end(g)
		case !shown.IsZero():
			l.seen(g, shown)
		}
		return
	}
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// end ends a search that is still going on, and reports whether there was one. The lookout is locked.
func (l *lookout) end(g *sighting) bool {
	if _, searched := l.waiting[g]; !searched {
		return false
	}
	delete(l.waiting, g)
	g.found.Done()
	return true
}

// seen records that a registration was seen at a time. The lookout is locked.
func (l *lookout) seen(g *sighting, at time.Time) {
	if l.end(g) {
		l.record(g, max(trial.Of(at.Sub(g.acked)), 0))
	}
}

// giveUp ends a search without success, which counts unless it is young or the node is lost.
func (l *lookout) giveUp(g *sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end(g) && time.Since(g.acked) >= sightLeast && !l.observer.isDropped(l.node) {
		l.record(g, -1)
	}
}

func (l *lookout) record(g *sighting, delay trial.Micros) {
	l.observer.add(func(t *trial.Trial) {
		t.Sightings = append(t.Sightings, trial.Sighting{From: g.from, To: l.node, Way: l.glance.way, Acked: l.observer.at(g.acked), Delay: delay})
	})
}

// begun records that the node's stream of changes has begun.
func (l *lookout) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = true
}

// shown records that the node's stream showed a registration.
func (l *lookout) shown(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, before := range l.early {
		if g.id == id && before.IsZero() {
			l.early[g] = at
		}
	}
	for g := range l.waiting {
		if g.id == id {
			l.seen(g, at)
		}
	}
}

// skip records that the node's stream left out what happened until now.
func (l *lookout) skip() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, shown := range l.early {
		if shown.IsZero() {
			delete(l.early, g)
		}
	}
	for g := range l.waiting {
		l.end(g)
	}
}

// run looks until ctx ends.
func (l *lookout) run(ctx context.Context) {
	for ctx.Err() == nil {
		due, next := l.due(time.Now())
		switch {
		case len(due) > 0 && l.glance.together:
			l.ask(ctx, due)
			continue
		case len(due) > 0:
			for i := range due {
				l.ask(ctx, due[i:i+1])
			}
			continue
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-l.arrived:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due returns what to search for now, or the pause until there is something. A document that shows all is asked for
// all.
func (l *lookout) due(now time.Time) (due []*sighting, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = longPause
	var all []*sighting
	for g, at := range l.waiting {
		all = append(all, g)
		if left := at.Sub(now); left <= 0 {
			due = append(due, g)
		} else {
			next = min(next, left)
		}
	}
	if len(due) > 0 && l.glance.together {
		due = all
	}
	return due, next
}

// ask asks one question, except of a lost node. A registration counts as seen when the response that shows it has
// come: before that no client knows of it.
func (l *lookout) ask(ctx context.Context, of []*sighting) {
	lost := l.observer.isDropped(l.node)
	var resp response
	var err error
	if !lost {
		if resp, err = l.asker.find(ctx, l.glance.path(of[0].id)); ctx.Err() != nil {
			return
		}
	}
	now, least := time.Now(), shortestLook
	if err == nil {
		least = max(least, (lookLoad-1)*now.Sub(resp.firstByte))
	}
	pause := func(g *sighting) time.Duration {
		if l.glance.together && l.observer.config.Column.System == scenario.Eureka {
			return cachedLook
		}
		return max(least, now.Sub(g.acked)/lookShare)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range of {
		_, searched := l.waiting[g]
		switch {
		case lost:
			l.end(g)
		case err == nil && shows(resp.body, g.id):
			l.seen(g, now)
		case searched:
			l.waiting[g] = now.Add(pause(g))
		}
	}
}

// shows reports whether a document is about the instance. Ids are unique, so a quoted id stands for nothing else.
func shows(document []byte, id string) bool { return bytes.Contains(document, []byte(`"`+id+`"`)) }
