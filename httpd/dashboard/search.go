package dashboard

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of a search: its bytes and its words, each of which is searched for in every instance.
const (
	maxQuery = 1000
	maxWords = 8
)

// search holds what the list of applications is narrowed by. The zero search narrows nothing.
type search struct {
	terms  []term // each must occur in the application's name, or in one of an instance's names and addresses
	pairs  []registry.Pair
	status registry.Status
	byStat bool
	dc     string // empty for all
}

// term is a search word with its ASCII letters in lower case. In the names of applications, which are in upper case,
// it is found in any case.
type term struct{ word, app string }

func termOf(word string) term { return term{lower(word), lower(strings.ToUpper(word))} }

// readSearch reads the parameters of a search.
func (c call) readSearch() (s search) {
	query := c.Text("q")
	if len(query) > maxQuery {
		c.Refuse("the search has %d bytes; at most %d are looked for", len(query), maxQuery)
		return s
	}
	words := strings.Fields(query)
	if zone := c.Text("zone"); zone != "" {
		words = append(words, "zone="+zone)
	}
	for _, word := range words {
		if key, value, pair := strings.Cut(word, "="); pair && key != "" {
			s.pairs = append(s.pairs, registry.Pair{Key: key, Value: value})
			continue
		}
		if t := termOf(word); !slices.Contains(s.terms, t) {
			s.terms = append(s.terms, t)
		}
	}
	if words := len(s.terms) + len(s.pairs); words > maxWords {
		c.Refuse("the search has %d words; at most %d are looked for", words, maxWords)
	}
	if word := c.Text("status"); word != "" {
		if s.status, s.byStat = registry.ParseStatus(word); !s.byStat {
			c.Refuse("status must be one of %s", strings.Join(registry.StatusWords(), ", "))
		}
	}
	s.dc = c.Text("dc")
	return s
}

// instances reports whether the search must look at instances.
func (s *search) instances() bool {
	return len(s.terms) > 0 || len(s.pairs) > 0 || s.byStat || s.dc != ""
}

// finds reports whether an instance matches. local names this datacenter.
func (s *search) finds(l *registry.Lease, local string) bool {
	i := l.Instance
	if s.byStat && i.Status != s.status || s.dc != "" && s.dc != l.Owner && !(l.Owner == "" && s.dc == local) {
		return false
	}
	for _, p := range s.pairs {
		if !slices.ContainsFunc(i.Metadata, func(have registry.Pair) bool { return strings.EqualFold(have.Key, p.Key) && have.Value == p.Value }) {
			return false
		}
	}
	for _, t := range s.terms {
		if !(contains(i.App, t.app) || contains(i.ID(), t.word) || contains(i.HostName, t.word) || contains(i.IPAddr, t.word) ||
			contains(i.VIP, t.word) || contains(i.SecureVIP, t.word)) {
			return false
		}
	}
	return true
}

// contains reports whether a word that lower made is part of s in any case. Letters beyond ASCII are compared as they
// are.
func contains(s, word string) bool {
	if word == "" {
		return true
	}
	for start := 0; start+len(word) <= len(s); start++ {
		if lowered[s[start]] != word[0] { // the usual case
			continue
		}
		i := 1
		for i < len(word) && lowered[s[start+i]] == word[i] {
			i++
		}
		if i == len(word) {
			return true
		}
	}
	return false
}

// lower returns a word with its ASCII letters in lower case.
func lower(word string) string {
	b := []byte(word)
	for i := range b {
		b[i] = lowered[b[i]]
	}
	return string(b)
}

// lowered maps each byte to lower case.
var lowered = func() (table [256]byte) {
	for b := range table {
		table[b] = byte(b)
		if 'A' <= b && b <= 'Z' {
			table[b] += 'a' - 'A'
		}
	}
	return table
}()

// found is an application with its matching instances.
type found struct {
	appCount
	matches int
	first   []*registry.Lease // of the matches
}

