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

// Bulk is a load of prepared requests, sent over keep-alive connections; only the status of a response counts.
// Connection i goes to target i modulo the number of targets.
type Bulk struct {
	Targets  []string // addresses
	Conns    int
	Requests Workload
	Want     int           // the only right status
	Warm     time.Duration // sent before anything counts
	Window   time.Duration // the part that counts
	Burst    int           // for an open loop: how many requests are due at the same time; 0 means each on its own
	// repeat requests answered 503 or 504; for loads that only prepare, whose requests may be performed twice
	Insist bool
	// Answered is called when the n-th request of a connection, from 0, was answered as wanted; may be nil.
	Answered func(conn, n int, at time.Time)
}

// Bounds of a load, so that a server that does not answer ends the run instead of blocking it.
const (
	BulkGrace   = 10 * time.Second // for responses after the window; a server takes 4 s to report an unknown outcome
	BulkLongest = 10 * time.Minute // for a load without a window
	// InsistPause is the wait before a request that was answered 503 or 504 is sent again.
	InsistPause = 20 * time.Millisecond
)

// Closed sends each connection's next request when the previous one was answered, and counts what was sent and
// answered within the window. A load without a window ends when its requests do, and counts all of them.
func (b Bulk) Closed(ctx context.Context) (*BulkResult, error) {
	return b.run(ctx, func(senders []*bulkSender) {
		var all sync.WaitGroup
		for _, s := range senders {
			all.Go(s.closed)
		}
		all.Wait()
	})
}

// Open sends rate requests a second by a schedule that does not wait for responses, as many independent clients would.
// A request that finds its connection busy is sent late, and its latency counts from when it should have been sent: a
// server that stalls cannot hide the requests that it kept from being sent.
func (b Bulk) Open(ctx context.Context, rate float64) (*BulkResult, error) {
	return b.run(ctx, func(senders []*bulkSender) {
		burst, turn := max(b.Burst, 1), 0
		var due sync.WaitGroup
		pacing, end := context.WithCancel(ctx)
		begin := senders[0].begin.Add(-b.Warm)
		p := pacer{
			streams: []*stream{{rate: rate / float64(burst)}}, rate: func(s *stream) float64 { return s.rate },
			begin: begin, end: begin.Add(b.Warm + b.Window), onEnd: end,
		}
		p.hand = func(_ *stream, at time.Time) {
			s := senders[turn%len(senders)]
			turn++
			for range burst {
				due.Go(func() { s.open(at) })
			}
		}
		p.run(pacing)
		due.Wait()
	})
}

// run opens the connections, lets work use them, and adds up the results.
func (b Bulk) run(ctx context.Context, work func([]*bulkSender)) (*BulkResult, error) {
	senders, err := b.dial(ctx)
	defer func() {
		for _, s := range senders {
			s.c.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for _, s := range senders {
		s.begin, s.end = start.Add(b.Warm), start.Add(b.Warm+b.Window)
		s.next = b.Requests(s.conn, b.Conns)
	}
	work(senders)
	counted := b.Window
	if counted == 0 {
		counted = time.Since(start)
	}
	return sumUp(senders, counted), ctx.Err()
}

func (b Bulk) dial(ctx context.Context) (senders []*bulkSender, err error) {
	longest := BulkLongest
	if b.Window > 0 {
		longest = b.Warm + b.Window + BulkGrace
	}
	for i := range b.Conns {
		s := &bulkSender{Bulk: b, ctx: ctx, conn: i, until: time.Now().Add(longest), wrong: make(WrongResponses)}
		if s.dial(); s.err != nil {
			return senders, s.err
		}
		senders = append(senders, s)
	}
	return senders, nil
}

// BulkResult is the result of a load.
type BulkResult struct {
	Right   int     // answers that count
	Rate    float64 // of these, per second
	Latency *hdrhistogram.Histogram
	Body    int64 // bytes of a right response's body
	Wrong   WrongResponses
}

func sumUp(senders []*bulkSender, counted time.Duration) *BulkResult {
	r := &BulkResult{Latency: NewLatency(), Wrong: make(WrongResponses)}
	for _, s := range senders {
		r.Right += len(s.latencies)
		for _, µs := range s.latencies {
			r.Latency.RecordValue(min(int64(µs), LongestLatency)) // cannot fail: in range
		}
		r.Wrong.add(s.wrong)
		if s.err != nil {
			r.Wrong.add(WrongResponses{"connection lost: " + s.err.Error(): 1})
		}
		r.Body = max(r.Body, s.body)
	}
	r.Rate = float64(r.Right) / counted.Seconds()
	return r
}

// Quantile returns the latency that a share of the requests (percent) did not exceed.
func (r *BulkResult) Quantile(percent float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(percent)) * time.Microsecond
}

// WrongResponses counts responses other than the expected one, by what was wrong.
type WrongResponses map[string]int

func (w WrongResponses) add(other WrongResponses) {
	for how, n := range other {
		w[how] += n
	}
}

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
	ctx        context.Context // of the load
	conn       int             // its number
	until      time.Time       // when every exchange fails
	begin, end time.Time       // the part that counts
	next       func() []byte   // of the workload

	mu        sync.Mutex // held while a request is under way; guards what follows
	c         *wire.Conn
	err       error    // of the last dial, which left no connection
	sent      int      // requests
	latencies []uint32 // in µs, of the right responses that count
	body      int64    // bytes of the newest right response's body
	wrong     WrongResponses
}

// dial makes a new connection.
func (s *bulkSender) dial() {
	var c *wire.Conn
	if c, s.err = wire.Dial(s.Targets[s.conn%len(s.Targets)], s.until); s.err == nil {
		s.c = c
	}
}

// closed sends one request after the other, and counts the responses that also lie in the window.
func (s *bulkSender) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.ctx.Err() == nil {
		now := time.Now()
		if s.Window > 0 && !now.Before(s.end) {
			return
		}
		request := s.next()
		if request == nil {
			return
		}
		ok, done := s.exchange(request)
		if ok && !now.Before(s.begin) && (s.Window == 0 || !done.After(s.end)) {
			s.count(done.Sub(now))
		}
	}
}

// open sends a request that was due at intended, and counts it if that lies in the window, however late the response
// is.
func (s *bulkSender) open(intended time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.ctx.Err() != nil {
		return
	}
	request := s.next()
	if request == nil {
		return
	}
	ok, done := s.exchange(request)
	if ok && !intended.Before(s.begin) && intended.Before(s.end) {
		s.count(done.Sub(intended))
	}
}

func (s *bulkSender) count(latency time.Duration) {
	s.latencies = append(s.latencies, uint32(latency.Microseconds()))
}

// exchange reports whether the response was right, and when it came. Wrong responses always count; a broken connection
// is replaced.
func (s *bulkSender) exchange(request []byte) (ok bool, done time.Time) {
	n := s.sent
	s.sent++
	if s.c.Closing() { // as Tomcat announces after 100 requests
		s.c.Close()
		if s.dial(); s.err != nil {
			return false, time.Now()
		}
	}
	status, err := s.c.Exchange(request)
	for err == nil && (status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout) && s.Insist && wire.Pause(s.ctx, InsistPause) {
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
		if s.Answered != nil {
			s.Answered(s.conn, n, done)
		}
		return true, done
	}
	return false, done
}
