package api

import "encoding/json"

// Change is one change of one instance, as event streams and long polls of GET /v1/rollcall/watch tell it.
type Change struct {
	Index  string `json:"index"`            // of the change
	Action string `json:"action"`           // ADDED, MODIFIED or DELETED, as in Eureka's delta
	Why    string `json:"why"`              // registered, changed, canceled, evicted or quarantined
	App    string `json:"app"`              // upper case
	ID     string `json:"id"`               //
	Status string `json:"status,omitempty"` // afterwards; of a deleted instance, before
	// Instance is the instance as Eureka's documents show it, absent if only the record of its removal is left.
	Instance json.RawMessage `json:"instance,omitempty"`
}

// Changes is the response of a long poll.
type Changes struct {
	Index   string   `json:"index"` // where the next poll resumes
	Changes []Change `json:"changes"`
}

// Start is the first event of a stream.
type Start struct {
	Index string `json:"index"` // changes after it follow
}

// Reset is the event that says that changes may have been missed: the watcher must fetch everything.
type Reset struct {
	Reason string `json:"reason"` // a sentence
	Index  string `json:"index"`  // changes after it follow
}
