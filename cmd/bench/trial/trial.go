// Package trial holds what a comparison has measured: a trial is one scenario, in one column, once. It holds raw
// observations only; every figure of a report is computed from them (package verdict), so that they can be computed
// again from the file. The book has what the clients of a trial know for certain. Its files:
//
//	trial.go  the records of a trial
//	rows.go   those that a trial has thousands of, in JSON
//	check.go  what cannot be in a file
//	book.go   what clients know for certain, and how lists are judged by it
//	record.go what is known of one instance
package trial

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// Micros is a moment of a trial, in µs since its load began (negative: before), or a span in µs.
type Micros int64

// Since returns a time as a moment of a trial whose load began at began.
func Since(began, t time.Time) Micros { return Of(t.Sub(began)) }

// Of returns a duration in µs.
func Of(d time.Duration) Micros { return Micros(d / time.Microsecond) }

// Duration returns the span as a duration.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// Seconds returns the span in seconds.
func (m Micros) Seconds() float64 { return float64(m) / 1e6 }

// Comparison is one run of `rollcall-bench compare`: the raw file of its report.
type Comparison struct {
	Version   string              `json:"version"` // of the program
	Date      string              `json:"date"`    // of the run's start, as 2006-01-02
	Machine   Machine             `json:"machine"`
	Plan      Plan                `json:"plan"`
	Scenarios []scenario.Scenario `json:"scenarios"` // as run, defaults filled in
	Trials    []Trial             `json:"trials"`    // in the order in which they ran
}

// Column returns one of the comparison's columns by name; an undescribed one promises nothing.
func (c *Comparison) Column(name string) scenario.Column {
	for _, column := range c.Plan.Columns {
		if column.Name == name {
			return column
		}
	}
	return scenario.Column{Name: name, Title: name}
}

// Machine describes the machine to explain the figures. It contains nothing that names the machine or its
// owner.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Disk   string `json:"disk"`
	Sync   string `json:"sync"` // duration of one durable write
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// String describes the machine as part of a sentence.
func (m Machine) String() string {
	return fmt.Sprintf("Machine: %s, %d cores, %s of memory; %s, %s; %s; %s", m.CPU, m.Cores, m.Memory, m.Disk, m.Sync, m.Kernel, m.Go)
}

// Plan says how a comparison was run.
type Plan struct {
	Seed        uint64            `json:"seed"`
	Quick       bool              `json:"quick"`
	Rounds      int               `json:"rounds"` // of every scenario; brief columns have fewer
	Datacenters int               `json:"datacenters"`
	Length      Micros            `json:"length_us"` // of a trial's load, unless its scenario says otherwise
	Columns     []scenario.Column `json:"columns"`   // compared
	LeftOut     []string          `json:"left_out"`  // sentences: what did not run, and why
	// Only lists the trials that were asked for (--only): SCENARIO, COLUMN or SCENARIO/COLUMN each; empty means all.
	Only    []string `json:"only,omitempty"`
	Timeout Micros   `json:"timeout_us"` // after which a client abandons a try
	Took    Micros   `json:"took_us"`    // the whole comparison
}

// Wants reports whether trials of a scenario in a column were asked for.
func (p Plan) Wants(scenario, column string) bool {
	return len(p.Only) == 0 || slices.ContainsFunc(p.Only, func(text string) bool {
		return text == scenario || text == column || text == scenario+"/"+column
	})
}

// Trial is one scenario, in one column, once.
type Trial struct {
	Scenario string `json:"scenario"`
	Column   string `json:"column"` // its name
	Round    int    `json:"round"`  // from 1
	Seed     uint64 `json:"seed"`
	Length   Micros `json:"length_us"`           // of the load; observations go on until the end
	Agreed   Micros `json:"agreed_us"`           // when all nodes held the same at the end; -1 if they did not in time
	Ended    Micros `json:"settled_us"`          // when the observations ended
	Cores    int    `json:"cores" check:"count"` // of the machine
	Took     Micros `json:"took_us"`             // total, including the cluster's start and end
	Nodes    []Node `json:"nodes"`               // numbered by their place in this list
	Failed   string `json:"failed"`              // why the trial could not be completed; empty if it was
	// why earlier tries of the trial are not valid, and in no figure: the machine could not carry them
	Repeats []string `json:"repeats,omitempty"`

	Faults  []Fault      `json:"faults"`
	Series  []Series     `json:"series"`
	Clients Rows[Client] `json:"clients"` // what single clients had to bear
	Sealed  []Sealed     `json:"sealed"`  // instances that are written once or twice, and never again
	// heartbeats answered 404 although the instance was registered and alive
	Forgotten []Forgotten    `json:"forgotten"`
	Machine   []Health       `json:"machine"`   // every second: whether the machine carried all this
	History   Rows[Call]     `json:"history"`   // every call on the watched keys, ordered by the time of the call
	Lists     Rows[List]     `json:"lists"`     // every list that an observer fetched
	Sightings Rows[Sighting] `json:"sightings"` // when acknowledged registrations were first seen
	// instances that died or were canceled, and when nodes stopped listing them
	Departures Rows[Departure] `json:"departures"`
	Evictions  []Eviction      `json:"evictions"` // told by the nodes' watches
	Leaders    []Leader        `json:"leaders"`   // whenever a node's statement about its leader changed; mode cp
	Usage      []Usage         `json:"usage"`     // every second, per node
	Ending     []Ending        `json:"ending"`    // per node, when all nodes agreed or time was up
}

