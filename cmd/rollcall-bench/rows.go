package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
)

// Names of the measurements.
const (
	renew64         figureName = "renew, 64 connections to the leader"
	renew256        figureName = "renew, 256 connections to the leader"
	renew1024       figureName = "renew, 1024 connections to the leader"
	renewSpread     figureName = "renew, 256 connections over all three nodes"
	renewSingly     figureName = "renew, 256 connections, one log entry per write"
	renewWAL256     figureName = "renew, 256 connections to the leader, raft.log wal"
	renewAP64       figureName = "renew without consensus, 64 connections to one node"
	renewAP256      figureName = "renew without consensus, 256 connections to one node"
	renewAP1024     figureName = "renew without consensus, 1024 connections to one node"
	bare64          figureName = "bare net/http, 64 connections"
	bare256         figureName = "bare net/http, 256 connections"
	bare1024        figureName = "bare net/http, 1024 connections"
	register256     figureName = "register, 256 connections to the leader"
	registerSolo    figureName = "register, 256 connections, one log entry per write"
	loneRenew       figureName = "renew, one connection, p50"
	loneApply       figureName = "bare hashicorp/raft, one Apply at a time, p50"
	pacedP50        figureName = "renew, 10,000/s open loop over 256 connections, p50"
	pacedP99        figureName = "renew, 10,000/s open loop over 256 connections, p99"
	fullFixed       figureName = "fixed payload of the full fetch's size, 8 connections"
	fullCached      figureName = "full fetch, gzip, stale, 8 connections"
	fullConfirmed   figureName = "full fetch, gzip, linearizable, 8 connections"
	deltaFixed      figureName = "fixed payload of the delta's size, 64 connections"
	deltaCached     figureName = "delta fetch, gzip, stale, 64 connections"
	appFixed        figureName = "fixed payload of one application's size, 64 connections"
	appCached       figureName = "one application of 1,000, gzip, stale, 64 connections"
	healthFixed     figureName = "fixed payload of the health list's size, 64 connections"
	healthCached    figureName = "Consul's health list of 1,000, gzip, stale, 64 connections"
	rebuild         figureName = "from a change to the new full document"
	renewQuiet      figureName = "renew, 256 connections, nothing else"
	renewBusy       figureName = "renew, 256 connections, beside 10 full fetches/s and 10 registrations/s"
	renewFew        figureName = "renew, 256 connections, few instances"
	renewMany       figureName = "renew, 256 connections, many instances"
	rebuildMany     figureName = "from a change to the new full document, many instances"
	fullMany        figureName = "full fetch after a change, gzip, linearizable, many instances"
	deltaOfMany     figureName = "delta of all registrations, many instances, first fetch"
	deltaAgainMany  figureName = "delta of all registrations, many instances, after one more change"
	deltaMany       figureName = "delta after a change, many instances"
	appMany         figureName = "one application of 50 after a change, many instances"
	metricsMany     figureName = "/metrics after a change, many instances"
	overviewMany    figureName = "the dashboard's first page after a change, many instances"
	appsPageMany    figureName = "the dashboard's applications after a change, many instances"
	savedMany       figureName = "save a snapshot over HTTP, many instances"
	savedLongest    figureName = "the longest of 1,000 renewals/s beside the saving of a snapshot, many instances"
	aloneLongest    figureName = "the longest of 1,000 renewals/s without it, for as long"
	evictedMany     figureName = "from the end of the leases of a hundredth of many instances to the absence of all on every node"
	fairP99         figureName = "renew, 1,000/s beside 16 connections that fetch everything, p99"
	fairBareP99     figureName = "renew, 1,000/s beside 16 connections that fetch as much from bare net/http, p99"
	fairFetched     figureName = "full fetches beside renewals, 16 connections"
	fairBareFetched figureName = "fixed payloads of their size beside renewals, 16 connections"
	heapEach        figureName = "live heap per instance, many instances, JSON and XML fetched"
	restartReady    figureName = "restart after SIGTERM until ready, many instances"
	crashP50        figureName = "from the end of a crashed instance's lease to its absence on every node, p50"
	crashP99        figureName = "from the end of a crashed instance's lease to its absence on every node, p99"
	arrivalP50      figureName = "from a change to its arrival at a watcher, 1,000 watchers, p50"
	arrivalP99      figureName = "from a change to its arrival at a watcher, 1,000 watchers, p99"
	crossingP50     figureName = "from a change's acknowledgement to a watcher in another datacenter, 1,000/s, p50"
	crossingP99     figureName = "from a change's acknowledgement to a watcher in another datacenter, 1,000/s, p99"
	cpuPaused       figureName = "CPU of the leader under heartbeats, peer paused"
	cpuSending      figureName = "CPU of the leader under heartbeats, peer told of them"
	cpuForPeer      figureName = "CPU of the leader for the peer's heartbeats"
	beatsReplicated figureName = "heartbeats that the peer is told of meanwhile"
	healing         figureName = "from the end of a cut until the other datacenter knows everything"
	cutResident     figureName = "growth of the leader's resident memory in a cut"
	cutHeap         figureName = "growth of the leader's live heap in a cut"
	put256          figureName = "write a key, 256 connections to the leader"
	putSolo         figureName = "write a key, 256 connections, one log entry per write"
	handOverP50     figureName = "from a lock's release to the next holder's answer, 100 contenders, p50"
	handOverP99     figureName = "from a lock's release to the next holder's answer, 100 contenders, p99"
	watcherAnswers  figureName = "answers to the watcher of one key while all others are written, and then it"
	watcherArrival  figureName = "from a key's change to its watcher"
	cpuSessions     figureName = "CPU of the leader for the renewal of 10,000 sessions every 10 s"
	cpuSessionsAll  figureName = "CPU of all nodes for the renewal of 10,000 sessions every 10 s"
	idleLeader      figureName = "CPU of the leader, idle"
	idleFollower    figureName = "CPU of a follower, idle"
	shownP50        figureName = "from a key's lone write until a follower shows it, p50"
	shownP99        figureName = "from a key's lone write until a follower shows it, p99"
	cutGoal         figureName = "growth of the leader's heap in a cut, with garbage up to the next collection"
)

