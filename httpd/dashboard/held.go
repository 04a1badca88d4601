package dashboard

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"iter"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// errApart is the refusal of a node without consensus, which has neither locks nor keys.
var errApart = &web.Refusal{Status: http.StatusNotImplemented, Text: "locks and keys need a cluster with consensus (mode cp): this node runs in mode ap"}

// held is GET /ui/held: sessions, locks, semaphores and keys.
func (c call) held(v *registry.View) (page, error) {
	prefix := c.Text("prefix")
	if c.Err != nil {
		return page{}, c.Err
	}
	if c.Coordination == nil {
		return page{}, errApart
	}
	k, err := c.keys(c.Given("index"))
	if err != nil {
		return page{}, err
	}
	now := c.CoordinationClock(k)
	content := []g.Node{el("h1", text("Locks & keys")), c.doneNotice()}
	for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
		content = append(content, c.permitsSection(kind, k.AllPermits(kind), now))
	}
	content = append(content, c.sessionsSection(k, now), c.keysSection(k, prefix))
	return page{title: "Locks & keys", here: "/ui/held", content: content}, nil
}

var kindTitles = map[kv.Kind]string{kv.Lock: "Locks", kv.Semaphore: "Semaphores"}

func (c call) permitsSection(kind kv.Kind, all iter.Seq[*kv.Permits], now int64) g.Node {
	var rows []api.Permits
	left := 0
	for p := range all {
		if len(rows) == maxShown {
			left++
			continue
		}
		rows = append(rows, own.Permits(p, now))
	}
	title := kindTitles[kind]
	if len(rows) == 0 && kind == kv.Semaphore {
		return g.Group{}
	}
	return section(title, "", table("None is held or waited for.", []string{"Name", "Held by", "Token", "Since (UTC)", "Queue", "Lock-delays"}, rows, func(p api.Permits) row {
		holders, tokens, since := g.Group{}, g.Group{}, g.Group{}
		for _, h := range p.Holders {
			holders = append(holders, el("div", el("a", class("mono"), attr("href", "#"+h.Session), text(h.Session))))
			tokens = append(tokens, el("div", text(strconv.FormatUint(h.Fence, 10))))
			since = append(since, el("div", moment(h.Since)))
		}
		limit, queue, delays := "", "–", "–"
		if n := len(p.Queue); n > 0 {
			queue = fmt.Sprintf("%d, first %s for %s", n, shortened(p.Queue[0].Session), own.Span(p.Queue[0].WaitedMS))
		}
		if n := len(p.DelaysMS); n > 0 {
			delays = fmt.Sprintf("%d, the last over in %s", n, own.Span(p.DelaysMS[n-1]))
		}
		if kind == kv.Semaphore {
			limit = fmt.Sprintf(" %d of %d", len(p.Holders), p.Limit)
		}
		return tr(named(code(p.Name), soft(limit)), td(orDash(holders)), td(class("number"), orDash(tokens)), td(class("when"), orDash(since)),
			cell("", queue), cell("", delays))
	}), more(left))
}

func orDash(nodes g.Group) g.Node {
	if len(nodes) == 0 {
		return text("–")
	}
	return nodes
}

// sessionsSection lists the sessions that hold something, those that never expire first.
func (c call) sessionsSection(k *kv.View, now int64) g.Node {
	var rows []api.Session
	all := 0
	for s := range k.Sessions() {
		all++
		shown := own.Session(k, now, s)
		if len(shown.Holds) > 0 || shown.EndsInMS == 0 {
			rows = append(rows, shown)
		}
	}
	sort.SliceStable(rows, func(i, j int) bool {
		a, b := &rows[i], &rows[j]
		return cmp.Or(cmp.Compare(min(a.EndsInMS, 1), min(b.EndsInMS, 1)), cmp.Compare(b.AgeMS, a.AgeMS)) < 0
	})
	shown := rows[:min(len(rows), maxShown)]
	aside := fmt.Sprintf("%s, of which %d hold something or never end", plural(all, "session"), len(rows))
	return section("Sessions", aside, table("", []string{"Session", "Name", "Age", "Ends in", "Holds", "Acts"}, shown, func(s api.Session) row {
		ends := g.Node(status("STARTING", "never by itself"))
		if s.EndsInMS != 0 {
			ends = text(own.Span(s.EndsInMS))
		}
		return tr(attr("id", s.ID), named(code(s.ID)), cell("", dash(s.Name)), cell("", own.Span(s.AgeMS)), td(ends), cell("", dash(shownHolds(s.Holds))),
			td(c.buttons([]string{"end-session"}, "session", s.ID)))
	}), more(len(rows)-len(shown)))
}

