// Package truth keeps what the clients of a trial know for certain: which instances they registered, which
// they canceled, and which died. Lists that nodes answer are judged by it. It never asks a server.
package truth

import (
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Book is what is known of all instances. Its zero value is empty. Safe for concurrent use. Times are those
// of the clients' process; a version orders the writes on one instance.
type Book struct{}

// Registering notes that a registration is about to be sent: from now on the instance may be listed, in
// this version.
func (b *Book) Registering(id string, version int64, at time.Time) { panic("not written") }

// Registered notes that a registration was acknowledged.
func (b *Book) Registered(id string, version int64, at time.Time) { panic("not written") }

// Canceling notes that a cancel is about to be sent: from now on the instance may be missing.
func (b *Book) Canceling(id string, version int64, at time.Time) { panic("not written") }

// Canceled notes that a cancel was acknowledged.
func (b *Book) Canceled(id string, version int64, at time.Time) { panic("not written") }

// Renewed notes that a heartbeat was acknowledged.
func (b *Book) Renewed(id string, at time.Time) { panic("not written") }

// Forgotten notes that a heartbeat was answered 404: the instance is missing somewhere, and its client is
// about to register it again. It stays expected to be listed.
func (b *Book) Forgotten(id string, at time.Time) { panic("not written") }

// Died notes that the client of an instance sends nothing any more.
func (b *Book) Died(id string, at time.Time) { panic("not written") }

// Alive reports whether an instance is registered and its client sends heartbeats.
func (b *Book) Alive(id string) bool { panic("not written") }

// Expected counts the instances that should be listed now.
func (b *Book) Expected() int { panic("not written") }

// Mark notes what is acknowledged now. The Unhealed of later judgements counts by the last mark.
func (b *Book) Mark() { panic("not written") }

// Listing is a list that a node answered: versions by instance id (0: the document has none).
type Listing map[string]int64

// Judge fills in the figures of a list that was asked for and answered at the given times; node says whose
// list it is, because Back and Departures compare it with the node's earlier ones. What changed between
// the two times counts as right either way.
func (b *Book) Judge(node int, listed Listing, asked, answered time.Time) trial.List {
	panic("not written")
}

// Departures lists, for every instance that died or was canceled and every node that listed it, when it
// was gone from that node's lists. began is the begin of the trial.
func (b *Book) Departures(began time.Time) []trial.Departure { panic("not written") }

// End compares a node's last list, fetched when all had settled, with what is known. An instance that died
// less than lease ago is no error either way.
func (b *Book) End(listed Listing, at time.Time, lease time.Duration) (missing, revived, dead []string) {
	panic("not written")
}
