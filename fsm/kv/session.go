package kv

import (
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Session is one session. It is immutable, except that its last renewal is kept beside it, see View.Renewed.
type Session struct {
	ID            string
	Name          string
	Node          string // "": the cluster's logical node
	TTL           int64  // ms; 0: it does not end by time
	TTLText       string
	LockDelay     int64 // ns
	Behavior      Behavior
	Checks        []string // legacy list, as given; nil if not given
	NodeChecks    []string
	ServiceChecks []string
	CreateIndex   Index
	ModifyIndex   Index
	CreatedAt     int64 // lease clock, ms
	CreatedWall   int64 // ms since the epoch
	// By is the principal that created it; "" if nobody asked for one: then it belongs to everybody.
	By string
}

func (s *Session) Fields(c *codec.Codec) {
	c.Lasting(&s.ID)
	c.String(&s.Name)
	c.String(&s.Node)
	c.Int64(&s.TTL)
	c.String(&s.TTLText)
	c.Int64(&s.LockDelay)
	s.Behavior.fields(c)
	optionalStrings(c, &s.Checks)
	c.Strings(&s.NodeChecks)
	c.Strings(&s.ServiceChecks)
	codec.Uint(c, &s.CreateIndex)
	codec.Uint(c, &s.ModifyIndex)
	c.Int64(&s.CreatedAt)
	c.Int64(&s.CreatedWall)
	c.Lasting(&s.By)
}

// optionalStrings walks a list and keeps nil and empty apart.
func optionalStrings(c *codec.Codec, all *[]string) {
	there := *all != nil
	if c.Bool(&there); there {
		c.Strings(all)
	}
	switch {
	case !c.Reading():
	case !there:
		*all = nil
	case *all == nil:
		*all = []string{}
	}
}

// sessionWeight is roughly how many bytes a session takes besides its texts; checkWeight a check in its lists.
const (
	sessionWeight = 512
	checkWeight   = 64
)

// Weight returns roughly how many bytes a session takes.
func (s *Session) Weight() int {
	bytes := sessionWeight + len(s.Name) + len(s.Node) + len(s.TTLText) + len(s.By)
	for _, list := range [][]string{s.Checks, s.NodeChecks, s.ServiceChecks} {
		for _, check := range list {
			bytes += checkWeight + len(check)
		}
	}
	return bytes
}

// Behavior says what happens to the keys of a session that ends.
type Behavior uint8

// The behaviors. Never renumber one.
const (
	ReleaseKeys Behavior = iota // they lose their holder
	DeleteKeys                  // they are deleted
)

func (b *Behavior) fields(c *codec.Codec) { codec.Enum(c, b, DeleteKeys, "behavior of a session") }

// sessionGrace is the time that a session gets, beyond half its TTL, to be renewed after an epoch was established:
// clients renew every half TTL.
const sessionGrace = 2000 // ms

// ends returns the last millisecond (lease clock) of a session with a TTL, last renewed at a moment. Apply uses it,
// so the level decides whether it gets one grace or, as before level 2, another one with each leadership
// (docs/adr/0034).
func (s *Session) ends(renewed, established int64, level byte) int64 {
	end, grace := order.Later(renewed, s.TTL), min(s.TTL, s.TTL/2+sessionGrace)
	if level < 2 {
		return max(end, order.Later(established, grace))
	}
	return order.EndWithGrace(end, established, grace)
}

// MaxLockDelay (ns) is the longest lock-delay.
const MaxLockDelay = 60_000_000_000

// lockDelay returns how long (ms) what the session held is kept from others when it ends.
func (s *Session) lockDelay() int64 {
	ns := min(max(s.LockDelay, 0), MaxLockDelay)
	return (ns + 999_999) / 1_000_000
}

// CheckRef names a check, or a node if ID is "".
type CheckRef = catalog.CheckRef

// refs yields what the session depends on: its checks and (check "") its node.
func (s *Session) refs() iter.Seq[CheckRef] {
	return func(yield func(CheckRef) bool) {
		if !yield(CheckRef{Node: s.Node}) {
			return
		}
		for _, list := range [][]string{s.NodeChecks, s.ServiceChecks} {
			for _, id := range list {
				if !yield(CheckRef{Node: s.Node, ID: id}) {
					return
				}
			}
		}
	}
}

// SessionState is a session and its last renewal (lease clock, ms).
type SessionState struct {
	Session *Session
	Renewed int64
}

func (s *SessionState) Fields(c *codec.Codec) {
	codec.Ptr(c, &s.Session).Fields(c)
	c.Int64(&s.Renewed)
}
