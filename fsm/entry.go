package fsm

import "github.com/seed-20419f34/rollcall/fsm/registry"

// BatchID names a batch of operations so that it takes effect at most once, however often it is
// sent. Node is the server id, Boot a counter in its data directory, Seq counts its batches from 1.
type BatchID struct {
	Node     string
	Boot     uint64
	Seq      uint64
	Answered uint64 // every batch numbered up to this one has been answered or given up
}

// Item is one operation of a batch and who sent it.
type Item struct {
	Origin registry.Origin
	Op     registry.Op
}

// AppendBatch appends the encoding of a batch. Renew operations with a Handle are encoded without
// their key: at most 14 bytes each. docs/formats/log-entry.md describes it.
func AppendBatch(dst []byte, id BatchID, items []Item) []byte { panic("not written") }

// AppendWrite appends the encoding of a log entry that applies batches (as AppendBatch encoded
// them) in order. Without batches it is a tick: it only moves the lease clock.
func AppendWrite(dst []byte, stamp registry.Stamp, batches ...[]byte) []byte { panic("not written") }

// Establish is the first entry of a leadership.
type Establish struct {
	Node    string // server id of the leader
	Cluster string // cluster id; the first one stays
}

// AppendEstablish appends the encoding of an Establish entry.
func AppendEstablish(dst []byte, e Establish) []byte { panic("not written") }

// BatchResult is the answer to one batch of an entry.
type BatchResult struct {
	ID BatchID
	// Refused: the batch was numbered at or below what its node reports as answered, or came from an
	// older boot; it had no effect, now and earlier it may have had one.
	Refused bool
	Results []registry.Result // one per item
}

// AppendResults appends the encoding of a batch's results, for the node-to-node channel.
func AppendResults(dst []byte, r BatchResult) []byte { panic("not written") }

// ParseResults is the inverse of AppendResults.
func ParseResults(b []byte) (BatchResult, error) { panic("not written") }
