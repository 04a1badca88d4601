package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Judge computes the verdict of a trial of a scenario in a column. It depends on nothing else, except that the checker
// of histories may run out of time (Undecided).
func Judge(t *trial.Trial, c scenario.Column, s scenario.Scenario) Verdict {
	return judge(t, c, s, patience)
}

// judge is Judge with a time limit for the checker of each history.
func judge(t *trial.Trial, c scenario.Column, s scenario.Scenario, patience time.Duration) Verdict {
	t = withoutOldLists(t, c.ListAge())
	f := factsOf(t)
	all, looks := byNode(t.Lists), f.watched.agedLooks()
	v := Verdict{
		Operations: operations(t),
		Reads:      duringTheLoad(t, trial.Operation.Reads),
		Writes:     duringTheLoad(t, trial.Operation.Writes),
		Worst:      worst(t.Clients),
		Staleness:  stalenessOf(looks, func(trial.Call) bool { return true }),
		Windows:    windows(t, s, looks),
		Visibility: visibility(t, false),
		Abroad:     visibility(t, true),
		Removal:    removal(t.Departures),
		Ghosts:     integral(f.lists, t.Length, func(l trial.List) int { return l.Ghosts }),
		Missing:    integral(all, t.Length, func(l trial.List) int { return l.Missing }),
		Unanswered: integral(all, t.Length, func(l trial.List) int { return toNumber(l.Failed) }),
		Healing:    f.healings(),
		Losses:     f.losses(s),
		Lost:       f.endings(func(e trial.Ending) []string { return e.Missing }),
		Revived:    f.revived(),
		Dead:       f.endings(func(e trial.Ending) []string { return e.Dead }),
		Cost:       cost(t, s),
		History:    f.history(c, patience),
		Converged:  f.convergence(),

		FalseEvictions: falseEvictions(t.Evictions),
		Told:           f.told() && !s.HeartbeatsOnly(), // nobody observes those
		Listed:         f.listed(),
		Invalid:        Invalid(t),
	}
	v.Elections, v.Leaderless = leaders(t)
	lost := v.Losses
	if !c.Leads() {
		lost.Heartbeats = f.forgotten(s, f.split)
	}
	v.Broken = broken(&judged{f, &v, c, s, s.LimitsOf(c), lost})
	return v
}

// facts is a trial with what several figures are made of.
type facts struct {
	*trial.Trial
	expected []int                // nodes that must answer until the end: all but lost ones
	answered []trial.Ending       // of nodes that could be asked at the end
	silent   []string             // names of expected nodes that did not answer once
	lists    map[int][]trial.List // that came, of each node, by the time of asking
	kills    []trial.Micros       // when processes were ended, by time
	watched  keys
}

// factsOf collects the facts of a trial. A node with several endings counts as silent, because nobody knows which one
// counts.
func factsOf(t *trial.Trial) *facts {
	came := slices.DeleteFunc(slices.Clone(t.Lists), func(l trial.List) bool { return l.Failed })
	f := &facts{Trial: t, lists: byNode(came), watched: keysOf(t.History)}
	var lost []int
	for _, fault := range t.Faults {
		if fault.Kind == scenario.Lose {
			lost = append(lost, fault.Nodes...)
		}
		for _, k := range fault.Kills {
			f.kills = append(f.kills, k.At)
		}
	}
	slices.Sort(f.kills)
	endings, failed := make(map[int]int), make(map[int]bool)
	for _, e := range t.Ending {
		endings[e.Node]++
		if e.Failed != "" {
			failed[e.Node] = true
			continue
		}
		f.answered = append(f.answered, e)
	}
	for node := range t.Nodes {
		if slices.Contains(lost, node) {
			continue
		}
		f.expected = append(f.expected, node)
		if endings[node] != 1 || failed[node] {
			f.silent = append(f.silent, t.NodeName(node))
		}
	}
	return f
}

func toNumber(is bool) int {
	if is {
		return 1
	}
	return 0
}

// judged is what limits are held against.
type judged struct {
	*facts
	*Verdict
	column   scenario.Column
	scenario scenario.Scenario
	limits   scenario.Limits
	lost     Losses // against the column's promises
}

