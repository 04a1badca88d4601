package eureka

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// xmlReader walks through an XML document. It refuses DOCTYPE (and so a document's own entities), deep
// nesting, and what encoding/xml refuses, such as undefined entities. Charsets are UTF-8 and its subset
// US-ASCII.
type xmlReader struct {
	dec      *xml.Decoder
	depth    int
	defaults []string // default name space of each enclosing element, then of the last one
}

// token returns the next token that matters: the start or end of an element, or text.
func (r *xmlReader) token() (xml.Token, error) {
	for {
		token, err := r.dec.Token()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if err != nil {
			return nil, unparsable("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if r.depth++; r.depth > maxDepth {
				return nil, unparsable("XML is nested too deeply")
			}
			return r.withoutDefault(t), nil
		case xml.EndElement:
			r.depth--
			return token, nil
		case xml.CharData:
			return token, nil
		case xml.Directive:
			return nil, unparsable("XML has a DOCTYPE or another directive")
		}
	}
}

// withoutDefault returns an element that was just entered, without the default name space, which its name did not
// write out.
func (r *xmlReader) withoutDefault(e xml.StartElement) xml.StartElement {
	space := ""
	if r.depth > 1 {
		space = r.defaults[r.depth-2]
	}
	for _, a := range e.Attr {
		if a.Name.Space == "" && a.Name.Local == "xmlns" {
			space = a.Value
		}
	}
	r.defaults = append(r.defaults[:r.depth-1], space)
	if e.Name.Space == space {
		e.Name.Space = ""
	}
	return e
}

// document reads a whole document whose root is called name.
func (r *xmlReader) document(name string, visit func(xml.StartElement) error) error {
	found := false
	for {
		token, err := r.token()
		if err == io.EOF && found {
			return nil
		}
		if err != nil {
			return unparsable("XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if found || elementName(t) != name {
				return unparsable("XML has the root <%s> where <%s> alone belongs", clip([]byte(elementName(t))), name)
			}
			found = true
			if err := r.children(visit); err != nil {
				return err
			}
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 {
				return unparsable("XML has text outside its root")
			}
		}
	}
}

