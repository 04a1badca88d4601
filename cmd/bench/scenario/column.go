package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// System is a kind of registry.
type System string

// The systems.
const (
	Rollcall System = "rollcall"
	Eureka   System = "eureka" // Netflix's server as published, with its defaults
)

// Column is one of the compared registries: a column of every table.
type Column struct {
	Name     string            `json:"name"`  // name on the command line: letters, digits, dashes
	Title    string            `json:"title"` // of the column
	System   System            `json:"system"`
	Mode     Mode              `json:"mode,omitempty"`     // of Rollcall
	Settings map[string]string `json:"settings,omitempty"` // other than the defaults, by key of the configuration file
	// Brief columns run only in the Chosen scenarios, and with fewer rounds.
	Brief bool `json:"brief,omitempty"`
}

// The settings that decide what a column promises.
const (
	readsKey   = "reads.eureka"
	syncKey    = "data.sync"
	syncAlways = "always"
)

// Columns returns the columns that come with the program, in the order of reports.
func Columns() []Column {
	return []Column{
		{Name: "cp", Title: "CP", System: Rollcall, Mode: CP},
		{Name: "ap", Title: "AP", System: Rollcall, Mode: AP},
		{Name: "eureka", Title: "Eureka", System: Eureka},
		{Name: "cp-stale", Title: "CP, stale without quorum", System: Rollcall, Mode: CP, Brief: true, Settings: map[string]string{readsKey: "stale-without-quorum"}},
		{Name: "ap-always", Title: "AP, synced always", System: Rollcall, Mode: AP, Brief: true, Settings: map[string]string{syncKey: syncAlways}},
	}
}

// FindColumn finds one of those that come with the program, or parses one that the caller describes as in
// "slow=cp,test.sync-delay=20ms": a name, a mode of Rollcall, and settings.
func FindColumn(text string) (Column, error) {
	name, described, own := strings.Cut(text, "=")
	var names []string
	for _, c := range Columns() {
		switch {
		case c.Name == name && own:
			return Column{}, fmt.Errorf("%q is the name of a column that comes with the program; give yours another one", name)
		case c.Name == name:
			return c, nil
		}
		names = append(names, c.Name)
	}
	if !own {
		return Column{}, fmt.Errorf("there is no column %q; name one of %s, or describe one as in slow=cp,test.sync-delay=20ms", name, strings.Join(names, ", "))
	}
	mode, settings, _ := strings.Cut(described, ",")
	c := Column{Name: name, Title: name, System: Rollcall, Mode: Mode(mode), Settings: make(map[string]string)}
	switch {
	case !nameRule.MatchString(name):
		return Column{}, fmt.Errorf("column %q: want a name of up to 64 letters, digits and dashes", name)
	case c.Mode != CP && c.Mode != AP:
		return Column{}, fmt.Errorf("column %s: %q is no mode; want cp or ap before the settings", name, mode)
	case described == mode:
		return c, nil
	}
	for part := range strings.SplitSeq(settings, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return Column{}, fmt.Errorf("column %s: %q is no setting; want one such as data.sync=always", name, part)
		}
		c.Settings[key] = value
	}
	return c, nil
}

// Linearizable reports whether the column promises linearizable reads and writes.
func (c Column) Linearizable() bool {
	return c.Mode == CP && (c.Settings[readsKey] == "" || c.Settings[readsKey] == "linearizable")
}

// Leads reports whether a node of each datacenter leads.
func (c Column) Leads() bool { return c.Mode == CP }

// Promises reports whether a report fails if the column breaks a promise: it is ours.
func (c Column) Promises() bool { return c.System == Rollcall }

// ListAge returns how old a node's list may be by design: Eureka makes its lists anew every 30 s.
func (c Column) ListAge() time.Duration {
	if c.System == Eureka {
		return 35 * time.Second
	}
	return 0
}

// Streams reports whether nodes report changes as they happen.
func (c Column) Streams() bool { return c.System == Rollcall }

// LimitsOf returns the limits of a scenario for a column: those under its name, or else under its mode.
func (s Scenario) LimitsOf(c Column) Limits {
	if l, own := s.Limits[c.Name]; own {
		return l
	}
	return s.Limits[string(c.Mode)]
}

// Cannot says why a column cannot run a scenario, or returns "" if it can.
func (c Column) Cannot(s Scenario) string {
	if c.System == Rollcall {
		return ""
	}
	for _, f := range s.Faults {
		switch {
		case f.Kind == SlowDisk:
			return fmt.Sprintf("%s writes to no disk that could be slow", c.Title)
		case f.Times > 1:
			return fmt.Sprintf("a server of %s takes longer to start than from one kill to the next", c.Title)
		}
	}
	if s.Twin != "" {
		return fmt.Sprintf("no node of %s leads, so that it is the same as %s", c.Title, s.Twin)
	}
	if s.Datacenters > 1 {
		return fmt.Sprintf("%s has no datacenters that replicate to each other", c.Title)
	}
	return ""
}

// Pair names the twins among the scenarios of a run: of two that differ only in whether their faults strike a node
// that leads, the later one gets the earlier one's name as its Twin. Quick, Chosen and Limits make no difference to
// servers.
func Pair(run []Scenario) {
	other := map[string]string{"leader": "follower", "follower": "leader"}
	for i := range run {
		run[i].Twin = ""
		swapped, changed := run[i].content(), false
		swapped.Faults = slices.Clone(swapped.Faults)
		for n, f := range swapped.Faults {
			if nodes, ok := other[f.Nodes]; ok {
				swapped.Faults[n].Nodes, changed = nodes, true
			}
		}
		twin := slices.IndexFunc(run[:i], func(s Scenario) bool { return reflect.DeepEqual(s.content(), swapped) })
		if changed && twin >= 0 {
			run[i].Twin = run[twin].Name
		}
	}
}

// content returns what a scenario does to servers.
func (s Scenario) content() Scenario {
	return Scenario{Datacenters: s.Datacenters, Length: s.Length, Load: s.Load, Storms: s.Storms, Faults: s.Faults, Settings: s.Settings}
}

// RoundsOf returns how often a column runs a scenario, given the number of rounds; 0 means not at all.
func (c Column) RoundsOf(s Scenario, rounds int) int {
	switch {
	case c.Cannot(s) != "", c.Brief && !s.Chosen:
		return 0
	case c.Brief, len(s.Faults)+len(s.Storms) == 0:
		return min(rounds, fewRounds)
	}
	return rounds
}

// fewRounds is the maximum of rounds for a brief column, and for all columns in a scenario without faults and storms.
const fewRounds = 3

// SettingsFor returns the settings of a column's nodes in a scenario. The column's settings override the scenario's.
func (c Column) SettingsFor(s Scenario) map[string]string {
	if c.System != Rollcall {
		return nil
	}
	all := make(map[string]string)
	maps.Copy(all, s.Settings)
	maps.Copy(all, c.Settings)
	return all
}

// Heading returns the column's title.
func (c Column) Heading() string { return cmp.Or(c.Title, c.Name) }

// HeartbeatsOnly reports whether nothing but heartbeats is sent, and nothing happens: only then does the cost come
// from heartbeats and instances alone, and nobody observes the nodes meanwhile.
func (s Scenario) HeartbeatsOnly() bool {
	l := s.Load
	return l.Registers+l.Writes+l.Reads+l.Fetches+l.Deltas+l.Sightings+l.Sealed == 0 && l.Watchers == 0 && len(s.Storms)+len(s.Faults) == 0
}
