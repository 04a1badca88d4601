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

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// Workload makes the requests of one connection out of conns: each call of the returned function returns the next one,
// complete and valid until the next call; nil ends the connection's work.
type Workload func(conn, conns int) (next func() []byte)

// Bulk is a load of prepared requests, sent to one node over keep-alive connections; only the status of a response
// counts.
type Bulk struct {
	Target   string // address
	Conns    int
	Requests Workload
	Want     int           // the only right status
	Window   time.Duration // how long requests are sent; 0 means until they end
	// repeat requests answered 503 or 504; for loads that only prepare, whose requests may be performed twice
	Insist bool
}

// Bounds of a load, so that a server that does not answer ends the run instead of blocking it.
const (
	bulkGrace   = 10 * time.Second // for responses after the window; a server takes 4 s to report an unknown outcome
	bulkLongest = 10 * time.Minute // for a load without a window
	insistPause = 20 * time.Millisecond
)

// Send sends each connection's next request when the previous one was answered, and counts what was answered within the
// window.
func (b Bulk) Send(ctx context.Context) (*BulkResult, error) {
	longest := bulkLongest
	if b.Window > 0 {
		longest = b.Window + bulkGrace
	}
	senders := make([]*bulkSender, b.Conns)
	for i := range senders {
		s := &bulkSender{Bulk: b, ctx: ctx, until: time.Now().Add(longest), wrong: make(WrongResponses)}
		s.next = b.Requests(i, b.Conns)
		if s.dial(); s.err != nil {
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
	r := &BulkResult{Latency: NewLatency(), Wrong: make(WrongResponses)}
	for _, s := range senders {
		r.Right += len(s.latencies)
		for _, µs := range s.latencies {
			r.Latency.RecordValue(min(int64(µs), LongestLatency)) // cannot fail: in range
		}
		for how, n := range s.wrong {
			r.Wrong[how] += n
		}
		if s.err != nil {
			r.Wrong["connection lost: "+s.err.Error()]++
		}
		r.Body = max(r.Body, s.body)
	}
	return r, ctx.Err()
}

// BulkResult is the result of a load.
type BulkResult struct {
	Right   int // answers that count
	Latency *hdrhistogram.Histogram
	Body    int64 // bytes of a right response's body
	Wrong   WrongResponses
}

// Quantile returns the latency that a share of the requests (percent) did not exceed.
func (r *BulkResult) Quantile(percent float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(percent)) * time.Microsecond
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
	ctx   context.Context // of the load
	until time.Time       // when every exchange fails
	next  func() []byte   // of the workload

	c         *wire.Conn
	err       error    // of the last dial, which left no connection
	latencies []uint32 // in µs, of the right responses that count
	body      int64    // bytes of the newest right response's body
	wrong     WrongResponses
}

// dial makes a new connection.
func (s *bulkSender) dial() {
	var c *wire.Conn
	if c, s.err = wire.Dial(s.Target, s.until); s.err == nil {
		s.c = c
	}
}

// send sends one request after the other, and counts the responses that come before the end.
func (s *bulkSender) send(end time.Time) {
	for s.err == nil && s.ctx.Err() == nil {
		now := time.Now()
		if s.Window > 0 && !now.Before(end) {
			return
		}
		request := s.next()
		if request == nil {
			return
		}
		ok, done := s.exchange(request)
		if ok && (s.Window == 0 || !done.After(end)) {
			s.latencies = append(s.latencies, uint32(done.Sub(now).Microseconds()))
		}
	}
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
	for err == nil && (status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout) && s.Insist && wire.Pause(s.ctx, insistPause) {
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
