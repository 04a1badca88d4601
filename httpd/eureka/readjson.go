package eureka

import "github.com/seed-20419f34/rollcall/fsm/registry"

// instance reads a bare instance. The draft is only usable if the scanner has no error.
func (s *scanner) instance() *draft {
	d := newDraft()
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "dataCenterInfo":
			s.dataCenter(d)
		case "leaseInfo":
			s.lease(d)
		case "metadata":
			d.setMetadata(s.pairs())
		default:
			if p := portNamed(m.key); p != nil {
				s.port(p.of(d.instance))
				continue
			}
			s.field(d, m.key)
		}
	}
	return d
}

func (s *scanner) field(d *draft, name []byte) {
	if !d.isScalar(name) {
		s.skip()
		return
	}
	if text, given := s.scalar(); given {
		s.failed(d.setScalar(name, text))
	}
}

// port reads {"$":8080,"@enabled":"true"}; a bare number, from old JavaScript clients, is enabled.
func (s *scanner) port(to *registry.Port) {
	if s.peek() != '{' {
		if text, _ := s.scalar(); len(text) > 0 {
			to.Enabled = true
			s.failed(setPort(to, text))
		}
		return
	}
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "$":
			text, _ := s.scalar()
			s.failed(setPort(to, text))
		case "@enabled":
			text, _ := s.scalar()
			s.failed(setEnabled(to, text))
		default:
			s.skip()
		}
	}
}

// dataCenter reads dataCenterInfo. Its @class adds nothing to the name. Whether its metadata counts depends on the
// name, which may come later.
func (s *scanner) dataCenter(d *draft) {
	if s.null() {
		return
	}
	var name string
	var metadata []byte
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "name":
			text, _ := s.scalar()
			name = string(text)
		case "metadata":
			metadata = s.raw()
		default:
			s.skip()
		}
	}
	if s.err != nil {
		return
	}
	var pairs []registry.Pair
	if name == registry.Amazon && metadata != nil {
		inner := scanner{data: metadata}
		pairs = inner.pairs()
		s.failed(inner.err)
	}
	s.failed(d.setDataCenter(name, pairs))
}

func (s *scanner) lease(d *draft) {
	if s.null() {
		return
	}
	for m := s.object(); m.next(); {
		if !isLeaseField(m.key) {
			s.skip()
			continue
		}
		text, _ := s.scalar()
		s.failed(d.setLease(m.key, text))
	}
}

// pairs reads a flat map. A null value counts as missing; text stays text.
func (s *scanner) pairs() []registry.Pair {
	if s.null() {
		return nil
	}
	var pairs []registry.Pair
	for m := s.object(); m.next(); {
		if text, given := s.scalar(); given {
			pairs = appendEntry(pairs, string(m.key), string(text))
		}
	}
	return pairs
}
