package web

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// bodyWeight is what a byte of a body takes while the request is under way, about: the body itself, what is
// decoded from it, and the operation that is made of that.
const bodyWeight = 8

// budget bounds the memory that requests under way take together: each alone has its own bound, but any number of
// them may come at once.
type budget struct {
	limit atomic.Int64 // bytes
	taken atomic.Int64
}

// reserve takes bytes, unless more than most would be taken then.
func (b *budget) reserve(bytes, most int64) bool {
	if b.taken.Add(bytes) <= most {
		return true
	}
	b.taken.Add(-bytes)
	return false
}

// errBusy makes the sender try again.
var errBusy = &Refusal{
	Status: http.StatusServiceUnavailable, Retry: true,
	Text: "the requests under way take as much memory as this node gives them (limits.in-flight-bytes); try again",
}

// charge takes memory for the request to which w responds, until the response is sent.
func charge(w http.ResponseWriter, bytes int64) error {
	a := responseUnder(w)
	if a == nil || a.budget == nil {
		return nil
	}
	if !a.budget.reserve(bytes, a.chargeable) {
		return errBusy
	}
	a.charged += bytes
	return nil
}

// A response that is built as a whole takes responseWeight times what is shown in it while it is built: the values,
// the text, which grows by copying, and its compressed form. It waits up to responsePatience for a place among the
// others, which have half of the budget together; one of less than smallResponse bytes does not.
const (
	responseWeight   = 4
	smallResponse    = 64 << 10
	responsePatience = 5 * time.Second
)

// Reserve takes memory for a response that shows bytes, before it is built. A response that needs more than all
// responses may have is built when there is no other.
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
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(PieceLimit)) // the reader does not pay for the wait
	return charge(c.W, want)
}

// shrinkReservation leaves a response that is built, of a size, no more memory than that, until it is written.
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
