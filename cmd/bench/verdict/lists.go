package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// longestStep bounds the time for which a list stands, up to its own: where no list came for longer, the rest counts as
// nothing.
const longestStep = time.Second

// byNode are the lists that came, of each node, by the time of asking.
func byNode(lists []trial.List) map[int][]trial.List {
	found := make(map[int][]trial.List)
	for _, l := range lists {
		if !l.Failed {
			found[l.Node] = append(found[l.Node], l)
		}
	}
	for _, of := range found {
		slices.SortStableFunc(of, func(a, b trial.List) int { return cmp.Compare(a.Asked, b.Asked) })
	}
	return found
}

// integral is the mean over the nodes of a count times how long it stood, in instance-seconds. Each list stands for the
// time since the one before it.
func integral(lists []trial.List, count func(trial.List) int) float64 {
	nodes := byNode(lists)
	if len(nodes) == 0 {
		return 0
	}
	var sum trial.Micros
	for _, of := range nodes {
		for i := 1; i < len(of); i++ {
			step := min(of[i].Asked-of[i-1].Asked, trial.Of(longestStep))
			sum += trial.Micros(count(of[i])) * step
		}
	}
	return sum.Seconds() / float64(len(nodes))
}

// healings are how long each fault that ended took to heal.
func healings(t *trial.Trial) []Healing {
	found := []Healing{}
	nodes := byNode(t.Lists)
	for number, f := range t.Faults {
		if f.To > f.From {
			found = append(found, Healing{Fault: number, Seconds: healing(nodes, f.To, nextEnd(t.Faults, f.To))})
		}
	}
	return found
}

// nextEnd is when the next fault ended after a moment; from then on lists tell of that one. 0: none did.
func nextEnd(faults []trial.Fault, after trial.Micros) trial.Micros {
	var next trial.Micros
	for _, f := range faults {
		if f.To > f.From && f.To > after && (next == 0 || f.To < next) {
			next = f.To
		}
	}
	return next
}

// healing is when the slowest of the nodes that gave a list after the fault's end, and before until, first lacked
// nothing, in seconds after the end. -1: a node, or every node, never did.
func healing(nodes map[int][]trial.List, end, until trial.Micros) float64 {
	slowest := trial.Micros(-1)
	for _, of := range nodes {
		after := slices.DeleteFunc(slices.Clone(of), func(l trial.List) bool {
			return l.Asked < end || until > 0 && l.Asked >= until
		})
		if len(after) == 0 {
			continue
		}
		whole := slices.IndexFunc(after, func(l trial.List) bool { return l.Unhealed == 0 })
		if whole < 0 {
			return -1
		}
		slowest = max(slowest, after[whole].Asked-end)
	}
	if slowest < 0 {
		return -1
	}
	return slowest.Seconds()
}

// revived are the instances that some node listed again, or at the end, after their acknowledged cancel.
func revived(t *trial.Trial) []string {
	found := make(map[string]bool)
	for _, l := range t.Lists {
		for _, id := range l.Back {
			found[id] = true
		}
	}
	for _, id := range endings(t, func(e trial.Ending) []string { return e.Revived }) {
		found[id] = true
	}
	return names(found)
}

// endings are what any node that could be asked ended with.
func endings(t *trial.Trial, what func(trial.Ending) []string) []string {
	found := make(map[string]bool)
	for _, e := range t.Ending {
		if e.Failed != "" {
			continue
		}
		for _, id := range what(e) {
			found[id] = true
		}
	}
	return names(found)
}

// names are a set's elements, sorted.
func names(set map[string]bool) []string {
	return slices.AppendSeq(make([]string, 0, len(set)), slices.Values(slices.Sorted(maps.Keys(set))))
}

// LastGone is, of each instance that died, or that was canceled, how long the last node listed it; -1: until the end.
func LastGone(departures []trial.Departure, canceled bool) map[string]trial.Micros {
	longest := make(map[string]trial.Micros)
	for _, d := range departures {
		if d.Canceled != canceled {
			continue
		}
		switch known := longest[d.ID]; {
		case d.Gone < 0 || known < 0:
			longest[d.ID] = -1
		default:
			longest[d.ID] = max(known, d.Gone-d.Last)
		}
	}
	return longest
}

