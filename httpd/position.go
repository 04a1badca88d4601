package httpd

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// position is an index with the history that it belongs to: what a watcher names to go on from.
type position struct {
	epoch string
	index registry.Index
}

func positionOf(v *registry.View) position { return position{v.Epoch(), v.Index()} }

// String is the form on the wire, epoch-index, as in X-Rollcall-Index.
func (p position) String() string { return formatIndex(p.epoch, p.index) }

// parsePosition is the inverse of String and takes nothing else: an index has one spelling. The
// epoch is cut off at the last dash, for it may have dashes of its own.
func parsePosition(text string) (position, error) {
	dash := strings.LastIndexByte(text, '-')
	if dash < 0 || len(text) > maxNameBytes || !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0 {
		return position{}, errPosition
	}
	number, err := strconv.ParseUint(text[dash+1:], 10, 64)
	if err != nil || strconv.FormatUint(number, 10) != text[dash+1:] {
		return position{}, errPosition
	}
	return position{epoch: text[:dash], index: registry.Index(number)}, nil
}

var errPosition = badRequest("index must be one that an answer or an event gave: epoch-index, with the index in decimal")

// position reads a position from a text that a caller gave.
func (q *query) position(text string) (p position) {
	if q.err == nil {
		p, q.err = parsePosition(text)
	}
	return p
}
