package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Judge computes the verdict of a trial of a scenario. It depends on nothing else, except that the checker of histories
// may run out of time (Undecided).
func Judge(t *trial.Trial, s scenario.Scenario) Verdict {
	answered := t.Length.Seconds()
	watched := keysOf(t.History)
	v := Verdict{
		Operations: operations(t.Series, answered),
		Reads:      callsOf(t.Series, answered, func(s trial.Series) bool { return !s.Operation.Writes() }, always),
		Writes:     callsOf(t.Series, answered, func(s trial.Series) bool { return s.Operation.Writes() }, always),
		Staleness:  watched.staleness(always),
		Sides:      sides(t, watched),
		During:     during(t, watched),
		Storms:     storms(t, s, watched),
		Visibility: visibility(t, false),
		Abroad:     visibility(t, true),
		Removal:    spreadOfMicros(slices.Collect(maps.Values(LastGone(t.Departures, false)))),
		Ghosts:     integral(t.Lists, func(l trial.List) int { return l.Ghosts }),
		Missing:    integral(t.Lists, func(l trial.List) int { return l.Missing }),
		Healing:    healings(t),
		Lost:       endings(t, func(e trial.Ending) []string { return e.Missing }),
		Revived:    revived(t),
		Dead:       endings(t, func(e trial.Ending) []string { return e.Dead }),
		Elections:  elections(t),
		Leaderless: leaderless(t),
		Replicator: replicator(t.Replicator),
		Cost:       cost(t, s),
		History:    history(t, watched),
		Converged:  convergence(t, watched),

		FalseEvictions: falseEvictions(t.Evictions),
	}
	v.Broken = broken(t, s, &v)
	return v
}

// always is the condition that everything meets.
func always[T any](T) bool { return true }

// Completed is the limit, without its mode, that a trial breaks that could not be completed.
const Completed = "the trial is completed"

// limits collects those that a trial did not keep.
type limits struct {
	mode   scenario.Mode
	broken []Broken
}

// broken lists the limits that a trial did not keep: what its mode promises at all times, and what its scenario states.
func broken(t *trial.Trial, s scenario.Scenario, v *Verdict) []Broken {
	l := limits{mode: t.Mode, broken: []Broken{}}
	if t.Failed != "" {
		l.add(Completed, t.Failed)
	}
	l.promises(v, s.Limits[t.Mode].MayLose)
	if t.Failed == "" {
		l.stated(s.Limits[t.Mode], t, v)
	}
	return l.broken
}

func (l *limits) add(limit, got string) {
	l.broken = append(l.broken, Broken{Limit: fmt.Sprintf("%s: %s", l.mode, limit), Got: got})
}

// promises are those of the mode. mayLose allows that the last moments of a killed node are lost; the nodes must
// agree all the same.
func (l *limits) promises(v *Verdict, mayLose bool) {
	if v.History.Result == Violated {
		l.add("histories are linearizable", v.History.Example.Text)
	}
	if l.mode == scenario.AP && v.Converged.Result == Violated && !(mayLose && len(v.Converged.Differ) == 0) {
		l.add("nodes converge, and no update is lost against the rule", v.Converged.Text)
	}
	if len(v.Lost) > 0 {
		l.add("nothing is lost", counted(v.Lost)+" not listed by some node at the end, though acknowledged and alive")
	}
	if len(v.Revived) > 0 && !mayLose {
		l.add("nothing is revived", counted(v.Revived)+" listed after the acknowledged cancel")
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
	l.longest("write-gap", s.WriteGap, v.Writes.LongestGap)
	l.longest("read-gap", s.ReadGap, v.Reads.LongestGap)
	l.least("write-success", s.WriteSuccess, v.Writes.Success)
	l.least("read-success", s.ReadSuccess, v.Reads.Success)
	if h, ok := lastHealing(t, v.Healing); ok {
		l.longest("converged", s.Converged, h.Seconds)
	}
	if s.FalseEvictions != nil && v.FalseEvictions > *s.FalseEvictions {
		l.add(fmt.Sprintf("false-evictions at most %d", *s.FalseEvictions), fmt.Sprint(v.FalseEvictions))
	}
	l.removal(s.Removal, v.Removal)
}

// longest is a limit on seconds; negative ones did not end within the trial.
func (l *limits) longest(name string, limit *scenario.Span, got float64) {
	switch {
	case limit == nil:
	case got < 0:
		l.add(fmt.Sprintf("%s at most %s", name, limit), "not within the trial")
	case got > limit.Duration().Seconds():
		l.add(fmt.Sprintf("%s at most %s", name, limit), fmt.Sprintf("%.4g s", got))
	}
}

// least is a limit on a share.
func (l *limits) least(name string, limit *float64, got float64) {
	if limit != nil && got < *limit {
		l.add(fmt.Sprintf("%s at least %v", name, *limit), fmt.Sprintf("%.4g", got))
	}
}

func (l *limits) removal(limit *scenario.Span, got Spread) {
	if limit != nil && got.Never > 0 {
		l.add(fmt.Sprintf("removal at most %s", limit), fmt.Sprintf("%d of %d were listed until the end", got.Never, got.Never+got.Count))
		return
	}
	l.longest("removal", limit, got.P99)
}

// lastHealing is that of the fault that ended last.
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