// spreadOfMicros describes spans in seconds. Negative ones never ended.
func spreadOfMicros(values []trial.Micros) Spread {
	var ended []float64
	for _, v := range values {
		if v >= 0 {
			ended = append(ended, v.Seconds())
		}
	}
	s := spreadOf(ended)
	s.Never = len(values) - len(ended)
	return s
}

// visibility describes how long registrations took until other nodes showed them, by way: nodes of the same
// datacenter, or of other ones.
func visibility(t *trial.Trial, abroad bool) map[trial.Way]Spread {
	found := make(map[trial.Way]Spread)
	for _, way := range trial.Ways {
		if delays := Delays(t, way, abroad); len(delays) > 0 {
			found[way] = spreadOfMicros(delays)
		}
	}
	return found
}

// Delays are how long registrations took until other nodes showed them by a way: nodes of the same datacenter, or of
// other ones; -1: not within the trial.
func Delays(t *trial.Trial, way trial.Way, abroad bool) []trial.Micros {
	var delays []trial.Micros
	for _, s := range t.Sightings {
		if s.Way == way && s.From != s.To && (datacenter(t, s.From) != datacenter(t, s.To)) == abroad {
			delays = append(delays, s.Delay)
		}
	}
	return delays
}

// datacenter is that of a node.
func datacenter(t *trial.Trial, node int) string {
	if node < 0 || node >= len(t.Nodes) {
		return ""
	}
	return t.Nodes[node].Datacenter
}

// falseEvictions counts the distinct instances that were evicted though their clients sent heartbeats.
func falseEvictions(evictions []trial.Eviction) int {
	found := make(map[string]bool)
	for _, e := range evictions {
		if e.Alive {
			found[e.ID] = true
		}
	}
	return len(found)
}

// convergence compares what the nodes held at the end with each other, and with what the rule says. Nodes that
// could not be asked leave it undecided, unless the others differ already.
func convergence(t *trial.Trial, watched keys) Convergence {
	c := Convergence{Result: OK, Differ: []string{}, Lost: []string{}}
	asked := slices.DeleteFunc(slices.Clone(t.Ending), func(e trial.Ending) bool { return e.Failed != "" })
	for _, key := range held(asked, watched) {
		switch versions := versionsOf(asked, key); {
		case len(slices.Compact(slices.Sorted(slices.Values(versions)))) > 1:
			c.Differ = append(c.Differ, key)
			c.setText("%s", differing(t, asked, key))
		case len(asked) > 0 && older(watched[key], versions[0]):
			c.Lost = append(c.Lost, key)
			c.setText("every node holds %s of %s, though %s", version(versions[0]), key, newestOf(t, watched[key]))
		}
	}
	for _, id := range oneSided(asked) {
		c.Differ = append(c.Differ, id)
		c.setText("some nodes list the instance %s, others do not", id)
	}
	switch {
	case len(c.Differ)+len(c.Lost) > 0:
		c.Result = Violated
	case len(asked) < max(len(t.Nodes), 1):
		c.Result = Undecided
		c.setText("%d of %d nodes could be asked at the end", len(asked), len(t.Nodes))
	}
	return c
}

// setText keeps the first sentence.
func (c *Convergence) setText(format string, args ...any) {
	if c.Text == "" {
		c.Text = fmt.Sprintf(format, args...)
	}
}

// held are the watched keys that were called, or that a node holds.
func held(asked []trial.Ending, watched keys) []string {
	found := make(map[string]bool)
	for name := range watched {
		found[name] = true
	}
	for _, e := range asked {
		for key := range e.Keys {
			found[key] = true
		}
	}
	return names(found)
}

// versionsOf are the versions of a key that the nodes hold; 0: it is not registered.
func versionsOf(asked []trial.Ending, key string) []int64 {
	var found []int64
	for _, e := range asked {
		found = append(found, e.Keys[key])
	}
	return found
}

