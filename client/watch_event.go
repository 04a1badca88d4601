package client

import (
	"encoding/json"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// WatchEvent is what a Watch tells: a WatchStart, WatchChange or WatchReset.
type WatchEvent interface{ isWatchEvent() }

// WatchStart says that a server took the watch up, at first and after each failover.
type WatchStart struct {
	Index  string `json:"index"`  // changes after it follow
	Server string `json:"server"` // base URL
}

// WatchChange is one change of one instance.
type WatchChange struct {
	Index  string `json:"index"`  // of the change
	Action string `json:"action"` // ADDED, MODIFIED or DELETED, as in Eureka's delta
	Why    string `json:"why"`    // registered, changed, canceled, evicted or quarantined
	App    string `json:"app"`    // upper case
	ID     string `json:"id"`
	Status string `json:"status"` // afterwards; of a deleted instance, before
	// Instance is the instance as Eureka's documents show it, nil where only the record of its removal
	// is left.
	Instance *registry.Lease `json:"-"`
}

// WatchReset says that changes may have been missed: fetch everything (Apps) before going on. The
// changes after Index follow.
type WatchReset struct {
	Index  string `json:"index"`
	Reason string `json:"reason"` // a sentence
}

func (WatchStart) isWatchEvent()  {}
func (WatchChange) isWatchEvent() {}
func (WatchReset) isWatchEvent()  {}

// Key names the instance that changed.
func (c WatchChange) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }

// UnmarshalJSON implements json.Unmarshaler: the instance is a document of Eureka's.
func (c *WatchChange) UnmarshalJSON(data []byte) error {
	type fields WatchChange
	doc := struct {
		*fields
		Instance json.RawMessage `json:"instance"`
	}{fields: (*fields)(c)}
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	if len(doc.Instance) == 0 || string(doc.Instance) == "null" {
		return nil
	}
	lease, err := eureka.DecodeInstance(wrapped(doc.Instance), eureka.Format{})
	if err != nil {
		return fmt.Errorf("instance %s: %w", c.Key(), err)
	}
	c.Instance = lease
	return nil
}

// wrapped is the document of one instance around the object of it.
func wrapped(instance []byte) []byte {
	return append(append([]byte(`{"instance":`), instance...), '}')
}
