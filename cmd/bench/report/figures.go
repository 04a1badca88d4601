package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// figure is a row of a table: a number that each round of a column has.
type figure struct {
	name   string
	unit   unit
	better direction
	get    getter
	note   func(runs) string   // what a reader must know beside it; may be nil or return ""
	absent func(column) string // the cell's text where no round has the figure; nil means a dash
	cannot string              // why columns of other systems lack it; empty if they have it
	apart  string              // why the figure of other systems is not compared; empty if it is
	rare   bool                // the row is left out if it is 0 in all columns
	detail bool                // shown only on the page
	brief  bool                // shown in the terminal
}

// getter returns a figure of a round: NaN if the round lacks it; negative if it did not happen within the trial.
type getter func(*verdict.Verdict) float64

// known returns a value, or NaN unless it is known.
func known(is bool, value float64) float64 {
	if is {
		return value
	}
	return math.NaN()
}

// none stands for a figure that does not exist.
const none = "–"

// Why figures of a freshly started Java machine are not compared.
const (
	compiling  = "not compared: just started, the first compiler alone"
	collecting = "not compared: garbage is in it"
)

// cached is why lists of other systems do not tell.
const cached = "cannot be told: lists are up to 30 s old"

// during names the calls of a window in a row.
const during = "during the fault or storm, of the clients it struck"

