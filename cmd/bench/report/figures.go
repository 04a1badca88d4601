package report

import (
	"fmt"
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
	get    func(run) (float64, bool) // false if the round lacks it; negative if it did not happen within the trial
	note   func(runs) string         // what a reader must know beside it; may be nil or return ""
	absent func(column) string       // the cell's text where no round has the figure; nil means a dash
	cannot string                    // why columns of other systems lack it; empty if they have it
	apart  string                    // why the figure of other systems is not compared; empty if it is
	rare   bool                      // the row is left out if it is 0 in all columns
	detail bool                      // shown only on the page
	brief  bool                      // shown in the terminal
}

// none stands for a figure that does not exist.
const none = "–"

// Why figures of a freshly started Java machine are not compared.
const (
	compiling  = "not compared: just started, the first compiler alone"
	collecting = "not compared: garbage is in it"
)

// figures returns the rows of a scenario's table, in their order.
func figures() []figure {
	writes := func(v *verdict.Verdict) verdict.Calls { return v.Writes }
	reads := func(v *verdict.Verdict) verdict.Calls { return v.Reads }
	whole := func(v *verdict.Verdict) verdict.Staleness { return v.Staleness }
	all := []figure{
		answered("writes answered", writes), answered("fetches and deltas answered", reads),
		longestGap("longest time without an answered write", writes), longestGap("longest time without an answered fetch or delta", reads),
		worstGap(trial.Heartbeat), worstGap(trial.Fetch),
		struckAnswered("writes answered", func(w verdict.Window) verdict.Calls { return w.Writes }),
		struckAnswered("fetches and deltas answered", func(w verdict.Window) verdict.Calls { return w.Reads }),
		{name: "stale answers to probes, " + during, unit: share, better: less, get: staleShare(struckStaleness), note: staleNote(struckStaleness)},
		{name: "stale answers to probes", unit: share, better: less, get: staleShare(whole), note: staleNote(whole), absent: saying("no probe answered"), brief: true},
	}
	for i, every := range []string{"30 s", "5 min", "1 h"} {
		all = append(all, figure{name: "stale answers that follow for a key that changes every " + every, unit: share, better: less, get: follows(whole, i), detail: i > 0})
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
		ofLists("gone instances in lists, in instance-seconds a node", instanceSeconds, func(v *verdict.Verdict) float64 { return v.Ghosts }),
		ofLists("living instances absent from lists, in instance-seconds a node", instanceSeconds, func(v *verdict.Verdict) float64 { return v.Missing }),
		ofLists("time without an answer to who asks for the list, a node", seconds, func(v *verdict.Verdict) float64 { return v.Unanswered }),
		figure{name: "everything in every list after the fault's end", unit: seconds, better: less, get: healed, brief: true},
		figure{name: "acknowledged changes lost", unit: count, better: less, get: changesLost, brief: true})
	for _, k := range lossKinds {
		all = append(all, figure{name: k.name, unit: count, better: less, get: k.count, note: k.ofHowMany})
	}
	again := ofLists("instances listed again after their cancel", count, func(v *verdict.Verdict) float64 { return float64(len(v.Revived)) })
	again.cannot = "cannot be told: lists are up to 30 s old"
	all = append(all,
		figure{name: "living instances absent at the end, when clients have gone on", unit: count, better: less, get: always(func(v *verdict.Verdict) float64 { return float64(len(v.Lost)) }), rare: true},
		again,
		figure{name: "dead instances listed at the end", unit: count, get: always(func(v *verdict.Verdict) float64 { return float64(len(v.Dead)) }), rare: true},
		figure{name: "living instances evicted", unit: count, better: less, get: func(o run) (float64, bool) { return float64(o.verdict.FalseEvictions), o.verdict.Told }, cannot: "tells of no evictions"},
		figure{name: "watched keys whose history no single copy explains", unit: count, better: less, get: unexplained, note: proof, absent: unproven, brief: true},
		figure{name: "keys and instances on which nodes differ at the end, or that lost an update", unit: count, better: less, get: differing, absent: saying("undecided"), brief: true},
		figure{name: "elections", unit: count, get: always(func(v *verdict.Verdict) float64 { return float64(v.Elections) }), cannot: "not asked for", rare: true},
		figure{name: "time in which no node named a leader", unit: seconds, get: always(func(v *verdict.Verdict) float64 { return v.Leaderless }), cannot: "not asked for", rare: true},
		cost("renewals answered, per second", instanceSeconds, neither, "", func(c verdict.Cost) float64 { return c.Renewals }),
		cost("processor time of all nodes, per second", seconds, less, compiling, func(c verdict.Cost) float64 { return c.CPU }),
		cost("written to the disk of a node, as the kernel counts, per second", byteCount, less, "", func(c verdict.Cost) float64 { return c.Written }),
		cost("sent between nodes, per second", byteCount, less, "", func(c verdict.Cost) float64 { return c.Sent }),
		cost("memory of a node at the end", byteCount, less, collecting, func(c verdict.Cost) float64 { return c.Memory }),
		figure{name: "memory of a node for 1,000 instances", unit: byteCount, better: less, get: func(o run) (float64, bool) {
			return o.verdict.Cost.MemoryPerInstances, o.verdict.Cost.MemoryPerInstances > 0
		}, cannot: "cannot be told: garbage is in it"})
	return append(all, operationFigures()...)
}

