package eureka

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// DecodeRegistration reads the body of a registration under the application app, in any case. Only
// f.XML counts. Statuses and timestamps that the server itself decides are as the client sent them;
// lease times are as given, not clamped.
//
// The error is ErrUnparsable, or a *ValidationError.
func DecodeRegistration(body []byte, f Format, app string) (*registry.Instance, error) {
	d, err := readInstance(body, f)
	if err != nil {
		return nil, err
	}
	if !f.XML {
		takeInstanceID(d.instance)
	}
	return d.register(strings.ToUpper(app))
}

// DecodeInstance reads a document of one instance as a server answers it, without checking it: the
// answer to a query, or the body of a conflict. Only f.XML counts. The error is ErrUnparsable.
func DecodeInstance(body []byte, f Format) (*registry.Lease, error) {
	d, err := readInstance(body, f)
	if err != nil {
		return nil, err
	}
	return d.finish(), nil
}

func readInstance(body []byte, f Format) (*draft, error) {
	if f.XML {
		return readXMLDocument(body)
	}
	return readDocument(body)
}

// takeInstanceID takes the id that older Spring clients keep in their metadata, with the host's name
// before it (Spring Cloud: CloudJacksonJson, which does so in JSON only).
func takeInstanceID(i *registry.Instance) {
	id := i.Meta("instanceId")
	if i.InstanceID != "" || strings.TrimSpace(id) == "" {
		return
	}
	if !strings.HasPrefix(id, i.HostName) {
		id = i.HostName + ":" + id
	}
	i.InstanceID = id
}

// Applications is what a server's answer to a fetch of the registry, of a delta or of a VIP says.
type Applications struct {
	Version  string            // versions__delta
	HashCode string            // apps__hashcode, of the whole registry
	Leases   []*registry.Lease // in the answer's order
}

// DecodeApplications reads the JSON answer to a fetch, full or compact. Older servers write a list
// of one as the element alone and leave out an empty one; both are understood. The error is
// ErrUnparsable.
func DecodeApplications(body []byte) (*Applications, error) {
	s := newScanner(body)
	var apps Applications
	found := false
	for m := s.object(); m.next(); {
		if string(m.key) == "applications" {
			found = true
			s.applications(&apps)
		} else {
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if !found {
		return nil, unparsable(`JSON lacks the root key "applications"`)
	}
	return &apps, nil
}

// DecodeApplication reads the JSON answer to a query for one application. The error is ErrUnparsable.
func DecodeApplication(body []byte) ([]*registry.Lease, error) {
	s := newScanner(body)
	var apps Applications
	found := false
	for m := s.object(); m.next(); {
		if string(m.key) == "application" {
			found = true
			s.application(&apps)
		} else {
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if !found {
		return nil, unparsable(`JSON lacks the root key "application"`)
	}
	return apps.Leases, nil
}

func (s *scanner) applications(apps *Applications) {
	for m := s.object(); m.next(); {
		switch string(m.key) {
		case "versions__delta":
			text, _ := s.scalar()
			apps.Version = string(text)
		case "apps__hashcode":
			text, _ := s.scalar()
			apps.HashCode = string(text)
		case "application":
			s.each(func() { s.application(apps) })
		default:
			s.skip()
		}
	}
}

// application reads one application. An instance without a name of its application gets this one's.
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