// figures returns the rows of a scenario's table, in their order.
func figures() []figure {
	writes := func(v *verdict.Verdict) verdict.Calls { return v.Writes }
	reads := func(v *verdict.Verdict) verdict.Calls { return v.Reads }
	whole := func(v *verdict.Verdict) verdict.Staleness { return v.Staleness }
	struck := func(v *verdict.Verdict) verdict.Staleness { return window(v).Staleness }
	all := []figure{
		{name: "writes answered", unit: share, better: more, get: answered(writes)},
		{name: "fetches and deltas answered", unit: share, better: more, get: answered(reads)},
		{name: "longest time without an answered write", unit: seconds, better: less, get: longestGap(writes), note: openGap(writes), brief: true},
		{name: "longest time without an answered fetch or delta", unit: seconds, better: less, get: longestGap(reads), note: openGap(reads), brief: true},
		worstGap(trial.Heartbeat), worstGap(trial.Fetch),
		{name: "writes answered, " + during, unit: share, better: more, get: inTime(func(w verdict.Window) verdict.Calls { return w.Writes })},
		{name: "fetches and deltas answered, " + during, unit: share, better: more, get: inTime(func(w verdict.Window) verdict.Calls { return w.Reads })},
		{name: "stale answers to probes, " + during, unit: share, better: less, get: staleShare(struck), note: staleNote(struck)},
		{name: "stale answers to probes", unit: share, better: less, get: staleShare(whole), note: staleNote(whole), absent: saying("no probe answered"), brief: true},
	}
	for i, every := range []string{"30 s", "5 min", "1 h"} {
		all = append(all, figure{name: "stale answers that follow for a key that changes every " + every, unit: share, better: less, get: follows(i), detail: i > 0})
	}
	all = append(all,
		late("write latency", compiling, func(v *verdict.Verdict) verdict.Spread { return v.Writes.Latency }),
		late("fetch and delta latency", compiling, func(v *verdict.Verdict) verdict.Spread { return v.Reads.Latency }))
	for _, way := range trial.Ways {
		all = append(all,
			late(fmt.Sprintf("a registration is seen at another node, by %s", way), "", func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] }),
			late(fmt.Sprintf("a registration is seen in the other datacenter, by %s", way), "", func(v *verdict.Verdict) verdict.Spread { return v.Abroad[way] }))
	}
	all = append(all,
		late("a dead instance is gone from every list", "", func(v *verdict.Verdict) verdict.Spread { return v.Removal }),
		figure{name: "gone instances in lists, in instance-seconds a node", unit: instanceSeconds, better: less, rare: true, get: ofLists(func(v *verdict.Verdict) float64 { return v.Ghosts })},
		figure{name: "living instances absent from lists, in instance-seconds a node", unit: instanceSeconds, better: less, rare: true, get: ofLists(func(v *verdict.Verdict) float64 { return v.Missing })},
		figure{name: "time without an answer to who asks for the list, a node", unit: seconds, better: less, rare: true, get: ofLists(func(v *verdict.Verdict) float64 { return v.Unanswered })},
		figure{name: "everything in every list after the fault's end", unit: seconds, better: less, get: healed, brief: true},
		figure{name: "acknowledged changes lost", unit: count, better: less, get: changesLost, brief: true})
	for i, name := range []string{"registrations lost", "updates rolled back", "cancels undone", "heartbeats answered 404 within the lease"} {
		all = append(all, lost(name, verdict.LossKinds[i]))
	}
	all = append(all, []figure{
		{name: "living instances absent at the end, when clients have gone on", unit: count, better: less, rare: true, get: func(v *verdict.Verdict) float64 { return float64(len(v.Lost)) }},
		{name: "instances listed again after their cancel", unit: count, better: less, rare: true, get: ofLists(func(v *verdict.Verdict) float64 { return float64(len(v.Revived)) }), cannot: cached},
		{name: "dead instances listed at the end", unit: count, rare: true, get: func(v *verdict.Verdict) float64 { return float64(len(v.Dead)) }},
		{name: "living instances evicted", unit: count, better: less, get: func(v *verdict.Verdict) float64 { return known(v.Told, float64(v.FalseEvictions)) }, cannot: "tells of no evictions"},
		{name: "watched keys whose history no single copy explains", unit: count, better: less, get: unexplained, note: proof, absent: unproven, brief: true},
		{name: "keys and instances on which nodes differ at the end, or that lost an update", unit: count, better: less, get: differing, absent: saying("undecided"), brief: true},
		{name: "elections", unit: count, rare: true, get: func(v *verdict.Verdict) float64 { return float64(v.Elections) }, cannot: "not asked for"},
		{name: "time in which no node named a leader", unit: seconds, rare: true, get: func(v *verdict.Verdict) float64 { return v.Leaderless }, cannot: "not asked for"},
		{name: "renewals answered, per second", unit: instanceSeconds, get: cost(func(c verdict.Cost) float64 { return c.Renewals })},
		{name: "processor time of all nodes, per second", unit: seconds, better: less, get: cost(func(c verdict.Cost) float64 { return c.CPU }), apart: compiling},
		{name: "written to the disk of a node, as the kernel counts, per second", unit: byteCount, better: less, get: cost(func(c verdict.Cost) float64 { return c.Written })},
		{name: "sent between nodes, per second", unit: byteCount, better: less, get: cost(func(c verdict.Cost) float64 { return c.Sent })},
		{name: "memory of a node at the end", unit: byteCount, better: less, get: cost(func(c verdict.Cost) float64 { return c.Memory }), apart: collecting},
		{name: "memory of a node for 1,000 instances", unit: byteCount, better: less, cannot: "cannot be told: garbage is in it", get: func(v *verdict.Verdict) float64 {
			return known(v.Cost.MemoryPerInstances > 0, v.Cost.MemoryPerInstances)
		}},
	}...)
	for _, o := range trial.Operations {
		all = append(all, ofOperation(o)...)
	}
	return all
}

// ofOperation returns the figures of an operation: of all its calls, of their latencies, and of the client that fared
// worst.
func ofOperation(o trial.Operation) []figure {
	calls := func(name string, u unit, get func(verdict.Calls) float64) figure {
		return figure{name: fmt.Sprintf("%s: %s", o, name), unit: u, detail: true, get: func(v *verdict.Verdict) float64 {
			return known(v.Operations[o].Count > 0, get(v.Operations[o]))
		}}
	}
	return []figure{
		calls("calls", count, func(c verdict.Calls) float64 { return float64(c.Count) }),
		calls("answered", share, func(c verdict.Calls) float64 { return c.Success }),
		calls("longest gap", seconds, func(c verdict.Calls) float64 { return c.LongestGap }),
		calls("p50", seconds, func(c verdict.Calls) float64 { return c.Latency.P50 }),
		calls("p90", seconds, func(c verdict.Calls) float64 { return c.Latency.P90 }),
		calls("p99", seconds, func(c verdict.Calls) float64 { return c.Latency.P99 }),
		calls("p99.9", seconds, func(c verdict.Calls) float64 { return c.Latency.P999 }),
		calls("longest", seconds, func(c verdict.Calls) float64 { return c.Latency.Max }),
		{name: fmt.Sprintf("%s: answered, worst client", o), unit: share, detail: true, get: func(v *verdict.Verdict) float64 {
			return known(v.Worst[o].Clients > 0, v.Worst[o].Success)
		}},
	}
}

