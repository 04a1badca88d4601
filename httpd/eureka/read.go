package eureka

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// DecodeRegistration reads the body of a registration under the application app, in any case. Only f.XML counts.
// Statuses and timestamps that the server itself decides are as the client sent them; lease times are as given, not
// clamped.
//
// The error is ErrUnparsable, or a *ValidationError.
func DecodeRegistration(body []byte, f Format, app string) (*registry.Instance, error) {
	d, err := readInstance(body, f)
	if err != nil {
		return nil, err
	}
	// Older Spring clients keep the id in their metadata, prefixed by the host's name (Spring Cloud: CloudJacksonJson,
	// which does so in JSON only).
	i := d.instance
	if id := i.Meta("instanceId"); !f.XML && i.InstanceID == "" && strings.TrimSpace(id) != "" {
		if i.InstanceID = id; !strings.HasPrefix(id, i.HostName) {
			i.InstanceID = i.HostName + ":" + id
		}
	}
	return d.register(strings.ToUpper(app))
}

// DecodeInstance reads a document of one instance as a server sends it, without checking it: the response to a query,
// or the body of a conflict. Only f.XML counts. The error is ErrUnparsable.
func DecodeInstance(body []byte, f Format) (*registry.Lease, error) {
	d, err := readInstance(body, f)
	if err != nil {
		return nil, err
	}
	return d.finish(), nil
}

func readInstance(body []byte, f Format) (d *draft, err error) {
	if f.XML {
		return readXMLDocument(body)
	}
	err = decodeMember(body, "instance", func(s *scanner) { d = s.instance() })
	return d, err
}

// Applications is a server's response to a fetch of the registry, of a delta or of a VIP.
type Applications struct {
	Version  string            // versions__delta
	HashCode string            // apps__hashcode, of the whole registry
	Leases   []*registry.Lease // in the response's order
}

// DecodeApplications reads the JSON response to a fetch, full or compact. Older servers write a list of one as the
// bare element and leave out an empty one; both are understood. The error is ErrUnparsable.
func DecodeApplications(body []byte) (*Applications, error) {
	var apps Applications
	err := decodeMember(body, "applications", func(s *scanner) {
		for m := s.object(); m.next(); {
			switch string(m.key) {
			case "versions__delta":
				text, _ := s.scalar()
				apps.Version = string(text)
			case "apps__hashcode":
				text, _ := s.scalar()
				apps.HashCode = string(text)
			case "application":
				s.each(func() { s.application(&apps) })
			default:
				s.skip()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return &apps, nil
}

// DecodeApplication reads the JSON response to a query for one application. The error is ErrUnparsable.
func DecodeApplication(body []byte) ([]*registry.Lease, error) {
	var apps Applications
	err := decodeMember(body, "application", func(s *scanner) { s.application(&apps) })
	return apps.Leases, err
}

// decodeMember reads the only member of a document that matters.
func decodeMember(body []byte, name string, read func(s *scanner)) error {
	s := newScanner(body)
	found := s.member(name, func() { read(s) })
	if err := s.expectEnd(); err != nil {
		return err
	}
	if !found {
		return unparsable("JSON lacks the root key %q", name)
	}
	return nil
}

// member reads one member of an object, and reports whether it exists.
func (s *scanner) member(name string, read func()) (found bool) {
	for m := s.object(); m.next(); {
		if string(m.key) == name {
			found = true
			read()
		} else {
			s.skip()
		}
	}
	return found
}

// EachInstance walks over the JSON response to a fetch, and calls do for each instance with its id and with its
// metadata's value under a key, or nil. Both are valid until do returns. It is for programs that read lists many times
// a second: it keeps nothing else. The error is ErrUnparsable.
func EachInstance(body []byte, key string, do func(id, value []byte)) error {
	o := outline{key: key, do: do}
	return decodeMember(body, "applications", func(s *scanner) {
		s.member("application", func() {
			s.each(func() {
				s.member("instance", func() { s.each(func() { o.read(s) }) })
			})
		})
	})
}

// OneInstance is EachInstance for the JSON response to a query for one instance.
func OneInstance(body []byte, key string, do func(id, value []byte)) error {
	o := outline{key: key, do: do}
	return decodeMember(body, "instance", o.read)
}

// outline is what EachInstance needs of an instance.
type outline struct {
	key             string
	do              func(id, value []byte)
	id, host, value []byte // copies, because a scanner's texts do not last
}

// read reads one instance. One without an id goes by its host name, as with upstream.
func (o *outline) read(s *scanner) {
	var hasID, hasValue bool
	keep := func(to *[]byte) (given bool) {
		text, given := s.scalar()
		*to = append((*to)[:0], text...)
		return given
	}
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "instanceId":
			hasID = keep(&o.id)
		case "hostName":
			keep(&o.host)
		case "metadata":
			if !s.null() {
				s.member(o.key, func() { hasValue = keep(&o.value) })
			}
		default:
			s.skip()
		}
	}
	id, value := o.host, []byte(nil)
	if hasID {
		id = o.id
	}
	if hasValue {
		value = o.value
	}
	if s.err == nil {
		o.do(id, value)
	}
}

// application reads one application. An instance that does not name its application gets this one's name.
func (s *scanner) application(apps *Applications) {
	var name string
	first := len(apps.Leases)
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "name":
			text, _ := s.scalar()
			name = strings.ToUpper(string(text))
		case "instance":
			s.each(func() { apps.Leases = append(apps.Leases, s.instance().finish()) })
		default:
			s.skip()
		}
	}
	for _, l := range apps.Leases[first:] {
		if l.Instance.App == "" {
			l.Instance.App = name
		}
	}
}

// each reads the elements of an array, or the one object that stands for it, or null for none.
func (s *scanner) each(read func()) {
	if s.null() {
		return
	}
	if s.peek() == '{' {
		read()
		return
	}
	for e := s.array(); e.next(); {
		read()
	}
}