// NodeName returns a node's name, by its number.
func (t *Trial) NodeName(number int) string {
	if number < 0 || number >= len(t.Nodes) {
		return fmt.Sprintf("node number %d", number)
	}
	return t.Nodes[number].Name
}

// Node is one server process of a trial.
type Node struct {
	Name       string `json:"name"` // node1 …
	Datacenter string `json:"dc"`   // dc1 …
}

// Fault is a fault as it was injected: the bands in the plots show it.
type Fault struct {
	Kind  scenario.Kind `json:"kind"`
	Text  string        `json:"text"`               // as in "leader node2 killed"
	Nodes []int         `json:"nodes" check:"node"` // struck ones; for a partition the smaller side
	From  Micros        `json:"from_us"`
	To    Micros        `json:"to_us"`               // when it was undone; equal to From if it has no length
	Ready Micros        `json:"ready_us"`            // when all restarted nodes could serve; 0 if none was restarted
	Count int           `json:"count" check:"count"` // struck instances
	Kills []Kill        `json:"kills"`               // for a fault that ends processes: each end
}

// Kill is the end of a process.
type Kill struct {
	At      Micros `json:"at_us"`
	Node    int    `json:"node" check:"node"`
	Writing int    `json:"writing"` // writes of watched keys that were on their way to it
}

// Operation is what a client asked for.
type Operation string

// The operations. A fetch is of the whole registry. Probes are calls on watched keys: each stays with one node, so
// that what that node answers is known, and no client goes without an answer because of it.
const (
	Heartbeat  Operation = "heartbeat"
	Register   Operation = "register"
	Cancel     Operation = "cancel"
	Fetch      Operation = "fetch"
	Delta      Operation = "delta"
	ProbeWrite Operation = "probe write"
	ProbeRead  Operation = "probe read"
)

// Operations lists them, those of stock clients first.
var Operations = []Operation{Heartbeat, Register, Cancel, Fetch, Delta, ProbeWrite, ProbeRead}

// Writes reports whether the operation of a stock client changes the registry.
func (o Operation) Writes() bool { return o == Heartbeat || o == Register || o == Cancel }

// Reads reports whether the operation of a stock client reads the registry.
func (o Operation) Reads() bool { return o == Fetch || o == Delta }

// Outcome is how a call ended.
type Outcome string

// The outcomes. For all but Unknown it is certain whether the call took effect.
const (
	Done      Outcome = "done"
	NotFound  Outcome = "not found" // 404: answered, about an instance that is not registered
	Refused   Outcome = "refused"   // answered that it was not done: 4xx, 5xx except 504
	Unreached Outcome = "unreached" // no node accepted the call
	Unknown   Outcome = "unknown"   // 504, or no answer to what was sent
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Done, NotFound, Refused, Unreached, Unknown}

// Answered reports whether the client got what it asked for.
func (o Outcome) Answered() bool { return o == Done || o == NotFound }

// BinLength is the resolution of a Series.
const BinLength = 100 * time.Millisecond

// Series is the outcome of one operation for the clients of one home node.
type Series struct {
	Operation Operation `json:"operation"`
	Node      int       `json:"node" check:"node"`
	Bins      []Bin     `json:"bins"` // ascending; empty ones are left out
}

