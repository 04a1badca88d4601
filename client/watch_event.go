package client

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// WatchEvent is what a Watch tells: a WatchStart, WatchChange or WatchReset.
type WatchEvent interface{ isWatchEvent() }

// WatchStart says that a server took the watch up, at first and after each failover.
type WatchStart struct {
	Index  string // changes after it follow
	Server string // base URL
}

// WatchChange is one change of one instance.
type WatchChange struct {
	Index  string // of the change
	Action string // ADDED, MODIFIED or DELETED, as in Eureka's delta
	Why    string // registered, changed, canceled, evicted or quarantined
	App    string // upper case
	ID     string
	Status string // afterwards; of a deleted instance, before
	// Instance is the instance as Eureka's documents show it, nil where only the record of its removal
	// is left.
	Instance *registry.Lease
}

// WatchReset says that changes may have been missed: fetch everything (Apps) before going on. The
// changes after Index follow.
type WatchReset struct {
	Index  string
	Reason string // a sentence
}

func (WatchStart) isWatchEvent()  {}
func (WatchChange) isWatchEvent() {}
func (WatchReset) isWatchEvent()  {}

// Key names the instance that changed.
func (c WatchChange) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }

// changeOf is a change with the instance that Eureka's document in it describes.
func changeOf(c api.Change) (WatchChange, error) {
	change := WatchChange{Index: c.Index, Action: c.Action, Why: c.Why, App: c.App, ID: c.ID, Status: c.Status}
	if len(c.Instance) == 0 || string(c.Instance) == "null" {
		return change, nil
	}
	lease, err := eureka.DecodeInstance(wrapped(c.Instance), eureka.Format{})
	if err != nil {
		return change, fmt.Errorf("instance %s: %w", change.Key(), err)
	}
	change.Instance = lease
	return change, nil
}

// wrapped is the document of one instance around the object of it.
func wrapped(instance []byte) []byte {
	return append(append([]byte(`{"instance":`), instance...), '}')
}
