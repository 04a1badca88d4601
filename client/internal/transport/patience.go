package transport

import (
	"context"
	"fmt"
	"io"
	"time"
)

// patience bounds one try at one server: the time until its response begins, each pause within the response, and the
// whole, so that a response that trickles forever ends as well.
type patience struct {
	pause time.Duration
	cut   context.CancelCauseFunc
	next  *time.Timer // ends the try unless something arrives before
	whole *time.Timer
}

// wholeResponse is how many pauses a response may take altogether.
const wholeResponse = 10

// withPatience bounds ctx. stop must be called.
func withPatience(ctx context.Context, first, pause time.Duration) (context.Context, *patience) {
	ctx, cut := context.WithCancelCause(ctx)
	p := &patience{pause: pause, cut: cut}
	p.next = time.AfterFunc(first, func() { cut(Silence{"no response", first}) })
	p.whole = time.AfterFunc(first+wholeResponse*pause, func() { cut(Silence{"no whole response", first + wholeResponse*pause}) })
	return ctx, p
}

func (p *patience) stop() {
	p.next.Stop()
	p.whole.Stop()
	p.cut(nil)
}

// reader returns the body of the response, bounded from its beginning on.
func (p *patience) reader(body io.Reader) io.Reader {
	p.next.Stop()
	p.next = time.AfterFunc(p.pause, func() { p.cut(Silence{"nothing more of the response", p.pause}) })
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

// Silence is a context.DeadlineExceeded that says what did not arrive.
type Silence struct {
	Of    string
	After time.Duration
}

// Error says what did not arrive, and for how long.
func (s Silence) Error() string { return fmt.Sprintf("%s within %v", s.Of, s.After) }

// Is makes it match context.DeadlineExceeded.
func (s Silence) Is(target error) bool { return target == context.DeadlineExceeded }
