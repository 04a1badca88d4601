package top

import (
	"slices"
	"sort"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v2"

	"github.com/seed-20419f34/rollcall/client"
)

// keptChanges is how many of the last changes are shown.
const keptChanges = 10

// model is what is known, and the state of the frame that keys change. One goroutine owns it.
type model struct {
	servers []string

	last        reading              // the last one from a server
	lostSince   time.Time            // since when no server has responded; zero while one does
	failures    []failure            // of the last try
	silentSince map[string]time.Time // by server, since when it has not responded

	brokenSince  time.Time // since when no changes arrive; zero while they arrive
	brokenReason string
	changes      []change  // newest first, at most keptChanges
	streamSince  time.Time // since when changes come from the stream; zero before the first

	filter       string
	typing, help bool
	offset, page int // of the applications: the first that is shown, and how many are
	quit         bool
}

// change is one change as a frame shows it.
type change struct {
	at                  time.Time
	action, status, why string
	app, id             string
}

func newModel(servers []string) *model {
	return &model{servers: servers, silentSince: map[string]time.Time{}}
}

// add takes what servers have said.
func (m *model) add(r reading) {
	m.failures = r.failures
	for _, f := range r.failures {
		if m.silentSince[f.server].IsZero() {
			m.silentSince[f.server] = r.at
		}
	}
	if r.server == "" {
		if m.lostSince.IsZero() {
			m.lostSince = r.at
		}
		return
	}
	m.lostSince = time.Time{}
	delete(m.silentSince, r.server)
	m.last = r
}

// addEvents takes what a server remembers from before the stream of changes, by that server's clock.
func (m *model) addEvents(now time.Time, events client.Events) {
	from := m.streamSince
	if from.IsZero() {
		from = now
	}
	var old []change
	add := func(action, why string, all []client.Event) {
		for _, e := range all {
			if at := time.UnixMilli(e.At); at.Before(from) {
				old = append(old, change{at: at, action: action, why: why, app: e.App, id: e.ID})
			}
		}
	}
	add("ADDED", "registered", events.Registered)
	add("DELETED", "canceled", events.Canceled)
	sort.SliceStable(old, func(i, j int) bool { return old[i].at.After(old[j].at) })
	m.changes = append(m.changes, old...)
	m.changes = m.changes[:min(len(m.changes), keptChanges)]
}

// follow takes an event of the stream of changes.
func (m *model) follow(at time.Time, event client.WatchEvent) {
	switch e := event.(type) {
	case client.WatchStart:
		m.brokenSince = time.Time{}
		if m.streamSince.IsZero() {
			m.streamSince = at
		}
	case client.WatchReset:
		m.addChange(change{at: at, action: "RESET", why: e.Reason})
	case client.WatchChange:
		m.addChange(change{at, e.Action, e.Status, e.Why, e.App, e.ID})
	}
}

func (m *model) addChange(c change) {
	m.changes = slices.Insert(m.changes, 0, c)
	m.changes = m.changes[:min(len(m.changes), keptChanges)]
}

// breakStream records that no changes arrive any more, until the next start of a stream.
func (m *model) breakStream(at time.Time, reason string) {
	if m.brokenSince.IsZero() {
		m.brokenSince = at
	}
	m.brokenReason = reason
}

// press does what a key is for; docs/reference/cli.md and the help have the list.
func (m *model) press(key tcell.Key, r rune) {
	if key == tcell.KeyCtrlC {
		m.quit = true
		return
	}
	if m.typing {
		m.edit(key, r)
		return
	}
	switch key {
	case tcell.KeyUp:
		m.offset--
	case tcell.KeyDown:
		m.offset++
	case tcell.KeyPgUp:
		m.offset -= m.page
	case tcell.KeyPgDn:
		m.offset += m.page
	case tcell.KeyHome:
		m.offset = 0
	case tcell.KeyEnd:
		m.offset = len(m.last.overview.Apps)
	case tcell.KeyEsc:
		m.filter, m.help = "", false
	case tcell.KeyRune:
		m.pressRune(r)
	}
	m.offset = max(m.offset, 0) // the frame knows the other end
}

func (m *model) pressRune(r rune) {
	switch r {
	case 'q':
		m.quit = true
	case '/':
		m.typing, m.help = true, false
	case '?':
		m.help = !m.help
	case 'k':
		m.offset--
	case 'j':
		m.offset++
	}
}

// longestFilter is longer than an application's name may be.
const longestFilter = 256

// edit changes the filter that is being typed.
func (m *model) edit(key tcell.Key, r rune) {
	m.offset = 0
	switch key {
	case tcell.KeyEnter:
		m.typing = false
	case tcell.KeyEsc:
		m.filter, m.typing = "", false
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	case tcell.KeyRune:
		if unicode.IsPrint(r) && len(m.filter) < longestFilter {
			m.filter += string(r)
		}
	}
}
