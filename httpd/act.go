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
)

// Bounds of what an operator says of an act, in bytes, and of how long it may hold.
const (
	maxAuthor = 128
	maxReason = 512
	minFor    = time.Second
	maxFor    = 7 * 24 * time.Hour
)

// actOf reads who acts and why. Who does not say so is known by the address of the caller: an act
// always has an author.
func actOf(r *http.Request) (by registry.Act, err error) {
	if by.Author, err = sayingParam(r.URL.RawQuery, "author", maxAuthor); err != nil {
		return by, err
	}
	if by.Author == "" {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		by.Author = "from " + host
	}
	by.Reason, err = sayingParam(r.URL.RawQuery, "reason", maxReason)
	return by, err
}

// sayingParam reads a text that is shown to people.
func sayingParam(query, name string, limit int) (string, error) {
	text, _, err := param(query, name)
	switch {
	case err != nil:
		return "", err
	case len(text) > limit:
		return "", badRequest(fmt.Sprintf("%s has %d bytes; at most %d are kept", name, len(text), limit))
	case !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0:
		return "", badRequest(name + " must be UTF-8 without control characters")
	}
	return text, nil
}

// forParam reads how long an act holds, in ms; 0 if it is not given and need not be.
func forParam(query string, required bool) (int64, error) {
	text, ok, err := param(query, "for")
	if err != nil || (!ok && !required) {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minFor || d > maxFor {
		return 0, badRequest(fmt.Sprintf("for must be a duration from %v to %vh, like 30m", minFor, maxFor.Hours()))
	}
	return d.Milliseconds(), nil
}
