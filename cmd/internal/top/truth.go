package top

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"time"
)

// truth is a state that people must know about.
type truth struct {
	name string
	say  func(m *model, now time.Time) line // returns a line without text if it does not apply
}

// truths are what a server says of its cluster, and what no server can know: whether servers respond. The worst one
// that applies is the line of state; of equally bad ones, the first.
var truths = []truth{
	{"no server responds", (*model).sayLost},
	{"the server's line", (*model).sayLine},
	{"another server", (*model).sayMoved},
	{"no stream", (*model).sayBroken},
}

// levels are the styles of what a server says, by its level.
var levels = map[string]style{"well": good, "warn": warn, "bad": bad}

// holding returns the truths that apply now as lines, the worst first, at least one.
func (m *model) holding(now time.Time) (lines []line) {
	if m.last.server == "" && m.lostSince.IsZero() {
		return []line{{"Asking " + strings.Join(m.servers, ", ") + " …", dim}}
	}
	for _, t := range truths {
		if l := t.say(m, now); l.text != "" {
			lines = append(lines, l)
		}
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].style > lines[j].style })
	return lines
}

func (m *model) sayLost(now time.Time) line {
	if m.lostSince.IsZero() {
		return line{}
	}
	var causes []string
	for _, f := range m.failures {
		causes = append(causes, f.server+" ("+f.err.Error()+")")
	}
	text := fmt.Sprintf("No answer from any server since %s: %s. Trying again.", clock(m.lostSince), strings.Join(causes, ", "))
	if m.last.server != "" {
		text += fmt.Sprintf(" You see what %s knew %s ago.", cmp.Or(m.last.overview.Status.Node, m.last.server), seconds(now.Sub(m.last.at)))
	}
	return line{text, bad}
}

// sayLine returns the server's own line of state. A level that this program does not know counts as bad news.
func (m *model) sayLine(time.Time) line {
	if m.last.server == "" {
		return line{}
	}
	said := m.last.overview.Line
	return line{cmp.Or(said.Text, m.last.server+" does not say how the cluster is."), cmp.Or(levels[said.Level], warn)}
}

func (m *model) sayMoved(time.Time) line {
	var silent []string
	for _, name := range m.servers {
		if name == m.last.server {
			break // those after it would not be asked if they responded
		}
		if since := m.silentSince[name]; !since.IsZero() {
			silent = append(silent, fmt.Sprintf("%s since %s", name, clock(since)))
		}
	}
	if silent == nil || !m.lostSince.IsZero() {
		return line{}
	}
	return line{fmt.Sprintf("No answer from %s. %s is asked instead.", strings.Join(silent, ", "), m.last.server), warn}
}

func (m *model) sayBroken(time.Time) line {
	if m.brokenSince.IsZero() {
		return line{}
	}
	return line{fmt.Sprintf("No changes come since %s (%s). The next server is tried.", clock(m.brokenSince), m.brokenReason), warn}
}

// mostTroubles bounds the things that need attention and are shown.
const mostTroubles = 10

// attention returns what needs attention besides the line of state, in at most mostTroubles lines: the truths that
// are no good news, then what the server lists, the worst first.
func (m *model) attention(further []line) (all []line) {
	for _, l := range further {
		if l.style > good {
			all = append(all, l)
		}
	}
	for _, a := range m.last.overview.Attention {
		all = append(all, line{a.Text, cmp.Or(levels[a.Level], warn)})
	}
	if len(all) > mostTroubles {
		more := len(all) - mostTroubles + 1
		all = append(all[:mostTroubles-1], line{fmt.Sprintf("… and %d more", more), warn})
	}
	return all
}
