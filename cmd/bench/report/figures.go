package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// figure is a number that each round of a column has.
type figure struct {
	name   string
	get    func(run) (float64, bool) // negative: it did not happen within the trial
	show   func(float64) string
	better direction
	notes  func(runs) []string // further lines of the cell; nil: none
	absent func(runs) string   // the cell's text where no round has the figure; nil: a dash
	cannot func(column) string // why a column has no such figure, whatever its rounds say; nil, or empty: it has
	apart  func(column) string // why the figure of a column is compared with no other one; nil, or empty: it is
	rare   bool                // where it is 0 in all columns there is no row
}

// none stands for a figure that there is not.
const none = "–"

// fromVerdict is a figure that a verdict has.
func fromVerdict(name string, show func(float64) string, better direction, get func(*verdict.Verdict) (float64, bool)) figure {
	return figure{name: name, show: show, better: better, get: func(o run) (float64, bool) { return get(o.verdict) }}
}

// rarely is a figure that every verdict has and that seldom is anything but 0.
func rarely(name string, show func(float64) string, better direction, get func(*verdict.Verdict) float64) figure {
	f := fromVerdict(name, show, better, func(v *verdict.Verdict) (float64, bool) { return get(v), true })
	f.rare = true
	return f
}

// inLists is such a figure of what is in the nodes' lists, less of which is better. Without lists it is not known.
func inLists(name string, show func(float64) string, get func(*verdict.Verdict) float64) figure {
	f := fromVerdict(name, show, less, func(v *verdict.Verdict) (float64, bool) { return get(v), v.Listed })
	f.rare = true
	return f
}

// late is the 99th percentile of a spread, with the median beside it.
func late(name string, get func(*verdict.Verdict) verdict.Spread) figure {
	f := fromVerdict(name+", p99", showSeconds, less, func(v *verdict.Verdict) (float64, bool) {
		s := get(v)
		if s.Never*100 > s.Never+s.Count {
			return -1, true
		}
		return s.P99, s.Count > 0
	})
	f.notes = func(of runs) []string {
		half := ""
		if known := of.known(func(o run) (float64, bool) { return get(o.verdict).P50, get(o.verdict).Count > 0 }); len(known) > 0 {
			half = "p50 " + showSeconds(known.median())
		}
		return []string{half, neverNote(of, get)}
	}
	return f
}

// neverNote says how many of a spread did not end within the trial, of all rounds; empty: all did.
func neverNote(of runs, get func(*verdict.Verdict) verdict.Spread) string {
	never, all := 0, 0
	for _, o := range of.of {
		never, all = never+get(o.verdict).Never, all+get(o.verdict).Never+get(o.verdict).Count
	}
	if never == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s never", showCount(float64(never)), showCount(float64(all)))
}

func writeSuccess() figure {
	return fromVerdict("writes answered", showShare, more, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Success, v.Writes.Count > 0 })
}

func readSuccess() figure {
	return fromVerdict("fetches and deltas answered", showShare, more, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Success, v.Reads.Count > 0 })
}

func writeGap() figure {
	return longestGap("longest time without an answered write", func(v *verdict.Verdict) verdict.Calls { return v.Writes })
}

func readGap() figure {
	return longestGap("longest time without an answered fetch or delta", func(v *verdict.Verdict) verdict.Calls { return v.Reads })
}

func longestGap(name string, calls func(*verdict.Verdict) verdict.Calls) figure {
	f := fromVerdict(name, showSeconds, less, func(v *verdict.Verdict) (float64, bool) { return calls(v).LongestGap, calls(v).Count > 0 })
	f.notes = func(of runs) []string {
		return []string{openNote(of, func(v *verdict.Verdict) bool { return calls(v).OpenGap })}
	}
	return f
}

// openNote says in how many rounds a gap had not ended when the calls did; empty: in none.
func openNote(of runs, open func(*verdict.Verdict) bool) string {
	rounds := 0
	for _, o := range of.of {
		if open(o.verdict) {
			rounds++
		}
	}
	if rounds == 0 {
		return ""
	}
	return fmt.Sprintf("at least: in %d of %d no answer ended it", rounds, len(of.of))
}