// Bin counts the calls that were due in a stretch of BinLength, by outcome. A call that was due while its client was
// still busy counts where it was due, and its latency from then: a server that stalls cannot hide the calls that it
// kept from being sent.
type Bin struct {
	Number    int `json:"n"` // it begins at Number × BinLength
	Done      int `json:"d,omitempty" check:"count"`
	NotFound  int `json:"f,omitempty" check:"count"`
	Refused   int `json:"r,omitempty" check:"count"`
	Unreached int `json:"x,omitempty" check:"count"`
	Unknown   int `json:"u,omitempty" check:"count"`
	// Latencies of the answered calls (Done and NotFound) as pairs of a latency in µs, ascending, and how many calls
	// took that long, to within 1 % (the lowest value of a bucket of an HdrHistogram of two digits).
	Latencies []int64 `json:"l,omitempty"`
}

// Count returns the counter of an outcome.
func (b *Bin) Count(o Outcome) *int {
	counters := [...]*int{&b.Done, &b.NotFound, &b.Refused, &b.Unreached, &b.Unknown} // in the order of Outcomes
	return counters[slices.Index(Outcomes, o)]
}

// Due counts all calls.
func (b *Bin) Due() int { return b.Done + b.NotFound + b.Refused + b.Unreached + b.Unknown }

// Answered counts the calls whose clients got what they asked for.
func (b *Bin) Answered() int { return b.Done + b.NotFound }

// Pairs yields the latencies of the answered calls, in µs, and how many calls took that long.
func (b *Bin) Pairs() iter.Seq2[int64, int] {
	return func(yield func(int64, int) bool) {
		for i := 0; i+1 < len(b.Latencies); i += 2 {
			if !yield(b.Latencies[i], int(b.Latencies[i+1])) {
				return
			}
		}
	}
}

// Client is what one client saw of one operation; for heartbeats it is the client of one instance. It goes on to the
// next reachable node if one gives no answer, as stock clients do.
type Client struct {
	Operation Operation
	Home      int `check:"node"` // node
	Calls     int
	Answered  int    `check:"count"`
	Gap       Micros `check:"count"` // the longest time from when a call was due until it got an answer again
	Open      bool   // that gap had not ended when the client's calls did
}

// Sealed is an instance with a lease that outlasts the trial. It is registered, a second later perhaps registered in
// another version or canceled, and then never renewed nor written again: what is lost of it stays lost.
type Sealed struct {
	ID     string          `json:"id"`
	Writes Rows[SealWrite] `json:"writes"` // one or two
}

// SealWrite is one write of a sealed instance. Its version is its place in the list, from 1; a cancel is not numbered.
type SealWrite struct {
	Cancel   bool
	Node     int `check:"node"` // the last one asked
	Outcome  Outcome
	Doubtful bool // an earlier try of it got no answer, and may take effect late
	Called   Micros
	Returned Micros `check:"end"`
}

// Forgotten is a heartbeat answered 404.
type Forgotten struct {
	At   Micros `json:"at_us"`
	Node int    `json:"node" check:"node"` // the one that answered
	ID   string `json:"id"`
	Last Micros `json:"last_us"` // the instance's last acknowledged heartbeat or registration before
}

// Health is a look at the machine. Busy and Own count since they began; the others cover the time since the last look.
type Health struct {
	At    Micros `json:"at_us"`
	Busy  Micros `json:"busy_us" check:"total"`  // all processors together, all processes
	Own   Micros `json:"own_us" check:"total"`   // this program: load, proxies, observation
	Due   int    `json:"due" check:"count"`      // calls that the schedule made due
	Late  int    `json:"late" check:"count"`     // those handed to a client more than LateAfter later
	Worst Micros `json:"worst_us" check:"count"` // the latest of them
	Sync  Micros `json:"sync_us" check:"count"`  // duration of one durable write on the nodes' disk
}

// LateAfter is the delay from which on a call counts as late: a client that has to wait for the measuring program does
// not measure a server.
const LateAfter = 50 * time.Millisecond

// Action is what a call of the history did.
type Action string

// The actions.
const (
	Write  Action = "write"  // a registration that carries Version in its metadata and its lastDirtyTimestamp
	Remove Action = "remove" // a cancel, which also has a version
	Look   Action = "look"   // a read of the instance, as an unmodified client does it
)

// Call is one call on one of the watched keys: instances whose every write carries a version, so that a reader can
// tell how old its answer is. In heavy histories, writes come in bursts: all writers of a key at once. Keys named
// own-… have one writer, which sends one call after the other, always to its home node while that can be reached.
// Keys named shared-… are written through all nodes and never canceled; versions of one key are drawn in the order of
// sending.
//
// The state of a key is the registered version, or 0 without one. Of two registrations by clients the later one
// counts, whatever their versions (ADR 36); stock Eureka, and Rollcall below level 3, keep the greater version. A
// cancel is compared with nothing: whenever it takes effect, the state is 0, and the next registration is accepted in
// any version. A write that no node accepted (Unreached) may be sent to the next node in the same version, as a call
// of its own.
type Call struct {
	Key      string
	Client   int // sends one call after the other
	Node     int `check:"node"` // that was asked
	Action   Action
	Version  int64 `check:"count"` // written, or seen; 0 if not registered
	Outcome  Outcome
	Called   Micros
	Returned Micros `check:"end"`
}

