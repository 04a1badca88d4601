package eureka

import (
	"encoding/xml"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// names refuses an element that comes twice, as a duplicate key of JSON is refused.
type names map[string]bool

func (n names) add(name string) error {
	if n[name] {
		return unparsable("XML has <%s> twice", clip([]byte(name)))
	}
	n[name] = true
	return nil
}

// readXMLDocument reads the XML document of one instance. Of the elements that it does not know any
// number may come: a repeated element is how XML writes a list.
func readXMLDocument(body []byte) (*draft, error) {
	d := newDraft()
	r := newXMLReader(body)
	seen := names{}
	err := r.document("instance", func(e xml.StartElement) error {
		name := elementName(e)
		if !isStructure([]byte(name)) && !d.isScalar([]byte(name)) {
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

// port reads <port enabled="true">8080</port>. Without the attribute the default stays: true for
// port, false for securePort.
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

// dataCenter reads dataCenterInfo. Its class says nothing that the name does not.
func (r *xmlReader) dataCenter(d *draft) error {
	var name string
	var metadata []registry.Pair
	seen := names{}
	err := r.children(func(e xml.StartElement) (err error) {
		switch child := elementName(e); {
		case child == "name":
			name, err = r.dataCenterName()
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

// dataCenterName reads a name; XML, unlike JSON, has always accepted Amazon's in any case.
func (r *xmlReader) dataCenterName() (string, error) {
	text, err := r.text()
	if strings.EqualFold(string(text), registry.Amazon) {
		return registry.Amazon, err
	}
	return string(text), err
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
