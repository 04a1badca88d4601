package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/store"
)

// Schedule is a cluster, and what happens to it at which times: a run that can be repeated, shortened and kept.
type Schedule struct {
	Cluster
	Settings []string // words of settings
	Steps    []Step   // sorted by time
}

// AtOldestLevel makes a cluster be founded at the oldest level of the formats, as by an earlier release.
func AtOldestLevel(c *config.Config) {
	c.Store.Test.Falsify, c.Store.Upgrade.Finalize = foundedAtOldest, codec.FinalizeManual
}

// settings has what a schedule can change about the nodes, by words.
var settings = map[string]func(*config.Config){
	"wal": func(c *config.Config) { c.Store.RaftLog = store.LogWAL },
	// Snapshots are made and sent all the time.
	"snapshots": func(c *config.Config) {
		c.Store.SnapshotThreshold, c.Store.SnapshotInterval, c.Store.TrailingLogs = 50, 2*time.Second, 20
	},
	// an hour from the first node's wall clock to the last one's
	"skew":   func(c *config.Config) { c.Store.World = hourApart },
	"always": func(c *config.Config) { c.Store.Sync = store.SyncAlways },
	// Every call needs a token.
	"auth":     func(c *config.Config) { c.Auth.Mode = "on" },
	"oldlevel": AtOldestLevel,
	// The last node, or the last two, of each datacenter have no vote.
	"learner":  withoutVote(1),
	"learners": withoutVote(2),
	// What becomes of other datacenters' instances that expire while the link is cut; they are kept without a word.
	"expire":  whenCut("expire"),
	"keepfor": whenCut("keep-for:" + keepFor.String()),
	// A herd falls silent, and self-preservation keeps it.
	"preserve": preserves,
	"bounded":  func(c *config.Config) { c.Store.Settings.Bound = boundedFor.Milliseconds() },
}

// needConsensus lists the settings that mode ap does not have.
var needConsensus = []string{"bounded", "learner", "learners", "oldlevel", "preserve", "snapshots", "wal"}

// Step is something that happens to the cluster.
type Step struct {
	At   time.Duration // after the cluster was ready
	Do   string        // an act of acts
	Args []string      // names of nodes, then a duration, as the act requires
}

// scheduleFormat is the version of the text form; kept schedules with another one are refused.
const scheduleFormat = "schedule 1"

