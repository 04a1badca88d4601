package verdict

import (
	"fmt"
	"maps"
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
	watched := keysOf(t.History)
	v := Verdict{
		Operations: operations(t),
		Reads:      duringTheLoad(t, func(s trial.Series) bool { return s.Operation.Reads() }),
		Writes:     duringTheLoad(t, func(s trial.Series) bool { return s.Operation.Writes() }),
		Worst:      worst(t.Clients),
		Staleness:  watched.staleness(always),
		Windows:    windows(t, s, watched),
		Visibility: visibility(t, false),
		Abroad:     visibility(t, true),
		Removal:    spreadOfMicros(slices.Collect(maps.Values(lastGone(t.Departures, false)))),
		Ghosts:     integral(answeredLists(t.Lists), t.Length, func(l trial.List) int { return l.Ghosts }),
		Missing:    integral(t.Lists, t.Length, func(l trial.List) int { return l.Missing }),
		Unanswered: integral(t.Lists, t.Length, func(l trial.List) int { return toNumber(l.Failed) }),
		Healing:    healings(t),
		Losses:     losses(t, s),
		Lost:       endings(t, func(e trial.Ending) []string { return e.Missing }),
		Revived:    revived(t),
		Dead:       endings(t, func(e trial.Ending) []string { return e.Dead }),
		Elections:  elections(t),
		Leaderless: leaderless(t),
		Cost:       cost(t, s),
		History:    history(t, c, watched, patience),
		Converged:  convergence(t, watched),

		FalseEvictions: falseEvictions(t.Evictions),
		Told:           told(t) && !s.HeartbeatsOnly(), // nobody observes those
		Listed:         listed(t),
		Invalid:        Invalid(t),
	}
	v.Broken = broken(t, c, s, &v)
	return v
}

// always accepts everything.
func always[T any](T) bool { return true }

// Completed is the limit, without its mode, that an incomplete trial breaks.
const Completed = "the trial is completed"

// Linearizable is the limit, without its mode, that a trial breaks if no single copy explains its histories, or the
// checker could not decide them.
const Linearizable = "histories are linearizable"

// limits collects those that a trial did not keep.
type limits struct {
	column string
	broken []Broken
}

// broken lists the limits that a trial did not keep: what its column always promises, and what its scenario states.
// Anything not asked, not answered or not decided is a broken limit. Systems other than ours have no limits.
func broken(t *trial.Trial, c scenario.Column, s scenario.Scenario, v *Verdict) []Broken {
	l := limits{column: c.Name, broken: []Broken{}}
	if !c.Promises() {
		return l.broken
	}
	stated := s.LimitsOf(c)
	if t.Failed != "" {
		l.add(Completed, t.Failed)
	}
	promised := v.Losses
	if !c.Leads() {
		promised.Heartbeats = forgotten(withContact(t), s, endsOfProcesses(t))
	}
	l.promises(v, promised, stated.MayLose)
	if t.Failed != "" {
		return l.broken
	}
	l.asked(t, c, s, v)
	if s.HeartbeatsOnly() && len(v.Invalid) > 0 {
		return l.broken // a load that never arrived says nothing about a column
	}
	l.demanded(t, s, v, stated.MayLose)
	l.stated(stated, t, v)
	return l.broken
}

func (l *limits) add(limit, got string) {
	l.broken = append(l.broken, Broken{Limit: fmt.Sprintf("%s: %s", l.column, limit), Got: got})
}

// promises checks those of the column; lost is what it lost against them. mayLose allows losing the last moments of a
// killed node; the nodes must agree all the same.
func (l *limits) promises(v *Verdict, lost Losses, mayLose bool) {
	switch v.History.Result {
	case Violated:
		l.add(Linearizable, "no single copy explains the calls on "+strings.Join(v.History.Violated, ", "))
	case Undecided:
		l.add(Linearizable, "undecided: "+v.History.Doubt())
	}
	if v.Converged.Result != OK && !(mayLose && v.Converged.Result == Violated && len(v.Converged.Differ) == 0) {
		l.add("nodes converge, and no update is lost against the rule", v.Converged.Text)
	}
	if len(v.Lost) > 0 {
		l.add("nothing is lost", counted(v.Lost)+" not listed by some node at the end, though acknowledged and alive")
	}
	if mayLose {
		return
	}
	if len(v.Revived) > 0 {
		l.add("nothing is revived", counted(v.Revived)+" listed after the acknowledged cancel")
	}
	for _, loss := range lost.all() {
		if loss.Count > 0 {
			l.add(loss.limit, counted(loss.Names)+" "+loss.what)
		}
	}
}

