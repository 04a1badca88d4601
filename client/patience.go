package client

import (
	"context"
	"fmt"
	"io"
	"time"
)

// patience bounds one try at one server: the time until its answer begins, each pause within the answer,
// and the whole, so that an answer that trickles for ever ends as well.
type patience struct {
	pause time.Duration
	end   context.CancelCauseFunc
	next  *time.Timer // ends the try unless something comes before
	whole *time.Timer
}

// wholeAnswer is how many pauses an answer may take altogether.
const wholeAnswer = 10

// withPatience bounds ctx. stop must be called.
func withPatience(ctx context.Context, first, pause time.Duration) (context.Context, *patience) {
	ctx, end := context.WithCancelCause(ctx)
	p := &patience{pause: pause, end: end}
	p.next = time.AfterFunc(first, func() { end(silence{"no answer", first}) })
	p.whole = time.AfterFunc(first+wholeAnswer*pause, func() { end(silence{"no whole answer", first + wholeAnswer*pause}) })
	return ctx, p
}

func (p *patience) stop() {
	p.next.Stop()
	p.whole.Stop()
	p.end(nil)
}

// reader is the answer, from its beginning on.
func (p *patience) reader(body io.Reader) io.Reader {
	p.next.Stop()
	p.next = time.AfterFunc(p.pause, func() { p.end(silence{"nothing more of the answer", p.pause}) })
	return patientReader{body, p}
}

type patientReader struct {
	io.Reader
	patience *patience
}

// Read implements io.Reader.
func (r patientReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.patience.next.Reset(r.patience.pause)
	return n, err
}

// silence is a context.DeadlineExceeded that says of what.
type silence struct {
	of    string
	after time.Duration
}

// Error says what did not come, and for how long.
func (s silence) Error() string { return fmt.Sprintf("%s within %v", s.of, s.after) }

// Is says that it is a timeout.
func (s silence) Is(target error) bool { return target == context.DeadlineExceeded }