// keysSection lists the keys below a prefix, as a tree whose branches end with a slash.
func (c call) keysSection(k *kv.View, prefix string) g.Node {
	if !c.May(access.Need{Resource: access.KV, Name: prefix, Below: true, Verb: access.Read}) {
		return section("Keys", "", el("p", class("soft"), g.Textf("You may not read the keys that begin with %q.", prefix)))
	}
	keys, _, ok := k.Keys(prefix, "/")
	if !ok {
		return section("Keys", "", el("p", class("soft"), text("There are more keys than a page can list; narrow them by a prefix.")), prefixForm(prefix))
	}
	shown := keys[:min(len(keys), maxShown)]
	above := g.Group{}
	if prefix != "" {
		up := prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')+1]
		above = g.Group{el("p", link(withQuery("/ui/held", "prefix", up), "↑ "+cmp.Or(up, "all keys")))}
	}
	aside := ""
	if prefix == "" {
		aside = plural(k.Len(), "key")
	}
	return section("Keys", aside, prefixForm(prefix), above,
		g.If(len(keys) == 0, el("p", class("empty"), text("None."))),
		el("ul", class("keys"), g.Map(shown, func(key string) g.Node {
			if strings.HasSuffix(key, "/") && key != prefix {
				return el("li", el("a", class("mono"), attr("href", withQuery("/ui/held", "prefix", key)), text(key)))
			}
			return el("li", el("a", class("mono"), attr("href", withQuery("/ui/keys", "key", key)), text(key)))
		})), more(len(keys)-len(shown)))
}

func prefixForm(prefix string) g.Node {
	return el("form", class("filters"), attr("action", "/ui/held"),
		el("label", text("Keys that begin with"), el("input", attr("name", "prefix"), attr("value", prefix), attr("maxlength", "1000"))), el("button", text("Show")))
}

// key is GET /ui/keys?key=NAME: names of keys have slashes, and may contain anything.
func (c call) key(v *registry.View) (page, error) {
	name := c.Text("key")
	if c.Err != nil {
		return page{}, c.Err
	}
	if c.Coordination == nil {
		return page{}, errApart
	}
	if err := c.Allow(access.Need{Resource: access.KV, Name: name, Verb: access.Read}); err != nil {
		return page{}, err
	}
	k, err := c.keys(c.Given("index"))
	if err != nil {
		return page{}, err
	}
	pair, _ := k.Get(name)
	content := []g.Node{el("p", class("crumbs"), link(withQuery("/ui/held", "prefix", name[:strings.LastIndexByte(name, '/')+1]), "Locks & keys")), el("h1", code(name)), c.doneNotice()}
	if pair == nil {
		content = append(content, el("p", class("empty"), text("There is no such key.")))
		return page{title: name, here: "/ui/held", content: content}, nil
	}
	rows := []fact{{"Index", text(strconv.FormatUint(uint64(pair.ModifyIndex), 10))}, {"Size", text(shownBytes(int64(len(pair.Value))))}}
	if pair.Session != "" {
		rows = append(rows, fact{"Locked by session", el("a", class("mono"), attr("href", "/ui/held#"+pair.Session), text(pair.Session))},
			fact{"Token", text(strconv.FormatUint(uint64(pair.Fence), 10))})
	}
	part := pair.Value[:min(len(pair.Value), mostShownValue)]
	shown := string(part)
	if !utf8.Valid(part) && len(part) == len(pair.Value) || strings.ContainsRune(shown, 0) {
		shown = hex.Dump(part[:min(len(part), 2<<10)])
	}
	content = append(content, factsTable(rows), section("Value", "", copied("value", strings.ToValidUTF8(shown, "�")),
		g.If(len(part) < len(pair.Value), el("p", class("soft"), text("The rest is not shown.")))))
	if editable(pair.Value) {
		content = append(content, c.buttons([]string{"set-key"}, "key", name))
	}
	return page{title: name, here: "/ui/held", content: content}, nil
}

// mostShownValue bounds the bytes of a value that a page shows.
const mostShownValue = 16 << 10