// Doubt says why a history is undecided.
func (h History) Doubt() string {
	if len(h.Unread) > 0 {
		return counted(h.Unread) + " written, and never read"
	}
	return "the checker ran out of time"
}

// asked requires that what is judged was requested, and answered.
func (l *limits) asked(t *trial.Trial, c scenario.Column, s scenario.Scenario, v *Verdict) {
	if c.Linearizable() && s.Load.Writes > 0 && v.History.Calls == 0 {
		l.add(Linearizable, "undecided: no call on a watched key is known")
	}
	if silent := silentNodes(t); len(silent) > 0 {
		l.add("every node answers at the end", strings.Join(silent, ", ")+" did not")
	}
	if text := uncounted(t, s); text != "" {
		l.add("every node answers at the end", text)
	}
	if unjudged := v.Losses.unjudged(t, s); unjudged != "" {
		l.add("losses can be judged", unjudged)
	}
}

// demanded requires observations without which a promise would be kept whatever happens.
func (l *limits) demanded(t *trial.Trial, s scenario.Scenario, v *Verdict, mayLose bool) {
	if mayLose {
		return
	}
	if !v.Listed && !s.HeartbeatsOnly() {
		l.add("nothing is revived", "undecided: a node gave no list during the load")
	}
	if s.Load.Instances > 0 && v.Losses.Heartbeats.Of == 0 {
		l.add("no living instance is forgotten", "undecided: no heartbeat was answered")
	}
}

// counted says how many instances there are, and names the first three.
func counted(ids []string) string {
	const named = 3
	text := strings.Join(ids[:min(named, len(ids))], ", ")
	if len(ids) > named {
		text += ", …"
	}
	if len(ids) == 1 {
		return fmt.Sprintf("1 instance (%s)", text)
	}
	return fmt.Sprintf("%d instances (%s)", len(ids), text)
}

func (l *limits) stated(s scenario.Limits, t *trial.Trial, v *Verdict) {
	l.longest("write-gap", s.WriteGap, v.Writes.Count, v.Writes.LongestGap)
	l.longest("read-gap", s.ReadGap, v.Reads.Count, v.Reads.LongestGap)
	l.least("write-success", s.WriteSuccess, v.Writes)
	l.least("read-success", s.ReadSuccess, v.Reads)
	h, ended := lastHealing(t, v.Healing)
	l.longest("converged", s.Converged, toNumber(ended), h.Seconds)
	if s.FalseEvictions != nil {
		l.falseEvictions(*s.FalseEvictions, v)
	}
	l.removal(s.Removal, v.Removal)
}

func (l *limits) falseEvictions(most int, v *Verdict) {
	limit := fmt.Sprintf("false-evictions at most %d", most)
	switch {
	case v.FalseEvictions > most:
		l.add(limit, fmt.Sprint(v.FalseEvictions))
	case !v.Told:
		l.add(limit, "undecided: a node's stream of changes was read for less than half of the time")
	}
}

// nothing is a limit's value when there is nothing to compare it with.
const nothing = "nothing that it could be held against"

// longest checks a limit on seconds against each measured value; negative ones did not end within the trial.
func (l *limits) longest(name string, limit *scenario.Span, measured int, got float64) {
	if limit == nil {
		return
	}
	text := fmt.Sprintf("%s at most %s", name, limit)
	switch {
	case measured == 0:
		l.add(text, nothing)
	case got < 0:
		l.add(text, "not within the trial")
	case got > limit.Duration().Seconds():
		l.add(text, fmt.Sprintf("%.4g s", got))
	}
}

// least checks a limit on the share of calls that were answered.
func (l *limits) least(name string, limit *float64, got Calls) {
	switch {
	case limit == nil:
	case got.Count == 0:
		l.add(fmt.Sprintf("%s at least %v", name, *limit), nothing)
	case got.Success < *limit:
		l.add(fmt.Sprintf("%s at least %v", name, *limit), fmt.Sprintf("%.4g", got.Success))
	}
}

func (l *limits) removal(limit *scenario.Span, got Spread) {
	if limit != nil && got.Never > 0 {
		l.add(fmt.Sprintf("removal at most %s", limit), fmt.Sprintf("%d of %d were listed until the end", got.Never, got.Never+got.Count))
		return
	}
	l.longest("removal", limit, got.Count, got.P99)
}

func toNumber(is bool) int {
	if is {
		return 1
	}
	return 0
}

// lastHealing returns the healing of the fault that ended last.
func lastHealing(t *trial.Trial, healings []Healing) (Healing, bool) {
	var last Healing
	found := false
	for _, h := range healings {
		if !found || t.Faults[h.Fault].To > t.Faults[last.Fault].To {
			last, found = h, true
		}
	}
	return last, found
}