// children visits the children of the element that was just entered, and leaves it. visit must read its child
// to the end, with text, children or skip. Text between children is ignored.
func (r *xmlReader) children(visit func(xml.StartElement) error) error {
	for {
		token, err := r.token()
		if err != nil {
			return unparsable("XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := visit(t); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// text returns the text of the element that was just entered, and leaves it.
func (r *xmlReader) text() ([]byte, error) {
	var text []byte
	for {
		token, err := r.token()
		if err != nil {
			return nil, unparsable("XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			return nil, unparsable("XML has an element <%s> where text belongs", clip([]byte(elementName(t))))
		case xml.CharData:
			text = append(text, t...)
		case xml.EndElement:
			return text, nil
		}
	}
}

// skip leaves the element that was just entered.
func (r *xmlReader) skip() error {
	for outer := r.depth - 1; r.depth > outer; {
		if _, err := r.token(); err != nil {
			return unparsable("XML: %w", err)
		}
	}
	return nil
}

// elementName returns the name as it was written: clients that do not escape keys send colons.
func elementName(e xml.StartElement) string {
	if e.Name.Space == "" {
		return e.Name.Local
	}
	return e.Name.Space + ":" + e.Name.Local
}

// Keys of maps are the names of XML elements, escaped as upstream's XStream does it
// (XmlFriendlyNameCoder): "_" is "__", "$" is "_-", and a character that cannot stand in a name, or
// not at its start, is "_." and four hexadecimal digits per UTF-16 unit.

// nameLetters are the letters outside ASCII that every edition of XML 1.0 allows in a name. Those that only
// later editions allow are escaped, because many parsers follow the older ones.
var nameLetters = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x00C0, Hi: 0x00D6, Stride: 1}, {Lo: 0x00D8, Hi: 0x00F6, Stride: 1}, {Lo: 0x00F8, Hi: 0x0131, Stride: 1},
	{Lo: 0x0388, Hi: 0x038A, Stride: 1}, {Lo: 0x038E, Hi: 0x03A1, Stride: 1}, {Lo: 0x03A3, Hi: 0x03CE, Stride: 1},
	{Lo: 0x0401, Hi: 0x040C, Stride: 1}, {Lo: 0x040E, Hi: 0x044F, Stride: 1}, {Lo: 0x0451, Hi: 0x045C, Stride: 1},
	{Lo: 0x05D0, Hi: 0x05EA, Stride: 1}, {Lo: 0x0621, Hi: 0x063A, Stride: 1}, {Lo: 0x3041, Hi: 0x3094, Stride: 1},
	{Lo: 0x30A1, Hi: 0x30FA, Stride: 1}, {Lo: 0x4E00, Hi: 0x9FA5, Stride: 1}, {Lo: 0xAC00, Hi: 0xD7A3, Stride: 1},
}, LatinOffset: 2}

// appendName appends a key as an element name. The key must not be empty.
func appendName(dst []byte, key string) []byte {
	for i, r := range key {
		switch {
		case r == '_':
			dst = append(dst, "__"...)
		case r == '$':
			dst = append(dst, "_-"...)
		case isNameChar(r, i == 0):
			dst = utf8.AppendRune(dst, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = appendHexUnit(appendHexUnit(dst, high), low)
		default:
			dst = appendHexUnit(dst, r)
		}
	}
	return dst
}

// isNameChar leaves out the colon: it would make the key look like one with a name space.
func isNameChar(r rune, first bool) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return true
	case r >= '0' && r <= '9', r == '-', r == '.':
		return !first
	}
	return r >= utf8.RuneSelf && unicode.Is(nameLetters, r)
}

func appendHexUnit(dst []byte, unit rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '_', '.', hex[unit>>12&15], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
}

// parseName reverses appendName. An underscore that begins no escape stands for itself, because clients send
// names that were never escaped.
func parseName(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	key := make([]byte, 0, len(name))
	for name != "" {
		if name[0] != '_' {
			key = append(key, name[0])
			name = name[1:]
			continue
		}
		r, size := parseEscape(name)
		key = utf8.AppendRune(key, r)
		name = name[size:]
	}
	return string(key)
}

// parseEscape returns the character that an escape at the start of name stands for, and its length.
func parseEscape(name string) (r rune, size int) {
	switch {
	case strings.HasPrefix(name, "__"):
		return '_', 2
	case strings.HasPrefix(name, "_-"):
		return '$', 2
	}
	unit, ok := parseHexUnit(name)
	if !ok {
		return '_', 1
	}
	if !utf16.IsSurrogate(unit) {
		return unit, 6
	}
	low, ok := parseHexUnit(name[6:])
	if pair := utf16.DecodeRune(unit, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

func parseHexUnit(name string) (rune, bool) {
	if len(name) < 6 || name[:2] != "_." {
		return 0, false
	}
	unit, err := strconv.ParseUint(name[2:6], 16, 16)
	return rune(unit), err == nil
}

// names refuses a repeated element, just as duplicate keys of JSON are refused.
type names map[string]bool

func (n names) add(name string) error {
	if n[name] {
		return unparsable("XML has <%s> twice", clip([]byte(name)))
	}
	n[name] = true
	return nil
}

// readXMLDocument reads the XML document of one instance. Unknown elements may be repeated, because that is how XML
// writes a list.
func readXMLDocument(body []byte) (*draft, error) {
	d := newDraft()
	body = bytes.TrimPrefix(body, []byte("\uFEFF")) // allowed by XML, and sent by some platforms
	r := &xmlReader{dec: xml.NewDecoder(bytes.NewReader(body))}
	r.dec.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "us-ascii") {
			return input, nil
		}
		return nil, fmt.Errorf("the charset is %q; it must be UTF-8", clip([]byte(charset)))
	}
	seen := names{}
	err := r.document("instance", func(e xml.StartElement) error {
		name := elementName(e)
		switch {
		case name == "dataCenterInfo", name == "leaseInfo", name == "metadata":
		case portNamed([]byte(name)) == nil && !d.isScalar([]byte(name)):
			return r.skip()
		}
		if err := seen.add(name); err != nil {
			return err
		}
		return r.field(d, e, name)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (r *xmlReader) field(d *draft, e xml.StartElement, name string) error {
	switch name {
	case "dataCenterInfo":
		return r.dataCenter(d)
	case "leaseInfo":
		return r.lease(d)
	case "metadata":
		pairs, err := r.pairs()
		d.setMetadata(pairs)
		return err
	}
	if p := portNamed([]byte(name)); p != nil {
		return r.port(e, p.of(d.instance))
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	return d.setScalar([]byte(name), text)
}

// port reads <port enabled="true">8080</port>. Without the attribute the default stays: true for port, false for
// securePort.
func (r *xmlReader) port(e xml.StartElement, to *registry.Port) error {
	for _, a := range e.Attr {
		if a.Name.Local == "enabled" {
			if err := setEnabled(to, []byte(a.Value)); err != nil {
				return err
			}
		}
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	return setPort(to, text)
}

// dataCenter reads dataCenterInfo. Its class adds nothing to the name.
func (r *xmlReader) dataCenter(d *draft) error {
	var name string
	var metadata []registry.Pair
	seen := names{}
	err := r.children(func(e xml.StartElement) (err error) {
		switch child := elementName(e); {
		case child == "name":
			var text []byte
			text, err = r.text()
			if name = string(text); strings.EqualFold(name, registry.Amazon) {
				name = registry.Amazon // XML, unlike JSON, has always accepted it in any case
			}
		case child == "metadata" && (name == "" || name == registry.Amazon):
			metadata, err = r.pairs()
		default:
			return r.skip()
		}
		if err != nil {
			return err
		}
		return seen.add(elementName(e))
	})
	if err != nil {
		return err
	}
	return d.setDataCenter(name, metadata)
}

func (r *xmlReader) lease(d *draft) error {
	seen := names{}
	return r.children(func(e xml.StartElement) error {
		name := elementName(e)
		if !isLeaseField([]byte(name)) {
			return r.skip()
		}
		text, err := r.text()
		if err != nil {
			return err
		}
		if err := seen.add(name); err != nil {
			return err
		}
		return d.setLease([]byte(name), text)
	})
}

// pairs reads a flat map whose keys are the names of the elements.
func (r *xmlReader) pairs() ([]registry.Pair, error) {
	var pairs []registry.Pair
	seen := names{}
	err := r.children(func(e xml.StartElement) error {
		text, err := r.text()
		if err != nil {
			return err
		}
		key := parseName(elementName(e))
		pairs = appendEntry(pairs, key, string(text))
		return seen.add(key)
	})
	return pairs, err
}
