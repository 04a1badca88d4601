package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// act is something that a page can do. It calls an API, with the rights, errors and audit record of that call, so its
// command line does the same.
type act struct {
	name, button, title string
	object              func(f url.Values) string // names what it is about; nil for the cluster
	// explained acts keep author and reason; reasoned ones require a reason, because they take something away.
	explained, reasoned bool
	// lasting acts let the user choose how long they hold; bounded ones require it.
	lasting, bounded bool
	needs            func(f url.Values) []access.Need
	// effect says what will happen, in numbers. last is the application that would lose its last UP instance, or "".
	effect func(c call, v *registry.View, f url.Values) (sentences []string, last string)
	fields func(c call, v *registry.View, f url.Values) g.Node // beside reason, author and time
	// open fills in a new form; check refuses a submitted form. Both may be nil.
	open, check func(c call, f url.Values) error
	// The call: its method, its path, and its parameters beside who acts, why and for how long, which may be nil.
	method string
	path   func(f url.Values) string
	query  func(f url.Values) url.Values
	body   func(f url.Values) string // may be nil
	// The command: its verb, and a flag of its own. command is for one that says more; it may be nil.
	verb, flag string
	command    func(f url.Values, c command) command
	back       string // the page that it leads to; empty for the instance's
}

// targets lists the fields that name an act's object. They go from page to page.
var targets = []string{"app", "id", "node", "peer", "session", "key"}

func overrides(f url.Values) []access.Need {
	return []access.Need{{Resource: access.App, Name: keyIn(f).App, Verb: access.Override}}
}

func operates(url.Values) []access.Need {
	return []access.Need{{Resource: access.Operator, Verb: access.Write}}
}

// acts lists everything that pages can do.
var acts = []act{
	{
		name: "drain", button: "Drain…", title: "Drain", object: keyText, explained: true, reasoned: true, needs: overrides, effect: drains,
		method: http.MethodPut, path: ofInstance("/override"), verb: "drain",
		query: func(url.Values) url.Values { return url.Values{"value": {"OUT_OF_SERVICE"}, "drain": {"true"}} },
	},
	{
		name: "override", button: "Force a status…", title: "Force the status of", object: keyText, explained: true, reasoned: true, lasting: true, needs: overrides,
		effect: forces, fields: statusField,
		method: http.MethodPut, path: ofInstance("/override"), query: func(f url.Values) url.Values { return url.Values{"value": {f.Get("status")}} },
		verb: "override", command: func(f url.Values, c command) command {
			c.names = append(c.names, cmp.Or(f.Get("status"), "OUT_OF_SERVICE"))
			return c
		},
	},
	{
		name: "end-override", button: "End the override…", title: "End the override of", object: keyText, explained: true, needs: overrides, effect: endsOverride,
		method: http.MethodDelete, path: ofInstance("/override"), verb: "override", flag: "--delete",
	},
	{
		name: "quarantine", button: "Quarantine…", title: "Quarantine", object: keyText, explained: true, reasoned: true, lasting: true, bounded: true, needs: overrides,
		effect: leaves("it is in no list, and its heartbeats are accepted"),
		method: http.MethodPut, path: ofInstance("/quarantine"), verb: "quarantine",
	},
	{
		name: "end-quarantine", button: "End the quarantine…", title: "End the quarantine of", object: keyText, explained: true, needs: overrides,
		effect: sentences("It is in the lists again at once, with the status that it reports."),
		method: http.MethodDelete, path: ofInstance("/quarantine"), verb: "quarantine", flag: "--end",
	},
	{
		name: "cancel", button: "Remove…", title: "Remove", object: keyText,
		needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.App, Name: keyIn(f).App, Verb: access.Register}}
		},
		effect: leaves("it is registered no more; if it still runs, its next heartbeat tells it to register again"),
		method: http.MethodDelete, path: func(f url.Values) string {
			key := keyIn(f)
			return "/eureka/v2/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
		},
		verb: "cancel",
	},
	{
		name: "release", button: "Release…", title: "Let evictions go on", explained: true, reasoned: true, needs: operates, effect: releases,
		method: http.MethodPost, path: always("/v1/rollcall/self-preservation/release"), verb: "self-preservation release", back: "/",
	},
	{
		name: "hold", button: "Hold…", title: "Hold evictions", explained: true, reasoned: true, lasting: true, bounded: true, needs: operates,
		effect: sentences("No lease ends until the time has passed, or somebody releases it."),
		method: http.MethodPost, path: always("/v1/rollcall/self-preservation/hold"), verb: "self-preservation hold", back: "/",
	},
	{
		name: "pause", button: "Pause…", title: "Pause the sending to", object: field("peer"), explained: true, reasoned: true, needs: operates,
		effect: sentences("Nothing is sent there until somebody resumes it. Changes wait here, and what comes from there is received."),
		method: http.MethodPost, path: below("/v1/rollcall/peers/", "peer", "/pause"), verb: "peers pause", back: "/ui/peers",
	},
	{
		name: "resume", button: "Resume…", title: "Resume the sending to", object: field("peer"), explained: true, needs: operates,
		effect: sentences("What has waited is sent at once, and compared where too much has."),
		method: http.MethodPost, path: below("/v1/rollcall/peers/", "peer", "/resume"), verb: "peers resume", back: "/ui/peers",
	},
	{
		name: "repair", button: "Repair…", title: "Repair", object: field("peer"), needs: operates,
		effect: sentences("What the peer lacks or has older is sent, and what it should not have is removed there."),
		method: http.MethodPost, path: below("/v1/rollcall/peers/", "peer", "/repair"), verb: "peers repair", back: "/ui/peers",
	},
	{
		name: "transfer", button: "Make it lead…", title: "Hand leadership to", object: field("node"), needs: operates,
		effect: sentences("Writes wait while leadership moves, for about a second. Nothing is lost."),
		method: http.MethodPost, path: always("/v1/rollcall/transfer"), query: func(f url.Values) url.Values { return url.Values{"to": {f.Get("node")}} },
		verb: "members transfer", back: "/ui/nodes",
	},
	{
		name: "remove-node", button: "Remove…", title: "Remove from the cluster", object: field("node"), explained: true, reasoned: true, needs: operates, effect: removesNode,
		method: http.MethodDelete, path: below("/v1/rollcall/members/", "node", ""), verb: "members remove", back: "/ui/nodes",
	},
	{
		name: "end-session", button: "End…", title: "End session", object: field("session"), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.Session, Name: f.Get("session"), Verb: access.Write}}
		},
		effect: endsSession,
		method: http.MethodDelete, path: below("/v1/rollcall/sessions/", "session", ""), verb: "session destroy", back: "/ui/held",
	},
	{
		name: "set-key", button: "Change…", title: "Change key", object: field("key"), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.KV, Name: f.Get("key"), Verb: access.Write}}
		},
		effect: sentences("Programs that watch the key see the new value at once."), fields: valueField, open: openKey, check: checkKey,
		method: http.MethodPut, path: func(f url.Values) string { // slashes stay
			return "/v1/kv/" + strings.ReplaceAll(url.PathEscape(f.Get("key")), "%2F", "/")
		},
		query: keyQuery, body: valueOf,
		verb: "kv put", command: keyCommand, back: "/ui/keys",
	},
}

