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
	name, button string
	title        func(f url.Values) string
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
	call        func(f url.Values) request
	command     func(f url.Values) command
	back        func(f url.Values) string
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
		name: "drain", button: "Drain…", explained: true, title: titleOf("Drain", keyText), reasoned: true, needs: overrides, effect: drains,
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/override", query: parameters(f, "value", "OUT_OF_SERVICE", "drain", "true")}
		},
		command: func(f url.Values) command { return command{"drain", []string{keyText(f)}, said(f), ""} },
	},
	{
		name: "override", button: "Force a status…", explained: true, title: titleOf("Force the status of", keyText), reasoned: true, lasting: true, needs: overrides,
		effect: forces, fields: statusField,
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/override", query: parameters(f, "value", f.Get("status"), "for", f.Get("for"))}
		},
		command: func(f url.Values) command {
			return command{"override", []string{keyText(f), cmp.Or(f.Get("status"), "OUT_OF_SERVICE")}, append(forTime(f), said(f)...), ""}
		},
	},
	{
		name: "end-override", button: "End the override…", explained: true, title: titleOf("End the override of", keyText), needs: overrides, effect: endsOverride,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: ofInstance(f) + "/override", query: parameters(f)}
		},
		command: func(f url.Values) command {
			return command{"override", []string{keyText(f)}, append([]string{"--delete"}, said(f)...), ""}
		},
	},
	{
		name: "quarantine", button: "Quarantine…", explained: true, title: titleOf("Quarantine", keyText), reasoned: true, lasting: true, bounded: true, needs: overrides,
		effect: leaves("it is in no list, and its heartbeats are accepted"),
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: ofInstance(f) + "/quarantine", query: parameters(f, "for", f.Get("for"))}
		},
		command: func(f url.Values) command {
			return command{"quarantine", []string{keyText(f)}, append(forTime(f), said(f)...), ""}
		},
	},
	{
		name: "end-quarantine", button: "End the quarantine…", explained: true, title: titleOf("End the quarantine of", keyText), needs: overrides,
		effect: sentences("It is in the lists again at once, with the status that it reports."),
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: ofInstance(f) + "/quarantine", query: parameters(f)}
		},
		command: func(f url.Values) command {
			return command{"quarantine", []string{keyText(f)}, append([]string{"--end"}, said(f)...), ""}
		},
	},
	{
		name: "cancel", button: "Remove…", title: titleOf("Remove", keyText),
		needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.App, Name: keyIn(f).App, Verb: access.Register}}
		},
		effect: leaves("it is registered no more; if it still runs, its next heartbeat tells it to register again"),
		call: func(f url.Values) request {
			key := keyIn(f)
			return request{method: http.MethodDelete, path: "/eureka/v2/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)}
		},
		command: func(f url.Values) command { return command{"cancel", []string{keyText(f)}, nil, ""} },
	},
	{
		name: "release", button: "Release…", explained: true, title: titleOf("Let evictions go on", nil), reasoned: true, needs: operates, effect: releases,
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/self-preservation/release", query: parameters(f)}
		},
		command: func(f url.Values) command { return command{"self-preservation release", nil, said(f), ""} },
		back:    func(url.Values) string { return "/" },
	},
	{
		name: "hold", button: "Hold…", explained: true, title: titleOf("Hold evictions", nil), reasoned: true, lasting: true, bounded: true, needs: operates,
		effect: sentences("No lease ends until the time has passed, or somebody releases it."),
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/self-preservation/hold", query: parameters(f, "for", f.Get("for"))}
		},
		command: func(f url.Values) command {
			return command{"self-preservation hold", nil, append(forTime(f), said(f)...), ""}
		},
		back: func(url.Values) string { return "/" },
	},
	peerAct("pause", "Pause…", "Pause the sending to", http.MethodPost, "Nothing is sent there until somebody resumes it. Changes wait here, and what comes from there is received."),
	peerAct("resume", "Resume…", "Resume the sending to", http.MethodPost, "What has waited is sent at once, and compared where too much has."),
	peerAct("repair", "Repair…", "Repair", http.MethodPost, "What the peer lacks or has older is sent, and what it should not have is removed there."),
	{
		name: "transfer", button: "Make it lead…", title: titleOf("Hand leadership to", field("node")), needs: operates,
		effect: sentences("Writes wait while leadership moves, for about a second. Nothing is lost."),
		call: func(f url.Values) request {
			return request{method: http.MethodPost, path: "/v1/rollcall/transfer", query: parameters(f, "to", f.Get("node"))}
		},
		command: func(f url.Values) command { return command{"members transfer", []string{f.Get("node")}, nil, ""} },
		back:    func(url.Values) string { return "/ui/nodes" },
	},
	{
		name: "remove-node", button: "Remove…", explained: true, title: titleOf("Remove from the cluster", field("node")), reasoned: true, needs: operates, effect: removesNode,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: "/v1/rollcall/members/" + url.PathEscape(f.Get("node")), query: parameters(f)}
		},
		command: func(f url.Values) command { return command{"members remove", []string{f.Get("node")}, said(f), ""} },
		back:    func(url.Values) string { return "/ui/nodes" },
	},
	{
		name: "end-session", button: "End…", title: titleOf("End session", field("session")), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.Session, Name: f.Get("session"), Verb: access.Write}}
		},
		effect: endsSession,
		call: func(f url.Values) request {
			return request{method: http.MethodDelete, path: "/v1/rollcall/sessions/" + url.PathEscape(f.Get("session"))}
		},
		command: func(f url.Values) command { return command{"session destroy", []string{f.Get("session")}, nil, ""} },
		back:    func(url.Values) string { return "/ui/held" },
	},
	{
		name: "set-key", button: "Change…", title: titleOf("Change key", field("key")), needs: func(f url.Values) []access.Need {
			return []access.Need{{Resource: access.KV, Name: f.Get("key"), Verb: access.Write}}
		},
		effect: sentences("Programs that watch the key see the new value at once."), fields: valueField, open: openKey, check: checkKey,
		call: func(f url.Values) request {
			return request{method: http.MethodPut, path: "/v1/kv/" + keyPath(f.Get("key")), query: keyQuery(f), body: valueOf(f)}
		},
		command: keyCommand,
		back:    func(f url.Values) string { return withQuery("/ui/keys", "key", f.Get("key")) },
	},
}