// acts lists what can happen. An act that cannot happen, such as killing a stopped node, does nothing, so a schedule
// from which events were left out still means something.
var acts = map[string]struct {
	nodes, span int // how many arguments are nodes, and how many durations
	do          func(w *World, nodes []*Node, span time.Duration)
}{
	"kill":     {1, 0, func(w *World, n []*Node, _ time.Duration) { ifRuns(n[0], func() { w.kill(n[0].Name, false) }) }},
	"poweroff": {1, 0, func(w *World, n []*Node, _ time.Duration) { ifRuns(n[0], func() { w.kill(n[0].Name, true) }) }},
	"stop":     {1, 0, func(_ *World, n []*Node, _ time.Duration) { ifRuns(n[0], n[0].leave) }},
	"start":    {1, 0, func(w *World, n []*Node, _ time.Duration) { w.drawn.start(n[0]) }},
	"cut":      {2, 0, func(w *World, n []*Node, _ time.Duration) { w.Cut(n[0].Name, n[1].Name) }},
	"cutoneway": {2, 0, func(w *World, n []*Node, _ time.Duration) {
		w.SetLink(n[0].Name, n[1].Name, func(l *Link) { l.Cut = true })
	}},
	"delay": {2, 1, func(w *World, n []*Node, d time.Duration) {
		w.SetLink(n[0].Name, n[1].Name, func(l *Link) { l.Latency = d })
	}},
	"isolate":  {1, 0, func(w *World, n []*Node, _ time.Duration) { w.Isolate(n[0].Name) }},
	"heal":     {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.Heal() }},
	"slowdisk": {1, 1, func(w *World, n []*Node, d time.Duration) { w.SlowDisk(n[0].Name, d) }},
	"hangdisk": {1, 1, func(w *World, n []*Node, d time.Duration) {
		time.AfterFunc(d, w.HangDisk(n[0].Name))
	}},
	"stepclock": {1, 1, func(w *World, n []*Node, d time.Duration) { w.StepClock(n[0].Name, d) }},
	"faildisk":  {1, 0, func(w *World, n []*Node, _ time.Duration) { w.FailDisk(n[0].Name, errNoSpace) }},
	"transfer":  {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.transfer() }},

	"jitter": {2, 1, func(w *World, n []*Node, d time.Duration) {
		w.SetLink(n[0].Name, n[1].Name, func(l *Link) { l.Jitter = d })
	}},
	"lose": {2, 0, func(w *World, n []*Node, _ time.Duration) {
		w.SetLink(n[0].Name, n[1].Name, func(l *Link) { l.Lossy = true })
	}},
	"reset":      {2, 0, func(w *World, n []*Node, _ time.Duration) { w.network.reset(n[0].ip, n[1].ip) }},
	"cutdc":      {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.cutFar(nil) }},
	"cutbut":     {1, 0, func(w *World, n []*Node, _ time.Duration) { w.drawn.cutFar(n[0]) }},
	"eio":        {1, 0, func(w *World, n []*Node, _ time.Duration) { w.FailDisk(n[0].Name, syscall.EIO) }},
	"killbefore": {1, 0, func(w *World, n []*Node, _ time.Duration) { ifRuns(n[0], func() { w.killInWrite(n[0], false) }) }},
	"killafter":  {1, 0, func(w *World, n []*Node, _ time.Duration) { ifRuns(n[0], func() { w.killInWrite(n[0], true) }) }},
	"remove":     {1, 0, func(w *World, n []*Node, _ time.Duration) { w.drawn.remove(n[0]) }},
	"save":       {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.save() }},
	"restore":    {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.restore() }},
	"raise":      {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.raise() }},
	"reload":     {1, 0, func(w *World, n []*Node, _ time.Duration) { w.drawn.reload(n[0]) }},
	"grant":      {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.permits.grant() }},
	"narrow":     {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.permits.narrow() }},
	"revoke":     {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.permits.revoke() }},
	"silence":    {0, 1, func(w *World, _ []*Node, d time.Duration) { w.drawn.herd.silence(d) }},
	"bury":       {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.herd.bury() }},
	"hold":       {0, 1, func(w *World, _ []*Node, d time.Duration) { w.drawn.herd.operate("hold", "held", d) }},
	"release":    {0, 0, func(w *World, _ []*Node, _ time.Duration) { w.drawn.herd.operate("release", "released", 0) }},
}

func ifRuns(n *Node, do func()) {
	if n.alive() {
		do()
	}
}

// String returns the text form, which ParseSchedule reads.
func (s Schedule) String() string {
	var b strings.Builder
	cluster := fmt.Sprintf("cluster %s %d %d %v", s.mode(), s.Nodes, max(s.Datacenters, 1), s.latency())
	fmt.Fprintf(&b, "%s\n%s\n", scheduleFormat, strings.Join(append([]string{cluster}, s.Settings...), " "))
	for _, e := range s.Steps {
		fmt.Fprintln(&b, strings.Join(append([]string{e.At.String(), e.Do}, e.Args...), " "))
	}
	return b.String()
}

func (c Cluster) mode() string           { return cmp.Or(c.Mode, config.CP) }
func (c Cluster) latency() time.Duration { return cmp.Or(c.Latency, time.Millisecond) }

