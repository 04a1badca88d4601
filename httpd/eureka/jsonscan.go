package eureka

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON values and of XML elements.
const maxDepth = 64

// scanner reads a JSON text, value by value as its caller asks for them. It is stricter than encoding/json: it refuses
// duplicate keys, deep nesting, text that is not UTF-8 and unpaired surrogates; and unlike json.Decoder.Token it
// allocates nothing for skipped values, which makes reading a registration more than five times as fast.
// FuzzScannerAgainstEncodingJSON compares the two.
//
// The first error stays, and everything after it reads as the end of its object or array.
type scanner struct {
	data    []byte
	pos     int
	depth   int
	err     error
	scratch []byte   // text of the last string that had escapes
	keys    [][]byte // of all open objects
}

// newScanner returns a scanner over one JSON text.
func newScanner(data []byte) *scanner {
	s := &scanner{data: data}
	if !utf8.Valid(data) {
		s.fail("JSON is not UTF-8")
	}
	return s
}

func (s *scanner) fail(what string) {
	if s.err == nil {
		s.err = unparsable("%s, at byte %d", what, s.pos)
	}
}

// failed records an error other than one of syntax.
func (s *scanner) failed(err error) {
	if s.err == nil {
		s.err = err
	}
}

// peek skips white space and returns the next byte, or 0 at the end or after an error.
func (s *scanner) peek() byte {
	if s.err != nil {
		return 0
	}
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) accept(c byte) bool {
	if s.peek() != c || s.err != nil {
		return false
	}
	s.pos++
	return true
}

// expectEnd requires that nothing follows the value, and returns the scanner's error.
func (s *scanner) expectEnd() error {
	if s.peek() != 0 || s.pos < len(s.data) {
		s.fail("JSON goes on after its end")
	}
	return s.err
}

// open enters an object or array.
func (s *scanner) open(c byte, what string) {
	if !s.accept(c) {
		s.fail(what)
		return
	}
	if s.depth++; s.depth > maxDepth {
		s.fail("JSON is nested too deeply")
	}
}

// more moves to the next member or element; close is the bracket that ends the list.
func (s *scanner) more(started *bool, close byte) bool {
	c := s.peek()
	if s.err != nil {
		return false
	}
	if c == close {
		s.pos++
		s.depth--
		return false
	}
	if *started && !s.accept(',') {
		s.fail("JSON lacks a comma")
		return false
	}
	*started = true
	return true
}

// elements walks through an array: call next, then read the element.
type elements struct {
	s       *scanner
	started bool
}

func (s *scanner) array() elements {
	s.open('[', "JSON lacks an array")
	return elements{s: s}
}

func (e *elements) next() bool { return e.s.more(&e.started, ']') }

// members walks through an object: call next, then read the value of key, which is valid until then.
type members struct {
	s       *scanner
	started bool
	first   int // of scanner.keys
	key     []byte
	many    map[string]bool // the keys, if there are too many for a walk through the list
}

func (s *scanner) object() members {
	s.open('{', "JSON lacks an object")
	return members{s: s, first: len(s.keys)}
}

func (m *members) next() bool {
	s := m.s
	if !s.more(&m.started, '}') {
		s.keys = s.keys[:min(m.first, len(s.keys))]
		return false
	}
	if s.peek() != '"' {
		s.fail("JSON lacks a key")
		return false
	}
	m.key = s.text()
	if !s.accept(':') {
		s.fail("JSON lacks a colon")
		return false
	}
	m.remember()
	return s.err == nil
}

// remember refuses a key that the object already had: readers disagree on which of the two counts.
func (m *members) remember() {
	const few = 32
	s := m.s
	if len(s.scratch) > 0 && len(m.key) > 0 && &m.key[0] == &s.scratch[0] {
		m.key = bytes.Clone(m.key)
	}
	seen := s.keys[m.first:]
	if len(seen) < few {
		for _, k := range seen {
			if bytes.Equal(k, m.key) {
				s.fail("JSON has a duplicate key")
			}
		}
		s.keys = append(s.keys, m.key)
		return
	}
	if m.many == nil {
		m.many = make(map[string]bool, 2*few)
		for _, k := range seen {
			m.many[string(k)] = true
		}
	}
	if m.many[string(m.key)] {
		s.fail("JSON has a duplicate key")
	}
	m.many[string(m.key)] = true
}

