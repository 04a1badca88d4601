package httpd

import (
	"io"
	"net/http"
	"sync/atomic"
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

func (b *budget) take(bytes int64) bool {
	if b.taken.Add(bytes) <= b.limit {
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
	for {
		switch of := w.(type) {
		case *answer:
			if of.budget == nil {
				return nil
			}
			if !of.budget.take(bytes) {
				return errBusy
			}
			of.charged += bytes
			return nil
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return nil // a handler that is called alone
		}
	}
}

// settle gives back what the request was charged.
func (a *answer) settle() {
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
