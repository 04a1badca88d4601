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

// losses finds what was acknowledged and has disappeared.
func losses(t *trial.Trial, s scenario.Scenario) Losses {
	ends := endsOfProcesses(t)
	found := Losses{Heartbeats: forgotten(t, s, ends)}
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
		{l.Heartbeats, "no living instance is forgotten", "answered 404 within the lease after the last acknowledged heartbeat"},
	}
}

// unjudged says which losses could not be judged although they should have been, or returns "".
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

// everyKind is the number of sealed instances from which on there must be evidence of each kind of loss: each gets a
// third of them.
const everyKind = 30

// lossesOf collects losses of one kind.
type lossesOf struct {
	of       int
	unjudged int
	names    []string
	ages     []float64
}

// judge counts something acknowledged at a moment, and whether it was lost.
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

// endsOfProcesses returns when processes were ended, by time.
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

// claim is what must hold for a sealed instance at the end.
type claim struct {
	kind         claimKind
	version      int // a minimum; 0 for removed
	acknowledged trial.Micros
}

// claimOf returns what follows from the writes of a sealed instance; ok is false if nothing does.
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
		// The node that was asked lacked what had been acknowledged. That is not a loss if it just had not received it
		// yet: then all nodes list it at the end, because a cancel that finds nothing removes nothing.
		return kept, first.Outcome == trial.Done && !first.Doubtful && !last.Doubtful
	case last.Outcome == trial.Refused || last.Outcome == trial.Unreached: // it certainly did nothing
		return kept, first.Outcome == trial.Done && !last.Doubtful
	case !last.Cancel && last.Outcome == trial.Done:
		return claim{updated, 2, last.Returned}, true
	case !last.Cancel: // it is listed in one of the versions
		return kept, first.Outcome == trial.Done
	}
	// A try of the registration without an answer may take effect after the cancel.
	return claim{removed, 0, last.Returned}, last.Outcome == trial.Done && first.Outcome == trial.Done && !first.Doubtful
}

// refuted reports whether a node that answered at the end contradicts the claim about a sealed instance.
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

// forgotten counts the heartbeats answered 404 although a lease had begun less than its length before.
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

// withContact returns a trial without the heartbeats answered 404 while some nodes heard nothing from others, or had
// only just begun to hear them again. Without consensus a node still answers then, from what it knows.
func withContact(t *trial.Trial) *trial.Trial {
	connected := *t
	connected.Forgotten = slices.DeleteFunc(slices.Clone(t.Forgotten), func(f trial.Forgotten) bool {
		return slices.ContainsFunc(t.Faults, func(fault trial.Fault) bool {
			// a cut link leaves a datacenter whole
			apart := fault.Kind == scenario.Pause || fault.Kind == scenario.Isolate
			return apart && f.At >= fault.From && f.At < fault.To+trial.Of(onItsWay)
		})
	})
	return &connected
}

// onItsWay is how long after its acknowledgement a write may still be on its way to another node: reading the version
// before it until then is late, but no loss.
const onItsWay = time.Second