// saying returns one text for all columns.
func saying(text string) func(column) string { return func(column) string { return text } }

// unproven says why nothing is known of a column's histories.
func unproven(c column) string {
	if !c.Linearizable() {
		return "not promised"
	}
	return "undecided"
}

// ofLists gets a figure about the content of the nodes' lists, which is unknown without lists.
func ofLists(get getter) getter {
	return func(v *verdict.Verdict) float64 { return known(v.Listed, get(v)) }
}

func answered(calls func(*verdict.Verdict) verdict.Calls) getter {
	return func(v *verdict.Verdict) float64 { return known(calls(v).Count > 0, calls(v).Success) }
}

// late is the 99th percentile of a spread, with the median beside it. apart is figure.apart.
func late(name, apart string, get func(*verdict.Verdict) verdict.Spread) figure {
	return figure{
		name: name + ", p99", unit: seconds, better: less, apart: apart,
		get: func(v *verdict.Verdict) float64 {
			s := get(v)
			if s.Never*100 > s.Never+s.Count {
				return -1
			}
			return known(s.Count > 0, s.P99)
		},
		note: func(of runs) string {
			never, all := 0, 0
			for _, o := range of.of {
				s := get(o.verdict)
				never, all = never+s.Never, all+s.Never+s.Count
			}
			half := of.values(func(v *verdict.Verdict) float64 { return known(get(v).Count > 0, get(v).P50) })
			switch {
			case never > 0:
				return fmt.Sprintf("%s of %s never", showCount(float64(never)), showCount(float64(all)))
			case len(half) > 0:
				return "p50 " + showSeconds(half.median())
			}
			return ""
		},
	}
}

func longestGap(calls func(*verdict.Verdict) verdict.Calls) getter {
	return func(v *verdict.Verdict) float64 { return known(calls(v).Count > 0, calls(v).LongestGap) }
}

func openGap(calls func(*verdict.Verdict) verdict.Calls) func(runs) string {
	return openNote(func(v *verdict.Verdict) bool { return calls(v).OpenGap })
}

// openNote says in how many rounds a gap had not ended when the calls did.
func openNote(open func(*verdict.Verdict) bool) func(runs) string {
	return func(of runs) string {
		ended := slices.DeleteFunc(slices.Clone(of.of), func(o run) bool { return open(o.verdict) })
		if len(ended) == len(of.of) {
			return ""
		}
		return fmt.Sprintf("at least: in %d of %d no answer ended it", len(of.of)-len(ended), len(of.of))
	}
}

// worstGap is the longest time that one client of an operation got no answer.
func worstGap(o trial.Operation) figure {
	return figure{
		name: fmt.Sprintf("worst client: longest time without an answered %s", o), unit: seconds, better: less,
		get:  func(v *verdict.Verdict) float64 { return known(v.Worst[o].Clients > 0, v.Worst[o].Gap) },
		note: openNote(func(v *verdict.Verdict) bool { return v.Worst[o].Open }),
	}
}

// window returns the first fault or storm of a trial, as the clients that it struck saw it.
func window(v *verdict.Verdict) verdict.Window {
	if len(v.Windows) == 0 {
		return verdict.Window{}
	}
	return v.Windows[0]
}

// inTime gets the share of a window's calls that were answered before it was over.
func inTime(calls func(verdict.Window) verdict.Calls) getter {
	return func(v *verdict.Verdict) float64 {
		c := calls(window(v))
		answered := c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] - c.Late
		return known(c.Count > 0, float64(answered)/float64(max(c.Count, 1)))
	}
}

func staleShare(get func(*verdict.Verdict) verdict.Staleness) getter {
	return func(v *verdict.Verdict) float64 { return known(get(v).Reads > 0, get(v).Share) }
}

// staleNote says how many answers there were, and how old the oldest stale one was.
func staleNote(get func(*verdict.Verdict) verdict.Staleness) func(runs) string {
	return func(of runs) string {
		note := "of " + amount(of.values(func(v *verdict.Verdict) float64 { return float64(get(v).Reads) }).median(), "answer")
		oldest := of.values(func(v *verdict.Verdict) float64 { return known(get(v).Stale > 0, get(v).Age.Max) })
		if len(oldest) > 0 {
			note += "; the oldest by " + showSeconds(slices.Max(oldest))
		}
		return note
	}
}

