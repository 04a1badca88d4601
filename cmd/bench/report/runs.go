package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

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

// shareInTime is that of the calls that were answered before the fault was over; ok: there were any.
func (w view) shareInTime(calls func(verdict.Side) verdict.Calls) (share perRound, ok bool) {
	for _, s := range w {
		if c := calls(s); c.Count > 0 {
			share = append(share, float64(inTime(c))/float64(c.Count))
		}
	}
	return share, len(share) > 0
}

// service says how many writes and reads a second there were, how many of them were answered, and how soon.
func (w view) service() []string {
	if _, ok := w.share(writes); !ok {
		return []string{w.served("answered", reads, "read")}
	}
	return []string{w.served("answered", writes, "write"), w.served("", reads, "read")}
}

func (w view) served(verb string, calls func(verdict.Side) verdict.Calls, noun string) string {
	share, ok := w.share(calls)
	if !ok {
		return ""
	}
	if share.zero() {
		return strings.TrimSpace(verb + " no " + noun)
	}
	rate := perRound{w.each(func(s verdict.Side) float64 { return dueRate(calls(s)) }).median()}
	if rate[0] < 1 {
		return "" // too few to speak of
	}
	text := share.show(showShare) + " of " + rate.counted(noun)
	if share.whole() {
		text = rate.all(noun)
	}
	p99 := w.each(func(s verdict.Side) float64 { return calls(s).Latency.P99 })
	return strings.TrimSpace(fmt.Sprintf("%s %s per second, 99 %% within %s", verb, text, p99.show(showSeconds)))
}

// dueRate is how many calls were due per second.
func dueRate(c verdict.Calls) float64 {
	if c.Success == 0 {
		return 0
	}
	return c.PerSecond / c.Success
}

// accepted says how many writes were accepted before the fault was over, and how many were not. where is "there", or
// the like.
func (w view) accepted(where string) string {
	due := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Count) })
	done := w.each(func(s verdict.Side) float64 { return float64(inTime(s.Writes)) })
	refused := w.each(func(s verdict.Side) float64 { return float64(refused(s.Writes)) })
	doubt := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Outcomes[trial.Unknown]) })
	text := ""
	switch {
	case due.zero():
		return ""
	case refused.zero() && doubt.zero():
		text = "accepted " + done.all("write") + " " + where
	case refused.zero():
		text = fmt.Sprintf("accepted %s %s", done.counted("write"), where)
	default:
		text = fmt.Sprintf("refused %s %s", refused.counted("write"), where) + w.stopped()
	}
	if !doubt.zero() {
		text += ", left " + doubt.show(showCount) + " in doubt"
	}
	if late := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Late) }); !late.zero() {
		text += ", answered " + late.show(showCount) + " more only when it was over"
	}
	return text
}

// stopped says from when on no write was answered until the fault was over.
func (w view) stopped() string {
	since := w.each(func(s verdict.Side) float64 { return s.NoWrites })
	switch {
	case w.each(func(s verdict.Side) float64 { return float64(inTime(s.Writes)) }).zero():
		return " and accepted none"
	case slices.ContainsFunc(since, func(v float64) bool { return v < 0 }):
		return ""
	}
	return fmt.Sprintf(" (all of them from %s after the cut on)", since.show(showSeconds))
}

// inTime counts the calls that were answered before the fault was over.
func inTime(c verdict.Calls) int { return answered(c) - c.Late }

func answered(c verdict.Calls) int { return c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] }
func refused(c verdict.Calls) int  { return c.Outcomes[trial.Refused] + c.Outcomes[trial.Unreached] }

// answeredReads says how many reads were answered, and how many of those that can tell were stale. where is "there", or
// the like.
func (w view) answeredReads(where string) string {
	share, ok := w.shareInTime(reads)
	switch {
	case !ok:
		return ""
	case share.zero():
		return "answered no read " + where
	case share.whole():
		return "answered all reads " + where + w.ofThemStale()
	}
	return "answered " + share.show(showShare) + " of the reads " + where + w.ofThemStale()
}

func (w view) ofThemStale() string {
	share, oldest := w.stale()
	switch {
	case len(share) == 0:
		return ""
	case share.zero():
		return ", none of them stale"
	}
	return fmt.Sprintf(", %s of the probes of watched keys up to %s stale", share.show(showShare), oldest.show(showSeconds))
}

// staleReads says how many of the reads that can tell were stale, and how old the oldest was.
func (w view) staleReads() string {
	share, oldest := w.stale()
	switch {
	case len(share) == 0:
		return ""
	case share.zero():
		return "gave no stale answer"
	}
	return fmt.Sprintf("gave %s of its answers to probes of watched keys stale, by up to %s", share.show(showShare), oldest.show(showSeconds))
}

// stale is the share of stale answers among those that can tell, and the age of the oldest in seconds.
func (w view) stale() (share, oldest perRound) {
	for _, s := range w {
		if s.Staleness.Reads > 0 {
			share, oldest = append(share, s.Staleness.Share), append(oldest, s.Staleness.Age.Max)
		}
	}
	return share, oldest
}

// A gap of two bins may be one call that came late.
const shortGap = 0.2

