package eureka

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
)

// xmlReader walks through an XML document. It refuses DOCTYPE (and so entities of a document's own),
// deep nesting, and what encoding/xml refuses: undefined entities, charsets other than UTF-8.
type xmlReader struct {
	dec   *xml.Decoder
	depth int
}

func newXMLReader(body []byte) *xmlReader {
	body = bytes.TrimPrefix(body, []byte("\uFEFF")) // allowed by XML, and sent by some platforms
	return &xmlReader{dec: xml.NewDecoder(bytes.NewReader(body))}
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
		switch token.(type) {
		case xml.StartElement:
			if r.depth++; r.depth > maxDepth {
				return nil, unparsable("XML is nested too deeply")
			}
			return token, nil
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

// children visits the children of the element that was just entered, and leaves it. visit must read
// its child to the end, by text, children or skip. Text between children is ignored.
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

// elementName is the name as it was written: clients that do not escape keys send colons.
func elementName(e xml.StartElement) string {
	if e.Name.Space == "" {
		return e.Name.Local
	}
	return e.Name.Space + ":" + e.Name.Local
}
