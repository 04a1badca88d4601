package rollcallpeer

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Head is what every message of items starts with.
type Head struct {
	Datacenter string // the sender's
	Node       string // the sending node
	Sender     string // owner of the lease clock
	// Incarnation is a random number that the sender draws whenever it starts to send.
	Incarnation uint64
	Clock       int64 // the sender's lease clock, ms
	// Sequence counts the messages of a node to a peer. It decides nothing: it shows, in logs, which of two messages
	// was sent first.
	Sequence uint64
	// Heard says, between nodes of one datacenter, how long ago (ms) the sender heard other datacenters.
	Heard map[string]int64
}

func (h *Head) fields(c *codec.Codec) {
	c.String(&h.Datacenter)
	c.String(&h.Node)
	c.String(&h.Sender)
	c.Uint64(&h.Incarnation)
	c.Int64(&h.Clock)
	c.Uint64(&h.Sequence)
	sorted(c, &h.Heard, maxHeard, func(age *int64, c *codec.Codec) { c.Int64(age) })
}

// check returns what makes a message useless.
func (h *Head) check() error {
	switch {
	case !validName(h.Datacenter), !validName(h.Node), !validName(h.Sender):
		return malformed("datacenter, node and sender must each be a name of 1 to %d bytes", maxName)
	case !validAge(h.Clock):
		return malformed("a clock of %d ms is not in 0 to %d, which is ten years: no lease clock has run for longer", h.Clock, int64(maxAge))
	}
	for dc, age := range h.Heard {
		if !validName(dc) || !validAge(age) {
			return malformed("%q was heard %d ms ago", dc, age)
		}
	}
	return nil
}

// Message is the body of POST /v1/rollcall/replication.
type Message struct {
	Head
	Items []Item
}

func (m *Message) fields(c *codec.Codec) {
	m.Head.fields(c)
	list(c, &m.Items, maxItems, (*Item).fields)
}

// State is the first frame of the copy at the start. It says how many items follow, each in a frame of its own.
type State struct {
	Head
	Items int
}

func (s *State) fields(c *codec.Codec) {
	s.Head.fields(c)
	c.Int(&s.Items)
}

// Reply is the reply to a message.
type Reply struct {
	Datacenter string
	Node       string
	Late       int64    // by how many ms the message is older than the newest of its sender's incarnation
	Ignored    string   // what of the message's head was not recorded, in words; empty if everything was
	Results    []result // one per item, in order
}

func (a *Reply) fields(c *codec.Codec) {
	c.String(&a.Datacenter)
	c.String(&a.Node)
	c.Int64(&a.Late)
	c.String(&a.Ignored)
	list(c, &a.Results, maxItems, (*result).fields)
}

func (a *Reply) check() error { return nil }

// The status of an item's result, an HTTP status.
const (
	resultDone    = 200 // it holds now
	Invalid       = 400 // the item is not valid
	resultMissing = 404 // a renewal of what is unknown here, or older than what the sender renewed
	resultOlder   = 409 // what is stored here is newer
	resultGone    = 410 // it was removed here
	resultHeld    = 423 // a client renews it here, and the sender may not take it over but offer it again. From level 3 on
	resultFailed  = 500 // it panicked here, which is a defect, and has no effect: another try may do better
)

// result is what became of one item.
type result struct {
	Status int
	Error  string
	Stored Item  // what is newer here, or the record of the removal; empty if it is not sent
	Again  int64 // ms after which what is Held may be offered again
}

func (r *result) fields(c *codec.Codec) {
	c.Int(&r.Status)
	c.String(&r.Error)
	r.Stored.fields(c)
	if c.Since(3, false) {
		c.Int64(&r.Again)
	}
}
