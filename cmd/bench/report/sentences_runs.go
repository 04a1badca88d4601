package report

import (
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// run is a completed trial and its verdict.
type run struct {
	*trial.Trial
	verdict *verdict.Verdict
}

// runs are the rounds of a scenario in one mode that were completed.
type runs struct {
	mode scenario.Mode
	of   []run
}

func (r *Report) runs(name string, mode scenario.Mode) runs {
	found := runs{mode: mode}
	for i := range r.Trials {
		if t := &r.Trials[i]; t.Scenario == name && t.Mode == mode && t.Failed == "" {
			found.of = append(found.of, run{t, &r.Verdicts[i]})
		}
	}
	return found
}

func (m runs) each(value func(run) float64) perRound {
	var f perRound
	for _, o := range m.of {
		f = append(f, value(o))
	}
	return f
}

// view is what some clients saw in a time, round by round.
type view []verdict.Side

// side is what the clients of the struck nodes, or the others, saw during a fault.
func (m runs) side(fault int, struck bool) view {
	var found view
	for _, o := range m.of {
		for _, s := range o.verdict.Sides {
			if s.Fault == fault && s.Struck == struck {
				found = append(found, s)
			}
		}
	}
	return found
}

// during is what all clients saw during a fault.
func (m runs) during(fault int) view {
	return m.numbered(fault, func(v *verdict.Verdict) []verdict.Side { return v.During })
}

// storm is what all clients saw during a storm.
func (m runs) storm(number int) view {
	return m.numbered(number, func(v *verdict.Verdict) []verdict.Side { return v.Storms })
}

func (m runs) numbered(number int, of func(*verdict.Verdict) []verdict.Side) view {
	var found view
	for _, o := range m.of {
		for _, s := range of(o.verdict) {
			if s.Fault == number {
				found = append(found, s)
			}
		}
	}
	return found
}

// whole is what all clients saw in the whole trial.
func (m runs) whole() view {
	var found view
	for _, o := range m.of {
		v := o.verdict
		found = append(found, verdict.Side{Reads: v.Reads, Writes: v.Writes, Staleness: v.Staleness, NoWrites: -1})
	}
	return found
}

func (w view) each(value func(verdict.Side) float64) perRound {
	var f perRound
	for _, s := range w {
		f = append(f, value(s))
	}
	return f
}

// The calls of a view.
func reads(s verdict.Side) verdict.Calls  { return s.Reads }
func writes(s verdict.Side) verdict.Calls { return s.Writes }

// share is that of the calls that were answered; ok: there were any.
func (w view) share(calls func(verdict.Side) verdict.Calls) (share perRound, ok bool) {
	for _, s := range w {
		if calls(s).Count > 0 {
			share = append(share, calls(s).Success)
		}
	}
	return share, len(share) > 0
}

// service says how writes and reads went: share and 99th percentile.
func (w view) service() []string {
	return []string{
		w.served("answered %s of the writes, 99 %% of them within %s", writes),
		w.served("%s of the reads, within %s", reads),
	}
}

func (w view) served(text string, calls func(verdict.Side) verdict.Calls) string {
	share, ok := w.share(calls)
	if !ok {
		return ""
	}
	p99 := w.each(func(s verdict.Side) float64 { return calls(s).Latency.P99 })
	return fmt.Sprintf(text, share.show(showShare), p99.show(showSeconds))
}

// accepted says how many writes were accepted, and how many were not. where is "there", or the like.
func (w view) accepted(where string) string {
	due := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Count) })
	done := w.each(func(s verdict.Side) float64 { return float64(answered(s.Writes)) })
	refused := w.each(func(s verdict.Side) float64 { return float64(refused(s.Writes)) })
	doubt := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Outcomes[trial.Unknown]) })
	switch {
	case due.zero():
		return ""
	case refused.zero() && doubt.zero():
		return "accepted all of " + done.counted("write") + " " + where
	case done.zero():
		return "accepted none of " + due.counted("write") + " " + where
	}
	text := fmt.Sprintf("accepted %s %s", done.counted("write"), where)
	if !refused.zero() {
		text = fmt.Sprintf("refused %s %s", refused.counted("write"), where) + w.stopped()
	}
	if !doubt.zero() {
		text += " (and left " + doubt.show(showCount) + " in doubt)"
	}
	return text
}

