package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// truth is a state of the cluster that people have to know of.
type truth struct {
	name  string
	style style
	say   func(m *model, now time.Time) string // "": it is not so
}

// truths are the states, the worst first. The first that holds is the line of state, and the others that are no good news
// need attention.
var truths = []truth{
	{"no server responds", bad, (*model).sayLost},
	{"loading", warn, (*model).sayLoading},
	{"no leader", bad, (*model).sayLeaderless},
	{"two clusters", bad, (*model).sayForeign},
	{"self-preservation", warn, (*model).sayPreserving},
	{"no failure tolerated", warn, (*model).sayDegraded},
	{"link cut", warn, (*model).sayLinks},
	{"another server", warn, (*model).sayMoved},
	{"no stream", warn, (*model).sayBroken},
	{"young leader", warn, (*model).sayYoung},
	{"zone", warn, func(m *model, _ time.Time) string { return m.last.status.Warning }},
	{"empty", plain, (*model).sayEmpty},
	{"without consensus", good, (*model).sayWithoutConsensus},
	{"well", good, (*model).sayWell},
}

// holding are the truths of this moment as lines, at least one.
func (m *model) holding(now time.Time) (lines []line) {
	if m.last.server == "" && m.lostSince.IsZero() {
		return []line{{"Asking " + strings.Join(m.servers, ", ") + " …", dim}}
	}
	for _, t := range truths {
		if text := t.say(m, now); text != "" {
			lines = append(lines, line{text, t.style})
		}
	}
	return lines
}

func (m *model) sayLost(now time.Time) string {
	if m.lostSince.IsZero() {
		return ""
	}
	var causes []string
	for _, f := range m.failures {
		causes = append(causes, f.server+" ("+f.err.Error()+")")
	}
	text := fmt.Sprintf("No answer from any server since %s: %s. Trying again.", clock(m.lostSince), strings.Join(causes, ", "))
	if m.last.server != "" {
		text += fmt.Sprintf(" You see what %s knew %s ago.", m.last.status.Node, seconds(now.Sub(m.last.at)))
	}
	return text
}

func (m *model) sayLoading(time.Time) string {
	if m.last.server == "" || m.last.status.Ready {
		return ""
	}
	return fmt.Sprintf("%s is loading its state and answers no fetch yet.", m.last.status.Node)
}

func (m *model) sayLeaderless(time.Time) string {
	s := m.last.status
	if s.Condition != "leaderless" {
		return ""
	}
	var respond, others []string
	for _, n := range s.Nodes {
		if n.Role != "unreachable" {
			respond = append(respond, n.ID)
		} else if n.ID != s.Node {
			others = append(others, n.ID)
		}
	}
	if len(others) > 0 && len(others) == len(s.Nodes)-1 {
		return fmt.Sprintf("%s is cut off from the others, or they are down: %s. Others may go on without it. %s", s.Node, strings.Join(others, ", "), s.Summary)
	}
	return fmt.Sprintf("%s You see what %s knew. Nodes that answer: %s.", s.Summary, s.Node, strings.Join(respond, ", "))
}

func (m *model) sayForeign(time.Time) string {
	var names []string
	for _, f := range m.last.status.Foreign {
		names = append(names, fmt.Sprintf("%s at %s (cluster %s)", f.ID, f.Address, f.ClusterID))
	}
	if names == nil {
		return ""
	}
	return "Nodes of another cluster are where this one looks for its own: " + strings.Join(names, ", ") + "."
}

func (m *model) sayPreserving(time.Time) string {
	switch p := m.last.preserving; p.State {
	case "on", "held", "released":
		return p.Reason
	}
	return ""
}

func (m *model) sayDegraded(time.Time) string {
	if m.last.status.Condition != "degraded" {
		return ""
	}
	return m.last.status.Summary
}

func (m *model) sayLinks(time.Time) string {
	var texts []string
	for _, p := range m.last.peers.Peers {
		switch {
		case p.Incoming != nil && p.Incoming.Cut:
			texts = append(texts, fmt.Sprintf("%s is not heard%s. Its %d instances stay listed (policy: %s); %d changes wait here.",
				p.Name, silence(p.Incoming.HeardMS), p.Incoming.Instances, p.Incoming.OnCut, p.LagChanges))
		case p.State == "failing":
			texts = append(texts, fmt.Sprintf("%s cannot be told: %s. %d changes wait here.", p.Name, cmp.Or(p.Reason, "no reason is known"), p.LagChanges))
		}
	}
	return strings.Join(texts, " ")
}

func silence(heardMS *int64) string {
	if heardMS == nil {
		return " at all"
	}
	return " for " + seconds(milliseconds(*heardMS))
}

func (m *model) sayMoved(time.Time) string {
	var silent []string
	for _, name := range m.servers { // in one order
		if since := m.silentSince[name]; !since.IsZero() && name != m.last.server {
			silent = append(silent, fmt.Sprintf("%s since %s", name, clock(since)))
		}
	}
	if silent == nil || !m.lostSince.IsZero() {
		return ""
	}
	return fmt.Sprintf("No answer from %s. %s is asked instead.", strings.Join(silent, ", "), m.last.server)
}

func (m *model) sayBroken(time.Time) string {
	if m.brokenSince.IsZero() {
		return ""
	}
	return fmt.Sprintf("No changes come since %s (%s). The next server is tried.", clock(m.brokenSince), m.brokenReason)
}

