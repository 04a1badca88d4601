package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// rememberedMinutes is how many minutes a tally looks back: an application that had instances then, but not now,
// is in trouble.
const rememberedMinutes = 10

// halvedFrom is how many instances of an application must have been UP for it to count as halved.
const halvedFrom = 4

// tally keeps the counts of each application, when it changed, and for some minutes how many instances were UP. It
// looks only at applications that have changed. Safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	epoch   string
	index   registry.Index // of the newest counted view
	began   time.Time
	minute  int64 // since began; the newest of the remembered numbers belongs to it
	counted int   // number of counted views; each application has the number of the last one that it was in
	apps    map[string]*appCount
}

// appCount holds the counts of one application.
type appCount struct {
	Name    string
	Counts  registry.Counts // instances by status
	Total   int
	Changed int64 // of its last change, ms since the epoch

	index registry.Index // of its last change
	seen  int
	ups   [rememberedMinutes]int32 // how many were UP at the ends of the last minutes, newest first
}

// Up returns how many instances are UP.
func (a appCount) Up() int { return a.Counts[registry.Up] }

// before returns the most instances that were UP within the remembered minutes.
func (a appCount) before() int { return int(slices.Max(a.ups[:])) }

// The troubles that an application can have, worst first.
const (
	empty  = iota // no instance is UP, although some should be
	halved        // at most half of the recently UP instances are
	partly        // some are not UP
	sound
)

// trouble returns how bad it is.
func (a appCount) trouble() int {
	switch before := a.before(); {
	case a.Up() == 0:
		return empty
	case before >= halvedFrom && 2*a.Up() <= before:
		return halved
	case a.Up() < a.Total:
		return partly
	}
	return sound
}

// of returns the counts of a view's applications, and of those that had instances some minutes ago, by name. A view
// older than a counted one changes nothing.
func (t *tally) of(v *registry.View, now time.Time) []appCount {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(v, now)
	all := make([]appCount, 0, len(t.apps))
	for _, name := range slices.Sorted(maps.Keys(t.apps)) {
		all = append(all, *t.apps[name])
	}
	return all
}

// count brings the counts up to a view, and to a minute.
func (t *tally) count(v *registry.View, now time.Time) {
	if t.apps == nil || t.epoch != v.Epoch() {
		t.epoch, t.index, t.apps, t.minute = v.Epoch(), 0, make(map[string]*appCount), 0
		t.began = now
	}
	t.remember(int64(now.Sub(t.began) / time.Minute))
	if t.counted > 0 && v.Index() <= t.index {
		return
	}
	t.index = v.Index()
	t.counted++
	for app := range v.Apps() {
		t.countApp(app, v.Stamp().Wall)
	}
	for _, a := range t.apps {
		if a.seen != t.counted {
			a.gone(v.Stamp().Wall)
		}
	}
}

// countApp counts one application, if it has changed.
func (t *tally) countApp(app *registry.App, now int64) {
	a, known := t.apps[app.Name]
	if !known {
		a = &appCount{Name: app.Name}
		t.apps[app.Name] = a
	}
	a.seen = t.counted
	if a.index == app.Changed {
		return
	}
	first := a.index == 0
	a.index, a.Total, a.Counts = app.Changed, app.Len(), app.Counts()
	if a.Changed = now; !first {
		return
	}
	a.Changed = 0 // unknown for an application that no longer exists
	for l := range app.Leases() {
		a.Changed = max(a.Changed, l.UpdatedAt)
	}
}

// gone empties an application that no longer has instances.
func (a *appCount) gone(now int64) {
	if a.Total > 0 {
		a.Changed = now
	}
	a.index, a.Total, a.Counts = 0, 0, registry.Counts{}
}

// remember begins the minutes that have passed since the last look, and drops applications that have been gone for
// longer than is remembered.
func (t *tally) remember(minute int64) {
	passed := int(min(max(minute-t.minute, 0), rememberedMinutes))
	t.minute = max(t.minute, minute)
	for name, a := range t.apps {
		for range passed {
			copy(a.ups[1:], a.ups[:])
			a.ups[0] = int32(a.Up())
		}
		if passed > 0 && a.Total == 0 && a.before() == 0 {
			delete(t.apps, name)
		}
	}
}

// worstFirst sorts by trouble, then by name.
func worstFirst(apps []appCount) {
	sort.Slice(apps, func(i, j int) bool {
		a, b := &apps[i], &apps[j]
		return cmp.Or(cmp.Compare(a.trouble(), b.trouble()), strings.Compare(a.Name, b.Name)) < 0
	})
}
