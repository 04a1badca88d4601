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
var errBusy = &Refusal{
	Status: http.StatusServiceUnavailable, Retry: true,
	Text: "the requests under way take as much memory as this node gives them (limits.in-flight-bytes); try again",
}

// charge takes memory for the request that w answers, until it is answered.
func charge(w http.ResponseWriter, bytes int64) error {
	a := responseUnder(w)
	if a == nil || a.budget == nil {
		return nil
	}
	if !a.budget.take(bytes, a.chargeable) {
		return errBusy
	}
	a.charged += bytes
	return nil
}

// An answer that is built as a whole takes answerWeight times what is shown in it while it is built: the values,
// the text, which grows by copying, and its compressed form. It waits up to answerPatience for a place among the
// others, which have half of the budget together; one of less than smallAnswer bytes does not.
const (
	answerWeight   = 4
	smallAnswer    = 64 << 10
	answerPatience = 5 * time.Second
)

// Reserve takes memory for the answer that w writes, which shows bytes, before it is built. One that needs more than
// all answers may have is built when there is no other.
func (c *Call) Reserve(bytes int) error {
	a := responseUnder(c.W)
	if a == nil || a.budget == nil || bytes < smallAnswer {
		return nil
	}
	want := max(min(int64(bytes)*answerWeight, a.budget.limit/2), 1)
	ctx, cancel := context.WithTimeout(c.R.Context(), answerPatience)
	defer cancel()
	if c.node.answers.Acquire(ctx, want) != nil {
		return errBusy
	}
	a.answers, a.reserved = c.node.answers, want
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(PieceLimit)) // what it waited is not the reader's
	return charge(c.W, want)
}

// built notes that an answer of a size is there as a whole. Until it is written it takes no more than that.
func built(w http.ResponseWriter, size int) {
	a := responseUnder(w)
	if a == nil || a.reserved <= int64(size) {
		return
	}
	spare := a.reserved - int64(size)
	a.answers.Release(spare)
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
