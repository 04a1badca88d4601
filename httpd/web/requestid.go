package web

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// RequestIDHeader names a request, in both directions.
const RequestIDHeader = "X-Request-Id"

// maxRequestID bounds an id given by a caller, in bytes.
const maxRequestID = 128

// RequestID returns the caller's name of a request, or else one of ours.
func RequestID(r *http.Request) string {
	if id := givenID(r); id != "" {
		return id
	}
	return rand.Text()
}

// givenID returns the caller's name of a request, if it consists of printable ASCII characters without a space, or "".
func givenID(r *http.Request) string {
	given := r.Header[RequestIDHeader]
	unprintable := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(given) != 1 || len(given[0]) > maxRequestID || strings.ContainsFunc(given[0], unprintable) {
		return ""
	}
	return given[0]
}

// slow is how long a call may take before it is logged, unless it waits for something to happen.
const slow = time.Second

// Ended is a call that has its response.
type Ended struct {
	ID, Route string
	Status    int
	Took      time.Duration
	Waited    bool  // it waited for something to happen: a watch, or a blocking query
	Err       error // behind the response; nil if none
}

// LogEnded logs calls that failed because of us, and calls that took long, once each.
func (n *Node) LogEnded(r *http.Request, e Ended) {
	took := e.Took > slow && !e.Waited
	if e.Route == "/readyz" && !took {
		return // a probe's answer, which says why
	}
	if e.Status < http.StatusInternalServerError && !took {
		return
	}
	if e.Status == http.StatusInternalServerError && e.Err != nil && RefusalOf(e.Err).Text != "" && !took {
		return // Consul's status for a client's mistake
	}
	leftOut, ok := n.logged.admit(time.Now())
	if !ok {
		return
	}
	if e.ID == "" {
		e.ID = RequestID(r)
	}
	level, text := slog.LevelWarn, "a call was slow"
	if e.Status >= http.StatusInternalServerError {
		text = "a call failed"
	}
	if e.Status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	n.Log.Log(r.Context(), level, text, "request", e.ID, "method", r.Method, "route", e.Route, "path", r.URL.Path,
		"remote", r.RemoteAddr, "status", e.Status, "took", e.Took.Round(time.Millisecond), "err", e.Err, "left_out", leftOut)
}

// mostLogged is how many calls are logged in a second: without a leader, each heartbeat fails.
const mostLogged = 100

// logged counts the calls logged in the current second.
type logged struct {
	mu      sync.Mutex
	since   time.Time
	count   int
	leftOut int // since the last logged one
}

// admit reports whether a call may be logged, and how many were left out since the last logged one.
func (l *logged) admit(now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= time.Second {
		l.since, l.count = now, 0
	}
	if l.count++; l.count > mostLogged {
		l.leftOut++
		return 0, false
	}
	leftOut, l.leftOut = l.leftOut, 0
	return leftOut, true
}
