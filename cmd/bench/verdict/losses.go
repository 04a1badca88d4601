package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// losses finds what was acknowledged and is not there any more.
func losses(t *trial.Trial, c scenario.Column, s scenario.Scenario, watched keys) Losses {
	ends := endsOfProcesses(t)
	found := Losses{Heartbeats: forgotten(t, s, ends), Rollbacks: rollbacks(t, watched, c.ReadsWithoutQuorum())}
	var registrations, updates, cancels lossesOf
	silent := len(t.Ending) == 0 || len(silentNodes(t)) > 0
	for i, sealed := range t.Sealed {
		claim, ok := claimOf(sealed)
		if !ok {
			continue
		}
		of := map[claimKind]*lossesOf{registered: &registrations, updated: &updates, removed: &cancels}[claim.kind]
		refuted := claim.refuted(t, i)
		if !refuted && (silent || unasked(t, i)) {
			of.unjudged++
			continue
		}
		of.judge(sealed.ID, claim.acknowledged, ends, refuted)
	}
	found.Registrations, found.Updates, found.Cancels = registrations.loss(), updates.loss(), cancels.loss()
	return found
}

// lossLimit is a kind of loss as a limit.
type lossLimit struct {
	Loss
	limit, what string
}

func (l Losses) all() []lossLimit {
	return []lossLimit{
		{l.Registrations, "no registration is lost", "not listed by some node at the end, though acknowledged and never written again"},
		{l.Updates, "no update is lost", "in an older version at some node at the end, though the newer one was acknowledged"},
		{l.Cancels, "no cancel is undone", "listed by some node at the end, though the cancel was acknowledged"},
		{l.Rollbacks, "no watched key is rolled back", "read in an older version after a process ended, and never again in the acknowledged one"},
		{l.Heartbeats, "no living instance is forgotten", "answered 404 within the lease after the last acknowledged heartbeat"},
	}
}

// unjudged says which losses should have been judged and could not be; empty: none.
func (l Losses) unjudged(t *trial.Trial, s scenario.Scenario) string {
	sealed := map[string]Loss{"registrations": l.Registrations, "updates": l.Updates, "cancels": l.Cancels}
	judged, unjudged := 0, 0
	for _, loss := range sealed {
		judged, unjudged = judged+loss.Of, unjudged+loss.Unjudged
	}
	for _, e := range t.Ending {
		if e.Failed == "" && len(e.Sealed) != len(t.Sealed) {
			return fmt.Sprintf("%s was asked for %d of %d sealed instances", t.NodeName(e.Node), len(e.Sealed), len(t.Sealed))
		}
	}
	due := s.Load.Sealed * t.Length.Seconds()
	switch {
	case len(t.Sealed) == 0 && due >= 1:
		return "undecided: no sealed instance is known"
	case unjudged > 0:
		return fmt.Sprintf("undecided: %d of %d claims on sealed instances judged, a silent node may refute the others", judged, judged+unjudged)
	case len(t.Sealed) > 0 && judged == 0:
		return fmt.Sprintf("of %d sealed instances the outcome of none is known", len(t.Sealed))
	}
	for _, kind := range slices.Sorted(maps.Keys(sealed)) {
		if sealed[kind].Of == 0 && due >= everyKind {
			return fmt.Sprintf("undecided: of %d sealed instances none tells of %s", len(t.Sealed), kind)
		}
	}
	return ""
}

// everyKind is from how many sealed instances on some must tell of each kind of loss: a third of them each.
const everyKind = 30

// lossesOf collects losses of one kind.
type lossesOf struct {
	of       int
	unjudged int
	names    []string
	ages     []float64
}

// judge counts what was acknowledged at a moment, and whether it was lost.
func (l *lossesOf) judge(name string, acknowledged trial.Micros, ends []trial.Kill, lost bool) {
	l.of++
	if !lost {
		return
	}
	l.names = append(l.names, name)
	if next := slices.IndexFunc(ends, func(k trial.Kill) bool { return k.At >= acknowledged }); next >= 0 {
		l.ages = append(l.ages, (ends[next].At - acknowledged).Seconds())
	}
}

func (l *lossesOf) loss() Loss {
	names := slices.AppendSeq([]string{}, slices.Values(l.names))
	slices.Sort(names)
	return Loss{Of: l.of, Count: len(names), Age: spreadOf(l.ages), Names: slices.Compact(names), Unjudged: l.unjudged}
}