// older reports whether a version is older than what the rule says a key must hold when all calls are over.
func older(calls []trial.Call, version int64) bool {
	_, behind := stale(calls, lastLook(version))
	return behind > 0
}

// lastLook is a look after everything.
func lastLook(version int64) trial.Call {
	look := trial.Call{Action: trial.Look, Version: version, Outcome: trial.Done, Called: endless, Returned: endless}
	if version == 0 {
		look.Outcome = trial.NotFound
	}
	return look
}

func version(v int64) string {
	if v == 0 {
		return "no registration"
	}
	return fmt.Sprintf("version %d", v)
}

// differing says which node holds which version of a key.
func differing(t *trial.Trial, asked []trial.Ending, key string) string {
	holders := make(map[int64][]string)
	for _, e := range asked {
		holders[e.Keys[key]] = append(holders[e.Keys[key]], t.NodeName(e.Node))
	}
	var parts []string
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(holders))) {
		verb := "hold"
		if len(holders[v]) == 1 {
			verb = "holds"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", strings.Join(holders[v], " and "), verb, version(v)))
	}
	return fmt.Sprintf("of %s, %s", key, strings.Join(parts, ", "))
}

// newestOf says what the newest acknowledged call on a key was.
func newestOf(t *trial.Trial, calls []trial.Call) string {
	var newest trial.Call
	for _, c := range calls {
		if c.Action != trial.Look && c.Outcome == trial.Done && c.Version > newest.Version {
			newest = c
		}
	}
	return evidence(t, newest)
}

// oneSided are the instances that some of the nodes lack, or list though they were canceled, and others do not.
func oneSided(asked []trial.Ending) []string {
	found := make(map[string]bool)
	for _, what := range []func(trial.Ending) []string{
		func(e trial.Ending) []string { return e.Missing },
		func(e trial.Ending) []string { return e.Revived },
	} {
		count := make(map[string]int)
		for _, e := range asked {
			for _, id := range what(e) {
				count[id]++
			}
		}
		for id, of := range count {
			if of < len(asked) {
				found[id] = true
			}
		}
	}
	return names(found)
}

// keys are the calls on the watched keys, by key, each in the order of the calls.
type keys map[string][]trial.Call

func keysOf(calls []trial.Call) keys {
	k := make(keys)
	for _, c := range calls {
		k[c.Key] = append(k[c.Key], c)
	}
	return k
}

// names are the keys, sorted.
func (k keys) names() []string { return slices.Sorted(maps.Keys(k)) }

// staleness sums up the answered Look calls that are wanted.
func (k keys) staleness(wanted func(trial.Call) bool) Staleness {
	var s Staleness
	var ages []float64
	for _, name := range k.names() {
		for _, c := range k[name] {
			if c.Action != trial.Look || !c.Outcome.Answered() || !wanted(c) {
				continue
			}
			s.Reads++
			if age, behind := stale(k[name], c); behind > 0 {
				ages = append(ages, age.Seconds())
				s.Behind = max(s.Behind, behind)
			}
		}
	}
	s.Stale, s.Age = len(ages), spreadOf(ages)
	if s.Reads > 0 {
		s.Share = float64(s.Stale) / float64(s.Reads)
	}
	return s
}

// stale says how many versions that were acknowledged before a look the look's answer does not know, and how
// long before it the first of them was acknowledged. calls are all on its key. An answer that the key is not registered
// is as new as the newest removal that may have taken effect.
//
// An answer that a call of unknown outcome may explain, because it may take effect at any time, is not stale. So
// an answer that a single copy might have given never is.
func stale(calls []trial.Call, look trial.Call) (age trial.Micros, behind int) {
	seen := seenBy(calls, look)
	first, written := trial.Micros(math.MaxInt64), int64(0)
	for _, c := range calls {
		if c.Action == trial.Look || c.Outcome != trial.Done || c.Version <= seen || c.Returned >= look.Called {
			continue
		}
		behind++
		first = min(first, c.Returned)
		if c.Action == trial.Write {
			written = max(written, c.Version)
		}
	}
	if behind == 0 || explainedByLateCall(calls, look, written) {
		return 0, 0
	}
	return look.Called - first, behind
}

