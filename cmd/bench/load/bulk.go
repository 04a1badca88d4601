package load

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Workload makes the requests of one connection out of conns: each call of the returned function returns the next one,
// complete and valid until the next call; nil ends the connection's work.
type Workload func(conn, conns int) (next func() []byte)

// Bulk is a load of prepared requests, sent over keep-alive connections; only the status of a response counts.
// Connection i goes to target i modulo the number of targets.
type Bulk struct {
	Targets  []string // addresses
	Conns    int
	Requests Workload
	Want     int // the only right status
	// Turns says when requests are sent, each by the next idle connection, until it is closed. If nil, each connection
	// sends its next request when the previous one was answered.
	Turns  <-chan Turn
	Window time.Duration // without Turns, how long requests are sent; 0 means until they end
	// repeat requests answered 503 or 504; for loads that only prepare, whose requests may be performed twice
	Insist bool
}

// Turn is a request of a load that is due.
type Turn struct {
	Due  time.Time // from which its latency counts; zero means when a connection takes the turn
	Warm bool      // it does not count
}

// Bounds of a load, so that a server that does not answer ends the run instead of blocking it.
const (
	bulkGrace   = 10 * time.Second // for responses after the window; a server takes 4 s to report an unknown outcome
	bulkLongest = 10 * time.Minute // for a load without a window
	insistPause = 20 * time.Millisecond
)

// Send sends the load, and counts what was answered within the window.
func (b Bulk) Send(ctx context.Context) (*BulkResult, error) {
	longest := bulkLongest
	if b.Window > 0 {
		longest = b.Window + bulkGrace
	}
	senders := make([]*bulkSender, b.Conns)
	for i := range senders {
		s := &bulkSender{Bulk: b, ctx: ctx, target: b.Targets[i%len(b.Targets)], until: time.Now().Add(longest), wrong: make(WrongResponses)}
		s.next = b.Requests(i, b.Conns)
		if s.dial(); s.err != nil {
			b.drain()
			return nil, s.err
		}
		defer func() { s.c.Close() }()
		senders[i] = s
	}
	end := time.Now().Add(b.Window)
	var all sync.WaitGroup
	for _, s := range senders {
		all.Go(func() { s.send(end) })
	}
	all.Wait()
	r := &BulkResult{Wrong: make(WrongResponses)}
	for _, s := range senders {
		r.Latencies = append(r.Latencies, s.latencies...)
		for how, n := range s.wrong {
			r.Wrong[how] += n
		}
		if s.err != nil {
			r.Wrong["connection lost: "+s.err.Error()]++
		}
		r.Body = max(r.Body, s.body)
	}
	slices.Sort(r.Latencies)
	return r, ctx.Err()
}

// drain takes the turns that no connection takes, so that nobody waits for one.
func (b Bulk) drain() {
	if b.Turns != nil {
		for range b.Turns {
		}
	}
}

// BulkResult is the result of a load.
type BulkResult struct {
	Latencies []time.Duration // of the answers that count, sorted
	Body      int64           // bytes of a right response's body
	Wrong     WrongResponses
}

// WrongResponses counts responses other than the expected one, by what was wrong.
type WrongResponses map[string]int

// String lists them, or returns "" for an empty list.
func (w WrongResponses) String() string {
	var parts []string
	for _, how := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%d × %s", w[how], how))
	}
	return strings.Join(parts, ", ")
}

// bulkSender is one connection of a load, with its counts.
type bulkSender struct {
	Bulk
	ctx    context.Context // of the load
	target string          // address
	until  time.Time       // when every exchange fails
	next   func() []byte   // of the workload

	c         *Conn
	err       error           // of the last dial, which left no connection
	latencies []time.Duration // of the right responses that count
	body      int64           // bytes of the newest right response's body
	wrong     WrongResponses
}

// dial makes a new connection.
func (s *bulkSender) dial() {
	var c *Conn
	if c, s.err = Dial(s.target, s.until); s.err == nil {
		s.c = c
	}
}

// send sends one request after the other, and counts the responses that come before the end.
func (s *bulkSender) send(end time.Time) {
	defer s.drain()
	for s.err == nil && s.ctx.Err() == nil {
		turn, more := s.turn(end)
		if !more {
			return
		}
		request := s.next()
		if request == nil {
			return
		}
		ok, done := s.exchange(request)
		if ok && !turn.Warm && (s.Window == 0 || !done.After(end)) {
			s.latencies = append(s.latencies, done.Sub(turn.Due))
		}
	}
}

// turn waits for the next turn, if there is one.
func (s *bulkSender) turn(end time.Time) (t Turn, more bool) {
	if s.Turns == nil {
		now := time.Now()
		return Turn{Due: now}, s.Window == 0 || now.Before(end)
	}
	if t, more = <-s.Turns; t.Due.IsZero() {
		t.Due = time.Now()
	}
	return t, more
}

// exchange reports whether the response was right, and when it came. Wrong responses always count; a broken connection
// is replaced.
func (s *bulkSender) exchange(request []byte) (ok bool, done time.Time) {
	if s.c.Closing() { // as Tomcat announces after 100 requests
		s.c.Close()
		if s.dial(); s.err != nil {
			return false, time.Now()
		}
	}
	status, err := s.c.Exchange(request)
	for err == nil && (status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout) && s.Insist && wait.For(s.ctx, insistPause) {
		status, err = s.c.Exchange(request)
	}
	done = time.Now()
	switch {
	case err != nil:
		s.wrong[err.Error()]++
		s.c.Close()
		s.dial()
	case status != s.Want:
		s.wrong[fmt.Sprintf("status %d instead of %d", status, s.Want)]++
	default:
		s.body = s.c.Size()
		return true, done
	}
	return false, done
}