// ratioRow is one line of the result: a figure, or its ratio to another one of the same round.
type ratioRow struct {
	In    benchPart  `json:"-"`
	Name  string     `json:"name"`
	Of    figureName `json:"of"`
	Over  figureName `json:"over,omitempty"` // empty for the figure itself
	Floor float64    `json:"floor,omitempty"`
	Goal  float64    `json:"goal,omitempty"`
	Lower bool       `json:"lower_is_better"`
}

// ratioRows are the purpose of the benchmark. Floors and goals count from four cores on, with all processes and the
// load on the same machine.
var ratioRows = []ratioRow{
	{In: loadPart, Name: "renew over bare, 256 connections", Of: renew256, Over: bare256, Floor: 0.33, Goal: 0.45},
	{In: loadPart, Name: "renew on wal over bare, 256 connections", Of: renewWAL256, Over: bare256, Floor: 0.33, Goal: 0.7},
	{In: loadPart, Name: "renew over bare, 1024 connections", Of: renew1024, Over: bare1024, Floor: 0.55, Goal: 0.62},
	{In: loadPart, Name: "renew over bare, 64 connections", Of: renew64, Over: bare64, Floor: 0.14, Goal: 0.18},
	{In: loadPart, Name: "renew without consensus over bare, 256 connections", Of: renewAP256, Over: bare256, Floor: 0.75, Goal: 0.75},
	{In: loadPart, Name: "renew without consensus over bare, 1024 connections", Of: renewAP1024, Over: bare1024},
	{In: loadPart, Name: "renew without consensus over bare, 64 connections", Of: renewAP64, Over: bare64},
	{In: loadPart, Name: "renew over one entry per write", Of: renew256, Over: renewSingly, Floor: 1.5, Goal: 1.8},
	{In: loadPart, Name: "register over one entry per write", Of: register256, Over: registerSolo, Floor: 1.3, Goal: 1.5},
	{In: loadPart, Name: "renew over all nodes over leader only", Of: renewSpread, Over: renew256, Floor: 0.6, Goal: 0.7},
	{In: loadPart, Name: "p99 at 10,000/s over p50 of a lone renew", Of: pacedP99, Over: loneRenew, Floor: 8, Goal: 5, Lower: true},
	{In: loadPart, Name: "p50 at 10,000/s over p50 of a lone renew", Of: pacedP50, Over: loneRenew, Lower: true},
	{In: loadPart, Name: "lone renew over lone raft Apply, p50", Of: loneRenew, Over: loneApply, Floor: 1.4, Goal: 1.2, Lower: true},
	{In: loadPart, Name: "full fetch, stale, over fixed payload", Of: fullCached, Over: fullFixed, Floor: 0.8, Goal: 0.9},
	{In: loadPart, Name: "full fetch, linearizable, over fixed payload", Of: fullConfirmed, Over: fullFixed},
	{In: loadPart, Name: "delta fetch over fixed payload", Of: deltaCached, Over: deltaFixed, Floor: 0.7, Goal: 0.85},
	{In: loadPart, Name: "one application of 1,000 over fixed payload", Of: appCached, Over: appFixed, Floor: 0.7, Goal: 0.8},
	{In: loadPart, Name: "Consul's health list of 1,000 over fixed payload", Of: healthCached, Over: healthFixed, Floor: 0.6, Goal: 0.7},
	{In: loadPart, Name: "from a change to the new full document", Of: rebuild, Floor: 15, Goal: 5, Lower: true},
	{In: loadPart, Name: "renew beside fetches and registrations over quiet", Of: renewBusy, Over: renewQuiet, Floor: 0.7, Goal: 0.85},
	{In: loadPart, Name: "p99 of renewals beside fetches over beside bare net/http", Of: fairP99, Over: fairBareP99, Floor: 3, Goal: 2, Lower: true},
	{In: scalePart, Name: "renew with many instances over few", Of: renewMany, Over: renewFew, Floor: 0.8, Goal: 0.9},
	{In: scalePart, Name: "live heap per instance", Of: heapEach, Floor: 3, Goal: 2, Lower: true},
	{In: scalePart, Name: "restart until ready", Of: restartReady, Floor: 3, Goal: 1, Lower: true},
	{In: scalePart, Name: "longest renewal while a snapshot is saved", Of: savedLongest, Lower: true},
	{In: leasesPart, Name: "end of a crashed instance's lease until no node lists it, p99", Of: crashP99, Floor: 1.5, Goal: 1.2, Lower: true},
	{In: leasesPart, Name: "from a change to 1,000 watchers, p99", Of: arrivalP99, Floor: 100, Goal: 50, Lower: true},
	{In: coordinationPart, Name: "write a key over one entry per write", Of: put256, Over: putSolo, Floor: 1.5, Goal: 1.8},
	{In: coordinationPart, Name: "hand-over of a lock among 100 contenders, p99", Of: handOverP99, Floor: 20, Goal: 10, Lower: true},
	{In: coordinationPart, Name: "answers to a watcher of one key among 100,000, for one change", Of: watcherAnswers, Floor: 1, Goal: 1, Lower: true},
	{In: coordinationPart, Name: "CPU of the leader for 10,000 sessions", Of: cpuSessions, Floor: 10, Goal: 5, Lower: true},
	{In: coordinationPart, Name: "CPU of all nodes for 10,000 sessions", Of: cpuSessionsAll, Lower: true},
	{In: idlePart, Name: "CPU of the leader of an idle cluster", Of: idleLeader, Floor: 3, Goal: 2, Lower: true},
	{In: idlePart, Name: "CPU of a follower of an idle cluster", Of: idleFollower, Floor: 1.5, Goal: 1, Lower: true},
	{In: idlePart, Name: "from a lone write until a follower shows it, p99", Of: shownP99, Lower: true},
	{In: replicationPart, Name: "from a change acknowledged here to a watcher there, 1,000/s, p99", Of: crossingP99, Floor: 0.75, Goal: 0.75, Lower: true},
	{In: replicationPart, Name: "CPU of the sender for the peer's heartbeats", Of: cpuForPeer, Floor: 15, Goal: 15, Lower: true},
	{In: replicationPart, Name: "from the end of a cut until everything is known there", Of: healing, Floor: 30, Goal: 30, Lower: true},
	{In: replicationPart, Name: "growth of the sender's heap in a cut", Of: cutGoal, Floor: 64, Goal: 64, Lower: true},
}

