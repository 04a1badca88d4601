// Package verdict computes what trials mean: figures, judgements by checkers, broken limits. It is pure: the same
// trial gives the same verdict, so that every number of a report can be computed again from its raw file. Its files:
//
//	verdict.go   what a verdict is made of
//	judge.go     the verdict on a trial, its facts, and the limits that it did not keep
//	machine.go   whether the machine carried the trial
//	calls.go     figures of calls, of the clients that a fault struck, and of what the servers spent
//	lists.go     figures of lists, sightings and leaders
//	staleness.go how old the answers of looks were
//	losses.go    what was acknowledged and is not there any more
//	ending.go    what the nodes held at the end, and whether it was the same
//	history.go   whether a single copy explains the calls on each watched key
//	versions.go  the same for keys that are never removed
package verdict

import (
	"maps"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Verdict is the judgement of one trial.
type Verdict struct {
	Operations map[trial.Operation]Calls `json:"operations"` // those that were called
	Reads      Calls                     `json:"reads"`      // Fetch and Delta together
	Writes     Calls                     `json:"writes"`     // Heartbeat, Register and Cancel together
	Worst      map[trial.Operation]Worst `json:"worst"`      // of the operations of stock clients
	Staleness  Staleness                 `json:"staleness"`
	Windows    []Window                  `json:"windows"` // per fault, then per storm
	// delays at other nodes of the same datacenter, seconds
	Visibility map[trial.Way]Spread `json:"visibility"`
	Abroad     map[trial.Way]Spread `json:"abroad"` // delays at nodes of other datacenters, seconds
	// from a dead instance's last heartbeat until no node lists it, seconds
	Removal Spread `json:"removal"`
	// instance-seconds during the load: dead or canceled, but listed; mean over the nodes
	Ghosts float64 `json:"ghosts"`
	// instance-seconds during the load: alive, but not listed, or no list came; mean over the nodes
	Missing float64 `json:"missing"`
	// seconds of the load without an answer to requests for the list; mean over the nodes
	Unanswered float64   `json:"unanswered"`
	Healing    []Healing `json:"healing"` // per fault that ended
	Losses     Losses    `json:"losses"`  // what was acknowledged, but had disappeared
	// instances that some node lacks at the end, when clients have gone on, although acknowledged and alive
	Lost []string `json:"lost"`
	// instances listed again after their acknowledged cancel, or at the end
	Revived []string `json:"revived"`
	// instances that some node lists at the end although their lease ended
	Dead           []string `json:"dead"`
	FalseEvictions int      `json:"false_evictions"` // distinct instances
	// every node's stream of changes was read for most of the time for which it was up, so that evictions are known
	Told bool `json:"told"`
	// every node gave lists during the load: otherwise Ghosts, Missing, Unanswered and Revived are unknown
	Listed     bool        `json:"listed"`
	Elections  int         `json:"elections"`  // leaders after the first
	Leaderless float64     `json:"leaderless"` // seconds in which no node knew a leader
	Cost       Cost        `json:"cost"`
	History    History     `json:"history"`
	Converged  Convergence `json:"converged"`
	Broken     []Broken    `json:"broken"` // limits; empty if all were kept
	// why the trial measured the machine and not the servers, a sentence each; empty if it is valid
	Invalid []string `json:"invalid"`
}

// Worst is what the worst client of an operation saw.
type Worst struct {
	Clients int     `json:"clients"` // how many there were
	Success float64 `json:"success"` // minimum share of a client's calls that were answered
	// the longest time that a client got no answer, from when the call was due, in seconds
	Gap float64 `json:"gap"`
	// no answer had ended that time when the client's calls ended: it is a minimum
	Open bool `json:"open,omitempty"`
}

// Losses counts what was acknowledged, but had disappeared. Nothing that clients restored afterwards hides them.
type Losses struct {
	Registrations Loss `json:"registrations"` // sealed instances that some node lacks at the end
	Updates       Loss `json:"updates"`       // sealed instances that some node holds in an older version at the end
	// sealed instances that some node lists at the end although their cancel was acknowledged
	Cancels    Loss `json:"cancels"`
	Heartbeats Loss `json:"heartbeats"` // heartbeats answered 404 within a lease after the last acknowledged one
}

// Loss counts losses of one kind.
type Loss struct {
	Of    int `json:"of"` // how many were judged
	Count int `json:"count"`
	// seconds from the acknowledgement to the next end of a process; losses without a later end of a process have none
	Age   Spread   `json:"age"`
	Names []string `json:"names"` // sorted
	// Unjudged counts claims on sealed instances that no asked node refutes, but that a silent one may: they are not
	// in Of.
	Unjudged int `json:"unjudged,omitempty"`
}

// Calls sums up the calls of a trial, or an operation, that were due during the load.
type Calls struct {
	Outcomes  map[trial.Outcome]int `json:"outcomes"`
	Count     int                   `json:"count"`
	PerSecond float64               `json:"per_second"` // answered
	Success   float64               `json:"success"`    // share that was answered; 1 without calls
	Latency   Spread                `json:"latency"`    // of the answered calls, from when they were due, in seconds
	// consecutive seconds when calls were due and none was answered, in steps of 0.1
	LongestGap float64 `json:"longest_gap"`
	// OpenGap says that no answer ended the longest gap, because the calls ended before: it is a minimum. Gaps of a
	// Window end with it, and are never open.
	OpenGap bool `json:"open_gap,omitempty"`
	// Late counts the answered calls whose answers came only after the fault or the storm was over; for a Window.
	Late int `json:"late,omitempty"`
}

// Spread describes values. Quantiles use the nearest rank. Whatever has no value, because it did not happen within the
// trial, is only counted in Never.
type Spread struct {
	Count int     `json:"count"`
	Never int     `json:"never,omitempty"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Staleness is how old the answers of Look calls were. An answer is stale if the key had a newer version that was
// acknowledged before the call.
type Staleness struct {
	Reads int     `json:"reads"` // answered
	Stale int     `json:"stale"`
	Share float64 `json:"share"`
	// seconds between the acknowledgement of the next version and the call, for stale answers
	Age    Spread `json:"age"`
	Behind int    `json:"behind"` // most versions behind
	// Follows is the share that follows for keys that change more rarely than watched keys do.
	Follows []Follow `json:"follows"`
}

// Follow is the share of stale answers that follows for a key which changes at an interval.
type Follow struct {
	Every float64 `json:"every"` // seconds from one change to the next
	Share float64 `json:"share"`
}

// Window is what some clients saw during a fault or a storm: until it was undone, and what it had stopped could serve
// again. A fault without an end lasts as long as the load.
type Window struct {
	// home nodes of these clients: those that the fault struck, or all if it struck none
	Nodes     []int     `json:"nodes"`
	Reads     Calls     `json:"reads"`
	Writes    Calls     `json:"writes"`
	Staleness Staleness `json:"staleness"`
}

// Healing is how long after a fault's end every node's list had everything acknowledged before.
type Healing struct {
	Fault   int     `json:"fault"`
	Seconds float64 `json:"seconds"` // -1 if not within the trial
}

// Cost is what the servers spent while nothing but heartbeats came, and nobody observed them; all 0 for other trials.
type Cost struct {
	Renewals float64 `json:"renewals"` // answered, per second
	CPU      float64 `json:"cpu"`      // seconds per second, total of all nodes
	Written  float64 `json:"written"`  // bytes sent to the disk of a node, per second
	Sent     float64 `json:"sent"`     // bytes between nodes, per second
	Memory   float64 `json:"memory"`   // bytes, mean of the nodes, at the end
	// resident bytes of one node, above those of the empty one
	MemoryPerInstances float64 `json:"memory_per_1000_instances"`
	Disk               float64 `json:"disk"` // bytes of all data directories at the end
}

// Result is a checker's result.
type Result string

// The results.
const (
	OK         Result = "ok"
	Violated   Result = "violated"
	Undecided  Result = "undecided"    // the checker ran out of time, or nobody looked
	Unpromised Result = "not promised" // by this mode
)

// History says whether the calls on each watched key can be explained by a single copy on which every call took effect
// at one moment between its beginning and its end.
type History struct {
	Result Result `json:"result"`
	Keys   int    `json:"keys"`
	Calls  int    `json:"calls"`
	// Overlapping counts the writes that began while another one of their key was under way, Unknown those that may or
	// may not have taken effect: without either a history proves little.
	Overlapping int      `json:"overlapping"`
	Unknown     int      `json:"unknown"`
	Violated    []string `json:"violated"`         // the keys that cannot be explained
	Unread      []string `json:"unread,omitempty"` // keys that were written without any answered look at them
}

// Convergence says whether at the end all nodes held the same, and for each watched key no version that an
// acknowledged write had certainly replaced.
type Convergence struct {
	Result Result   `json:"result"`
	Differ []string `json:"differ"` // watched keys, or instances, on which nodes differ
	Lost   []string `json:"lost"`   // watched keys whose replaced version every node holds
	Text   string   `json:"text"`   // a sentence about the first of them
}

// Broken is a limit that a trial did not keep.
type Broken struct {
	Limit string `json:"limit"` // as in "cp: write-gap at most 10s"
	Got   string `json:"got"`
}

// spans counts spans by their length. Negative ones did not end within the trial.
type spans map[trial.Micros]int

// spread describes the spans, in seconds.
func (s spans) spread() Spread {
	var found Spread
	var lengths []trial.Micros
	var upTo []int // how many spans there are up to each length
	for _, length := range slices.Sorted(maps.Keys(s)) {
		if length < 0 {
			found.Never += s[length]
			continue
		}
		found.Count += s[length]
		lengths, upTo = append(lengths, length), append(upTo, found.Count)
	}
	if found.Count == 0 {
		return found
	}
	at := func(quantile float64) float64 {
		rank := max(int(math.Ceil(quantile*float64(found.Count))), 1)
		i, _ := slices.BinarySearch(upTo, rank)
		return lengths[i].Seconds()
	}
	found.P50, found.P90, found.P99, found.P999, found.Max = at(0.5), at(0.9), at(0.99), at(0.999), at(1)
	return found
}
