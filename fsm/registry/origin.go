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

// Stamp is the time of a log entry. Lease is the lease clock in ms: it decides expiry, runs only while a leader
// serves, and is never compared with a wall clock. Wall is ms since the epoch, for the timestamps that clients see.
type Stamp struct{ Lease, Wall int64 }

func (s *Stamp) Fields(c *codec.Codec) {
	c.Int64(&s.Lease)
	c.Int64(&s.Wall)
}

// Origin is the sender of an operation. It decides which status rules hold (a replicated operation skips LeaseExists,
// and lastDirtyTimestamps are compared both ways).
type Origin struct {
	Kind OriginKind
	DC   string // the remote datacenter's or Eureka server's name, for RemoteDC only
	// Principal is the name of the sender; "" if nobody was asked who they are.
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

func (o *Origin) fields(c *codec.Codec) {
	codec.Enum(c, &o.Kind, RemoteDC, "origin")
	if o.Kind == RemoteDC {
		c.Lasting(&o.DC)
	}
	c.BoundedText(&o.Principal, maxActText)
}

// FromClient is the origin of operations that a client sent.
var FromClient = Origin{Kind: Client}

// FromEureka is the origin of operations that an unnamed Eureka server replicated.
var FromEureka = Origin{Kind: RemoteDC, DC: "eureka"}

// Replicated reports whether another server had the operation first.
func (o Origin) Replicated() bool { return o.Kind != Client }

// Handle is the log's short name for a lease: a slot of a table and the generation of its content. The zero Handle
// names nothing; generations start at 1 and are never reused.
type Handle struct {
	Slot uint32
	Gen  uint64
}

func (h *Handle) fields(c *codec.Codec) {
	c.Uint32(&h.Slot)
	c.Uint64(&h.Gen)
}

// Act is the author of something and the reason. The author is the name of the principal who did it, and Says is whom
// the caller named as author; if nobody was asked who they are, Author is what the caller said. The zero Act stands
// for a protocol without such fields, or the registry itself.
type Act struct{ Author, Reason, Says string }

// maxActText bounds each text of an act, in bytes. The interfaces for operators allow less. A longer text is cut when
// it is written.
const maxActText = 1024

func (a *Act) Fields(c *codec.Codec) {
	c.BoundedText(&a.Author, maxActText)
	c.BoundedText(&a.Reason, maxActText)
	c.BoundedText(&a.Says, maxActText)
}

// Clone returns a copy whose texts do not keep a larger buffer alive.
func (a Act) Clone() Act {
	return Act{Author: strings.Clone(a.Author), Reason: strings.Clone(a.Reason), Says: strings.Clone(a.Says)}
}

func (a Act) weight() int { return len(a.Author) + len(a.Reason) + len(a.Says) }

const (
	// waitShare bounds renewals that may wait: a connection spends at most one part in waitShare of its time on them.
	waitShare = 10
	// mostBetween bounds how long a connection's renewals do not wait, after one that may have waited. So a wait is
	// assumed to take at most a second, which it exceeds only without a leader.
	mostBetween = waitShare * time.Second
)

// Line is the connection of a client. Its renewals may wait for others, to share the cost of being stored, but only
// for a part of its time (waitShare), so that a client that sends the next one after the response is hardly slowed
// down.
type Line struct {
	again atomic.Int64 // when one of its renewals may wait again, ns since 1970
}

type lineKey struct{}

// OnLine returns a context for the calls on one connection of a client.
func OnLine(ctx context.Context) context.Context { return context.WithValue(ctx, lineKey{}, new(Line)) }

// LineOf returns the connection that a call came over, or nil if it came over none.
func LineOf(ctx context.Context) *Line {
	l, _ := ctx.Value(lineKey{}).(*Line)
	return l
}

// MayWait reports whether a renewal that arrives now may wait for others. If so, the caller must call Waited; until
// then no other renewal of the connection may wait, for at most mostBetween. Without a connection none may.
func (l *Line) MayWait(now time.Time) bool {
	if l == nil {
		return false
	}
	again := l.again.Load()
	left := time.Duration(again - now.UnixNano())
	setBack := left > 2*mostBetween // the clock was set back
	return (left <= 0 || setBack) && l.again.CompareAndSwap(again, now.Add(mostBetween).UnixNano())
}

// Waited records that a renewal that may have waited was performed, and when it came.
func (l *Line) Waited(came, now time.Time) {
	l.again.Store(came.Add(min(waitShare*now.Sub(came), mostBetween)).UnixNano())
}