// scalar reads a string, a number or a boolean as its text: a number keeps its literal. given is
// false for null. The text is valid until the next string is read.
func (s *scanner) scalar() (text []byte, given bool) {
	switch c := s.peek(); {
	case c == '"':
		return s.text(), s.err == nil
	case c == '-' || c >= '0' && c <= '9':
		return s.number(), s.err == nil
	case c == 't':
		return s.word("true"), s.err == nil
	case c == 'f':
		return s.word("false"), s.err == nil
	case c == 'n':
		s.word("null")
		return nil, false
	}
	s.fail("JSON lacks a string, number, boolean or null")
	return nil, false
}

// null reads a null, if one comes next.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return true
}

// skip reads any value and drops it.
func (s *scanner) skip() {
	switch s.peek() {
	case '{':
		for m := s.object(); m.next(); {
			s.skip()
		}
	case '[':
		for e := s.array(); e.next(); {
			s.skip()
		}
	default:
		s.scalar()
	}
}

// raw reads any value and returns its text, which is well-formed if the scanner has no error.
func (s *scanner) raw() []byte {
	s.peek()
	from := s.pos
	s.skip()
	return s.data[from:s.pos]
}

func (s *scanner) word(w string) []byte {
	rest := s.data[s.pos:]
	if len(rest) < len(w) || string(rest[:len(w)]) != w {
		s.fail("JSON has an unknown word")
		return nil
	}
	s.pos += len(w)
	return rest[:len(w)]
}

// number reads a number by JSON's grammar and returns its literal.
func (s *scanner) number() []byte {
	from := s.pos
	s.pass('-')
	if !s.pass('0') && !s.digits() {
		s.fail("JSON has a number without digits")
	}
	if s.pass('.') && !s.digits() {
		s.fail("JSON has a number without digits after its point")
	}
	if s.pass('e') || s.pass('E') {
		if !s.pass('+') {
			s.pass('-')
		}
		if !s.digits() {
			s.fail("JSON has a number without digits in its exponent")
		}
	}
	return s.data[from:s.pos]
}

func (s *scanner) pass(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > from
}

// text reads the string that begins at pos. It is part of the input, or of scratch if it has escapes.
func (s *scanner) text() []byte {
	s.pos++
	from := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[from : s.pos-1]
		case c == '\\':
			return s.escapedText(from)
		case c < ' ':
			s.fail("JSON has a control character in a string")
			return nil
		}
	}
	s.fail("JSON ends in a string")
	return nil
}

// escapedText continues at the first escape of a string that began at from.
func (s *scanner) escapedText(from int) []byte {
	s.scratch = append(s.scratch[:0], s.data[from:s.pos]...)
	for s.pos < len(s.data) && s.err == nil {
		c := s.data[s.pos]
		s.pos++
		switch {
		case c == '"':
			return s.scratch
		case c == '\\':
			s.scratch = utf8.AppendRune(s.scratch, s.escape())
		case c < ' ':
			s.fail("JSON has a control character in a string")
		default:
			s.scratch = append(s.scratch, c)
		}
	}
	s.fail("JSON ends in a string")
	return nil
}

// escape reads an escape after its backslash.
func (s *scanner) escape() rune {
	if s.pos == len(s.data) {
		return 0 // the caller sees the end
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		return s.unicodeEscape()
	}
	s.fail("JSON has an unknown escape")
	return 0
}

// unicodeEscape reads an escape after its \u, and the second half of a surrogate pair.
func (s *scanner) unicodeEscape() rune {
	r := s.hexUnit()
	if !utf16.IsSurrogate(r) {
		return r
	}
	if s.pass('\\') && s.pass('u') {
		if pair := utf16.DecodeRune(r, s.hexUnit()); pair != utf8.RuneError {
			return pair
		}
	}
	s.fail("JSON has half a surrogate pair")
	return 0
}

func (s *scanner) hexUnit() rune {
	const digits = 4
	if len(s.data)-s.pos < digits {
		s.fail("JSON ends in an escape")
		return 0
	}
	unit, err := strconv.ParseUint(string(s.data[s.pos:s.pos+digits]), 16, 16)
	if err != nil {
		s.fail("JSON has an escape that is not hexadecimal")
		return 0
	}
	s.pos += digits
	return rune(unit)
}