// seenBy is the version that a look's answer is as new as.
func seenBy(calls []trial.Call, look trial.Call) int64 {
	if sees(look) != 0 {
		return look.Version
	}
	newest := int64(0)
	for _, c := range calls {
		if removes(c, look) {
			newest = max(newest, c.Version)
		}
	}
	return newest
}

// sees is the version that a look was answered; 0: not registered.
func sees(look trial.Call) int64 {
	if look.Outcome == trial.NotFound {
		return 0
	}
	return look.Version
}

// removes reports whether a call may have removed the key before a look returned.
func removes(c, look trial.Call) bool {
	return c.Action == trial.Remove && (c.Outcome == trial.Done || c.Outcome == trial.Unknown) && c.Called <= look.Returned
}

// explainedByLateCall reports whether a look may have seen what a call of unknown outcome did late, after the newest
// acknowledged version was written (0: it is a removal): a removal; or a registration, where before it the key was
// removed, because otherwise the newer version stays.
func explainedByLateCall(calls []trial.Call, look trial.Call, written int64) bool {
	absent := sees(look) == 0
	unknown, removed := false, false
	for _, c := range calls {
		if c.Action == trial.Write && c.Version == look.Version && c.Outcome == trial.Unknown {
			unknown = true
		}
		if removes(c, look) && (c.Outcome == trial.Unknown || !absent && c.Version > written) {
			removed = true
		}
	}
	return removed && (absent || unknown)
}

// Age is how old the answer of one Look call was, as Staleness counts it.
type Age struct {
	Called trial.Micros
	Age    trial.Micros // 0: it was not stale
}

// Ages are those of all answered Look calls of a trial, key by key: what a plot shows of Staleness.
func Ages(t *trial.Trial) []Age {
	var ages []Age
	k := keysOf(t.History)
	for _, name := range k.names() {
		for _, c := range k[name] {
			if c.Action == trial.Look && c.Outcome.Answered() {
				age, _ := stale(k[name], c)
				ages = append(ages, Age{Called: c.Called, Age: age})
			}
		}
	}
	return ages
}

// LeadersByDatacenter are what nodes said of their leaders, by the time; each datacenter has its own.
func LeadersByDatacenter(t *trial.Trial) map[string][]trial.Leader {
	found := make(map[string][]trial.Leader)
	for _, l := range t.Leaders {
		dc := datacenter(t, l.Node)
		found[dc] = append(found[dc], l)
	}
	for _, of := range found {
		slices.SortStableFunc(of, func(a, b trial.Leader) int { return cmp.Compare(a.At, b.At) })
	}
	return found
}

// elections counts the leaders that came after the first, of every datacenter. A term has one.
func elections(t *trial.Trial) int {
	count := 0
	for _, of := range LeadersByDatacenter(t) {
		terms := make(map[uint64]bool)
		for _, l := range of {
			if l.Leader >= 0 {
				terms[l.Term] = true
			}
		}
		count += max(len(terms)-1, 0)
	}
	return count
}

// leaderless is how many seconds no node knew a leader, from the first one that was asked on; of several
// datacenters, the one that was without for the longest.
func leaderless(t *trial.Trial) float64 {
	var longest trial.Micros
	for _, of := range LeadersByDatacenter(t) {
		longest = max(longest, without(of, t.Ended))
	}
	return longest.Seconds()
}

// without is how long none of the nodes of a datacenter knew a leader until end.
func without(said []trial.Leader, end trial.Micros) trial.Micros {
	var sum trial.Micros
	knows := make(map[int]bool) // by node: those that know a leader
	for i, l := range said {
		delete(knows, l.Node)
		if l.Leader >= 0 {
			knows[l.Node] = true
		}
		until := end
		if i+1 < len(said) {
			until = said[i+1].At
		}
		if len(knows) == 0 {
			sum += max(until-l.At, 0)
		}
	}
	return sum
}

// endless is the end of a call without one: it may take effect at any time, or never.
const endless = trial.Micros(math.MaxInt64)