// youngFor is how long a change of the leader is shown.
const youngFor = 30 * time.Second

func (m *model) sayYoung(now time.Time) string {
	if m.leaderSince.IsZero() || now.Sub(m.leaderSince) >= youngFor {
		return ""
	}
	return fmt.Sprintf("%s has led for %s, after %s.", m.leader, seconds(now.Sub(m.leaderSince)), m.formerLeader)
}

func (m *model) sayEmpty(time.Time) string {
	f := m.last.figures
	if !f.known || f.up+f.notUp > 0 {
		return ""
	}
	return "No service is registered yet. Register one: rollcall register orders --port 8080 --heartbeat --addr " + m.last.server
}

func (m *model) sayWithoutConsensus(time.Time) string {
	s := m.last.status
	if s.Mode != "ap" || s.Condition != "well" {
		return ""
	}
	return "Mode ap: each node answers from what it has. " + s.Summary
}

func (m *model) sayWell(time.Time) string {
	s := m.last.status
	if s.Condition != "well" || s.Mode == "ap" {
		return ""
	}
	return fmt.Sprintf("%s %s leads; %s nodes answer.", s.Summary, s.Leader, m.responding())
}

// responding is how many nodes respond, of how many.
func (m *model) responding() string {
	respond := 0
	for _, n := range m.last.status.Nodes {
		if n.Role != "unreachable" && n.Role != "stopped" {
			respond++
		}
	}
	return fmt.Sprintf("%d of %d", respond, len(m.last.status.Nodes))
}

// mostTroubles is how many things that need attention are shown at most.
const mostTroubles = 10

// attention is what needs attention besides the line of state, at most ten lines, the worst first.
func (m *model) attention(further []line) []line {
	all := slices.DeleteFunc(slices.Clone(further), func(l line) bool { return l.style == good || l.style == plain })
	for _, found := range [][]string{m.withoutUp(), m.halved(), m.lateApps(), m.fullDisks(), m.versions(), m.last.gaps} {
		for _, text := range found {
			all = append(all, line{text, warn})
		}
	}
	if len(all) > mostTroubles {
		more := len(all) - mostTroubles + 1
		all = append(all[:mostTroubles-1], line{fmt.Sprintf("… and %d more", more), warn})
	}
	return all
}

// withoutUp are the applications without an instance that is UP, also those of which none is listed any more.
func (m *model) withoutUp() (texts []string) {
	listed := map[string]bool{}
	for _, app := range m.last.figures.apps {
		listed[app.name] = true
		if app.up == 0 {
			texts = append(texts, fmt.Sprintf("%s: 0 of %d UP", app.name, app.all))
		}
	}
	for name, app := range m.seen {
		if !listed[name] && app.most > 0 {
			texts = append(texts, fmt.Sprintf("%s: no instance is listed any more, %d were UP", name, app.most))
		}
	}
	slices.Sort(texts)
	return texts
}

// halved are the applications of which at most half as many instances are UP as were.
func (m *model) halved() (texts []string) {
	for _, app := range m.last.figures.apps {
		if most := max(m.seen[app.name].most, app.all); app.up > 0 && 2*app.up <= most {
			texts = append(texts, fmt.Sprintf("%s: %d of %d UP", app.name, app.up, most))
		}
	}
	return texts
}

// lateApps are the applications with leases that are overdue, those with most first.
func (m *model) lateApps() (texts []string) {
	_, byApp := m.overdue()
	var late []client.AppFigures
	for _, app := range byApp {
		late = append(late, app)
	}
	slices.SortFunc(late, func(a, b client.AppFigures) int {
		return cmp.Or(cmp.Compare(b.Counted-b.Fresh, a.Counted-a.Fresh), cmp.Compare(a.App, b.App))
	})
	for _, app := range late {
		text := fmt.Sprintf("%s: %d of %d leases are overdue", app.App, app.Counted-app.Fresh, app.Counted)
		if len(app.Overdue) > 0 {
			text += fmt.Sprintf(", %s for %s", app.Overdue[0].ID, seconds(milliseconds(app.Overdue[0].SilentMS)))
		}
		texts = append(texts, text)
	}
	return texts
}

// littleDisk is how many bytes are so few that a disk needs attention.
const littleDisk = 1 << 30

func (m *model) fullDisks() (texts []string) {
	for _, n := range m.last.status.Nodes {
		if n.DiskFree > 0 && n.DiskFree < littleDisk {
			texts = append(texts, fmt.Sprintf("%s: its disk has %s left", n.ID, gigabytes(n.DiskFree)))
		}
	}
	return texts
}

// versions is a text if the nodes' programs differ.
func (m *model) versions() []string {
	byVersion := map[string][]string{}
	for _, n := range m.last.status.Nodes {
		if n.Version != "" {
			byVersion[n.Version] = append(byVersion[n.Version], n.ID)
		}
	}
	if len(byVersion) < 2 {
		return nil
	}
	var texts []string
	for version, nodes := range byVersion {
		texts = append(texts, version+" ("+strings.Join(nodes, ", ")+")")
	}
	slices.Sort(texts)
	return []string{"the nodes' versions differ: " + strings.Join(texts, ", ")}
}