// verdict is how a row compares with its floor and its goal.
type verdict string

// The verdicts.
const (
	noVerdict verdict = "–" // nothing is required
	missed    verdict = "missed"
	met       verdict = "ok"
	goalMet   verdict = "goal"
)

// rowResult is a row with its values.
type rowResult struct {
	ratioRow
	Unit    string    `json:"unit"`
	Values  []float64 `json:"values"` // one per round
	Spread  spread    `json:"spread"`
	Verdict verdict   `json:"verdict"`
}

// evaluate computes rows. It fails if something was not measured in every round.
func (f *figures) evaluate(rows []ratioRow) ([]rowResult, error) {
	var results []rowResult
	for _, r := range rows {
		values, unit, err := f.rowValues(r)
		if err != nil {
			return nil, err
		}
		s := spreadOf(values)
		results = append(results, rowResult{r, unit, values, s, r.verdictOf(s.Median)})
	}
	return results, nil
}

func (f *figures) rowValues(r ratioRow) (values []float64, unit string, err error) {
	of := f.find(r.Of)
	if of == nil {
		return nil, "", fmt.Errorf("%q was not measured", r.Of)
	}
	if r.Over == "" {
		return of.Values, of.Unit, nil
	}
	over := f.find(r.Over)
	if over == nil || len(over.Values) != len(of.Values) {
		return nil, "", fmt.Errorf("%q was not measured as often as %q", r.Over, r.Of)
	}
	for i, v := range of.Values {
		if over.Values[i] == 0 {
			return nil, "", fmt.Errorf("%q came out as nothing in round %d", r.Over, i+1)
		}
		values = append(values, v/over.Values[i])
	}
	return values, "×", nil
}

