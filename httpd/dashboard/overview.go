package dashboard

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
)

// Maximum entries of the overview's lists.
const (
	mostAttention = 10
	mostRecent    = 10
)

// overview is GET /.
func (c call) overview(v *registry.View) (page, error) {
	apps := c.readable(c.monitor.tally.of(v, time.Now()))
	p := page{title: "Overview", here: "/", content: []g.Node{el("h1", class("hidden"), text("Overview")), c.doneNotice()}}
	if v.Total() == 0 {
		p.content = append(p.content, c.firstSteps())
	}
	if c.mayRead("") {
		p.content = append(p.content, c.figures(apps, c.World.Now()))
	} else {
		p.content = append(p.content, el("p", class("soft"), g.Textf("You may read %s, and see nothing of the others.", plural(len(apps), "application"))))
	}
	notices := c.attention(apps)
	shown := notices[:min(len(notices), mostAttention)]
	p.content = append(p.content,
		section("Needs attention", "",
			g.If(len(notices) == 0, el("p", class("empty"), text("Nothing."))),
			g.If(len(notices) > 0, el("ul", class("attention"), g.Map(shown, func(n notice) g.Node {
				return el("li", g.If(n.bad, class("bad")), link(n.path, upperFirst(n.words)))
			}))),
			more(len(notices)-len(shown))),
		section("Last changes", "", c.timelineTable(c.timeline(v, timelineFilter{most: mostRecent})), el("p", link("/ui/events", "All events"))))
	return p, nil
}

// readable keeps the applications that the caller may read.
func (c call) readable(apps []appCount) []appCount {
	if c.mayRead("") {
		return apps
	}
	return slices.DeleteFunc(apps, func(a appCount) bool { return !c.mayRead(a.Name) })
}

// figures shows the six figures, each with its last hour.
func (c call) figures(apps []appCount, now time.Time) g.Node {
	f := c.figuresOf(apps)
	history := c.monitor.history()
	tile := func(path, value, words, aside string, figure int) g.Node {
		return el("a", class("figure"), attr("href", path), el("b", text(value)), el("span", text(words)),
			g.If(aside != "", el("span", class("soft"), text(aside))), sparkline(words+" in the last hour", history, figure, now))
	}
	notUp := ""
	if f.NotUp > 0 {
		notUp = strconv.Itoa(f.NotUp) + " not UP"
	}
	return el("section", class("figures"), attr("aria-label", "Figures"),
		tile("/ui/apps", strconv.Itoa(f.Up), "instances UP", notUp, upInstances),
		tile("/ui/apps", strconv.Itoa(f.Apps), "applications", "", applications),
		tile("/ui/events", shownRate(f.Changes), "changes a minute", "", changesAMinute),
		tile("/ui/nodes", shownRate(f.Writes), "writes/s", p99(f.WriteP99), writesASecond),
		tile("/ui/apps", strconv.Itoa(f.Watchers), "watchers of this node", "", watchers),
		tile("/ui/apps?filter=overdue", strconv.Itoa(f.Overdue), "overdue leases", "", overdueLeases))
}