// excuse is why a trial need not keep a limit.
type excuse int

const (
	lossAllowed excuse = 1 << iota // by its scenario
	incomplete
	notCarried // its load of heartbeats never arrived, and so says nothing about a column
)

// Completed is the limit, without its column, that an incomplete trial breaks.
const Completed = "the trial is completed"

// Linearizable is the limit, without its column, that a trial breaks if no single copy explains its histories, or the
// checker could not decide them.
const Linearizable = "histories are linearizable"

// Limits that several rows guard.
const (
	answering = "every node answers at the end"
	reviving  = "nothing is revived"
	living    = "no living instance is forgotten"
)

// promise is a limit of all Rollcall columns. got returns what the trial has instead, or "" if it kept the promise.
type promise struct {
	limit  string
	unless excuse
	got    func(*judged) string
}

// promises lists first what a column promises, and then what could hide that it was broken: what was not asked, not
// answered or not decided breaks a limit, too.
var promises = slices.Concat([]promise{
	{Completed, 0, func(j *judged) string { return j.Failed }},
	{Linearizable, 0, unexplained},
	{"nodes converge, and no update is lost against the rule", 0, apart},
	{"nothing is lost", 0, func(j *judged) string {
		return counted(j.Lost, "not listed by some node at the end, though acknowledged and alive")
	}},
	{reviving, lossAllowed, func(j *judged) string { return counted(j.Revived, "listed after the acknowledged cancel") }},
}, lossPromises(), []promise{
	{Linearizable, incomplete, func(j *judged) string {
		due := j.column.Linearizable() && j.scenario.Load.Writes > 0
		return when(due && j.History.Calls == 0, "undecided: no call on a watched key is known")
	}},
	{answering, incomplete, func(j *judged) string { return when(len(j.silent) > 0, strings.Join(j.silent, ", ")+" did not") }},
	{answering, incomplete, func(j *judged) string { return uncounted(j.Trial, j.scenario) }},
	{"losses can be judged", incomplete, func(j *judged) string { return j.unjudged(j.Losses, j.scenario) }},
	{reviving, lossAllowed | incomplete | notCarried, func(j *judged) string {
		return when(!j.Listed && !j.scenario.HeartbeatsOnly(), "undecided: a node gave no list during the load")
	}},
	{living, lossAllowed | incomplete | notCarried, func(j *judged) string {
		return when(j.scenario.Load.Instances > 0 && j.Losses.Heartbeats.Of == 0, "undecided: no heartbeat was answered")
	}},
})

func lossPromises() (all []promise) {
	for _, kind := range LossKinds {
		all = append(all, promise{kind.limit, lossAllowed, func(j *judged) string { return counted(kind.Of(&j.lost).Names, kind.what) }})
	}
	return all
}

// when returns a text if something is the case.
func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// bounds lists the limits that scenarios state. got returns the bound, and what the trial has instead, or "" if it kept
// the bound or none is stated.
var bounds = []struct {
	name string
	got  func(*judged) (bound, got string)
}{
	{"write-gap", func(j *judged) (bound, got string) {
		return atMost(j.limits.WriteGap, j.Writes.Count, j.Writes.LongestGap)
	}},
	{"read-gap", func(j *judged) (bound, got string) {
		return atMost(j.limits.ReadGap, j.Reads.Count, j.Reads.LongestGap)
	}},
	{"write-success", func(j *judged) (bound, got string) { return atLeast(j.limits.WriteSuccess, j.Writes) }},
	{"read-success", func(j *judged) (bound, got string) { return atLeast(j.limits.ReadSuccess, j.Reads) }},
	{"converged", func(j *judged) (bound, got string) {
		return atMost(j.limits.Converged, len(j.Healing), j.lastHealing())
	}},
	{"false-evictions", falselyEvicted},
	{"removal", removedLate},
}

