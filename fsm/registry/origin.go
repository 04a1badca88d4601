package registry

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Index counts the changes that readers see.
type Index = order.Index

// Epoch is a leadership: the Raft term and index of its Establish entry.
type Epoch = order.Epoch

// Stamp is the time of a log entry. Lease is the lease clock in ms: it decides expiry, runs only
// while a leader serves, and is never compared with a wall clock. Wall is ms since the epoch, for
// the timestamps that clients see.
type Stamp struct{ Lease, Wall int64 }

// Fields walks a stamp.
func (s *Stamp) Fields(c *codec.Codec) {
	c.Int64(&s.Lease)
	c.Int64(&s.Wall)
}

// Origin is the sender of an operation. It decides which status rules hold (a replicated one skips
// LeaseExists and is compared by lastDirtyTimestamp both ways).
type Origin struct {
	Kind OriginKind
	DC   string // the remote datacenter's or Eureka server's name, for RemoteDC only
	// Principal is the name of who sent it; "": nobody was asked who they are.
	Principal string
}

// OriginKind distinguishes clients, nodes of this datacenter and remote datacenters.
type OriginKind uint8

// The origins.
const (
	Client OriginKind = iota
	LocalPeer
	RemoteDC
)

// Fields walks an origin.
func (o *Origin) Fields(c *codec.Codec) {
	codec.Enum(c, &o.Kind, RemoteDC, "origin")
	if o.Kind == RemoteDC {
		c.Lasting(&o.DC)
	}
	c.BoundedText(&o.Principal, maxActText)
}

// FromClient is the origin of what a client sent.
var FromClient = Origin{Kind: Client}

// FromEureka is the origin of what an unnamed Eureka server replicated.
var FromEureka = Origin{Kind: RemoteDC, DC: "eureka"}

// Replicated says that another server had the operation first.
func (o Origin) Replicated() bool { return o.Kind != Client }

// Handle is the log's short name of a lease: a slot of a table and the generation of its content.
// The zero Handle names nothing; generations start at 1 and are never reused.
type Handle struct {
	Slot uint32
	Gen  uint64
}

// Fields walks a handle.
func (h *Handle) Fields(c *codec.Codec) {
	c.Uint32(&h.Slot)
	c.Uint64(&h.Gen)
}

// Act is the author of something and the reason. The author is the name of the principal who did it, and Says whom the caller
// named as author; where nobody was asked who they are, Author is what the caller said. The zero Act is a protocol without such
// fields, or the registry itself.
type Act struct{ Author, Reason, Says string }

// maxActText bounds each text of an act, in bytes. The interfaces to operators allow less. A
// longer text is cut off where it is written.
const maxActText = 1024

// Fields walks an act.
func (a *Act) Fields(c *codec.Codec) {
	c.BoundedText(&a.Author, maxActText)
	c.BoundedText(&a.Reason, maxActText)
	c.BoundedText(&a.Says, maxActText)
}

// Clone is an act whose texts are no part of a buffer with much else in it.
func (a Act) Clone() Act {
	return Act{Author: strings.Clone(a.Author), Reason: strings.Clone(a.Reason), Says: strings.Clone(a.Says)}
}

func (a Act) weight() int { return len(a.Author) + len(a.Reason) + len(a.Says) }

const (
	// waitShare is the part of its time, one in so many, that a connection spends at most on renewals that may wait.
	waitShare = 10
	// mostBetween bounds how long the next renewals of a connection do not wait, after one that may have waited: for a second at most,
	// unless there was no leader.
	mostBetween = waitShare * time.Second
)

// Line is the connection of a client. Renewals may wait for others on it, so that they share the cost of being stored, but only
// for a part of its time (waitShare), so that a client that sends the next one after the response is hardly slowed down.
type Line struct {
	again atomic.Int64 // when a renewal of it may wait again, ns since 1970
}

type lineKey struct{}

// OnLine is a context of the calls that come over one connection of a client.
func OnLine(ctx context.Context) context.Context { return context.WithValue(ctx, lineKey{}, new(Line)) }

// LineOf is the connection that a call came over; nil: it came over none.
func LineOf(ctx context.Context) *Line {
	l, _ := ctx.Value(lineKey{}).(*Line)
	return l
}

// MayWait says whether a renewal that comes now may wait for others. If so, Waited must follow; until then no other one of its
// connection may, for mostBetween. Those that came over no connection may not.
func (l *Line) MayWait(now time.Time) bool {
	if l == nil {
		return false
	}
	again := l.again.Load()
	left := time.Duration(again - now.UnixNano())
	setBack := left > 2*mostBetween // the clock was
	return (left <= 0 || setBack) && l.again.CompareAndSwap(again, now.Add(mostBetween).UnixNano())
}

// Waited says that a renewal that may have waited was performed, and when it came.
func (l *Line) Waited(came, now time.Time) {
	l.again.Store(came.Add(min(waitShare*now.Sub(came), mostBetween)).UnixNano())
}
