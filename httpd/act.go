package httpd

import (
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of what an operator says of an act, in bytes, and of how long it may hold.
const (
	maxAuthor = 128
	maxReason = 512
	minFor    = time.Second
	maxFor    = 7 * 24 * time.Hour
)

// by reads who acts and why. Who does not say so is known by the address of the caller: an act always has an author.
func (c *call) by() (by registry.Act) {
	if by.Author = c.saying("author", maxAuthor); by.Author == "" {
		host, _, _ := net.SplitHostPort(c.r.RemoteAddr)
		by.Author = "from " + host
	}
	by.Reason = c.saying("reason", maxReason)
	return by
}

// saying reads a text that is shown to people.
func (q *query) saying(name string, limit int) string {
	text := q.text(name)
	switch {
	case len(text) > limit:
		q.refuse("%s has %d bytes; at most %d are kept", name, len(text), limit)
	case !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0:
		q.refuse("%s must be UTF-8 without control characters", name)
	}
	return text
}

// length reads how long an act holds, in ms; 0 if it is not given and need not be.
func (q *query) length(required bool) int64 {
	wrong := fmt.Sprintf("for must be a duration from %v to %vh, like 30m", minFor, maxFor.Hours())
	d, given := q.duration("for", minFor, maxFor, wrong)
	if required && !given {
		q.refuse("%s", wrong)
	}
	return d.Milliseconds()
}