// worstGap is the longest time for which one client of an operation got no answer.
func worstGap(o trial.Operation) figure {
	f := fromVerdict(fmt.Sprintf("worst client: longest time without an answered %s", o), showSeconds, less, func(v *verdict.Verdict) (float64, bool) {
		return v.Worst[o].Gap, v.Worst[o].Clients > 0
	})
	f.notes = func(of runs) []string {
		least := of.known(func(o2 run) (float64, bool) { w := o2.verdict.Worst[o]; return w.Success, w.Clients > 0 })
		return []string{
			"the worst client got " + showShare(least.median()) + " answered",
			openNote(of, func(v *verdict.Verdict) bool { return v.Worst[o].Open }),
		}
	}
	return f
}

// cutOff is the share of calls that were answered where the clients were cut off, while they were.
func cutOff(name string, calls func(verdict.Side) verdict.Calls) figure {
	return fromVerdict(name, showShare, more, func(v *verdict.Verdict) (float64, bool) {
		c := calls(struckSide(v))
		return float64(inTime(c)) / float64(max(c.Count, 1)), c.Count > 0
	})
}

// struckSide is what the clients of the struck nodes saw during the first fault.
func struckSide(v *verdict.Verdict) verdict.Side {
	for _, s := range v.Sides {
		if s.Fault == 0 && s.Struck {
			return s
		}
	}
	return verdict.Side{}
}

// staleShare is the share of the probes that got an answer older than what had been acknowledged, with their ages.
func staleShare(name string, get func(*verdict.Verdict) verdict.Staleness) figure {
	f := fromVerdict(name, showShare, less, func(v *verdict.Verdict) (float64, bool) { return get(v).Share, get(v).Reads > 0 })
	f.absent = func(runs) string { return "no probe answered" }
	f.notes = func(of runs) []string {
		notes := []string{"of " + amount(of.each(func(o run) float64 { return float64(get(o.verdict).Reads) }).median(), "answer")}
		ages := func(of runs, age func(verdict.Spread) float64) perRound {
			return of.known(func(o run) (float64, bool) { s := get(o.verdict); return age(s.Age), s.Stale > 0 })
		}
		oldest := ages(of, func(s verdict.Spread) float64 { return s.Max })
		if len(oldest) == 0 {
			return notes
		}
		return append(notes, fmt.Sprintf("ages p50 %s, p99 %s, most %s",
			showSeconds(ages(of, func(s verdict.Spread) float64 { return s.P50 }).median()),
			showSeconds(ages(of, func(s verdict.Spread) float64 { return s.P99 }).median()), showSeconds(slices.Max(oldest))))
	}
	return f
}

func wholeStaleness(v *verdict.Verdict) verdict.Staleness  { return v.Staleness }
func struckStaleness(v *verdict.Verdict) verdict.Staleness { return struckSide(v).Staleness }

// follows is the share of stale answers that follows for keys which change as seldom as those of a registry do: the first
// of the intervals as the figure, the others as notes.
func follows(get func(*verdict.Verdict) verdict.Staleness) figure {
	share := func(number int) func(run) (float64, bool) {
		return func(o run) (float64, bool) {
			follows := get(o.verdict).Follows
			if number >= len(follows) {
				return 0, false
			}
			return follows[number].Share, true
		}
	}
	f := figure{name: "stale answers that follow for a key that changes every 30 s", show: showShare, better: less, get: share(0)}
	f.notes = func(of runs) []string {
		var notes []string
		for number, f := range get(of.of[0].verdict).Follows {
			if number > 0 {
				notes = append(notes, fmt.Sprintf("every %s: %s", showInterval(f.Every), showShare(of.known(share(number)).median())))
			}
		}
		return notes
	}
	return f
}

// lossKind is a kind of loss.
type lossKind struct {
	name string // what was lost
	noun string // one of what could be
	of   func(verdict.Losses) verdict.Loss
}

// lossKinds are all of them, in the order of reports.
var lossKinds = []lossKind{
	{"registrations lost", "registration", func(l verdict.Losses) verdict.Loss { return l.Registrations }},
	{"updates rolled back", "update", func(l verdict.Losses) verdict.Loss { return l.Updates }},
	{"cancels undone", "cancel", func(l verdict.Losses) verdict.Loss { return l.Cancels }},
	{"watched keys rolled back", "version", func(l verdict.Losses) verdict.Loss { return l.Rollbacks }},
	{"heartbeats answered 404 within the lease", "heartbeat", func(l verdict.Losses) verdict.Loss { return l.Heartbeats }},
}