// follows gets the share of stale answers that follows for keys that change as seldom as a registry's do.
func follows(interval int) getter {
	return func(v *verdict.Verdict) float64 {
		if interval >= len(v.Staleness.Follows) {
			return math.NaN()
		}
		return v.Staleness.Follows[interval].Share
	}
}

// lost is how many losses of a kind there were. Its note says how many could have been lost, how many more could not be
// judged, and how old the oldest loss was when a process ended.
func lost(name string, kind verdict.LossKind) figure {
	get := func(v *verdict.Verdict) verdict.Loss { return *kind.Of(&v.Losses) }
	return figure{
		name: name, unit: count, better: less,
		get: func(v *verdict.Verdict) float64 { return known(get(v).Of > 0, float64(get(v).Count)) },
		note: func(of runs) string {
			note := "of " + amount(of.values(func(v *verdict.Verdict) float64 { return float64(get(v).Of) }).median(), kind.Noun)
			unjudged := slices.Max(of.values(func(v *verdict.Verdict) float64 { return float64(get(v).Unjudged) }))
			if unjudged > 0 {
				note += fmt.Sprintf("; %v more could not be judged: a node did not answer", unjudged)
			}
			if oldest := slices.Max(of.values(func(v *verdict.Verdict) float64 { return get(v).Age.Max })); oldest > 0 {
				note += "; acknowledged up to " + showSeconds(oldest) + " before the kill"
			}
			return note
		},
	}
}

// changesLost counts the acknowledged changes that were lost. A 404 for an instance follows from one.
func changesLost(v *verdict.Verdict) float64 {
	l := v.Losses
	judged := l.Registrations.Of + l.Updates.Of + l.Cancels.Of
	return known(judged > 0, float64(l.Registrations.Count+l.Updates.Count+l.Cancels.Count))
}

// healed returns how long the slowest of the faults took to heal.
func healed(v *verdict.Verdict) float64 {
	slowest := 0.0
	for _, h := range v.Healing {
		if h.Seconds < 0 {
			return -1
		}
		slowest = max(slowest, h.Seconds)
	}
	return known(len(v.Healing) > 0, slowest)
}

// decided reports whether a checker found something out.
func decided(r verdict.Result) bool { return r == verdict.OK || r == verdict.Violated }

func unexplained(v *verdict.Verdict) float64 {
	return known(v.History.Keys > 0 && decided(v.History.Result), float64(len(v.History.Violated)))
}

// proof says how much a column's histories prove: little without overlapping writes and writes of unknown outcome.
func proof(of runs) string {
	middle := func(get func(verdict.History) int) float64 {
		return of.values(func(v *verdict.Verdict) float64 { return float64(get(v.History)) }).median()
	}
	note := fmt.Sprintf("of %s; overlapping writes: %s; of unknown outcome: %s",
		amount(middle(func(h verdict.History) int { return h.Keys }), "key"),
		showCount(middle(func(h verdict.History) int { return h.Overlapping })), showCount(middle(func(h verdict.History) int { return h.Unknown })))
	if !slices.ContainsFunc(of.scenario.Faults, func(f scenario.Fault) bool { return f.Times > 1 }) {
		return note
	}
	kills, aimed := 0, 0
	for _, o := range of.of {
		for _, f := range o.Faults {
			kills += len(f.Kills)
			aimed += len(slices.DeleteFunc(slices.Clone(f.Kills), func(k trial.Kill) bool { return k.Writing == 0 }))
		}
	}
	return note + fmt.Sprintf("; %d of %s amid writes", aimed, amount(float64(kills), "kill"))
}

func differing(v *verdict.Verdict) float64 {
	return known(decided(v.Converged.Result), float64(len(v.Converged.Differ)+len(v.Converged.Lost)))
}

// cost gets what the servers spent while nothing but heartbeats came.
func cost(get func(verdict.Cost) float64) getter {
	return func(v *verdict.Verdict) float64 { return known(v.Cost.Memory > 0, get(v.Cost)) }
}
