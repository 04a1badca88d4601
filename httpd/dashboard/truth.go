package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
)

// truth is the status line that every page has: the worst that is known of the cluster, and what to do about it.
type truth struct {
	level string // well, warn or bad
	bold  string // the words that must not be missed
	words string
	links []linked
	times map[string]time.Time // times in the words, keyed by their text
}

type linked struct{ words, path string }

// facts are the source of the status line.
type facts struct {
	now          time.Time
	node         string
	scheme       string // of the nodes' addresses: http or https
	alone        bool   // each node decides on its own (mode ap)
	health       registry.Health
	seen         seen
	preservation api.SelfPreservation
	instances    int
	// The reader may not read about the nodes, or about all applications: the line names no nodes, or gives no counts.
	withoutNodes, withoutCounts bool
	times                       map[string]time.Time // written by clock
}

// truths are the rules of the line, worst first: the first one that applies is the truth.
var truths = []func(f *facts) *truth{loading, leaderless, foreign, preserving, linkCut, failing, young, nothingRegistered, serving, well}

// truthOf returns the truth about the facts.
func truthOf(f *facts) truth {
	for _, rule := range truths {
		if t := rule(f); t != nil {
			t.times = f.times
			return *t
		}
	}
	return truth{} // unreachable: well always applies
}

func loading(f *facts) *truth {
	if f.health.Ready {
		return nil
	}
	return &truth{level: "bad", bold: "Loading.", words: "This node is loading its state and answers no fetch yet.", links: f.otherNodes()}
}

// leaderless applies to a node that hears no leader: if other nodes answer it, the leader is missing; if none does,
// this node may be the one that is cut off.
func leaderless(f *facts) *truth {
	if f.alone || f.health.Quorum {
		return nil
	}
	since := ""
	if !f.seen.leaderless.IsZero() {
		since = " since " + f.clock(f.seen.leaderless)
	}
	age := own.Span(f.health.Age.Milliseconds())
	if f.withoutNodes {
		return &truth{level: "bad", bold: "No leader" + since + ".",
			words: fmt.Sprintf("Nothing can be registered or removed, and no lease ends. You see what %s knew %s ago.", f.node, age)}
	}
	answers, silent, voters := f.voters()
	if len(answers) == 0 && voters > 1 {
		return &truth{level: "bad", bold: "This node is cut off from the others" + since + ".",
			words: fmt.Sprintf("Others may go on without it. You see what %s knew %s ago.", f.node, age), links: f.otherNodes()}
	}
	words := fmt.Sprintf("Nothing can be registered or removed, and no lease ends. You see what %s knew %s ago. Nodes that answer: %s.",
		f.node, age, strings.Join(append(answers, f.node), ", "))
	if missing := voters/2 + 1 - len(answers) - 1; missing > 0 && len(silent) > 0 {
		words += fmt.Sprintf(" Missing for a majority: %s of %s.", numeral(missing), strings.Join(silent, ", "))
	}
	return &truth{level: "bad", bold: "No leader" + since + ".", words: words, links: f.otherNodes()}
}

// foreign reports nodes of another cluster at addresses where this one looks for its own.
func foreign(f *facts) *truth {
	var names []string
	for _, n := range f.seen.status.Foreign {
		names = append(names, fmt.Sprintf("%s at %s (cluster %s)", n.ID, n.Address, n.ClusterID))
	}
	if names == nil {
		return nil
	}
	return &truth{level: "bad", bold: "Two clusters.", words: "This cluster's join addresses reach nodes of another one: " + strings.Join(names, ", ") + ".", links: []linked{{"Nodes", "/ui/nodes"}}}
}

// voters returns the other nodes with a vote, those that answer and those that do not, and the number of votes.
func (f *facts) voters() (answers, silent []string, votes int) {
	for _, n := range f.seen.status.Nodes {
		if !n.Voter {
			continue
		}
		votes++
		switch {
		case n.ID == f.node:
		case !n.Answers():
			silent = append(silent, n.ID)
		default:
			answers = append(answers, n.ID)
		}
	}
	return answers, silent, votes
}

