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

// rememberedMinutes is how many minutes a tally looks back: an application that had instances then, and has none now, is in
// trouble.
const rememberedMinutes = 10

// halvedFrom is how many instances of an application must have been UP for it to count as halved.
const halvedFrom = 4

// tally has the counts of each application, when it changed, and for some minutes how many instances were UP. Only applications
// that have changed are looked at. Safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	epoch   string
	index   registry.Index // of the newest view that was counted
	began   time.Time
	minute  int64 // since began, to which the newest of the remembered numbers belongs
	counted int   // how many views were; each application has the number of the one that it was last in
	apps    map[string]*appCount
}

// appCount is what is counted of one application.
type appCount struct {
	Name    string
	Counts  registry.Counts // instances by status
	Total   int
	Changed int64 // of its last change, ms since the epoch

	index registry.Index // of its last change
	seen  int
	ups   [rememberedMinutes]int32 // how many were UP at the ends of the last minutes, newest first
}

// Up is how many instances are UP.
func (a appCount) Up() int { return a.Counts[registry.Up] }

// before is the most instances that were UP within the remembered minutes.
func (a appCount) before() int { return int(slices.Max(a.ups[:])) }

// The troubles that an application can have, the worst first.
const (
	empty  = iota // none is UP, and that is not how it should be
	halved        // at most half of those that were UP lately are
	partly        // some are not UP
	sound
)

// trouble is how bad it is.
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

// of are the counts of a view's applications, and of those that had instances some minutes ago, by name. A view that is older
// than one that was counted changes nothing.
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

// count brings the counts to a view, and to a minute.
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
	a.Changed = 0 // of what is not there any more it is not known
	for l := range app.Leases() {
		a.Changed = max(a.Changed, l.UpdatedAt)
	}
}

// gone empties an application that has no instances any more.
func (a *appCount) gone(now int64) {
	if a.Total > 0 {
		a.Changed = now
	}
	a.index, a.Total, a.Counts = 0, 0, registry.Counts{}
}

// remember begins the minutes that have passed since the last look, and forgets what has been gone for as long as is
// remembered.
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