// figure counts the losses of the kind, with how many there could have been, and the ages of what was lost at the kill.
func (k lossKind) figure() figure {
	f := fromVerdict(k.name, showCount, less, func(v *verdict.Verdict) (float64, bool) {
		l := k.of(v.Losses)
		return float64(l.Count), l.Of > 0
	})
	unjudged := func(of runs) int { return of.most(func(v *verdict.Verdict) int { return k.of(v.Losses).Unjudged }) }
	f.absent = func(of runs) string {
		if unjudged(of) > 0 {
			return "not judged: a node did not answer"
		}
		return none
	}
	f.notes = func(of runs) []string {
		most := of.known(func(o run) (float64, bool) { l := k.of(o.verdict.Losses); return float64(l.Of), l.Of > 0 })
		var half, oldest perRound
		lost, aging := 0, 0 // what was lost after the last kill has no age
		for _, o := range of.of {
			lost, aging = lost+k.of(o.verdict.Losses).Count, aging+k.of(o.verdict.Losses).Age.Count
			if age := k.of(o.verdict.Losses).Age; age.Count > 0 {
				half, oldest = append(half, age.P50), append(oldest, age.Max)
			}
		}
		notes := []string{"of " + amount(most.median(), k.noun)}
		if n := unjudged(of); n > 0 {
			notes = append(notes, fmt.Sprintf("%s more could not be judged: a node did not answer", showCount(float64(n))))
		}
		if len(half) > 0 {
			aged := "age at the kill"
			if aging < lost {
				aged += fmt.Sprintf(" of %d of %d in all rounds", aging, lost)
			}
			notes = append(notes, fmt.Sprintf("%s up to %s, p50 %s", aged, showSeconds(slices.Max(oldest)), showSeconds(half.median())))
		}
		return notes
	}
	return f
}

// changesLost counts the acknowledged changes that were lost in a trial. That an instance was answered 404 follows from one.
func changesLost(v *verdict.Verdict) (lost float64, judged bool) {
	l := v.Losses
	for _, of := range []verdict.Loss{l.Registrations, l.Updates, l.Cancels, l.Rollbacks} {
		lost, judged = lost+float64(of.Count), judged || of.Of > 0
	}
	return lost, judged
}

func falseEvictions() figure {
	f := fromVerdict("living instances evicted", showCount, less, func(v *verdict.Verdict) (float64, bool) { return float64(v.FalseEvictions), v.Told })
	f.absent = func(of runs) string {
		if !of.Streams() {
			return "tells of no evictions"
		}
		return none
	}
	return f
}

func missing() figure {
	f := fromVerdict("living instances absent from lists, in instance-seconds a node", showSum, less, func(v *verdict.Verdict) (float64, bool) { return v.Missing, v.Listed })
	f.notes = func(of runs) []string {
		unanswered := of.each(func(o run) float64 { return o.verdict.Unanswered })
		if unanswered.zero() {
			return nil
		}
		return []string{showSeconds(unanswered.median()) + " without a list"}
	}
	return f
}

func unanswered() figure {
	return fromVerdict("time without an answer to who asks for the list, a node", showSeconds, less, func(v *verdict.Verdict) (float64, bool) { return v.Unanswered, v.Listed })
}

// healed is how long the slowest of the faults took to heal.
func healed() figure {
	return fromVerdict("everything in every list after the fault's end", showSeconds, less, func(v *verdict.Verdict) (float64, bool) {
		slowest := 0.0
		for _, h := range v.Healing {
			if h.Seconds < 0 {
				return -1, true
			}
			slowest = max(slowest, h.Seconds)
		}
		return slowest, len(v.Healing) > 0
	})
}

// explained counts the watched keys whose history no single copy explains, with what the histories prove.
func explained() figure {
	f := fromVerdict("watched keys whose history no single copy explains", showCount, less, func(v *verdict.Verdict) (float64, bool) {
		return float64(len(v.History.Violated)), v.History.Keys > 0 && (v.History.Result == verdict.OK || v.History.Result == verdict.Violated)
	})
	f.notes = func(of runs) []string {
		return []string{
			"of " + amount(of.each(func(o run) float64 { return float64(o.verdict.History.Keys) }).median(), "key"), overlap(of), aimed(of),
		}
	}
	f.absent = func(of runs) string {
		if !of.Linearizable() {
			return "not promised"
		}
		return results(of, func(v *verdict.Verdict) verdict.Result { return v.History.Result })
	}
	return f
}

