package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// LossKind is a kind of loss, with the limit that a loss breaks.
type LossKind struct {
	Noun        string // a single possible victim
	Of          func(*Losses) *Loss
	limit, what string
}

// LossKinds lists the kinds: those of sealed instances by claimKind, then that of heartbeats.
var LossKinds = []LossKind{
	{"registration", func(l *Losses) *Loss { return &l.Registrations }, "no registration is lost", "not listed by some node at the end, though acknowledged and never written again"},
	{"update", func(l *Losses) *Loss { return &l.Updates }, "no update is lost", "in an older version at some node at the end, though the newer one was acknowledged"},
	{"cancel", func(l *Losses) *Loss { return &l.Cancels }, "no cancel is undone", "listed by some node at the end, though the cancel was acknowledged"},
	{"heartbeat", func(l *Losses) *Loss { return &l.Heartbeats }, living, "answered 404 within the lease after the last acknowledged heartbeat"},
}

// losses finds what was acknowledged and has disappeared.
func (f *facts) losses(s scenario.Scenario) Losses {
	var sealed [removed + 1]tally // by claimKind
	for i, instance := range f.Sealed {
		claim, ok := claimOf(instance)
		if !ok {
			continue
		}
		of, result := &sealed[claim.kind], claim.against(f, i)
		if result == Undecided {
			of.Unjudged++
			continue
		}
		of.Of++
		if result == Violated {
			of.lose(instance.ID, claim.acknowledged, f.kills, endless)
		}
	}
	found := Losses{Heartbeats: f.forgotten(s, func(trial.Forgotten) bool { return false })}
	for kind := range sealed {
		*LossKinds[kind].Of(&found) = sealed[kind].loss()
	}
	return found
}

// tally collects losses of one kind.
type tally struct {
	Loss
	ages spans
}

// lose counts something acknowledged at a moment that was found lost at another one.
func (l *tally) lose(name string, acknowledged trial.Micros, kills []trial.Micros, at trial.Micros) {
	l.Count++
	l.Names = append(l.Names, name)
	next, _ := slices.BinarySearch(kills, acknowledged)
	if next < len(kills) && kills[next] <= at {
		if l.ages == nil {
			l.ages = make(spans)
		}
		l.ages[kills[next]-acknowledged]++
	}
}

func (l *tally) loss() Loss {
	l.Names, l.Age = unique(l.Names), l.ages.spread()
	return l.Loss
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

// against holds the claim about a sealed instance against what the nodes held at the end. It is undecided if a node
// might refute it that is silent, or was not asked for the instance, and no other one does.
func (c claim) against(f *facts, number int) Result {
	result := OK
	if len(f.Ending) == 0 || len(f.silent) > 0 {
		result = Undecided
	}
	for _, e := range f.answered {
		switch {
		case number >= len(e.Sealed):
			result = Undecided
		case c.kind == removed && e.Sealed[number] > 0 || e.Sealed[number] < c.version:
			return Violated
		}
	}
	return result
}

// everyKind is the number of sealed instances from which on there must be evidence of each kind of loss: each gets a
// third of them.
const everyKind = 30

// unjudged says which losses could not be judged although they should have been, or returns "".
func (f *facts) unjudged(l Losses, s scenario.Scenario) string {
	judged := l.Registrations.Of + l.Updates.Of + l.Cancels.Of
	unjudged := l.Registrations.Unjudged + l.Updates.Unjudged + l.Cancels.Unjudged
	for _, e := range f.answered {
		if len(e.Sealed) != len(f.Sealed) {
			return fmt.Sprintf("%s was asked for %d of %d sealed instances", f.NodeName(e.Node), len(e.Sealed), len(f.Sealed))
		}
	}
	due := s.Load.Sealed * f.Length.Seconds()
	switch {
	case len(f.Sealed) == 0 && due >= 1:
		return "undecided: no sealed instance is known"
	case unjudged > 0:
		return fmt.Sprintf("undecided: %d of %d claims on sealed instances judged, a silent node may refute the others", judged, judged+unjudged)
	case len(f.Sealed) > 0 && judged == 0:
		return fmt.Sprintf("of %d sealed instances the outcome of none is known", len(f.Sealed))
	}
	for _, kind := range []claimKind{removed, registered, updated} {
		if LossKinds[kind].Of(&l).Of == 0 && due >= everyKind {
			return fmt.Sprintf("undecided: of %d sealed instances none tells of %ss", len(f.Sealed), LossKinds[kind].Noun)
		}
	}
	return ""
}

// forgotten counts the heartbeats answered 404 although a lease had begun less than its length before, except excused
// ones.
func (f *facts) forgotten(s scenario.Scenario, excused func(trial.Forgotten) bool) Loss {
	var l tally
	for _, h := range f.Forgotten {
		if h.At-h.Last < trial.Of(s.Load.Lease.Duration()) && !excused(h) {
			l.lose(h.ID, h.Last, f.kills, h.At)
		}
	}
	for _, series := range f.Series {
		for _, b := range series.Bins {
			if series.Operation == trial.Heartbeat && wholeLoad(f.Trial).bin(b) {
				l.Of += b.Answered()
			}
		}
	}
	return l.loss()
}

// onItsWay is how long after nodes were apart one may still not have heard what another one acknowledged.
const onItsWay = time.Second

// split reports whether a heartbeat was answered 404 while some nodes heard nothing from others, or had only just begun
// to hear them again. Without consensus a node still answers then, from what it knows. A cut link leaves a datacenter
// whole.
func (f *facts) split(h trial.Forgotten) bool {
	return slices.ContainsFunc(f.Faults, func(fault trial.Fault) bool {
		apart := fault.Kind == scenario.Pause || fault.Kind == scenario.Isolate
		return apart && h.At >= fault.From && h.At < fault.To+trial.Of(onItsWay)
	})
}