// during names the calls of a window in a row.
const during = "during the fault or storm, of the clients it struck"

// operationFigures returns the figures of each operation: of all its calls, of the client that fared worst, and of the
// latencies.
func operationFigures() []figure {
	var all []figure
	for _, o := range trial.Operations {
		calls := func(name string, u unit, get func(verdict.Calls) float64) figure {
			return figure{name: fmt.Sprintf("%s: %s", o, name), unit: u, detail: true, get: func(r run) (float64, bool) {
				c := r.verdict.Operations[o]
				return get(c), c.Count > 0
			}}
		}
		all = append(all,
			calls("calls", count, func(c verdict.Calls) float64 { return float64(c.Count) }),
			calls("answered", share, func(c verdict.Calls) float64 { return c.Success }),
			calls("longest gap", seconds, func(c verdict.Calls) float64 { return c.LongestGap }),
			calls("p50", seconds, func(c verdict.Calls) float64 { return c.Latency.P50 }),
			calls("p90", seconds, func(c verdict.Calls) float64 { return c.Latency.P90 }),
			calls("p99", seconds, func(c verdict.Calls) float64 { return c.Latency.P99 }),
			calls("p99.9", seconds, func(c verdict.Calls) float64 { return c.Latency.P999 }),
			calls("longest", seconds, func(c verdict.Calls) float64 { return c.Latency.Max }),
			figure{name: fmt.Sprintf("%s: answered, worst client", o), unit: share, detail: true, get: func(r run) (float64, bool) {
				w := r.verdict.Worst[o]
				return w.Success, w.Clients > 0
			}})
	}
	return all
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

// always gets a figure that every round has.
func always(get func(*verdict.Verdict) float64) func(run) (float64, bool) {
	return func(o run) (float64, bool) { return get(o.verdict), true }
}

// ofLists is a figure about the content of the nodes' lists, which is unknown without lists.
func ofLists(name string, u unit, get func(*verdict.Verdict) float64) figure {
	return figure{name: name, unit: u, better: less, rare: true, get: func(o run) (float64, bool) { return get(o.verdict), o.verdict.Listed }}
}

func answered(name string, calls func(*verdict.Verdict) verdict.Calls) figure {
	return figure{name: name, unit: share, better: more, get: func(o run) (float64, bool) {
		c := calls(o.verdict)
		return c.Success, c.Count > 0
	}}
}

// late is the 99th percentile of a spread, with the median beside it. apart is figure.apart.
func late(name, apart string, get func(*verdict.Verdict) verdict.Spread) figure {
	return figure{
		name: name + ", p99", unit: seconds, better: less, apart: apart,
		get: func(o run) (float64, bool) {
			s := get(o.verdict)
			if s.Never*100 > s.Never+s.Count {
				return -1, true
			}
			return s.P99, s.Count > 0
		},
		note: func(of runs) string {
			never, all := 0, 0
			for _, o := range of.of {
				s := get(o.verdict)
				never, all = never+s.Never, all+s.Never+s.Count
			}
			half := of.known(func(o run) (float64, bool) { return get(o.verdict).P50, get(o.verdict).Count > 0 })
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

func longestGap(name string, calls func(*verdict.Verdict) verdict.Calls) figure {
	return figure{name: name, unit: seconds, better: less, brief: true,
		get:  func(o run) (float64, bool) { return calls(o.verdict).LongestGap, calls(o.verdict).Count > 0 },
		note: func(of runs) string { return openNote(of, func(v *verdict.Verdict) bool { return calls(v).OpenGap }) }}
}

// openNote says in how many rounds a gap had not ended when the calls did.
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

// worstGap is the longest time that one client of an operation got no answer.
func worstGap(o trial.Operation) figure {
	return figure{
		name: fmt.Sprintf("worst client: longest time without an answered %s", o), unit: seconds, better: less,
		get:  func(r run) (float64, bool) { return r.verdict.Worst[o].Gap, r.verdict.Worst[o].Clients > 0 },
		note: func(of runs) string { return openNote(of, func(v *verdict.Verdict) bool { return v.Worst[o].Open }) },
	}
}

// window returns the first fault or storm of a trial, as the clients that it struck saw it.
func window(v *verdict.Verdict) verdict.Window {
	if len(v.Windows) == 0 {
		return verdict.Window{}
	}
	return v.Windows[0]
}

func struckStaleness(v *verdict.Verdict) verdict.Staleness { return window(v).Staleness }

// struckAnswered is the share of a window's calls that were answered before it was over.
func struckAnswered(name string, calls func(verdict.Window) verdict.Calls) figure {
	return figure{name: name + ", " + during, unit: share, better: more, get: func(o run) (float64, bool) {
		c := calls(window(o.verdict))
		inTime := c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] - c.Late
		return float64(inTime) / float64(max(c.Count, 1)), c.Count > 0
	}}
}

func staleShare(get func(*verdict.Verdict) verdict.Staleness) func(run) (float64, bool) {
	return func(o run) (float64, bool) { return get(o.verdict).Share, get(o.verdict).Reads > 0 }
}

// staleNote says how many answers there were, and how old the oldest stale one was.
func staleNote(get func(*verdict.Verdict) verdict.Staleness) func(runs) string {
	return func(of runs) string {
		note := "of " + amount(of.each(func(o run) float64 { return float64(get(o.verdict).Reads) }).median(), "answer")
		oldest := of.known(func(o run) (float64, bool) { s := get(o.verdict); return s.Age.Max, s.Stale > 0 })
		if len(oldest) > 0 {
			note += "; the oldest by " + showSeconds(slices.Max(oldest))
		}
		return note
	}
}

// follows is the share of stale answers that follows for keys that change as seldom as a registry's do.
func follows(get func(*verdict.Verdict) verdict.Staleness, interval int) func(run) (float64, bool) {
	return func(o run) (float64, bool) {
		follows := get(o.verdict).Follows
		if interval >= len(follows) {
			return 0, false
		}
		return follows[interval].Share, true
	}
}

// lossKind is a kind of loss.
type lossKind struct {
	name string // what was lost
	noun string // a single possible victim
	of   func(verdict.Losses) verdict.Loss
}

var lossKinds = []lossKind{
	{"registrations lost", "registration", func(l verdict.Losses) verdict.Loss { return l.Registrations }},
	{"updates rolled back", "update", func(l verdict.Losses) verdict.Loss { return l.Updates }},
	{"cancels undone", "cancel", func(l verdict.Losses) verdict.Loss { return l.Cancels }},
	{"heartbeats answered 404 within the lease", "heartbeat", func(l verdict.Losses) verdict.Loss { return l.Heartbeats }},
}

func (k lossKind) count(o run) (float64, bool) {
	l := k.of(o.verdict.Losses)
	return float64(l.Count), l.Of > 0
}

// ofHowMany says how many could have been lost, how many more could not be judged, and how old the oldest loss was
// when a process ended.
func (k lossKind) ofHowMany(of runs) string {
	note := "of " + amount(of.each(func(o run) float64 { return float64(k.of(o.verdict.Losses).Of) }).median(), k.noun)
	unjudged, oldest := 0, 0.0
	for _, o := range of.of {
		l := k.of(o.verdict.Losses)
		unjudged, oldest = max(unjudged, l.Unjudged), max(oldest, l.Age.Max)
	}
	if unjudged > 0 {
		note += fmt.Sprintf("; %d more could not be judged: a node did not answer", unjudged)
	}
	if oldest > 0 {
		note += "; acknowledged up to " + showSeconds(oldest) + " before the kill"
	}
	return note
}

// changesLost counts the acknowledged changes that were lost. A 404 for an instance follows from one.
func changesLost(o run) (float64, bool) {
	lost, judged := 0, 0
	for _, k := range lossKinds[:3] {
		l := k.of(o.verdict.Losses)
		lost, judged = lost+l.Count, judged+l.Of
	}
	return float64(lost), judged > 0
}

// healed returns how long the slowest of the faults took to heal.
func healed(o run) (float64, bool) {
	slowest := 0.0
	for _, h := range o.verdict.Healing {
		if h.Seconds < 0 {
			return -1, true
		}
		slowest = max(slowest, h.Seconds)
	}
	return slowest, len(o.verdict.Healing) > 0
}

func unexplained(o run) (float64, bool) {
	h := o.verdict.History
	return float64(len(h.Violated)), h.Keys > 0 && (h.Result == verdict.OK || h.Result == verdict.Violated)
}

// proof says how much a column's histories prove: little without overlapping writes and writes of unknown outcome.
func proof(of runs) string {
	middle := func(get func(verdict.History) int) float64 {
		return of.each(func(o run) float64 { return float64(get(o.verdict.History)) }).median()
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

func differing(o run) (float64, bool) {
	c := o.verdict.Converged
	return float64(len(c.Differ) + len(c.Lost)), c.Result == verdict.OK || c.Result == verdict.Violated
}

// cost is what the servers spent while nothing but heartbeats came.
func cost(name string, u unit, better direction, apart string, get func(verdict.Cost) float64) figure {
	return figure{name: name, unit: u, better: better, apart: apart, get: func(o run) (float64, bool) { return get(o.verdict.Cost), o.verdict.Cost.Memory > 0 }}
}