// overlap says how much a column's histories prove: without writes that overlap, and writes of unknown outcome, little.
func overlap(of runs) string {
	return fmt.Sprintf("overlapping writes: %s; of unknown outcome: %s",
		showCount(of.each(func(o run) float64 { return float64(o.verdict.History.Overlapping) }).median()),
		showCount(of.each(func(o run) float64 { return float64(o.verdict.History.Unknown) }).median()))
}

// aimed says how many kills, of all rounds, ended a node to which writes of watched keys were on their way; empty: only kills that
// strike many times are aimed at writes.
func aimed(of runs) string {
	if !slices.ContainsFunc(of.scenario.Faults, func(f scenario.Fault) bool { return f.Times > 1 }) {
		return ""
	}
	kills, met := 0, 0
	for _, o := range of.of {
		for _, f := range o.Faults {
			for _, k := range f.Kills {
				kills++
				if k.Writing > 0 {
					met++
				}
			}
		}
	}
	return fmt.Sprintf("%d of %s amid writes", met, counted(kills, "kill"))
}

// results names each result of the rounds once, and where they differ, in how many of them it was so.
func results(of runs, get func(*verdict.Verdict) verdict.Result) string {
	times := make(map[string]int)
	for _, o := range of.of {
		if name := string(get(o.verdict)); name != "" {
			times[name]++
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if len(times) > 1 {
			name = fmt.Sprintf("%s in %d", name, times[name])
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// removal is how long dead instances were listed.
func removal() figure {
	f := late("a dead instance is gone from every list", func(v *verdict.Verdict) verdict.Spread { return v.Removal })
	notes := f.notes
	f.notes = func(of runs) []string {
		died := of.each(func(o run) float64 { return float64(o.verdict.Removal.Count + o.verdict.Removal.Never) })
		return append(notes(of), fmt.Sprintf("%s died", amount(died.median(), "instance")), "leases here "+showSeconds(of.scenario.Load.Lease.Duration().Seconds()))
	}
	return f
}

// deadAtTheEnd is neither good nor bad: many that die at once are kept on purpose.
func deadAtTheEnd() figure {
	return rarely("dead instances listed at the end", showCount, neither, func(v *verdict.Verdict) float64 { return float64(len(v.Dead)) })
}

func seenBy(way trial.Way) figure {
	return late(fmt.Sprintf("a registration is seen at another node, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] })
}

func seenAbroadBy(way trial.Way) figure {
	return late(fmt.Sprintf("a registration is seen in the other datacenter, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Abroad[way] })
}

func listedAgain() figure {
	f := inLists("instances listed again after their cancel", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Revived)) })
	f.cannot = elsewhere("cannot be told: lists are up to 30 s old")
	return f
}

// ofOurs is a figure that only Rollcall's nodes are asked for.
func ofOurs(f figure) figure {
	f.cannot = elsewhere("not asked for")
	return f
}

// figures are the rows of a scenario's table, in their order.
func figures() []figure {
	all := []figure{
		writeSuccess(), readSuccess(), writeGap(), readGap(), worstGap(trial.Heartbeat), worstGap(trial.Fetch),
		compiled(late("write latency", func(v *verdict.Verdict) verdict.Spread { return v.Writes.Latency })),
		compiled(late("fetch and delta latency", func(v *verdict.Verdict) verdict.Spread { return v.Reads.Latency })),
		staleShare("stale answers to probes", wholeStaleness), follows(wholeStaleness),
	}
	for _, way := range trial.Ways {
		all = append(all, seenBy(way), seenAbroadBy(way))
	}
	all = append(all, removal(),
		inLists("gone instances in lists, in instance-seconds a node", showSum, func(v *verdict.Verdict) float64 { return v.Ghosts }),
		missing(), unanswered(), healed())
	for _, kind := range lossKinds {
		all = append(all, kind.figure())
	}
	all = append(all,
		rarely("living instances absent at the end, when clients have gone on", showCount, less, func(v *verdict.Verdict) float64 { return float64(len(v.Lost)) }),
		listedAgain(),
		deadAtTheEnd(),
		falseEvictions(), explained(), converged(),
		ofOurs(rarely("elections", showCount, neither, func(v *verdict.Verdict) float64 { return float64(v.Elections) })),
		ofOurs(rarely("time in which no node named a leader", showSeconds, neither, func(v *verdict.Verdict) float64 { return v.Leaderless })))
	for _, of := range []struct {
		name string
		show func(float64) string
		get  func(verdict.Replicator) float64
	}{
		{"tasks", showCount, func(r verdict.Replicator) float64 { return r.Tasks }},
		{"merged", showCount, func(r verdict.Replicator) float64 { return r.Merged }},
		{"dropped", showCount, func(r verdict.Replicator) float64 { return r.Dropped }},
		{"failed and repeated", showCount, func(r verdict.Replicator) float64 { return r.Errors }},
		{"largest batch", showCount, func(r verdict.Replicator) float64 { return r.Batch }},
		{"largest lag", showSeconds, func(r verdict.Replicator) float64 { return r.LagSeconds }},
	} {
		all = append(all, rarely("replicator: "+of.name, of.show, neither, func(v *verdict.Verdict) float64 { return of.get(v.Replicator) }))
	}
	return append(all, costFigures()...)
}

// converged says whether the nodes held the same at the end.
func converged() figure {
	f := figure{name: "nodes agree at the end, and no update is lost against the rule", show: showCount, get: func(run) (float64, bool) { return 0, false }}
	f.absent = func(of runs) string {
		return results(of, func(v *verdict.Verdict) verdict.Result { return v.Converged.Result })
	}
	return f
}

// costFigures are what the servers spent while nothing but heartbeats came.
func costFigures() []figure {
	cost := func(name string, show func(float64) string, get func(verdict.Cost) float64) figure {
		return fromVerdict(name, show, less, func(v *verdict.Verdict) (float64, bool) { return get(v.Cost), v.Cost.Memory > 0 })
	}
	answered := cost("renewals answered, per second", showSum, func(c verdict.Cost) float64 { return c.Renewals })
	answered.better = neither // it is the load
	return []figure{
		answered,
		compiled(cost("processor time of all nodes, per second", showSeconds, func(c verdict.Cost) float64 { return c.CPU })),
		cost("written to the disk of a node", showBytesPerSecond, func(c verdict.Cost) float64 { return c.Written }),
		cost("sent between nodes", showBytesPerSecond, func(c verdict.Cost) float64 { return c.Sent }),
		garbage(cost("memory of a node at the end", showBytes, func(c verdict.Cost) float64 { return c.Memory })),
	}
}

// observed are the scenarios in which nodes are observed and something can be lost: all but those of heartbeats alone.
func observed(s scenario.Scenario) bool { return !s.HeartbeatsOnly() }

// calm are the scenarios of which nothing is expected but the load, probes included.
func calm(s scenario.Scenario) bool { return len(s.Faults)+len(s.Storms) == 0 && s.Load.Reads > 0 }

// with are the scenarios whose only fault is of a kind, strikes certain nodes, and strikes once.
func with(kind scenario.Kind, nodes string) func(scenario.Scenario) bool {
	return func(s scenario.Scenario) bool {
		return len(s.Faults) == 1 && s.Faults[0].Kind == kind && s.Faults[0].Nodes == nodes && s.Faults[0].Times <= 1
	}
}

// died are the scenarios in which instances die.
func died(s scenario.Scenario) bool {
	return slices.ContainsFunc(s.Faults, func(f scenario.Fault) bool { return f.Kind == scenario.Die })
}

// crowded are the scenarios in which many clients write the same key.
func crowded(s scenario.Scenario) bool { return s.Load.KeyWriters > 0 }

// compiled is a figure of processor time. A Java machine that has just started has not compiled well yet what it runs, so that
// its figure is shown and compared with no other one.
func compiled(f figure) figure {
	f.apart = elsewhere("not compared: just started, the first compiler alone")
	return f
}

// collected is a figure of memory that grows with instances: a Java machine fills what it may have with garbage first.
func collected(f figure) figure {
	f.cannot = elsewhere("cannot be told: garbage is in it")
	return f
}

// garbage is a figure of memory: a Java machine takes what it may have.
func garbage(f figure) figure {
	f.apart = elsewhere("not compared: garbage is in it")
	return f
}

// elsewhere says why of columns whose servers are not ours, and nothing of the others.
func elsewhere(why string) func(column) string {
	return func(c column) string {
		if c.System == scenario.Rollcall {
			return ""
		}
		return why
	}
}