// heading returns the title of an act's page.
func (a *act) heading(f url.Values) string {
	if a.object == nil {
		return a.title
	}
	return a.title + " " + a.object(f)
}

// request returns the call of an act.
func (a *act) request(f url.Values) request {
	q := request{method: a.method, path: a.path(f), query: url.Values{}}
	if a.query != nil {
		q.query = a.query(f)
	}
	if a.lasting {
		setGiven(q.query, "for", f.Get("for"))
	}
	if a.explained {
		setGiven(q.query, "author", f.Get("author"), "reason", f.Get("reason"))
	}
	if a.body != nil {
		q.body = a.body(f)
	}
	return q
}

// commandOf returns the command that does the same, with placeholders for what it needs but the reader has not entered
// yet.
func (a *act) commandOf(f url.Values) command {
	c := command{verb: a.verb}
	if a.object != nil {
		c.names = []string{a.object(f)}
	}
	if a.flag != "" {
		c.flags = []string{a.flag}
	}
	flag := func(name, value string, needed bool, placeholder string) {
		if value == "" && needed {
			value = placeholder
		}
		if value != "" {
			c.flags = append(c.flags, name, value)
		}
	}
	if a.lasting {
		flag("--for", f.Get("for"), a.bounded, "30m")
	}
	if a.explained {
		flag("--reason", f.Get("reason"), a.reasoned, "WHY")
		flag("--author", f.Get("author"), false, "")
	}
	if a.command != nil {
		return a.command(f, c)
	}
	return c
}

func field(name string) func(f url.Values) string {
	return func(f url.Values) string { return f.Get(name) }
}

func keyText(f url.Values) string { return keyIn(f).String() }

func keyIn(f url.Values) registry.Key { return registry.NewKey(f.Get("app"), f.Get("id")) }

// ofInstance returns the path of an instance in our own API, with a suffix.
func ofInstance(rest string) func(f url.Values) string {
	return func(f url.Values) string {
		key := keyIn(f)
		return "/v1/rollcall/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID) + rest
	}
}

func always(path string) func(url.Values) string {
	return func(url.Values) string { return path }
}

// below returns a path with the name that a field holds, and a suffix.
func below(path, field, rest string) func(f url.Values) string {
	return func(f url.Values) string { return path + url.PathEscape(f.Get(field)) + rest }
}

func statusField(_ call, _ *registry.View, f url.Values) g.Node {
	return el("label", text("Status"), el("select", attr("name", "status"), g.Map(statusOrder, func(s registry.Status) g.Node {
		return el("option", attr("value", s.String()), g.If(s.String() == cmp.Or(f.Get("status"), "OUT_OF_SERVICE"), attr("selected")), text(s.String()))
	})))
}

// sentences returns an effect that is always the same.
func sentences(words ...string) func(call, *registry.View, url.Values) ([]string, string) {
	return func(call, *registry.View, url.Values) ([]string, string) { return words, "" }
}

