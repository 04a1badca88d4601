package httpd

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// bodyWeight is what a byte of a body takes while the request is under way, about: the body itself, what is
// decoded from it, and the operation that is made of that.
const bodyWeight = 8

// budget bounds the memory that requests under way take together: each alone has its own bound, but any number of
// them may come at once.
type budget struct {
	limit int64 // bytes
	taken atomic.Int64
}

// take takes bytes if no more than most are taken then.
func (b *budget) take(bytes, most int64) bool {
	if b.taken.Add(bytes) <= most {
		return true
	}
	b.taken.Add(-bytes)
	return false
}

// errBusy makes the sender try again.
var errBusy = &refusal{
	status: http.StatusServiceUnavailable, retry: true,
	text: "the requests under way take as much memory as this node gives them (limits.in-flight-bytes); try again",
}

// charge takes memory for the request that w answers, until it is answered.
func charge(w http.ResponseWriter, bytes int64) error {
	a := answerUnder(w)
	if a == nil || a.budget == nil {
		return nil
	}
	if !a.budget.take(bytes, a.chargeable) {
		return errBusy
	}
	a.charged += bytes
	return nil
}

// answerUnder is the answer that w writes; nil: a handler is called alone.
func answerUnder(w http.ResponseWriter) *answer {
	for {
		switch of := w.(type) {
		case *answer:
			return of
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return nil
		}
	}
}

// An answer that is built as a whole takes answerWeight times what is shown in it while it is built: the values,
// the text, which grows by copying, and its compressed form. It waits up to answerPatience for a place among the
// others, which have half of the budget together; one of less than smallAnswer bytes does not.
const (
	answerWeight   = 4
	smallAnswer    = 64 << 10
	answerPatience = 5 * time.Second
)

// reserve takes memory for the answer that w writes, which shows bytes, before it is built. One that needs more than
// all answers may have is built when there is no other.
func (c *call) reserve(bytes int) error {
	a := answerUnder(c.w)
	if a == nil || a.budget == nil || bytes < smallAnswer {
		return nil
	}
	want := max(min(int64(bytes)*answerWeight, a.budget.limit/2), 1)
	ctx, cancel := context.WithTimeout(c.r.Context(), answerPatience)
	defer cancel()
	if c.answers.Acquire(ctx, want) != nil {
		return errBusy
	}
	a.answers, a.reserved = c.answers, want
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(pieceLimit)) // what it waited is not the reader's
	return charge(c.w, want)
}

// built notes that an answer of a size is there as a whole. Until it is written it takes no more than that.
func built(w http.ResponseWriter, size int) {
	a := answerUnder(w)
	if a == nil || a.reserved <= int64(size) {
		return
	}
	spare := a.reserved - int64(size)
	a.answers.Release(spare)
	a.reserved -= spare
	a.budget.taken.Add(-spare)
	a.charged -= spare
}

// settle gives back what the request was charged.
func (a *answer) settle() {
	if a.reserved > 0 {
		a.answers.Release(a.reserved)
		a.reserved = 0
	}
	if a.budget != nil {
		a.budget.taken.Add(-a.charged)
		a.charged = 0
	}
}

// chargedReader charges a body as it comes: a sender that promises much and sends nothing takes nothing.
type chargedReader struct {
	from io.Reader
	w    http.ResponseWriter
}

// Read implements io.Reader.
func (c chargedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if n > 0 {
		if busy := charge(c.w, int64(n)*bodyWeight); busy != nil {
			return 0, busy
		}
	}
	return n, err
}

// How long a batch waits for a place of its sender's: less than senders wait for the answer (Rollcall 5 s, Eureka
// 200 ms), so that one that has to wait longer learns why.
const (
	messagePatience = time.Second
	batchPatience   = 100 * time.Millisecond
)

// leastWeight is what a batch counts for at least, in bytes: a small one is work, too.
const leastWeight = 64 << 10

// senders bounds what the batches of one sender take at a time: its address, which for IPv6 is a /64. A batch of
// half the size that one may have takes all of a sender's share; so a server that sends many large ones keeps one
// core of this node busy, not all, and waits for itself.
type senders struct {
	share int64 // bytes of bodies

	mu sync.Mutex
	of map[netip.Prefix]*sender // those that have a batch here
}

// sender is one address with batches here: in work, waiting, or with an answer that was not read yet.
type sender struct {
	share   *semaphore.Weighted
	batches int // guarded by senders.mu
}

func newSenders(batchBytes int64) *senders {
	return &senders{share: max(batchBytes/2, leastWeight), of: map[netip.Prefix]*sender{}}
}

var errManyBatches = &refusal{
	status: http.StatusServiceUnavailable, retry: true,
	text: "this address has as many replication batches under way as a node takes of one; try again",
}

// enter waits for a place for a batch. The caller calls leave after the batch was answered.
func (s *senders) enter(r *http.Request, patience time.Duration) (leave func(), err error) {
	from, of := s.join(r)
	weight := s.weightOf(r)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if of.share.Acquire(ctx, weight) != nil {
		s.part(from, of)
		return nil, errManyBatches
	}
	return func() { of.share.Release(weight); s.part(from, of) }, nil
}

func (s *senders) join(r *http.Request) (netip.Prefix, *sender) {
	from := senderOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[from]
	if of == nil {
		of = &sender{share: semaphore.NewWeighted(s.share)}
		s.of[from] = of
	}
	of.batches++
	return from, of
}

func (s *senders) part(from netip.Prefix, of *sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.batches--; of.batches == 0 {
		delete(s.of, from)
	}
}

// weightOf is what a batch may turn out to be, from what is known before it is read.
func (s *senders) weightOf(r *http.Request) int64 {
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	if r.ContentLength < 0 || encoding != "" && encoding != "identity" {
		return s.share
	}
	return min(max(r.ContentLength, leastWeight), s.share)
}

// senderOf is the address that a batch came from; the zero one if it is not known.
func senderOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return networkOf(at.Addr())
}

// ofBatches makes e an endpoint for batches of other servers: each sender has its share, and all of them together
// leave half of the memory for requests under way to the clients.
func ofBatches(patience time.Duration, e endpoint) endpoint {
	return func(c *call) (any, error) {
		leave, err := c.senders.enter(c.r, patience)
		if err != nil {
			return nil, err
		}
		defer leave()
		if a := answerUnder(c.w); a != nil {
			a.chargeable = c.budget.limit / 2
		}
		return e(c)
	}
}