func (r ratioRow) verdictOf(value float64) verdict {
	reaches := func(limit float64) bool { return value >= limit }
	if r.Lower {
		reaches = func(limit float64) bool { return value <= limit }
	}
	switch {
	case r.Floor == 0:
		return noVerdict
	case reaches(r.Goal):
		return goalMet
	case reaches(r.Floor):
		return met
	}
	return missed
}

// figureName names something measured once per round. The report shows it.
type figureName string

// figure holds what was measured under one name: one value per round.
type figure struct {
	Name   figureName `json:"name"`
	Unit   string     `json:"unit"`
	Values []float64  `json:"values"`
}

// figures holds all measurements of a run, in the order of first measurement.
type figures struct {
	list  []*figure
	wrong load.WrongResponses
	notes []string
}

func newFigures() *figures { return &figures{wrong: make(load.WrongResponses)} }

func (f *figures) add(name figureName, unit string, value float64) {
	found := f.find(name)
	if found == nil {
		found = &figure{Name: name, Unit: unit}
		f.list = append(f.list, found)
	}
	found.Values = append(found.Values, value)
}

func (f *figures) find(name figureName) *figure {
	i := slices.IndexFunc(f.list, func(found *figure) bool { return found.Name == name })
	if i < 0 {
		return nil
	}
	return f.list[i]
}

// addNote adds a sentence for readers of the figures.
func (f *figures) addNote(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// countWrong counts responses other than the expected ones, by the figure whose measurement met them.
func (f *figures) countWrong(name figureName, wrong load.WrongResponses) {
	for how, n := range wrong {
		f.wrong[fmt.Sprintf("%s (%s)", how, name)] += n
	}
}

// spread is the median and the ends of some values.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf needs at least one value. The median of an even number is the mean of the middle two.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

// text formats a spread with its unit.
func (s spread) text(unit string) string {
	text := shortNumber(s.Median)
	if s.Min != s.Max {
		text += " (" + shortNumber(s.Min) + "–" + shortNumber(s.Max) + ")"
	}
	return strings.TrimSpace(text + " " + unit)
}

// shortNumber keeps about three digits, and marks thousands by a comma.
func shortNumber(v float64) string {
	switch {
	case v >= 1000:
		whole := fmt.Sprintf("%.0f", v)
		for at := len(whole) - 3; at > 0; at -= 3 {
			whole = whole[:at] + "," + whole[at:]
		}
		return whole
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