// mostMatches is how many instances are shown in the row of an application.
const mostMatches = 3

// find narrows applications, sorted by name, to those with matching instances among all leases, sorted likewise, of
// applications that may be read. It stops when ctx ends.
func (s *search) find(ctx context.Context, apps []appCount, all iter.Seq[*registry.Lease], may func(app string) bool, local string) (rows []found) {
	if !s.instances() {
		for _, a := range apps {
			rows = append(rows, found{appCount: a})
		}
		return rows
	}
	at := -1 // index of the last instance's application
	next, of, allowed := 0, "", false
	for l := range all {
		app := l.Instance.App
		if app != of {
			if ctx.Err() != nil {
				break
			}
			of, allowed = app, may(app)
		}
		if !allowed || !s.finds(l, local) {
			continue
		}
		if at < 0 || rows[at].Name != app {
			for next < len(apps) && apps[next].Name < app {
				next++
			}
			count := appCount{Name: app} // not counted if all its instances are in quarantine
			if next < len(apps) && apps[next].Name == app {
				count = apps[next]
			}
			rows, at = append(rows, found{appCount: count}), len(rows)
		}
		row := &rows[at]
		if row.matches++; len(row.first) < mostMatches {
			row.first = append(row.first, l)
		}
	}
	return rows
}

// mostGone is how many removed instances are shown by a search that finds no others.
const mostGone = 10

// gone returns the removed instances that a word search finds, newest first, of applications that may be read.
func (s *search) gone(v *registry.View, may func(app string) bool) (leases []*registry.Lease) {
	if len(s.terms) == 0 || len(s.pairs) > 0 || s.byStat {
		return nil
	}
	for c := range v.NewestFirst() {
		if removed := c.Kind == registry.Canceled || c.Kind == registry.Evicted; !removed || !s.finds(c.Lease, "") || !may(c.Lease.Instance.App) {
			continue
		}
		if leases = append(leases, c.Lease); len(leases) == mostGone {
			break
		}
	}
	return leases
}

// narrowed keeps the rows that a filter of the list selects.
func narrowed(rows []found, filter string, overdue map[string]registry.AppFreshness, now time.Time) []found {
	switch filter {
	case filterOverdue:
		return slices.DeleteFunc(rows, func(f found) bool { return overdueOf(overdue[f.Name]) == 0 })
	case filterChanged:
		return slices.DeleteFunc(rows, func(f found) bool { return now.Sub(timeOf(f.Changed)) > time.Hour })
	}
	return rows
}

// pages divide rows.
type pages struct{ number, last, first, end, rows int }

const rowsPerPage = 50

// pageOf returns the page with a number, from 1; a number beyond the last page gives the last one.
func pageOf(number uint64, rows int) pages {
	last := max((rows+rowsPerPage-1)/rowsPerPage, 1)
	n := int(min(max(number, 1), uint64(last)))
	first := (n - 1) * rowsPerPage
	return pages{n, last, first, min(first+rowsPerPage, rows), rows}
}

func (p pages) String() string {
	if p.rows == 0 {
		return "none"
	}
	return fmt.Sprintf("%d to %d of %d", p.first+1, p.end, p.rows)
}

// pager links to the other pages of a list, with the same parameters.
func (c call) pager(p pages) g.Node {
	if p.last == 1 {
		return g.Group{}
	}
	to := func(number int, words, rel string) g.Node {
		if number < 1 || number > p.last {
			return el("span", class("soft"), text(words))
		}
		query := c.R.URL.Query()
		query.Set("page", strconv.Itoa(number))
		query.Del("index")
		return el("a", attr("href", c.R.URL.Path+"?"+query.Encode()), attr("rel", rel), text(words))
	}
	return el("nav", class("pager"), attr("aria-label", "Pages"),
		to(p.number-1, "← Back", "prev"), el("span", g.Textf("Page %d of %d", p.number, p.last)), to(p.number+1, "Further →", "next"))
}
