package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// RetryBatch makes the sender try again: every item is safe to repeat, whatever its outcome was. Peers retry only
// after 503.
func RetryBatch(err error) error {
	if errors.Is(err, registry.ErrUnknownOutcome) {
		return &Refusal{Status: http.StatusServiceUnavailable, unknown: true, Retry: true, Cause: err}
	}
	return err
}

// How long a batch waits for its sender's share: less than senders wait for the response (Rollcall 5 s, Eureka 200
// ms), so that a sender that has to wait longer learns why.
const (
	MessagePatience = time.Second
	BatchPatience   = 100 * time.Millisecond
)

// leastWeight is the minimum that a batch counts for, in bytes: even a small one is work.
const leastWeight = 64 << 10

// senders bounds what the batches of one sender hold at a time. A sender is an address, or a /64 for IPv6. A batch of
// half the maximum size takes all of its sender's share; so a server that sends many large ones keeps one core of this
// node busy, not all, and waits for itself.
type senders struct {
	mu    sync.Mutex
	bytes int64                    // each sender's share of bodies
	of    map[netip.Prefix]*sender // senders with a batch here
}

// sender is an address with batches here: in work, waiting, or with a response not yet read.
type sender struct {
	share   *semaphore.Weighted
	bytes   int64 // bytes of the share
	batches int   // guarded by senders.mu
}

// setShare gives each sender from now on a share by the size of the largest batch. Batches already here keep theirs.
func (s *senders) setShare(batchBytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.of = max(batchBytes/2, leastWeight), map[netip.Prefix]*sender{}
}

var errManyBatches = &Refusal{
	Status: http.StatusServiceUnavailable, Retry: true,
	Text: "this address has as many replication batches under way as a node takes of one; try again",
}

// reserveShare waits until a batch fits into its sender's share. The caller calls leave after the response.
func (s *senders) reserveShare(r *http.Request, patience time.Duration) (leave func(), err error) {
	from, of := s.addBatch(r)
	weight := of.weightOf(r)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if of.share.Acquire(ctx, weight) != nil {
		s.removeBatch(from, of)
		return nil, errManyBatches
	}
	return func() { of.share.Release(weight); s.removeBatch(from, of) }, nil
}

func (s *senders) addBatch(r *http.Request) (netip.Prefix, *sender) {
	from := NetworkOf(addressOf(r))
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[from]
	if of == nil {
		of = &sender{share: semaphore.NewWeighted(s.bytes), bytes: s.bytes}
		s.of[from] = of
	}
	of.batches++
	return from, of
}

func (s *senders) removeBatch(from netip.Prefix, of *sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.batches--; of.batches == 0 && s.of[from] == of {
		delete(s.of, from)
	}
}

// weightOf estimates a batch's weight from what is known before it is read.
func (s *sender) weightOf(r *http.Request) int64 {
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	if r.ContentLength < 0 || encoding != "" && encoding != "identity" {
		return s.bytes
	}
	return min(max(r.ContentLength, leastWeight), s.bytes)
}

// BoundBatches makes an endpoint for batches of other servers: each sender has its share, and all of them together
// leave half of the memory for requests under way to the clients.
func BoundBatches[C Caller](patience time.Duration, do func(C) (any, error)) func(C) (any, error) {
	return func(of C) (any, error) {
		c := of.baseCall()
		leave, err := c.node.senders.reserveShare(c.R, patience)
		if err != nil {
			return nil, err
		}
		defer leave()
		if a := responseUnder(c.W); a != nil {
			a.chargeable = c.node.budget.limit.Load() / 2
		}
		return do(of)
	}
}
