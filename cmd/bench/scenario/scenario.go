// Package scenario describes what a comparison does to a cluster: a load, and faults at their times. A scenario is a
// small YAML file (docs/scenarios.md); those that come with the program are in scenarios/. The package carries nothing
// out. Its files: scenario.go has the types, parse.go the reading of files, checks.go what values are allowed,
// select.go what selectors of nodes and shares of instances mean, and the built-in scenarios.
package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode is how a cluster orders operations.
type Mode string

// The modes.
const (
	CP Mode = "cp"
	AP Mode = "ap"
)

// Scenario is what happens in a trial. Parse fills in the defaults.
type Scenario struct {
	Name        string  `yaml:"name" json:"name"`     // letters, digits, dashes
	Title       string  `yaml:"title" json:"title"`   // heading of its part of the report
	About       string  `yaml:"about" json:"about"`   // a sentence or two about what it shows
	Quick       bool    `yaml:"quick" json:"quick"`   // part of --quick
	Chosen      bool    `yaml:"chosen" json:"chosen"` // brief columns run it, too
	Datacenters int     `yaml:"datacenters" json:"datacenters"`
	Length      Span    `yaml:"length" json:"length"` // of the load; 0 means the comparison's
	Load        Load    `yaml:"load" json:"load"`     // throughout
	Storms      []Storm `yaml:"storms" json:"storms"` // stretches of another load
	Faults      []Fault `yaml:"faults" json:"faults"` //
	// of all nodes of Rollcall, other than the defaults
	Settings map[string]string `yaml:"settings" json:"settings"`
	// beyond which the comparison fails, by column or mode
	Limits map[string]Limits `yaml:"limits" json:"limits"`
	// Twin is the scenario of the same run that this one differs from only in whether leaders are struck (Pair); empty
	// for none.
	Twin string `yaml:"-" json:"twin,omitempty"`
}

// Load is what clients do. Rates are calls per second, of all clients together, by a schedule that does not wait for
// answers.
type Load struct {
	Instances int  `yaml:"instances" json:"instances"` // that send heartbeats
	Heartbeat Span `yaml:"heartbeat" json:"heartbeat"` // each instance's interval: whole seconds
	Lease     Span `yaml:"lease" json:"lease"`         // each instance's duration: whole seconds
	// new instances per second, canceled after a while at the same rate
	Registers float64 `yaml:"registers" json:"registers"`
	Writes    float64 `yaml:"writes" json:"writes"`     // calls per second that change the watched keys
	Reads     float64 `yaml:"reads" json:"reads"`       // calls per second that read watched keys
	Fetches   float64 `yaml:"fetches" json:"fetches"`   // full registries per second
	Deltas    float64 `yaml:"deltas" json:"deltas"`     // deltas per second
	Watchers  int     `yaml:"watchers" json:"watchers"` // that hold a stream of changes open
	// registrations per second whose way to every node is timed
	Sightings  float64 `yaml:"sightings" json:"sightings"`
	OwnKeys    int     `yaml:"own-keys" json:"own_keys"`       // watched keys with one writer each
	SharedKeys int     `yaml:"shared-keys" json:"shared_keys"` // watched keys with writers at every node
	// of each shared key, spread over the nodes; 0 means one at each node
	KeyWriters int `yaml:"key-writers" json:"key_writers"`
	// sealed instances per second: written once or twice, and never again
	Sealed float64 `yaml:"sealed" json:"sealed"`
}

// Storm is a stretch with another load: its rates replace those of the scenario's load. Storms do not overlap.
type Storm struct {
	At  Moment `yaml:"at" json:"at"`
	For Moment `yaml:"for" json:"for"`
	// by the rates' names in files: registers, writes, reads, fetches, deltas, sealed
	Load map[string]float64 `yaml:"load" json:"load"`
}

// Kind is what a fault does.
type Kind string

// The kinds of faults.
const (
	Kill     Kind = "kill"      // nodes end by SIGKILL and are started again when the fault ends
	Lose     Kind = "lose"      // nodes end by SIGKILL, their disks are erased, and they never come back
	Restart  Kind = "restart"   // nodes end by SIGTERM and are started again when the fault ends
	Pause    Kind = "pause"     // nodes are stopped by SIGSTOP and go on when the fault ends
	Isolate  Kind = "isolate"   // nodes, and the clients whose home they are, lose every link to the others
	CutLink  Kind = "cut-link"  // the datacenters lose their links to each other
	SlowDisk Kind = "slow-disk" // each durable write of the nodes takes Delay longer
	Die      Kind = "die"       // instances stop their heartbeats without a cancel, and never come back
	Silence  Kind = "silence"   // the clients of instances are restarted: silent, then they register again
	Flap     Kind = "flap"      // instances cancel and register again, once a second each
)

