package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// versionKey is the metadata key under which clients of a trial write the version of a registration.
const versionKey = "n"

// listReader reads Eureka's documents for the ids and versions of their instances. It walks over the text and
// decodes nothing else, because the registry is read many times a second beside the servers that are
// measured. One goroutine uses it.
type listReader struct {
	listing truth.Listing
	names   map[string]string // ids that were seen, so that they are allocated once
}

func newListReader() *listReader {
	return &listReader{listing: make(truth.Listing), names: make(map[string]string)}
}

// registry reads the document of all applications. The result is valid until the next call.
func (l *listReader) registry(document []byte) (truth.Listing, error) {
	return l.read(document, "applications", func(s *scanner) {
		s.object(func(key []byte) {
			if string(key) == "application" {
				s.each(func() { l.application(s) })
			}
		})
	})
}

// instance reads the document of one instance. The result is valid until the next call.
func (l *listReader) instance(document []byte) (truth.Listing, error) {
	return l.read(document, "instance", l.add)
}

// read reads a document whose only member of use has a name.
func (l *listReader) read(document []byte, name string, value func(*scanner)) (truth.Listing, error) {
	clear(l.listing)
	s := &scanner{text: document}
	found := false
	s.object(func(key []byte) {
		if string(key) == name {
			found = true
			value(s)
		}
	})
	if s.end(); s.err == nil && !found {
		s.err = errors.New("it has no " + name)
	}
	return l.listing, s.err
}

func (l *listReader) application(s *scanner) {
	s.object(func(key []byte) {
		if string(key) == "instance" {
			s.each(func() { l.add(s) })
		}
	})
}

// add reads one instance. One that has no id goes by its host name, as with upstream.
func (l *listReader) add(s *scanner) {
	var id, host []byte
	var version int64
	s.object(func(key []byte) {
		switch string(key) {
		case "instanceId":
			id = s.scalar()
		case "hostName":
			host = s.scalar()
		case "metadata":
			s.object(func(key []byte) {
				if string(key) == versionKey {
					version, _ = strconv.ParseInt(string(s.scalar()), 10, 64) // not ours: the document has no version
				}
			})
		}
	})
	if id == nil {
		id = host
	}
	if s.err == nil {
		l.listing[l.name(id)] = version
	}
}

func (l *listReader) name(id []byte) string {
	if name, ok := l.names[string(id)]; ok {
		return name
	}
	name := string(id)
	l.names[name] = name
	return name
}

// scanner walks over JSON. What its caller does not read is skipped, without a check of more than its
// strings and brackets. After an error it stays where it is.
type scanner struct {
	text []byte
	at   int
	err  error
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// next is the byte at which the next token begins; 0 after an error, which the end of the text is.
func (s *scanner) next() byte {
	for s.err == nil && s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	s.fail(io.ErrUnexpectedEOF)
	return 0
}

// take steps over a byte if the next token begins with it.
func (s *scanner) take(c byte) bool {
	if s.next() != c || c == 0 {
		return false
	}
	s.at++
	return true
}

func (s *scanner) want(c byte) {
	if !s.take(c) {
		s.fail(errors.New("byte " + strconv.Itoa(s.at) + " is not " + strconv.QuoteRune(rune(c))))
	}
}

// object calls member for each member of an object, which may read its value. Anything but an object is skipped.
func (s *scanner) object(member func(key []byte)) {
	if s.next() != '{' {
		s.skip()
		return
	}
	s.list('}', func() {
		key := s.string()
		s.want(':')
		s.value(func() { member(key) })
	})
}

// each calls element for each element of an array, or once for anything but an array or null: some servers write lists
// of one element so.
func (s *scanner) each(element func()) {
	switch s.next() {
	case '[':
		s.list(']', func() { s.value(element) })
	case 'n':
		s.skip()
	default:
		element()
	}
}

// list steps over an opening bracket, items with commas between them, and the closing bracket.
func (s *scanner) list(closing byte, item func()) {
	s.at++
	if s.take(closing) {
		return
	}
	for s.err == nil {
		item()
		if s.take(closing) {
			return
		}
		s.want(',')
	}
}

// value calls read, and skips the value if that did not read it.
func (s *scanner) value(read func()) {
	s.next()
	begin := s.at
	read()
	if s.at == begin {
		s.skip()
	}
}

// scalar is what a string says, or a number or another literal as it is written; nil for null and for anything else.
func (s *scanner) scalar() []byte {
	switch s.next() {
	case '"':
		return s.string()
	case '{', '[', 'n':
		s.skip()
		return nil
	}
	begin := s.at
	s.skip()
	return s.text[begin:s.at]
}

// string is what a string says.
func (s *scanner) string() []byte {
	if s.next() != '"' {
		s.want('"')
		return nil
	}
	begin := s.at
	s.skipString()
	quoted := s.text[begin:s.at]
	if s.err != nil {
		return nil
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		s.fail(err)
	}
	return []byte(text)
}

// skip steps over any value.
func (s *scanner) skip() {
	switch s.next() {
	case '"':
		s.skipString()
	case '{', '[':
		s.skipNested()
	default:
		begin := s.at
		for s.at < len(s.text) && !bytes.ContainsRune([]byte(" \t\r\n,:]}"), rune(s.text[s.at])) {
			s.at++
		}
		if s.at == begin {
			s.fail(errors.New("byte " + strconv.Itoa(s.at) + " begins no value"))
		}
	}
}

func (s *scanner) skipNested() {
	for depth := 0; s.err == nil && s.at < len(s.text); {
		switch s.text[s.at] {
		case '"':
			s.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return
		}
	}
	s.fail(io.ErrUnexpectedEOF)
}

// skipString steps over a string. Most have no escapes and are found by their closing quote.
func (s *scanner) skipString() {
	s.at++
	for s.at < len(s.text) {
		n := bytes.IndexByte(s.text[s.at:], '"')
		if n < 0 {
			break
		}
		s.at += n + 1
		if !escaped(s.text[:s.at-1]) {
			return
		}
	}
	s.at = len(s.text)
	s.fail(io.ErrUnexpectedEOF)
}

// escaped reports whether what follows the text is escaped: whether that ends in an odd number of backslashes.
func escaped(text []byte) bool {
	bare := bytes.TrimRight(text, `\`)
	return (len(text)-len(bare))%2 == 1
}

// end makes anything but space after a document an error.
func (s *scanner) end() {
	if s.err != nil {
		return
	}
	if s.text = bytes.TrimRight(s.text, " \t\r\n"); s.at < len(s.text) {
		s.fail(errors.New("something follows the document at byte " + strconv.Itoa(s.at)))
	}
}