// stopped says from when on no write was answered until the fault was undone.
func (w view) stopped() string {
	since := w.each(func(s verdict.Side) float64 { return s.NoWrites })
	if slices.ContainsFunc(since, func(v float64) bool { return v < 0 }) {
		return ""
	}
	if since.zero() {
		return " (all of them)"
	}
	return fmt.Sprintf(" (all of them from %s on)", since.show(showSeconds))
}

func answered(c verdict.Calls) int { return c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] }
func refused(c verdict.Calls) int  { return c.Outcomes[trial.Refused] + c.Outcomes[trial.Unreached] }

// answeredReads says how many reads were answered.
func (w view) answeredReads() string {
	share, ok := w.share(reads)
	switch {
	case !ok:
		return ""
	case share.zero():
		return "answered no read"
	}
	return "answered " + share.show(showShare) + " of the reads"
}

// staleReads says how many of the reads that can tell were stale, and how old the oldest was.
func (w view) staleReads() string {
	var share, oldest perRound
	for _, s := range w {
		if s.Staleness.Reads > 0 {
			share, oldest = append(share, s.Staleness.Share), append(oldest, s.Staleness.Age.Max)
		}
	}
	switch {
	case len(share) == 0:
		return ""
	case share.zero():
		return "gave no stale answer"
	}
	return fmt.Sprintf("gave %s of its answers stale, by up to %s", share.show(showShare), oldest.show(showSeconds))
}

// gap says for how long nobody got an answer.
func (m runs) gap() string {
	if w := m.whole(); w.each(func(s verdict.Side) float64 { return float64(s.Writes.Count + s.Reads.Count) }).zero() {
		return ""
	}
	write := m.each(func(o run) float64 { return o.verdict.Writes.LongestGap })
	read := m.each(func(o run) float64 { return o.verdict.Reads.LongestGap })
	// Bins end where they end: a call more or less makes a gap of one of them.
	if long := max(slices.Max(write), slices.Max(read)); long <= 2*trial.BinLength.Seconds() {
		return "answered writes and reads all the time"
	}
	return fmt.Sprintf("answered no write for %s and no read for %s", write.show(showSeconds), read.show(showSeconds))
}

// healed says how long after a fault's end all nodes had everything again. text names the state.
func (m runs) healed(fault int, text string) string {
	var took perRound
	for _, o := range m.of {
		for _, h := range o.verdict.Healing {
			if h.Fault == fault {
				took = append(took, h.Seconds)
			}
		}
	}
	never := len(slices.DeleteFunc(slices.Clone(took), func(s float64) bool { return s >= 0 }))
	switch {
	case len(took) == 0:
		return ""
	case never == len(took):
		return "had not converged when the trial ended"
	case never > 0:
		return fmt.Sprintf("had not converged at the end of %d of %s", never, amount(float64(len(took)), "round"))
	}
	return fmt.Sprintf("converged %s after %s", took.show(showSeconds), text)
}

// The places where a registration may be looked for: at the other nodes of its datacenter, and abroad.
func home(v *verdict.Verdict) map[trial.Way]verdict.Spread   { return v.Visibility }
func abroad(v *verdict.Verdict) map[trial.Way]verdict.Spread { return v.Abroad }

// seen puts median and 99th percentile of how long a registration took until it was seen into a text.
func (m runs) seen(text string, way trial.Way, where func(*verdict.Verdict) map[trial.Way]verdict.Spread) string {
	var middle, late perRound
	for _, o := range m.of {
		if spread := where(o.verdict)[way]; spread.Count > 0 {
			middle, late = append(middle, spread.P50), append(late, spread.P99)
		}
	}
	if len(middle) == 0 {
		return ""
	}
	return fmt.Sprintf(text, fmt.Sprintf("%s (99 %%: %s)", middle.show(showSeconds), late.show(showSeconds)))
}

// elected says how many leaders followed the first.
func (m runs) elected() string {
	if m.mode != scenario.CP {
		return ""
	}
	elections := m.each(func(o run) float64 { return float64(o.verdict.Elections) })
	text := "elected " + elections.counted("new leader")
	without := m.each(func(o run) float64 { return o.verdict.Leaderless })
	if !elections.zero() && !without.zero() {
		text += " (without any for " + without.show(showSeconds) + ")"
	}
	return text
}