// endsOfProcesses are the moments at which processes were ended, by their times.
func endsOfProcesses(t *trial.Trial) []trial.Kill {
	var ends []trial.Kill
	for _, f := range t.Faults {
		ends = append(ends, f.Kills...)
	}
	slices.SortStableFunc(ends, func(a, b trial.Kill) int { return cmp.Compare(a.At, b.At) })
	return ends
}

// claimKind is what a claim is about.
type claimKind int

const (
	registered claimKind = iota
	updated
	removed
)

// claim is what must hold of a sealed instance at the end.
type claim struct {
	kind         claimKind
	version      int // at least; of removed 0
	acknowledged trial.Micros
}

// claimOf is what follows from the writes of a sealed instance; not ok: nothing does.
func claimOf(s trial.Sealed) (claim, bool) {
	if len(s.Writes) == 0 {
		return claim{}, false
	}
	first, last := s.Writes[0], s.Writes[len(s.Writes)-1]
	kept := claim{registered, 1, first.Returned}
	switch {
	case len(s.Writes) == 1:
		return kept, first.Outcome == trial.Done
	case last.Cancel && last.Outcome == trial.NotFound:
		// The node that was asked lacked what had been acknowledged. That is no loss if it only had not got it yet: then all
		// nodes list it at the end, because a cancel that finds nothing removes nothing.
		return kept, first.Outcome == trial.Done && !first.Doubtful && !last.Doubtful
	case last.Outcome == trial.Refused || last.Outcome == trial.Unreached: // it certainly did nothing
		return kept, first.Outcome == trial.Done && !last.Doubtful
	case !last.Cancel && last.Outcome == trial.Done:
		return claim{updated, 2, last.Returned}, true
	case !last.Cancel: // it is listed in one of the versions
		return kept, first.Outcome == trial.Done
	}
	// A try of the registration that got no answer may take effect after the cancel.
	return claim{removed, 0, last.Returned}, last.Outcome == trial.Done && first.Outcome == trial.Done && !first.Doubtful
}

// refuted reports whether a node that answered at the end does not hold what was claimed of a sealed instance.
func (c claim) refuted(t *trial.Trial, number int) bool {
	return slices.ContainsFunc(t.Ending, func(e trial.Ending) bool {
		if e.Failed != "" || number >= len(e.Sealed) {
			return false // see silentNodes and unjudged
		}
		held := e.Sealed[number]
		return c.kind == removed && held > 0 || held < c.version
	})
}

// unasked reports whether a node that answered at the end was not asked for a sealed instance.
func unasked(t *trial.Trial, number int) bool {
	return slices.ContainsFunc(t.Ending, func(e trial.Ending) bool { return e.Failed == "" && number >= len(e.Sealed) })
}

// forgotten counts the heartbeats that were answered 404 though a lease had begun within its length.
func forgotten(t *trial.Trial, s scenario.Scenario, ends []trial.Kill) Loss {
	l := lossesOf{}
	for _, f := range t.Forgotten {
		if f.At-f.Last >= trial.Of(s.Load.Lease.Duration()) {
			continue
		}
		l.judge(f.ID, f.Last, slices.DeleteFunc(slices.Clone(ends), func(k trial.Kill) bool { return k.At > f.At }), true)
	}
	l.of = 0
	for _, series := range t.Series {
		for _, b := range series.Bins {
			if series.Operation == trial.Heartbeat && dueIn(t)(b) {
				l.of += b.Answered()
			}
		}
	}
	return l.loss()
}

// withContact is a trial without the heartbeats that were answered 404 while some nodes heard nothing of others, or had only
// just begun to hear them again. Without consensus a node answers then all the same, from what it knows.
func withContact(t *trial.Trial) *trial.Trial {
	connected := *t
	connected.Forgotten = slices.DeleteFunc(slices.Clone(t.Forgotten), func(f trial.Forgotten) bool {
		return slices.ContainsFunc(t.Faults, func(fault trial.Fault) bool {
			apart := fault.Kind == scenario.Pause || fault.Kind == scenario.Isolate // a cut link leaves a datacenter whole
			return apart && f.At >= fault.From && f.At < fault.To+trial.Of(onItsWay)
		})
	})
	return &connected
}

// onItsWay is for how long after its acknowledgement a write may still be on its way to another node: who reads the version
// before it until then reads late, which is no loss.
const onItsWay = time.Second

