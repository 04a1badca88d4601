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
		change := Change{Index: doc.Index, Action: doc.Action, Why: doc.Why, App: doc.App, ID: doc.ID, Status: doc.Status}
		if len(doc.Instance) > 0 && string(doc.Instance) != "null" {
			text := slices.Concat([]byte(`{"instance":`), doc.Instance, []byte("}"))
			if change.Instance, err = eureka.DecodeInstance(text, eureka.Format{}); err != nil {
				err = fmt.Errorf("instance %s: %w", change.Key(), err)
			}
		}
		return change, change.Index, err
	case "reset":
		var reset api.Reset
		err = json.Unmarshal(e.Data, &reset)
		return Reset{Index: reset.Index, Reason: reset.Reason}, reset.Index, err
	}
	return nil, "", nil
}
