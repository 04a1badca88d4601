package httpd

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

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