// List is one fetch of the whole registry by an observer, and its differences from what the clients know to be true. A
// node is asked every 100 ms.
type List struct {
	Node     int `check:"node"`
	Asked    Micros
	Answered Micros `check:"end"`
	Failed   bool   // no list came; the fields below are 0, except Missing
	Listed   int    `check:"count"`
	Ghosts   int    `check:"count"` // listed, although they died or their cancel was acknowledged before it was asked
	// not listed, although registered, acknowledged and alive all the time; all such instances if no list came
	Missing  int      `check:"count"`
	Behind   int      `check:"count"` // listed in an older version than was acknowledged before it was asked
	Unhealed int      `check:"count"` // acknowledged before the last fault ended, and not in effect in this list
	Back     []string // not listed before, after their acknowledged cancel, and listed again by this node
}

// Way is how a client looks for an instance.
type Way string

// The ways.
const (
	ByRead  Way = "read"       // of the instance, as an unmodified client does it
	ByStale Way = "stale read" // of the instance, ?consistency=stale, which only Rollcall has
	ByList  Way = "list"       // of its application
	ByDelta Way = "delta"
	ByWatch Way = "watch"
)

// Ways lists all ways.
var Ways = []Way{ByRead, ByStale, ByList, ByDelta, ByWatch}

// Sighting is when a registration that was acknowledged through one node was first seen at another, or the same, node.
type Sighting struct {
	From  int `check:"node"`
	To    int `check:"node"`
	Way   Way
	Acked Micros
	Delay Micros // until an answer showed it; 0 if before the acknowledgement; -1 if not within the trial
}

// Departure is an instance that went, and when one node stopped listing it.
type Departure struct {
	ID       string
	Canceled bool   // otherwise it died
	Last     Micros // its last answered heartbeat or registration; for a canceled one, the cancel's answer
	Node     int    `check:"node"`
	Gone     Micros // when the first list without it was requested; -1 if it was listed until the end
}

// Eviction is an eviction that a node's watch reported.
type Eviction struct {
	At    Micros `json:"at_us"`
	Node  int    `json:"node" check:"node"`
	ID    string `json:"id"`
	Alive bool   `json:"alive"` // its client sent heartbeats all the time: a false eviction
}

// Leader is a node's statement about its leader from At on.
type Leader struct {
	At     Micros `json:"at_us"`
	Node   int    `json:"node" check:"node"` // the one asked
	Leader int    `json:"leader"`            // -1 for none, or no answer
	Term   uint64 `json:"term"`
}

// Usage is what a node's process has used since it started.
type Usage struct {
	At        Micros `json:"at_us"`
	Node      int    `json:"node" check:"node"`
	CPU       Micros `json:"cpu_us" check:"total"`
	Memory    int64  `json:"memory" check:"count"`    // resident bytes
	Written   int64  `json:"written" check:"count"`   // bytes sent to the disk
	Stored    int64  `json:"stored" check:"count"`    // bytes of its data directory
	Sent      int64  `json:"sent" check:"count"`      // bytes to other nodes
	Instances int    `json:"instances" check:"count"` // that its registry should hold, as clients know
	Renewals  int64  `json:"renewals" check:"count"`  // heartbeats answered by the whole cluster so far
}

// Ending is what one node held at the end, when all nodes agreed or time was up.
type Ending struct {
	Node   int              `json:"node" check:"node"`
	Failed string           `json:"failed,omitempty"` // why it could not be asked
	Keys   map[string]int64 `json:"keys"`             // the watched keys' versions; absent if not registered
	// Missing lists instances, registered, acknowledged and alive, that it does not list, Revived those that it lists
	// although their cancel was acknowledged, Dead those that it lists although their lease ended.
	Missing []string `json:"missing"`
	Revived []string `json:"revived"`
	Dead    []string `json:"dead"`
	// the versions of its listed sealed instances, in the order of Trial.Sealed; 0 if not listed
	Sealed []int `json:"sealed" check:"count"`
	// how long its stream of changes was read: without it evictions are unknown
	Watched Micros `json:"watched_us" check:"count"`
}
