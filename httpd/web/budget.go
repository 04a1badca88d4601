package web

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// bodyWeight is about what a byte of a body takes in memory while the request is under way: the body itself, the
// decoded form, and the operation made from it.
const bodyWeight = 8

// budget bounds the memory of all requests under way together: each has its own bound, but any number of them may
// arrive at once.
type budget struct {
	limit atomic.Int64 // bytes
	taken atomic.Int64
}

// errBusy makes the sender retry.
var errBusy = &Refusal{
	Status: http.StatusServiceUnavailable, Retry: true,
	Text: "the requests under way take as much memory as this node gives them (limits.in-flight-bytes); try again",
}

// charge takes memory for the request behind w, until the response is sent.
func charge(w http.ResponseWriter, bytes int64) error {
	a := responseUnder(w)
	if a == nil || a.budget == nil {
		return nil
	}
	if a.budget.taken.Add(bytes) > a.chargeable {
		a.budget.taken.Add(-bytes)
		return errBusy
	}
	a.charged += bytes
	return nil
}

// A response that is built as a whole takes responseWeight times what it shows while it is built: the values, the
// text, which grows by copying, and its compressed form. It waits up to responsePatience for room among the others,
// which have half of the budget together; one of less than smallResponse bytes does not wait.
const (
	responseWeight   = 4
	smallResponse    = 64 << 10
	responsePatience = 5 * time.Second
)

// Reserve takes memory for a response that shows bytes, before it is built. A response that needs more than all
// responses may have is built when no other one is.
func (c *Call) Reserve(bytes int) error {
	a := responseUnder(c.W)
	if a == nil || a.budget == nil || bytes < smallResponse {
		return nil
	}
	pool := c.node.responses.Load()
	want := max(min(int64(bytes)*responseWeight, pool.size), 1)
	ctx, cancel := context.WithTimeout(c.R.Context(), responsePatience)
	defer cancel()
	if pool.Acquire(ctx, want) != nil {
		return errBusy
	}
	a.pool, a.reserved = pool.Weighted, want
	// the wait does not count against the reader
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(PieceLimit))
	return charge(c.W, want)
}

// chargedReader charges a body as it arrives: a sender that promises much and sends nothing takes nothing.
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

// shrinkReservation reduces the reservation of a built response to its size, until it is written.
func shrinkReservation(w http.ResponseWriter, size int) {
	a := responseUnder(w)
	if a == nil || a.reserved <= int64(size) {
		return
	}
	spare := a.reserved - int64(size)
	a.pool.Release(spare)
	a.reserved -= spare
	a.budget.taken.Add(-spare)
	a.charged -= spare
}