func preserving(f *facts) *truth {
	p := f.preservation
	withheld, late, fresh := " "+plural(int(p.Withheld), "eviction")+" "+agree(int(p.Withheld), "is", "are")+" withheld.",
		fmt.Sprintf("%d of %d leases", p.Figures.Counted-p.Figures.Fresh, p.Figures.Counted), fmt.Sprintf("only %d of %d", p.Figures.Fresh, p.Figures.Counted)
	if f.withoutCounts {
		withheld, late, fresh = "", "too many leases of all applications", "too few"
	}
	until := ""
	if p.Until != 0 {
		until = ", or " + f.clock(timeOf(p.Until))
	}
	links := []linked{{"Who is overdue", "/ui/apps?filter=overdue"}, {"Release…", actPath("release", nil)}, {"Hold…", actPath("hold", nil)}}
	switch p.State {
	case registry.PreservationOn.String():
		return &truth{level: "warn", bold: "Self-preservation is on since " + f.clock(timeOf(p.Since)) + ":",
			words: fmt.Sprintf("%s were not renewed in time. Nothing is removed until they return, somebody releases it%s.%s", late, until, withheld), links: links}
	case registry.PreservationHeld.String():
		return &truth{level: "warn", bold: "Evictions are held since " + f.clock(timeOf(p.Since)),
			words: fmt.Sprintf("by %s%s, until %s.%s", p.Author, inBrackets(p.Note), f.clock(timeOf(p.Until)), withheld), links: links[:2]}
	case registry.PreservationReleased.String():
		by := "after it was on for as long as it may be"
		if p.Author != "" {
			by = "by " + p.Author + inBrackets(p.Note)
		}
		return &truth{level: "warn", bold: "Self-preservation was released",
			words: fmt.Sprintf("%s at %s: leases end although %s were renewed in time.", by, f.clock(timeOf(p.Since)), fresh),
			links: append(links[:1:1], links[2])}
	}
	return nil
}

func linkCut(f *facts) *truth {
	for _, p := range f.seen.peers.Peers {
		in := p.Incoming
		if in == nil || !in.Cut {
			continue
		}
		heard := "was never heard."
		if in.HeardMS != nil {
			heard = "is not heard since " + f.clock(f.now.Add(-time.Duration(*in.HeardMS)*time.Millisecond)) + "."
		}
		then := "stay listed"
		if in.OnCut == "expire" {
			then = "are removed when their leases end"
		}
		words := fmt.Sprintf("Its %s %s (policy: %s)", plural(in.Instances, "instance"), then, in.OnCut)
		if p.LagChanges > 0 {
			words += fmt.Sprintf("; %s here", waits(p.LagChanges))
		}
		return &truth{level: "warn", bold: p.Name + " " + heard, words: words + ".", links: []linked{{"Peers", "/ui/peers"}}}
	}
	return nil
}

func waits(changes uint64) string {
	return plural(int(changes), "change") + " " + agree(int(changes), "waits", "wait")
}

// failing reports nodes that do not answer, or are far behind, while there is a majority.
func failing(f *facts) *truth {
	if f.seen.status.Condition != "degraded" {
		return nil
	}
	links := []linked{{"Nodes", "/ui/nodes"}, {"What to do", runbook("ToleranceGone")}}
	_, silent, votes := f.voters()
	if f.alone {
		silent = nil
		for _, n := range f.seen.status.Nodes {
			if !n.Answers() {
				silent = append(silent, n.ID)
			}
		}
	}
	if len(silent) == 0 {
		return &truth{level: "warn", words: f.seen.status.Summary, links: links}
	}
	var parts []string
	for _, name := range silent {
		part := name + " does not answer"
		if since, known := f.seen.silent[name]; known {
			part += " since " + f.clock(since)
		}
		parts = append(parts, part)
	}
	words := "The other nodes go on; it is told everything when it is back."
	if !f.alone {
		words = fmt.Sprintf("Everything works, and %s.", api.MayFail(max(votes-len(silent)-(votes/2+1), 0), "further "))
	}
	return &truth{level: "warn", bold: strings.Join(parts, ", ") + ".", words: words, links: links}
}

// young applies to a leader, or a node without consensus, that started too recently to know which instances are alive.
func young(f *facts) *truth {
	if !f.health.Suspended || !(f.health.Leads || f.alone) {
		return nil
	}
	who := f.node + " leads"
	if f.alone {
		who = f.node + " is ready"
	}
	if !f.seen.leading.IsZero() {
		who += " for " + own.Span(f.now.Sub(f.seen.leading).Truncate(time.Second).Milliseconds())
	}
	return &truth{level: "warn", words: who + ", too short a time to know which instances are alive. No lease ends yet."}
}

