package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// loadSender is one connection of a load and what came back on it. One goroutine uses it.
type loadSender struct {
	conn       int // its number
	target     string
	want       int
	until      time.Time   // when every exchange fails
	begin, end time.Time   // what counts
	again      func() bool // whether to repeat what was answered 503; nil: no

	c         *wire.Conn
	err       error    // the connection cannot be had any more
	latencies []uint32 // in µs, of the right answers that count
	body      int64    // bytes of the newest right answer's body
	wrong     map[string]int
}

// dial replaces the connection.
func (s *loadSender) dial() {
	s.close()
	s.c, s.err = wire.Dial(s.target, s.until)
}

func (s *loadSender) close() {
	if s.c != nil {
		s.c.Close()
	}
}

// closed sends a request now, and counts its answer if that lies in the window too.
func (s *loadSender) closed(request []byte, now time.Time) {
	ok, done := s.exchange(request)
	if ok && !now.Before(s.begin) && (s.end.Equal(s.begin) || !done.After(s.end)) {
		s.count(done.Sub(now))
	}
}

// open sends a request that was due at intended, and counts it if that lies in the window, however
// late the answer is.
func (s *loadSender) open(request []byte, intended time.Time) {
	ok, done := s.exchange(request)
	if ok && !intended.Before(s.begin) && intended.Before(s.end) {
		s.count(done.Sub(intended))
	}
}

func (s *loadSender) count(latency time.Duration) {
	s.latencies = append(s.latencies, uint32(latency.Microseconds()))
}

// exchange reports whether the answer was right, and when it came. Wrong answers count whenever they
// come; after a broken connection a new one is opened.
func (s *loadSender) exchange(request []byte) (ok bool, done time.Time) {
	status, err := s.c.Exchange(request)
	for err == nil && status == http.StatusServiceUnavailable && s.again != nil && s.again() {
		status, err = s.c.Exchange(request)
	}
	done = time.Now()
	switch {
	case err != nil:
		s.wronged(err.Error())
		s.dial()
	case status != s.want:
		s.wronged(fmt.Sprintf("status %d instead of %d", status, s.want))
	default:
		s.body = s.c.Size()
		return true, done
	}
	return false, done
}

func (s *loadSender) wronged(how string) {
	if s.wrong == nil {
		s.wrong = make(map[string]int)
	}
	s.wrong[how]++
}

func closeSenders(senders []*loadSender) {
	for _, s := range senders {
		s.close()
	}
}
