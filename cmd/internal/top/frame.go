package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// section is one part of a frame: its header, and rows, some of which a small terminal shows.
type section struct {
	head        line
	rows        []line
	least, most int // rows that are shown in a frame with little and with much room
	scrolls     bool
}

// mostStateLines is the most lines that the line of state can take on a terminal.
const mostStateLines = 3

// frame returns the lines of a frame of at most width columns and height lines; 0 means no limit. Names chosen by
// others pass cli.Printable here, so that nothing drives the terminal.
func (m *model) frame(now time.Time, width, height int) []line {
	states := m.holding(now)
	state := []line{states[0]}
	if width > 0 {
		state = wrap(states[0], width, mostStateLines)
	}
	lines := append([]line{m.title(now)}, state...)
	lines = append(lines, m.figureLines()...)
	switch {
	case m.help && height > 0:
		lines = append(lines, helpLines...)
	default:
		lines = append(lines, m.body(m.sections(states[1:]), height-len(lines)-1, height > 0)...)
	}
	if height > 0 {
		lines = lines[:min(len(lines), height-1)]
		for len(lines) < height-1 {
			lines = append(lines, line{})
		}
		lines = append(lines, m.footer())
	}
	for i, l := range lines {
		lines[i].text = clip(printable(l.text), width)
	}
	return lines
}

func (m *model) title(now time.Time) line {
	status := m.last.overview.Status
	parts := []string{"rollcall top"}
	for _, part := range []string{status.Datacenter, status.Mode, m.last.server} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if status.Node != "" {
		parts[len(parts)-1] += " (" + status.Node + ")"
	}
	return line{strings.Join(append(parts, clock(now)), "  "), head}
}

// figureLines returns the figures of the overview. Before the first response none is known.
func (m *model) figureLines() []line {
	o, said := m.last.overview, m.last.server != ""
	f := o.Figures
	instances := fmt.Sprintf("%d UP, %d not UP", f.Up, f.NotUp)
	return []line{
		{fmt.Sprintf("Instances %s   Applications %s   Overdue leases %s", shown(said, instances), shown(said, f.Apps), shown(f.SampledMS != 0, f.Overdue)), plain},
		{fmt.Sprintf("Changes a minute %s   Writes a second %s, p99 %s   Watchers %s", decimal(f.Changes), decimal(f.Writes), latency(f.WriteP99), shown(said, f.Watchers)), plain},
		{fmt.Sprintf("Self-preservation %s   Nodes %s   Peers %s", cmp.Or(o.SelfPreservation.State, "?"), shown(said, m.responding()), shown(said, m.peersOK())), plain},
	}
}

// responding returns how many nodes respond, and of how many.
func (m *model) responding() string {
	respond := 0
	for _, n := range m.last.overview.Status.Nodes {
		if n.Answers() {
			respond++
		}
	}
	return fmt.Sprintf("%d of %d", respond, len(m.last.overview.Status.Nodes))
}

func (m *model) peersOK() string {
	all := m.last.overview.Peers.Peers
	if len(all) == 0 {
		return "none"
	}
	ok := 0
	for _, p := range all {
		if p.State == "ok" || p.State == "idle" {
			ok++
		}
	}
	return fmt.Sprintf("%d of %d ok", ok, len(all))
}

// sections returns the parts of a frame below the figures, in order.
func (m *model) sections(further []line) []section {
	all := []section{m.nodes()}
	if len(m.last.overview.Peers.Peers) > 0 {
		all = append(all, m.peers())
	}
	troubles := section{head: line{"NEEDS ATTENTION", head}, rows: m.attention(further), least: 2, most: mostTroubles}
	if len(troubles.rows) == 0 {
		troubles.rows = []line{{"nothing", dim}}
	}
	return append(all, troubles, m.apps(), m.recent())
}

func (m *model) nodes() section {
	cells := [][]string{{"NODE", "ROLE", "VERSION", "CONTACT", "LAG", "DISK FREE", "ZONE"}}
	for _, n := range m.last.overview.Status.Nodes {
		contact, disk, lag := "", "", strconv.FormatUint(n.Lag, 10)
		if n.Contact != 0 {
			contact = milliseconds(n.Contact).String() + " ago"
		}
		if n.DiskFree != 0 {
			disk = gigabytes(n.DiskFree)
		}
		if n.Role == "unreachable" {
			lag = ""
		}
		cells = append(cells, []string{n.ID, n.Role, n.Version, contact, lag, disk, n.Zone})
	}
	s := tableOf(cells, 3, 9)
	for i, n := range m.last.overview.Status.Nodes {
		if !n.Answers() || n.Role == "candidate" {
			s.rows[i].style = bad
		}
	}
	return s
}