// peerAct returns an act on a peer.
func peerAct(name, button, verb, method, effect string) act {
	return act{
		name: name, button: button, explained: name != "repair", title: titleOf(verb, field("peer")), reasoned: name == "pause", needs: operates, effect: sentences(effect),
		call: func(f url.Values) request {
			return request{method: method, path: "/v1/rollcall/peers/" + url.PathEscape(f.Get("peer")) + "/" + name, query: parameters(f)}
		},
		command: func(f url.Values) command {
			words := command{"peers " + name, []string{f.Get("peer")}, said(f), ""}
			if name == "repair" {
				words.flags = nil
			}
			return words
		},
		back: func(url.Values) string { return "/ui/peers" },
	}
}

func titleOf(verb string, of func(f url.Values) string) func(f url.Values) string {
	return func(f url.Values) string {
		if of == nil {
			return verb
		}
		return verb + " " + of(f)
	}
}

func field(name string) func(f url.Values) string {
	return func(f url.Values) string { return f.Get(name) }
}

func keyText(f url.Values) string { return keyIn(f).String() }

// parameters returns the parameters of a call: who acts and why, and other pairs.
func parameters(f url.Values, pairs ...string) url.Values {
	query := url.Values{}
	setGiven(query, append(pairs, "author", f.Get("author"), "reason", f.Get("reason"))...)
	return query
}

// said returns the flags for who acts and why.
func said(f url.Values) (flags []string) {
	if reason := f.Get("reason"); reason != "" {
		flags = append(flags, "--reason", reason)
	}
	if author := f.Get("author"); author != "" {
		flags = append(flags, "--author", author)
	}
	return flags
}

func forTime(f url.Values) []string {
	if f.Get("for") == "" {
		return nil
	}
	return []string{"--for", f.Get("for")}
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
			effect = append(effect, fmt.Sprintf("It is %s now; %d of %d instances of %s are UP.", shownWord(l), up, all, key.App))
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

func shownWord(l *registry.Lease) string {
	if l.Quarantine != nil {
		return "in quarantine"
	}
	return l.Instance.Status.String()
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
		plural(int(p.Figures.Expired), "instance"), plural(apps, "application"), isAre(int(p.Figures.Expired))),
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