// ParseSchedule reads the text form: a line with the format, one for the cluster (mode, nodes, datacenters, latency,
// words of settings), and one for each event (its time, the act, nodes, a duration). Lines that begin with # are
// comments.
func ParseSchedule(text string) (s Schedule, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	var read int
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		read++
		switch read {
		case 1:
			if line != scheduleFormat {
				return s, fmt.Errorf("line %d is %q, want %q: a schedule of another format means something else", number, line, scheduleFormat)
			}
		case 2:
			err = s.parseCluster(line)
		default:
			var e Step
			if e, err = s.parseStep(line); err == nil {
				s.Steps = append(s.Steps, e)
			}
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if read < 2 {
		return s, fmt.Errorf("the schedule has no line %q and no line of the cluster", scheduleFormat)
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s, lines.Err()
}

func (s *Schedule) parseCluster(line string) error {
	var latency string
	if _, err := fmt.Sscanf(line, "cluster %s %d %d %s", &s.Mode, &s.Nodes, &s.Datacenters, &latency); err != nil {
		return fmt.Errorf("%q: want cluster MODE NODES DATACENTERS LATENCY", line)
	}
	s.Settings = strings.Fields(line)[5:]
	for _, word := range s.Settings {
		if settings[word] == nil {
			return fmt.Errorf("%q: there is no setting %q; there are %s", line, word, strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
		}
		if s.Mode == config.AP && slices.Contains(needConsensus, word) {
			return fmt.Errorf("%q: setting %q is for mode cp", line, word)
		}
	}
	var err error
	if s.Latency, err = time.ParseDuration(latency); err != nil {
		return err
	}
	if err = s.Validate(); err == nil {
		_, err = learnersAmong(s.Nodes, s.Settings)
	}
	return err
}

func (s Schedule) parseStep(line string) (e Step, err error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return e, fmt.Errorf("%q has no act", line)
	}
	if e.At, err = time.ParseDuration(words[0]); err != nil {
		return e, fmt.Errorf("%q: %w", line, err)
	}
	e.Do, e.Args = words[1], words[2:]
	act, known := acts[e.Do]
	if !known {
		return e, fmt.Errorf("%q: there is no act %q; there are %s", line, e.Do, strings.Join(slices.Sorted(maps.Keys(acts)), ", "))
	}
	if len(e.Args) != act.nodes+act.span {
		return e, fmt.Errorf("%q: %s takes %d nodes and %d durations", line, e.Do, act.nodes, act.span)
	}
	for _, name := range e.Args[:act.nodes] {
		if names := s.names(); !slices.Contains(names, name) {
			return e, fmt.Errorf("%q: there is no node %q; the nodes are %s", line, name, strings.Join(names, ", "))
		}
	}
	for _, span := range e.Args[act.nodes:] {
		if _, err := time.ParseDuration(span); err != nil {
			return e, fmt.Errorf("%q: %w", line, err)
		}
	}
	return e, nil
}

// names returns the names of all nodes.
func (c Cluster) names() (all []string) {
	for dc := range max(c.Datacenters, 1) {
		for place := range c.Nodes {
			all = append(all, nodeName(dc+1, place+1))
		}
	}
	return all
}

// perform makes an event happen.
func (w *World) perform(e Step) {
	act := acts[e.Do]
	var nodes []*Node
	for _, name := range e.Args[:act.nodes] {
		nodes = append(nodes, w.Node(name))
	}
	var span time.Duration
	if act.span > 0 {
		span, _ = time.ParseDuration(e.Args[act.nodes]) // it was read before, or generated
	}
	act.do(w, nodes, span)
}

// faultsLast is how long faults happen in a generated schedule, and calmLasts how long nothing happens after them:
// nodes without consensus compare their states once a minute, a tenth earlier or later
// (docs/understand/replication.md).
const (
	faultsLast = 2 * time.Minute
	calmLasts  = 75 * time.Second
)

// How long a herd is silent: self-preservation comes on after 24 s at most, and the leases last 36 s.
const shortestSilence, longestSilence = 20 * time.Second, 70 * time.Second

// drawing is a schedule that is being drawn.
type drawing struct {
	Schedule
	r     *rand.Rand
	names []string
	at    time.Duration
}

// Generate draws a schedule. A seed gives the same schedule as long as Generate stays the same.
func Generate(seed uint64) Schedule {
	d := &drawing{r: rand.New(rand.NewPCG(seed, 57))}
	latency := time.Duration(1+d.r.IntN(20)) * time.Millisecond
	d.Cluster = Cluster{Mode: config.CP, Nodes: 3, Datacenters: 1, Latency: latency}
	words := []string{"wal", "snapshots", "oldlevel", "skew", "auth"}
	if d.r.IntN(4) == 0 {
		d.Mode, words = config.AP, []string{"always", "skew"}
	}
	switch size := d.r.IntN(32); {
	case size < 8:
		d.Datacenters, d.Nodes = 2, min(1+d.r.IntN(4), 3)
	case size < 13:
		d.Nodes = 5
	case size < 14:
		d.Nodes = 7
	case size < 17:
		d.Nodes = 1
	}
	for _, word := range words {
		if d.r.IntN(2) == 0 && (word != "auth" || d.Datacenters == 1 && d.r.IntN(2) == 0) {
			d.Settings = append(d.Settings, word)
		}
	}
	d.moreWords(rand.New(rand.NewPCG(seed, 61)))
	d.names = d.Cluster.names()
	long := d.Datacenters > 1
	if slices.Contains(d.Settings, "preserve") {
		d.at = 15 * time.Second // by then the herd counts
		d.add("silence", d.span(shortestSilence, longestSilence))
	}
	for d.later(); d.at < faultsLast; d.later() {
		switch {
		case long && d.r.IntN(4) == 0:
			long = false
			d.longCut()
		case d.r.IntN(4) == 0:
			d.change()
		default:
			d.fault()
		}
		if d.r.IntN(3) == 0 {
			d.later()
			d.add("heal")
		}
	}
	return d.Schedule
}

// moreWords draws settings from a source of its own, so that everything else is drawn as before.
func (d *drawing) moreWords(r *rand.Rand) {
	if learns := r.IntN(4) == 0; learns && d.Mode == config.CP && d.Nodes >= 3 {
		if d.Nodes == 3 && d.Datacenters == 1 {
			d.Nodes += r.IntN(3)
		}
		word := "learner"
		if d.Nodes >= 5 && r.IntN(2) == 0 {
			word = "learners"
		}
		d.Settings = append(d.Settings, word)
	}
	if asks := r.IntN(2) == 0; asks && (d.Mode == config.AP || d.Datacenters > 1) {
		d.Settings = append(d.Settings, "auth")
	}
	if word := r.IntN(6); word < 2 && d.Datacenters > 1 {
		d.Settings = append(d.Settings, []string{"expire", "keepfor"}[word])
	}
	if preserves := r.IntN(4) == 0; preserves && d.Mode == config.CP && d.Datacenters == 1 {
		d.Settings = append(d.Settings, "preserve")
		if r.IntN(2) == 0 {
			d.Settings = append(d.Settings, "bounded")
		}
	}
}

// add adds an event now.
func (d *drawing) add(do string, args ...string) {
	d.Steps = append(d.Steps, Step{d.at, do, args})
}

// later lets time pass.
func (d *drawing) later() { d.at += time.Duration(d.r.IntN(10_000)) * time.Millisecond }

// node draws one.
func (d *drawing) node() string { return d.names[d.r.IntN(len(d.names))] }

// pair draws two nodes, which are the same if there is only one.
func (d *drawing) pair() []string {
	a := d.r.IntN(len(d.names))
	return []string{d.names[a], d.names[(a+1+d.r.IntN(max(len(d.names)-1, 1)))%len(d.names)]}
}

func (d *drawing) span(least, most time.Duration) string {
	return (least + time.Duration(d.r.Int64N(int64(most-least)))).Round(time.Millisecond).String()
}

// away makes a node leave for a while.
func (d *drawing) away(act, node string) {
	d.add(act, node)
	d.later()
	d.add("start", node)
}

// healLater heals all links, two times out of three, after nodes may have given up on what was in flight.
func (d *drawing) healLater() {
	if d.r.IntN(3) > 0 {
		d.at += certainWithin + unknownTakes + time.Duration(d.r.IntN(4_000))*time.Millisecond
		d.add("heal")
	}
}

// outage kills most nodes of the first datacenter, and starts them again when every call that waited for a leader
// must have ended.
func (d *drawing) outage() {
	first, most := d.r.IntN(d.Nodes), d.Nodes/2+1
	for i := range most {
		d.add("kill", d.names[(first+i)%d.Nodes])
	}
	d.at += callPatience + time.Duration(d.r.IntN(4_000))*time.Millisecond
	for i := range most {
		d.add("start", d.names[(first+i)%d.Nodes])
	}
}

// longCut draws a cut between datacenters that is longer than their leases, once nothing else is wrong. Afterwards it
// leaves them time to tell each other who is alive.
func (d *drawing) longCut() {
	d.add("heal")
	for _, n := range d.names {
		d.add("start", n)
	}
	d.at += ReadyWithin + electionsEnd
	if others := d.Nodes - 1; others > 0 && d.r.IntN(5) < 2 { // senders begin with the first node
		d.add("cutbut", nodeName(1+d.r.IntN(d.Datacenters), 2+d.r.IntN(others)))
	} else {
		d.add("cutdc")
	}
	d.at += shortLease + travels + time.Duration(d.r.IntN(40))*time.Second
	d.add("heal")
	d.at += shortLease + time.Duration(d.r.IntN(20))*time.Second
}

// roll restarts the nodes of the first datacenter one after the other. Each begins with its own snapshot.
func (d *drawing) roll() {
	for _, node := range d.names[:d.Nodes] {
		d.add([]string{"stop", "kill"}[d.r.IntN(2)], node)
		d.at += time.Second
		d.add("start", node)
		d.at += time.Duration(3_000+d.r.IntN(4_000)) * time.Millisecond
	}
}

// fault draws what breaks next.
func (d *drawing) fault() {
	switch n := d.node(); d.r.IntN(17) {
	case 0, 1:
		d.away([]string{"kill", "killbefore", "killafter", "poweroff"}[d.r.IntN(4)], n)
	case 2:
		d.away("stop", n)
	case 3:
		if d.r.IntN(2) == 0 {
			d.outage()
			break
		}
		d.add("kill", n) // and stays away for long
	case 4:
		d.add("start", n)
	case 5:
		d.add("cut", d.pair()...)
		d.healLater()
	case 6:
		d.add("cutoneway", d.pair()...)
		d.healLater()
	case 7:
		d.add("isolate", n)
		d.healLater()
	case 8:
		d.add("delay", append(d.pair(), d.span(time.Millisecond, slowest))...)
	case 9:
		d.add("jitter", append(d.pair(), d.span(time.Millisecond, 200*time.Millisecond))...)
	case 10:
		d.add("lose", d.pair()...)
	case 11:
		d.add("reset", d.pair()...)
	case 12:
		d.add("slowdisk", n, d.span(0, 2*time.Second))
		d.later()
		d.add("slowdisk", n, "0s")
	case 13:
		d.away([]string{"faildisk", "eio"}[d.r.IntN(2)], n)
	case 14:
		d.add("hangdisk", n, d.span(100*time.Millisecond, 8*time.Second))
		if d.r.IntN(2) == 0 {
			d.at += time.Second
			d.add("kill", n)
		}
		d.later()
		d.add("start", n)
	case 15:
		d.add("transfer")
	case 16:
		if d.Datacenters > 1 {
			d.add("cutdc")
		} else {
			d.add("heal")
		}
	}
}

// change draws what an operator does next.
func (d *drawing) change() {
	cp := d.Mode == config.CP
	acts := []string{"reload", "stepclock", "save", "restore"}
	if cp && d.Nodes >= 3 {
		acts = append(acts, "remove", "roll")
	}
	if slices.Contains(d.Settings, "oldlevel") {
		acts = append(acts, "raise")
	}
	if slices.Contains(d.Settings, "auth") {
		acts = append(acts, "grant", "narrow", "revoke")
	}
	if slices.Contains(d.Settings, "preserve") && d.r.IntN(2) == 0 {
		acts = []string{"silence", "silence", "silence", "bury", "hold", "release"}
	}
	switch act := acts[d.r.IntN(len(acts))]; act {
	case "reload":
		d.add(act, d.node())
	case "stepclock":
		d.add(act, d.node(), d.span(-30*time.Minute, 30*time.Minute))
	case "silence":
		d.add(act, d.span(shortestSilence, longestSilence))
	case "hold":
		d.add(act, d.span(5*time.Second, 15*time.Second))
	case "remove":
		d.away(act, d.node())
	case "roll":
		d.roll()
	case "restore":
		d.add("save")
		d.later()
		d.add(act)
	default:
		d.add(act)
	}
}