// pollEvery is how often upstream's clients ask for changes by default.
const pollEvery = 30 * time.Second

// leaves returns the effect of an act after which clients no longer call an instance.
func leaves(then string) func(call, *registry.View, url.Values) ([]string, string) {
	return func(_ call, v *registry.View, f url.Values) ([]string, string) {
		key := keyIn(f)
		l, there := v.Find(key)
		if !there {
			return []string{fmt.Sprintf("As far as this node knows, %s is not registered any more.", key)}, ""
		}
		up, all := 0, 0
		for other := range web.LeasesOf(v, key.App) {
			all++
			if other.Instance.Status == registry.Up {
				up++
			}
		}
		wasUp := l.Quarantine == nil && l.Instance.Status == registry.Up
		effect := []string{upperFirst(then) + "."}
		switch {
		case !wasUp:
			now := l.Instance.Status.String()
			if l.Quarantine != nil {
				now = "in quarantine"
			}
			effect = append(effect, fmt.Sprintf("It is %s now; %d of %d instances of %s are UP.", now, up, all, key.App))
			return effect, ""
		case up > 1:
			effect = append(effect, fmt.Sprintf("%s keeps %d of its %d UP instances.", key.App, up-1, up))
		default:
			effect = append(effect, fmt.Sprintf("It is the last UP instance of %s: nothing is left to call.", key.App))
		}
		until := clock(time.UnixMilli(v.Stamp().Wall).Add(pollEvery))
		effect = append(effect, fmt.Sprintf("Clients that watch know it at once; those that poll every 30 s may call it until %s UTC.", until))
		if up <= 1 {
			return effect, key.App
		}
		return effect, ""
	}
}

// drains returns the effect of a drain.
func drains(c call, v *registry.View, f url.Values) ([]string, string) {
	until := "until it is started again"
	if v.Level() < registry.Level3 {
		until = "until its lease ends"
	}
	return leaves("clients no longer call it, "+until)(c, v, f)
}

// forces returns the effect of an override.
func forces(c call, v *registry.View, f url.Values) ([]string, string) {
	effect, last := leaves("clients see the status that you choose, until the override ends; the rest holds for any status but UP")(c, v, f)
	switch f.Get("status") {
	case registry.Up.String():
		return effect[:1], ""
	case registry.OutOfService.String():
		if v.Level() >= registry.Level3 {
			effect = append(effect, "If the instance is removed meanwhile and registers again within 24 h, it is OUT_OF_SERVICE again.")
		}
	}
	return effect, last
}

func endsOverride(_ call, v *registry.View, f url.Values) ([]string, string) {
	if l, there := v.Find(keyIn(f)); there && l.Override != nil && l.Override.Reported != registry.Unknown {
		return []string{fmt.Sprintf("It reports %s, and is shown so from its next heartbeat on; until then it is UNKNOWN.", l.Override.Reported)}, ""
	}
	return []string{"It is UNKNOWN until its next heartbeat, and then what it reports."}, ""
}

func releases(c call, v *registry.View, _ url.Values) ([]string, string) {
	p := c.monitor.preservation(v)
	apps := 0
	for _, a := range v.FreshnessByApp(c.monitor.clock(v).Now) {
		if a.Expired > 0 {
			apps++
		}
	}
	return []string{fmt.Sprintf("%s of %s %s removed within seconds, and those of others when their leases end.",
		plural(int(p.Figures.Expired), "instance"), plural(apps, "application"), agree(int(p.Figures.Expired), "is", "are")),
		"Clients that still run register again with their next heartbeat."}, ""
}

func removesNode(c call, _ *registry.View, f url.Values) ([]string, string) {
	votes := 0
	for _, n := range c.monitor.now(c.R.Context()).status.Nodes {
		if n.Voter && n.ID != f.Get("node") {
			votes++
		}
	}
	tolerance := max(votes-(votes/2+1), 0)
	return []string{fmt.Sprintf("The cluster has %s then, and %s.", plural(votes, "vote"), api.MayFail(tolerance, "")),
		"The node must not be started again with its data; with an empty data directory it may join anew."}, ""
}

func endsSession(c call, _ *registry.View, f url.Values) ([]string, string) {
	if c.Coordination == nil {
		return nil, ""
	}
	v, err := c.Coordination.View(c.R.Context(), registry.Stale)
	if err != nil {
		return nil, ""
	}
	s, _ := v.Session(f.Get("session"))
	if s == nil {
		return []string{"As far as this node knows, the session has ended already."}, ""
	}
	shown := own.Session(v, c.CoordinationClock(v), s)
	return []string{fmt.Sprintf("It holds %s. Each is free for others after its lock-delay of %s.", cmp.Or(shownHolds(shown.Holds), "nothing"), shown.LockDelay)}, ""
}

// shownHolds names a few of a session's holds.
func shownHolds(holds []api.Acquisition) string {
	const few = 5
	var names []string
	for _, hold := range holds[:min(len(holds), few)] {
		names = append(names, hold.Kind+" "+hold.Name)
	}
	words := strings.Join(names, ", ")
	if left := len(holds) - few; left > 0 {
		words += fmt.Sprintf(" and %d more", left)
	}
	return words
}