// Fault is one fault: its kind, which nodes or instances it strikes, and when. Within each of the groups processes
// (kill, lose, restart, pause), links (isolate, cut-link) and disks, one fault ends before the next begins.
type Fault struct {
	At    Moment `yaml:"at" json:"at"`
	For   Moment `yaml:"for" json:"for"` // 0 if it has no end (die, lose)
	Kind  Kind   `yaml:"kind" json:"kind"`
	Nodes string `yaml:"nodes" json:"nodes"` // as Select understands it: leader, follower, followers, all, dc2, node1
	// Instances is a number of them ("1"), or a share of them ("10%"), for die, silence and flap.
	Instances string `yaml:"instances" json:"instances"`
	Delay     Span   `yaml:"delay" json:"delay"` // for slow-disk
	// Times is how often a kill strikes: that many times within For nodes are selected, killed as soon as a write is
	// on its way to them, and restarted. 0 means once, at At, for as long as For.
	Times int `yaml:"times" json:"times"`
}

// Limits are what a trial must keep. A nil limit is not stated. What a mode always promises need not be stated:
// linearizable histories (cp), convergence and no update lost against the rule (ap), nothing lost or revived (both).
type Limits struct {
	WriteGap *Span `yaml:"write-gap" json:"write_gap,omitempty"` // longest time without an acknowledged write
	ReadGap  *Span `yaml:"read-gap" json:"read_gap,omitempty"`
	// minimum share of writes that succeed, 0 to 1
	WriteSuccess   *float64 `yaml:"write-success" json:"write_success,omitempty"`
	ReadSuccess    *float64 `yaml:"read-success" json:"read_success,omitempty"`
	Converged      *Span    `yaml:"converged" json:"converged,omitempty"` // from the end of the last fault
	FalseEvictions *int     `yaml:"false-evictions" json:"false_evictions,omitempty"`
	// from a dead instance's last heartbeat until no node lists it, p99
	Removal *Span `yaml:"removal" json:"removal,omitempty"`
	// MayLose allows losing what was acknowledged by a node just before it was killed, or reviving it if it was a
	// cancel. Mode ap writes to its disk and replicates after it has answered, unless data.sync is always.
	MayLose bool `yaml:"may-lose" json:"may_lose,omitempty"`
}

// needs lists the parts of a kind of fault.
type needs struct {
	group     string // only one of a group can be active at a time; empty allows any number
	nodes     bool
	instances bool
	delay     bool
	endless   bool
	times     bool // it can strike several times
}

var kinds = map[Kind]needs{
	Kill:     {group: "faults of processes", nodes: true, times: true},
	Lose:     {group: "faults of processes", nodes: true, endless: true},
	Restart:  {group: "faults of processes", nodes: true},
	Pause:    {group: "faults of processes", nodes: true},
	Isolate:  {group: "faults of links", nodes: true},
	CutLink:  {group: "faults of links"},
	SlowDisk: {group: "faults of disks", nodes: true, delay: true},
	Die:      {instances: true, endless: true},
	Silence:  {instances: true},
	Flap:     {instances: true},
}

func kindNames() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}

// Span is a duration, as 15s or 100ms in files and in JSON.
type Span time.Duration

// String returns the span as written in files.
func (s Span) String() string { return time.Duration(s).String() }

// Duration returns the span as a duration.
func (s Span) Duration() time.Duration { return time.Duration(s) }

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration; want one such as 15s or 100ms", text)
	}
	*s = Span(d)
	return nil
}

// Moment is a time within a trial: a share of its length ("20%"), so that it fits long and short trials, or
// a duration ("3s").
type Moment struct {
	Percent float64 // of the length, if Fixed is 0
	Fixed   time.Duration
}

// In returns the moment in a trial of a length.
func (m Moment) In(length time.Duration) time.Duration {
	if m.Fixed != 0 {
		return m.Fixed
	}
	return time.Duration(m.Percent / 100 * float64(length))
}

// String returns the moment as written in files.
func (m Moment) String() string {
	if m.Fixed != 0 {
		return m.Fixed.String()
	}
	return strconv.FormatFloat(m.Percent, 'f', -1, 64) + "%"
}

// MarshalText implements encoding.TextMarshaler, for JSON and YAML.
func (m Moment) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON and YAML.
func (m *Moment) UnmarshalText(text []byte) error {
	if share, ok := strings.CutSuffix(string(text), "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("%q is no share; want one from 0%% to 100%%", text)
		}
		*m = Moment{Percent: percent}
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no time of a trial; want a share such as 20%%, or a duration such as 3s", text)
	}
	*m = Moment{Fixed: d}
	return nil
}