func (m *model) peers() section {
	cells := [][]string{{"PEER", "KIND", "STATE", "LAG", "BEHIND BY", "LINK"}}
	for _, p := range m.last.overview.Peers.Peers {
		link := ""
		if p.Incoming != nil {
			link = "up"
			if p.Incoming.Cut {
				link = "cut"
			}
		}
		cells = append(cells, []string{p.Name, p.Kind, p.State, strconv.FormatUint(p.LagChanges, 10), seconds(milliseconds(p.LagMS)), link})
	}
	s := tableOf(cells, 1, 5)
	for i, p := range m.last.overview.Peers.Peers {
		if p.State == "failing" || p.Incoming != nil && p.Incoming.Cut {
			s.rows[i].style = warn
		}
	}
	return s
}

// apps returns the section that scrolls, in the server's order. Names come last, because they can be long.
func (m *model) apps() section {
	o := m.last.overview
	cells := [][]string{{"UP", "ALL", "OVERDUE", "APPLICATION"}}
	for _, app := range o.Apps {
		cells = append(cells, []string{strconv.Itoa(app.Up), strconv.Itoa(app.All), strconv.Itoa(app.Overdue), app.App})
	}
	s := tableOf(cells, 3, mostApps)
	for i, app := range o.Apps {
		if app.Up == 0 {
			s.rows[i].style = bad
		} else if app.Up < app.All {
			s.rows[i].style = warn
		}
	}
	if more := o.Figures.Applications - len(o.Apps); more > 0 {
		s.rows = append(s.rows, line{fmt.Sprintf("… and %d more, which a filter shows", more), dim})
	}
	s.scrolls = true
	if m.last.part != "" {
		s.head.text += fmt.Sprintf("  (%d have %q in their names)", o.Figures.Applications, m.last.part)
	}
	return s
}

// recent returns the section of the last changes, newest first.
func (m *model) recent() section {
	s := section{head: line{"LAST CHANGES", head}, least: 3, most: keptChanges}
	var cells [][]string
	for _, c := range m.changes {
		name := ""
		if c.app != "" {
			name = c.app + "/" + c.id
		}
		cells = append(cells, []string{clock(c.at), c.action, c.status, c.why, name})
	}
	for _, text := range align(cells) {
		s.rows = append(s.rows, line{text, plain})
	}
	if s.rows == nil {
		s.rows = []line{{"none yet", dim}}
	}
	return s
}

// tableOf makes a section from a table, whose first row is the header.
func tableOf(cells [][]string, least, most int) section {
	texts := align(cells)
	s := section{head: line{texts[0], head}, least: least, most: most}
	for _, text := range texts[1:] {
		s.rows = append(s.rows, line{text, plain})
	}
	return s
}

// body returns the lines of the sections: all of them, or as many as there is room for.
func (m *model) body(sections []section, room int, limited bool) (lines []line) {
	if !limited {
		for _, s := range sections {
			lines = append(lines, line{}, s.head)
			lines = append(lines, s.rows...)
		}
		return lines
	}
	for i, given := range allot(sections, room) {
		lines = append(lines, m.part(sections[i], given)...)
	}
	return lines
}

// allot distributes the lines of a frame: first each section, in order, gets its header and the least of its rows,
// then all in turn get more.
func allot(sections []section, room int) []int {
	given := make([]int, len(sections))
	for i, s := range sections {
		given[i] = max(0, min(room, 1+min(s.least, len(s.rows))))
		room -= given[i]
	}
	for grown := true; grown; {
		grown = false
		for i, s := range sections {
			if room > 0 && given[i] < 1+min(s.most, len(s.rows)) {
				given[i]++
				room--
				grown = true
			}
		}
	}
	return given
}

// part returns as much of a section as there are lines for it.
func (m *model) part(s section, given int) []line {
	if given == 0 {
		return nil
	}
	shown, rows := given-1, s.rows
	if s.scrolls {
		m.page = shown
		m.offset = max(0, min(m.offset, len(rows)-shown))
		if len(rows) > shown {
			s.head.text += fmt.Sprintf("  %d-%d of %d", m.offset+1, m.offset+shown, len(rows))
		}
		rows = rows[m.offset:min(m.offset+shown, len(rows))]
	} else if shown > 0 && len(rows) > shown {
		more := line{fmt.Sprintf("… and %d more", len(rows)-shown+1), dim}
		rows = append(rows[:shown-1:shown-1], more)
	}
	return append([]line{s.head}, rows[:min(shown, len(rows))]...)
}

// helpLines say what keys do.
var helpLines = []line{
	{},
	{"q, Ctrl-C     quit", plain},
	{"/             filter the applications by a part of their names: Enter keeps it, Esc clears it", plain},
	{"arrows, j, k  scroll the applications; so do Page Up and Down, Home and End", plain},
	{"?             this help", plain},
}

func (m *model) footer() line {
	switch {
	case m.typing:
		return line{"Filter: " + m.filter + "_   Enter keeps it   Esc clears it", head}
	case m.filter != "":
		return line{"Filter: " + m.filter + "   / changes it   Esc clears it   q quit   ? help", dim}
	}
	return line{"q quit   / filter   ↑↓ scroll   ? help", dim}
}
