package balance

import (
	"io"
	"net/http"
	"sync"
)

// body hands the body of a request to one try after the other. A try closes the body that it gets, also when
// it fails. A body that can be had again is given away; another is lent, and closed for good
// when the last try has done so.
type body struct {
	request *http.Request
	given   bool
	lent    *loan // to the try at hand; nil: the body was given away, or there is none
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

// again says whether there can be another try: not if a body that can be had only once was read.
func (b *body) again() bool { return b.lent == nil || b.lent.takeBack() }

// handOver makes the last try the owner of the body.
func (b *body) handOver() {
	if b.lent != nil {
		b.lent.handOver()
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// loan is a body in the hands of one try. Its Close is kept back until it is clear that no other try
// needs the body.
type loan struct {
	body io.ReadCloser

	mu     sync.Mutex
	read   bool // a part of the body may have been read
	closed bool // the try has closed it
	state  loanState
}

type loanState uint8

const (
	lent     loanState = iota
	returned           // the body is another try's, or will be
	owned              // the body is this try's
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

// takeBack ends the loan, if nothing was read of the body.
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
