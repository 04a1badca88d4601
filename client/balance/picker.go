package balance

import "github.com/seed-20419f34/rollcall/fsm/registry"

// Picker chooses one of the instances that may be called. Safe for concurrent use.
type Picker interface {
	// Pick returns one of list, which is sorted by id; nil if it is empty.
	Pick(list []*registry.Instance) *registry.Instance
}

// RoundRobin takes turns: of a list that stays the same each is chosen equally often. Each picker begins
// with any of them, so that the clients of a service do not all begin with the same.
func RoundRobin() Picker { panic("not written") }

// InZone chooses, by next (nil: RoundRobin), among the instances of a zone while there is one, and among
// all otherwise. client.ZoneOf says what an instance's zone is.
func InZone(zone string, next Picker) Picker { panic("not written") }