// shownRate formats a rate with few digits; nil means unknown.
func shownRate(rate *float64) string {
	switch {
	case rate == nil:
		return "–"
	case *rate < 10:
		return strconv.FormatFloat(math.Round(*rate*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(*rate), 'f', 0, 64)
}

// p99 formats a duration in seconds for people; empty if unknown.
func p99(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return "p99 " + time.Duration(*seconds*float64(time.Second)).Round(100*time.Microsecond).String()
}

// notice is something that needs somebody's attention.
type notice struct {
	rank  int // lower is worse
	words string
	path  string // of the screen about it
	app   string // that it concerns; empty for the cluster
	bad   bool
}

// attention lists what needs attention, worst first.
func (c call) attention(apps []appCount) []notice {
	notices := attentionOfApps(apps, c.monitor.overdue())
	if c.mayOperate() {
		seen := c.monitor.now(c.R.Context())
		notices = append(notices, attentionOfCluster(seen, c.Lacks())...)
		notices = append(notices, c.attentionOfUpkeep(c.monitor.upkeep(time.Now()), seen, c.World.Now())...)
	}
	sort.SliceStable(notices, func(i, j int) bool { return notices[i].rank < notices[j].rank })
	return notices
}

func attentionOfApps(apps []appCount, overdue map[string]registry.AppFreshness) (notices []notice) {
	for _, a := range apps {
		switch trouble := a.trouble(); {
		case trouble == empty && a.Total == 0:
			notices = append(notices, notice{empty, fmt.Sprintf("%s has no instance any more; within ten minutes %d %s UP", a.Name, a.before(), agree(a.before(), "was", "were")), appPath(a.Name), a.Name, true})
		case trouble == empty:
			notices = append(notices, notice{empty, fmt.Sprintf("%s: none of %s is UP", a.Name, plural(a.Total, "instance")), appPath(a.Name), a.Name, true})
		case trouble == halved:
			notices = append(notices, notice{halved, fmt.Sprintf("%s: %d UP, within ten minutes %d were", a.Name, a.Up(), a.before()), appPath(a.Name), a.Name, false})
		}
		late := overdue[a.Name]
		n := overdueOf(late)
		if n == 0 {
			continue
		}
		words := fmt.Sprintf("%s: %d of %s %s overdue", a.Name, n, plural(int(late.Counted), "lease"), agree(n, "is", "are"))
		if len(late.Overdue) > 0 { // the one that is for the longest time
			words += fmt.Sprintf(", %s for %s", late.Overdue[0].Key.ID, own.Span(late.Overdue[0].Silent))
		}
		notices = append(notices, notice{partly, words, appPath(a.Name), a.Name, false})
	}
	return notices
}

// littleDisk is the free space in bytes below which a disk needs attention.
const littleDisk = 1 << 30

// attentionOfCluster lists what the nodes and the peers need, and which protection the node does without.
func attentionOfCluster(seen seen, lacks []string) (notices []notice) {
	for _, p := range seen.peers.Peers {
		if p.Incoming != nil && p.Incoming.Cut || p.State == "failing" {
			words := fmt.Sprintf("the link to %s fails", p.Name)
			if p.Reason != "" {
				words += ": " + p.Reason
			}
			if p.LagChanges > 0 {
				words += "; " + waits(p.LagChanges) + " here"
			}
			notices = append(notices, notice{partly, words, "/ui/peers", "", false})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(seen.silent)) {
		notices = append(notices, notice{halved, fmt.Sprintf("no answer from %s since %s UTC", n, clock(seen.silent[n])), "/ui/nodes", "", true})
	}
	if words := differingVersions(seen.status.Nodes); words != "" {
		notices = append(notices, notice{sound, words, "/ui/nodes", "", false})
	}
	for _, n := range seen.status.Nodes {
		if n.DiskFree > 0 && n.DiskFree < littleDisk {
			notices = append(notices, notice{halved, fmt.Sprintf("the disk of %s has %s left", n.ID, shownBytes(n.DiskFree)), "/ui/nodes", "", false})
		}
	}
	for _, lack := range lacks {
		notices = append(notices, notice{sound + 1, "insecure: " + lack, "/ui/nodes", "", false})
	}
	return notices
}

// When a certificate and a schedule of snapshots need attention; docs/runbooks state the same for their alerts.
const (
	endsSoon       = 14 * 24 * time.Hour
	endsNow        = 3 * 24 * time.Hour
	backupsLate    = 24 * time.Hour
	backupsBeginIn = time.Hour // after the start of the node that writes them
)

// attentionOfUpkeep lists what this node needs from its operators. In mode cp only the leader writes the snapshots,
// and only it says so.
func (c call) attentionOfUpkeep(u Upkeep, seen seen, now time.Time) (notices []notice) {
	for _, k := range u.Certificates {
		left := k.Ends.Sub(now)
		words, rank := fmt.Sprintf("the certificate of %s for %s ends in %s", c.Name, k.Use, shownDays(left)), sound
		switch {
		case left >= endsSoon:
			continue
		case left < 0:
			words, rank = fmt.Sprintf("the certificate of %s for %s has ended", c.Name, k.Use), empty
		case left < endsNow:
			rank = halved
		}
		notices = append(notices, notice{rank, words, runbook("CertificateEnds"), "", left < endsNow})
	}
	began := c.World.Wall(c.Started)
	if seen.leading.After(began) {
		began = seen.leading
	}
	writes := c.WithoutConsensus || c.Service.Health().Leads
	if u.Backup == nil || !writes || now.Sub(began) < backupsBeginIn || now.Sub(*u.Backup) < backupsLate {
		return notices
	}
	words := "no snapshot was ever written by the schedule of " + c.Name
	if !u.Backup.IsZero() {
		words = fmt.Sprintf("no snapshot was written by the schedule of %s for %s", c.Name, shownDays(now.Sub(*u.Backup)))
	}
	return append(notices, notice{sound, words, runbook("NoBackup"), "", false})
}

// shownDays formats a long duration in whole days, or in whole hours below two days.
func shownDays(d time.Duration) string {
	hours := int(d / time.Hour)
	if hours < 48 {
		return plural(hours, "hour")
	}
	return plural(hours/24, "day")
}

// differingVersions says which nodes run which version, or returns "" if all that told theirs run the same.
func differingVersions(nodes []api.NodeStatus) string {
	byVersion := make(map[string][]string)
	for _, n := range nodes {
		if n.Version != "" {
			byVersion[n.Version] = append(byVersion[n.Version], n.ID)
		}
	}
	if len(byVersion) < 2 {
		return ""
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		parts = append(parts, version+" ("+strings.Join(byVersion[version], ", ")+")")
	}
	return "the nodes run different versions: " + strings.Join(parts, ", ")
}

// firstSteps says how the first service finds this registry, with the address that the page was requested under.
func (c call) firstSteps() g.Node {
	at := c.scheme() + "://" + c.R.Host
	return section("Point a service at this registry", "",
		el("h3", text("Spring Cloud, in application.yaml")),
		copied("first-spring", "eureka:\n  client:\n    service-url:\n      defaultZone: "+at+"/eureka/\n"),
		el("h3", text("Go")),
		copied("first-go", "c, err := client.New(client.Config{Servers: []string{"+strconv.Quote(at)+"}})\n"),
		el("h3", text("By hand")),
		copied("first-command", "rollcall register orders --port 8080 --heartbeat --addr "+at+"\n"))
}

// filters of the list of applications, by their names in the URL.
const (
	filterOverdue = "overdue"
	filterChanged = "changed"
)

// counts shows how many instances are UP, and the statuses of the others, in words and as a bar.
func counts(a *appCount) g.Node {
	if a.Total == 0 {
		return soft("none")
	}
	at := 0.0
	var bars, words g.Group
	for _, s := range statusOrder {
		n := a.Counts[s]
		if n == 0 {
			continue
		}
		width := 100 * float64(n) / float64(a.Total)
		bars = append(bars, el("rect", class("fill "+s.String()), attr("x", decimal(at)), attr("width", decimal(width)), attr("height", "6")))
		at += width
		if s != registry.Up {
			words = append(words, status(s.String(), fmt.Sprintf("%d %s", n, s)))
		}
	}
	return el("div", class("counts"), el("b", g.Textf("%d of %d UP", a.Up(), a.Total)),
		el("svg", class("bar"), attr("viewBox", "0 0 100 6"), attr("preserveAspectRatio", "none"), attr("aria-hidden", "true"), bars), words)
}
