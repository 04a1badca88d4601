package balance

import (
	"io"
	"net/http"
	"sync"
)

// body hands the body of a request to one try after the other. Every try closes the body that it gets, even when it
// fails. If the request can produce its body again, each try gets one of its own. Otherwise the body is lent, and
// closed for good when the last try has done so.
type body struct {
	request *http.Request
	given   bool
	lent    *loan // to the current try; nil if the body was given away, or without a body
}

// next returns the body of the next try.
func (b *body) next() (io.ReadCloser, error) {
	r := b.request
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return r.Body, nil
	case r.GetBody == nil:
		b.lent = &loan{body: r.Body}
		return b.lent, nil
	case b.given:
		return r.GetBody()
	}
	b.given = true
	return r.Body, nil
}

// again reports whether there can be another try: not if a body that can be read only once was read.
func (b *body) again() bool { return b.lent == nil || b.lent.takeBack() }

// handOver makes the last try the owner of the body.
func (b *body) handOver() {
	if b.lent != nil {
		b.lent.handOver()
	}
}

// loan is a body lent to one try. Its Close is held back until it is clear that no other try needs the body.
type loan struct {
	body io.ReadCloser

	mu     sync.Mutex
	read   bool // part of the body may have been read
	closed bool // the try has closed it
	state  loanState
}

type loanState uint8

const (
	lent     loanState = iota
	returned           // the body belongs to another try, now or later
	owned              // the body belongs to this try
)

// Read implements io.Reader.
func (l *loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	l.read = true
	over := l.state == returned || l.closed
	l.mu.Unlock()
	if over {
		return 0, http.ErrBodyReadAfterClose
	}
	return l.body.Read(p)
}

// Close implements io.Closer.
func (l *loan) Close() error {
	l.mu.Lock()
	now := !l.closed && l.state == owned
	l.closed = true
	l.mu.Unlock()
	if now {
		return l.body.Close()
	}
	return nil
}

// takeBack ends the loan, if nothing was read from the body.
func (l *loan) takeBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read {
		return false
	}
	l.state = returned
	return true
}

// handOver makes the try the owner of the body, for good.
func (l *loan) handOver() {
	l.mu.Lock()
	now := l.closed && l.state == lent
	if l.state == lent {
		l.state = owned
	}
	l.mu.Unlock()
	if now {
		l.body.Close()
	}
}