// gap says for how long no client got an answer.
func (w view) gap() string {
	write := w.each(func(s verdict.Side) float64 { return s.Writes.LongestGap })
	read := w.each(func(s verdict.Side) float64 { return s.Reads.LongestGap })
	called := w.each(func(s verdict.Side) float64 { return float64(s.Writes.Count + s.Reads.Count) })
	switch {
	case called.zero():
		return ""
	case slices.Max(write) <= shortGap && slices.Max(read) <= shortGap:
		return "went on answering writes and reads"
	case slices.Max(read) <= shortGap:
		return fmt.Sprintf("answered no write for %s but went on answering reads", write.show(showSeconds))
	case slices.Max(write) <= shortGap:
		return fmt.Sprintf("answered no read for %s but went on answering writes", read.show(showSeconds))
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
		return "did not list everything again before the trial ended"
	case never > 0:
		return fmt.Sprintf("did not list everything again before the end of %d of %s", never, amount(float64(len(took)), "round"))
	}
	if took.zero() {
		return "listed everything again at once after " + text
	}
	return fmt.Sprintf("listed everything again %s after %s", took.show(showSeconds), text)
}

// The places where a registration may be looked for: at the other nodes of its datacenter, and abroad.
func home(v *verdict.Verdict) map[trial.Way]verdict.Spread   { return v.Visibility }
func abroad(v *verdict.Verdict) map[trial.Way]verdict.Spread { return v.Abroad }

// seen says within what time 99 % of the registrations were seen at other nodes, by a way. ok: there were any.
func (m runs) seen(way trial.Way, where func(*verdict.Verdict) map[trial.Way]verdict.Spread) (within string, ok bool) {
	var late perRound
	for _, o := range m.of {
		if spread := where(o.verdict)[way]; spread.Count > 0 {
			late = append(late, spread.P99)
		}
	}
	switch {
	case len(late) == 0:
		return "", false
	case late.zero():
		return "at once", true
	}
	return "within " + late.show(showSeconds), true
}

// shown says how soon registrations were seen at other nodes, by reads and in lists.
func (m runs) shown(at string, where func(*verdict.Verdict) map[trial.Way]verdict.Spread) string {
	var ways []string
	for _, w := range []struct {
		way  trial.Way
		text string
	}{{trial.ByRead, "to reads "}, {trial.ByList, "in lists "}} {
		if within, ok := m.seen(w.way, where); ok {
			ways = append(ways, w.text+within)
		}
	}
	if len(ways) == 0 {
		return ""
	}
	return "showed 99 % of the registrations " + at + " " + list(ways)
}

// elected says how many leaders followed the first.
func (m runs) elected() string {
	if !m.Leads() {
		return ""
	}
	elections := m.each(func(o run) float64 { return float64(o.verdict.Elections) })
	text := "elected " + elections.counted("new leader")
	without := m.each(func(o run) float64 { return o.verdict.Leaderless })
	if !elections.zero() && !without.zero() {
		text += " (for " + without.show(showSeconds) + " no node named one)"
	}
	return text
}

func (f perRound) median() float64 { return median(slices.Clone(f)) }

// zero reports whether there is nothing, or nothing but zeros.
func (f perRound) zero() bool { return !slices.ContainsFunc(f, func(v float64) bool { return v != 0 }) }

// whole reports whether every share is all.
func (f perRound) whole() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(v float64) bool { return v != 1 })
}

// show is the median, and if the rounds differ the range, each as show writes it.
func (f perRound) show(show func(float64) string) string {
	if len(f) == 0 {
		return none
	}
	text, least, most := show(f.median()), show(slices.Min(f)), show(slices.Max(f))
	if least == most {
		return text
	}
	return text + " (" + least + " to " + most + ")"
}

// counted is "no write", "1 write", "412 writes" or "412 writes (398 to 420)".
func (f perRound) counted(noun string) string {
	if len(f) == 0 {
		return ""
	}
	text := amount(f.median(), noun)
	least, most := slices.Min(f), slices.Max(f)
	if math.Round(least) == math.Round(most) {
		return text
	}
	return text + " (" + showCount(least) + " to " + showCount(most) + ")"
}

// upTo is the most of the rounds, and that it is that if they differ; empty: there is none.
func (m runs) upTo(noun string, count func(*verdict.Verdict) int) string {
	most := m.most(count)
	switch {
	case most == 0:
		return ""
	case slices.ContainsFunc(m.of, func(o run) bool { return count(o.verdict) < most }):
		return "up to " + counted(most, noun)
	}
	return counted(most, noun)
}

// amount is "no write", "1 write" or "412 writes".
func amount(n float64, noun string) string {
	switch math.Round(n) {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return showCount(n) + " " + plural(noun)
}

// plural is that of a noun.
func plural(noun string) string {
	stem, ok := strings.CutSuffix(noun, "y")
	if ok && !strings.HasSuffix(stem, "e") { // "delivery", but not "key"
		return stem + "ies"
	}
	return noun + "s"
}

// all is "all 412 writes", "the only write" or "no write", with the range of the rounds.
func (f perRound) all(noun string) string {
	switch {
	case f.zero():
		return "no " + noun
	case slices.Max(f) == 1:
		return "the only " + noun
	}
	return "all " + f.counted(noun)
}

// wasWere is the verb for a number of things.
func wasWere(n float64) string {
	if math.Round(n) > 1 {
		return "were"
	}
	return "was"
}

// list is "a", "a and b", or "a, b, and c". Parts that have commas of their own are always parted by one.
func list(parts []string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0]
	case 2:
		if !strings.Contains(parts[0], ", ") {
			return parts[0] + " and " + parts[1]
		}
	}
	return strings.Join(parts[:len(parts)-1], ", ") + ", and " + parts[len(parts)-1]
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