// broken lists the limits that a trial did not keep. Systems other than ours have no limits.
func broken(j *judged) []Broken {
	found := []Broken{}
	if !j.column.Promises() {
		return found
	}
	excused := excuse(0)
	if j.limits.MayLose {
		excused |= lossAllowed
	}
	if j.Failed != "" {
		excused |= incomplete
	}
	if j.scenario.HeartbeatsOnly() && len(j.Invalid) > 0 {
		excused |= notCarried
	}
	for _, p := range promises {
		if got := p.got(j); got != "" && p.unless&excused == 0 {
			found = append(found, Broken{Limit: j.column.Name + ": " + p.limit, Got: got})
		}
	}
	for _, b := range bounds {
		if bound, got := b.got(j); got != "" && excused&^lossAllowed == 0 {
			found = append(found, Broken{Limit: fmt.Sprintf("%s: %s %s", j.column.Name, b.name, bound), Got: got})
		}
	}
	return found
}

func unexplained(j *judged) string {
	switch h := j.History; {
	case h.Result == Violated:
		return "no single copy explains the calls on " + strings.Join(h.Violated, ", ")
	case h.Result != Undecided:
		return ""
	case len(h.Unread) > 0:
		return "undecided: " + counted(h.Unread, "written, and never read")
	}
	return "undecided: the checker ran out of time"
}

// apart says how the nodes differ at the end. They must agree even where the last moments of a killed node may be lost.
func apart(j *judged) string {
	c := j.Converged
	lossOnly := c.Result == Violated && len(c.Differ) == 0
	return when(c.Result != OK && !(j.limits.MayLose && lossOnly), c.Text)
}

// counted says how many instances there are, and names the first three. It returns "" if there are none.
func counted(ids []string, what string) string {
	const named = 3
	text := strings.Join(ids[:min(named, len(ids))], ", ")
	switch {
	case len(ids) == 0:
		return ""
	case len(ids) == 1:
		return fmt.Sprintf("1 instance (%s) %s", text, what)
	case len(ids) > named:
		text += ", …"
	}
	return fmt.Sprintf("%d instances (%s) %s", len(ids), text, what)
}

// nothing is a limit's value when there is nothing to compare it with.
const nothing = "nothing that it could be held against"

// atMost holds a bound on seconds against a measured value; a negative one did not end within the trial.
func atMost(limit *scenario.Span, measured int, seconds float64) (bound, got string) {
	switch {
	case limit == nil:
		return "", ""
	case measured == 0:
		got = nothing
	case seconds < 0:
		got = "not within the trial"
	case seconds > limit.Duration().Seconds():
		got = fmt.Sprintf("%.4g s", seconds)
	}
	return fmt.Sprintf("at most %s", limit), got
}

// atLeast holds a bound on the share of calls that were answered against calls.
func atLeast(limit *float64, calls Calls) (bound, got string) {
	switch {
	case limit == nil:
		return "", ""
	case calls.Count == 0:
		got = nothing
	case calls.Success < *limit:
		got = fmt.Sprintf("%.4g", calls.Success)
	}
	return fmt.Sprintf("at least %v", *limit), got
}

func falselyEvicted(j *judged) (bound, got string) {
	switch most := j.limits.FalseEvictions; {
	case most == nil:
		return "", ""
	case j.FalseEvictions > *most:
		got = fmt.Sprint(j.FalseEvictions)
	case !j.Told:
		got = "undecided: a node's stream of changes was read for less than half of the time"
	}
	return fmt.Sprintf("at most %d", *j.limits.FalseEvictions), got
}

func removedLate(j *judged) (bound, got string) {
	bound, got = atMost(j.limits.Removal, j.Removal.Count, j.Removal.P99)
	if bound != "" && j.Removal.Never > 0 {
		got = fmt.Sprintf("%d of %d were listed until the end", j.Removal.Never, j.Removal.Never+j.Removal.Count)
	}
	return bound, got
}

// lastHealing returns how long the fault that ended last took to heal.
func (j *judged) lastHealing() float64 {
	if len(j.Healing) == 0 {
		return 0
	}
	last := slices.MaxFunc(j.Healing, func(a, b Healing) int { return cmp.Compare(j.Faults[a.Fault].To, j.Faults[b.Fault].To) })
	return last.Seconds
}
