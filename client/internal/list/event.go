package list

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Event is a Start, a Change or a Reset. They have the fields of client.WatchStart, WatchChange and WatchReset.
type Event any

// Start means that a server accepted the watch.
type Start struct {
	Index  string // changes after it follow
	Server string // base URL
}

// Change is one change of one instance.
type Change struct {
	Index    string // of the change
	Action   string // as registry.Action
	Why      string
	App      string // upper case
	ID       string
	Status   string          // afterwards; for a deleted instance, before
	Instance *registry.Lease // nil if only its removal record is left
}

// Reset means that changes may have been missed. Those after Index follow.
type Reset struct {
	Index  string
	Reason string // a sentence
}

// Key names the instance that changed.
func (c Change) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }

// decodeEvent returns an event and its index. The event is nil if its name is unknown: it is for later versions of
// this package.
func decodeEvent(server string, e api.StreamEvent) (event Event, index string, err error) {
	switch string(e.Name) {
	case "start":
		var start api.Start
		err = json.Unmarshal(e.Data, &start)
		return Start{Index: start.Index, Server: server}, start.Index, err
	case "change":
		var doc api.Change
		if err := json.Unmarshal(e.Data, &doc); err != nil {
			return nil, "", err
		}
		change, err := changeOf(doc)
		return change, change.Index, err
	case "reset":
		var reset api.Reset
		err = json.Unmarshal(e.Data, &reset)
		return Reset{Index: reset.Index, Reason: reset.Reason}, reset.Index, err
	}
	return nil, "", nil
}

// changeOf returns a change with the instance that Eureka's document in it describes.
func changeOf(c api.Change) (Change, error) {
	change := Change{Index: c.Index, Action: c.Action, Why: c.Why, App: c.App, ID: c.ID, Status: c.Status}
	if len(c.Instance) == 0 || string(c.Instance) == "null" {
		return change, nil
	}
	lease, err := eureka.DecodeInstance(slices.Concat([]byte(`{"instance":`), c.Instance, []byte("}")), eureka.Format{})
	if err != nil {
		return change, fmt.Errorf("instance %s: %w", change.Key(), err)
	}
	change.Instance = lease
	return change, nil
}