func nothingRegistered(f *facts) *truth {
	if f.instances > 0 {
		return nil
	}
	return &truth{level: "well", bold: "No service is registered yet.", words: "Register one: rollcall register orders --port 8080 --heartbeat.",
		links: []linked{{"How it finds this registry", "/"}}}
}

// serving applies to a healthy node without consensus.
func serving(f *facts) *truth {
	if !f.alone {
		return nil
	}
	var behind []string
	for _, p := range f.seen.peers.Peers {
		if p.Kind == "node" && p.LagChanges > 0 {
			behind = append(behind, fmt.Sprintf("%s lacks %d", p.Name, p.LagChanges))
		}
	}
	if f.withoutNodes {
		return &truth{level: "well", bold: "Mode ap:", words: "Each node answers from what it has."}
	}
	words := "Each node answers from what it has. The others know everything that this node knows."
	if len(behind) > 0 {
		words = "Each node answers from what it has. Of this node's changes, " + strings.Join(behind, ", ") + "."
	}
	if len(f.seen.status.Nodes) < 2 {
		words = "This node runs alone."
	}
	return &truth{level: "well", bold: "Mode ap:", words: words}
}

func well(f *facts) *truth {
	s := f.seen.status
	if f.withoutNodes {
		return &truth{level: "well", bold: "Healthy.", words: f.node + " hears a leader, and answers from what the cluster has."}
	}
	if len(s.Nodes) < 2 {
		return &truth{level: "well", bold: "Healthy.", words: "This node runs alone: if it fails, nothing is there."}
	}
	answers, _, votes := f.voters()
	words := fmt.Sprintf("%s leads; %d of %d nodes agree; %s.", dash(s.Leader), len(answers)+1, votes, api.MayFail(len(answers)+1-(votes/2+1), ""))
	t := &truth{level: "well", bold: "Healthy.", words: words}
	if s.Warning != "" {
		t.level, t.words = "warn", words+" "+s.Warning
	}
	return t
}

// otherNodes returns links to the dashboards of the other nodes.
func (f *facts) otherNodes() (links []linked) {
	for _, n := range f.seen.status.Nodes {
		if n.ID != f.node && n.HTTP != "" {
			links = append(links, linked{n.ID, f.scheme + "://" + n.HTTP + "/"})
		}
	}
	return slices.Clip(links)
}

// text returns the line as plain text.
func (t *truth) text() string { return strings.TrimSpace(t.bold + " " + t.words) }

// node shows the line.
func (t *truth) node() g.Node {
	return el("div", attr("id", "truth"), class("truth "+t.level), attr("role", "status"),
		el("p", g.If(t.bold != "", g.Group{el("strong", timed(t.bold, t.times)), text(" ")}), timed(t.words, t.times)),
		g.If(len(t.links) > 0, el("p", class("links"), g.Map(t.links, func(l linked) g.Node { return link(l.path, l.words) }))))
}

// clock formats a time for the line, in UTC; on another day with the date.
func (f *facts) clock(at time.Time) string {
	at = at.UTC()
	words := clock(at) + "Z"
	if at.Format(time.DateOnly) != f.now.UTC().Format(time.DateOnly) {
		words = at.Format(time.DateOnly) + " " + words
	}
	if f.times == nil {
		f.times = make(map[string]time.Time)
	}
	f.times[words] = at
	return words
}

// timed shows words whose times a script replaces by the reader's.
func timed(words string, times map[string]time.Time) (all g.Group) {
	for words != "" {
		first, end, node := len(words), len(words), text("")
		for shown, at := range times {
			if i := strings.Index(words, shown); i >= 0 && i < first {
				first, end, node = i, i+len(shown), stamp(at, shown)
			}
		}
		all = append(all, text(words[:first]), node)
		words = words[end:]
	}
	return all
}

// clock formats a time of day, in UTC.
func clock(at time.Time) string { return at.UTC().Format(time.TimeOnly) }

func timeOf(wall int64) time.Time { return time.UnixMilli(wall).UTC() }

func inBrackets(words string) string {
	if words == "" {
		return ""
	}
	return " (" + words + ")"
}

// numeral returns a small number as a word.
func numeral(n int) string {
	if words := []string{"none", "one", "two", "three"}; n < len(words) {
		return words[n]
	}
	return fmt.Sprint(n)
}

// runbook returns where an alert's runbook is, which says what to do.
func runbook(alert string) string {
	return "https://github.com/seed-20419f34/rollcall/blob/main/docs/runbooks/" + alert + ".md"
}