// settling is for how long after the signal that ends it a process may still answer.
const settling = 50 * time.Millisecond

// rollbacks finds the watched keys whose newest acknowledged version was never read again after a process ended, though an
// older one was. Once a newer one was sent, nothing can be told any more; keys that were not read before are not judged.
func rollbacks(t *trial.Trial, watched keys, withoutQuorum bool) Loss {
	l := lossesOf{}
	known := make(map[string]bool)
	for _, end := range endsOfProcesses(t) {
		back := backAfter(t, end)
		from := func(int) trial.Micros { return back }
		if withoutQuorum {
			first := watched.firstWrites(end.At)
			from = func(node int) trial.Micros { return max(back, first(node)) }
		}
		for _, name := range watched.names() {
			newest, ok := newestBefore(watched[name], end.At)
			mark := fmt.Sprintf("%s version %d", name, newest.Version)
			if !ok || known[mark] {
				continue
			}
			judged, lost := rolledBack(watched[name], newest, end.At, from)
			if judged {
				known[mark] = lost
				l.judge(mark, newest.Returned, []trial.Kill{end}, lost)
			}
		}
	}
	return l.loss()
}

// backAfter is when the nodes were there again, if all had ended: meanwhile nothing is on its way, and what a node had not sent
// before its end it sends when it is back. Zero: others were there.
func backAfter(t *trial.Trial, end trial.Kill) trial.Micros {
	for _, f := range t.Faults {
		if f.Kind == scenario.Kill && slices.Contains(f.Kills, end) && len(f.Nodes) == len(t.Nodes) {
			return f.Ready + trial.Of(onItsWay)
		}
	}
	return 0
}

// firstWrites are the moments at which each node first acknowledged a write that was sent after another one. A node that
// answers reads without a quorum may know less than the majority before that, and has lost nothing.
func (k keys) firstWrites(after trial.Micros) func(node int) trial.Micros {
	first := make(map[int]trial.Micros)
	for _, calls := range k {
		for _, c := range calls {
			if at, known := first[c.Node]; c.Action == trial.Write && c.Outcome == trial.Done && c.Called > after && (!known || c.Returned < at) {
				first[c.Node] = c.Returned
			}
		}
	}
	return func(node int) trial.Micros {
		if at, known := first[node]; known {
			return at
		}
		return endless
	}
}

// unread reports whether processes ended and no watched key was read after the last of them.
func unread(t *trial.Trial) bool {
	ends := endsOfProcesses(t)
	return len(ends) > 0 && !slices.ContainsFunc(t.History, func(c trial.Call) bool {
		return c.Action == trial.Look && c.Outcome.Answered() && c.Called > ends[len(ends)-1].At+trial.Of(settling)
	})
}

// newestBefore is the newest acknowledged registration of a key at a moment; not ok: there is none, or a removal may have come
// after it: one that was sent later, or one of unknown outcome, which may come at any time.
func newestBefore(calls []trial.Call, at trial.Micros) (newest trial.Call, ok bool) {
	for _, c := range calls {
		if c.Action == trial.Write && c.Outcome == trial.Done && c.Returned < at && c.Version > newest.Version {
			newest, ok = c, true
		}
	}
	for _, c := range calls {
		if c.Action != trial.Remove || c.Outcome == trial.Refused || c.Outcome == trial.Unreached || c.Called >= at {
			continue
		}
		if c.Version > newest.Version || c.Outcome == trial.Unknown {
			return newest, false
		}
	}
	return newest, ok
}

// rolledBack reports whether a version that was the newest when a process ended was lost with it. An older version counts if the
// node was asked for it from a moment of its own on.
func rolledBack(calls []trial.Call, newest trial.Call, end trial.Micros, from func(node int) trial.Micros) (judged, lost bool) {
	until := endless // a newer write hides what was before
	for _, c := range calls {
		if c.Action != trial.Look && c.Version > newest.Version && c.Outcome != trial.Refused && c.Outcome != trial.Unreached {
			until = min(until, c.Called)
		}
	}
	older, again := false, false
	for _, c := range calls {
		if c.Action != trial.Look || !c.Outcome.Answered() || c.Called <= end+trial.Of(settling) {
			continue
		}
		again = again || sees(c) == newest.Version
		if c.Returned < until && c.Called >= max(newest.Returned+trial.Of(onItsWay), from(c.Node)) {
			judged = true
			older = older || sees(c) < newest.Version
		}
	}
	return judged, older && !again
}
