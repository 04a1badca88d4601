package httpd

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// override is PUT /v1/rollcall/apps/{app}/{id}/override: setStatus with an author, a reason and,
// if asked for, an end.
func (c *call) override() (any, error) {
	return c.act(registry.SetOverride{Key: c.key(), Status: c.statusValue(true), For: c.length(false), By: c.by()})
}

// endOverride is DELETE /v1/rollcall/apps/{app}/{id}/override.
func (c *call) endOverride() (any, error) {
	return c.act(registry.DeleteOverride{Key: c.key(), Fallback: c.statusValue(false), By: c.by()})
}

// quarantine is PUT /v1/rollcall/apps/{app}/{id}/quarantine: out of every list for a time.
func (c *call) quarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), For: c.length(true), By: c.by()})
}

// endQuarantine is DELETE /v1/rollcall/apps/{app}/{id}/quarantine.
func (c *call) endQuarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), By: c.by()})
}

// act performs an operator's act on an instance. One that changes nothing is answered with the
// version that holds what it asks for.
func (c *call) act(op registry.Op) (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	key := c.key()
	result, err := c.apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, &refusal{status: http.StatusNotFound, text: fmt.Sprintf("%s is not registered", key)}
	}
	v, err := c.viewAfterWrite(c.r.Context())
	if err != nil {
		return nil, err
	}
	done := position{epoch: v.Epoch(), index: result.Index}
	if done.index == 0 {
		done.index = v.Index()
	}
	c.w.Header().Set("X-Rollcall-Index", done.String())
	return api.Acted{App: key.App, ID: key.ID, Index: done.String()}, nil
}

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
