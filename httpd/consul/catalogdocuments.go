package consul

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// registrationBody is the body of catalog/register.
type registrationBody struct {
	id, node, address, datacenter string
	tagged, meta                  map[string]string
	service                       *serviceBody
	check                         *catalogCheckBody
	checks                        []catalogCheckBody
	skipNodeUpdate                bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *registrationBody) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"id": &r.id, "node": &r.node, "address": &r.address, "datacenter": &r.datacenter, "taggedaddresses": &r.tagged, "nodemeta": &r.meta,
		"service": &r.service, "check": &r.check, "checks": &r.checks, "skipnodeupdate": &r.skipNodeUpdate,
	})
}

// catalogCheckBody is a check as registrars give it: its state, and how they found it out.
type catalogCheckBody struct {
	node, checkID, name, notes, status, output, service, kind string
	definition                                                map[string]json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *catalogCheckBody) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"node": &c.node, "checkid": &c.checkID, "name": &c.name, "notes": &c.notes, "status": &c.status, "output": &c.output,
		"serviceid": &c.service, "type": &c.kind, "definition": &c.definition,
	})
}

// decodeRegistration reads the body of catalog/register, and the datacenter that it names, or "". addressOf returns the
// address of a registered node (by its registry's name), or "". Errors: a refusal.
func decodeRegistration(body []byte, addressOf func(node string) string) (op registry.RegisterCatalog, datacenter string, err error) {
	var r registrationBody
	if err := decodeBody(body, &r); err != nil {
		return op, "", err
	}
	switch {
	case r.node == "":
		return op, "", rejected("Must provide node")
	case r.address == "" && !r.skipNodeUpdate:
		return op, "", rejected("Must provide address if SkipNodeUpdate is not set")
	}
	if err := cmp.Or(checkName("node name", r.node), r.checkID()); err != nil {
		return op, "", err
	}
	node := nodeOf(r.node)
	op.Node, op.KeepNode = r.nodeOf(), r.skipNodeUpdate
	if r.service != nil {
		address := r.address
		if node == "" || r.skipNodeUpdate {
			address = cmp.Or(addressOf(node), r.address)
		}
		if op.Service, op.Instance, err = r.serviceOn(node, address); err != nil {
			return op, "", err
		}
	}
	op.Checks, err = r.checksOn(node)
	return op, r.datacenter, err
}

// checkID returns an error if the node's ID is not a UUID, in Consul's words
// (agent/consul/catalog_endpoint.go, and go-uuid).
func (r *registrationBody) checkID() error {
	digits := strings.ReplaceAll(r.id, "-", "")
	switch {
	case r.id == "":
		return nil
	case len(r.id) != 36:
		return rejected("Bad node ID: uuid string is wrong length")
	case len(digits) != 32 || r.id[8] != '-' || r.id[13] != '-' || r.id[18] != '-' || r.id[23] != '-':
		return rejected("Bad node ID: uuid is improperly formatted")
	}
	if _, err := hex.DecodeString(digits); err != nil {
		return rejected("Bad node ID: %v", err)
	}
	return nil
}

// nodeOf returns the node to register. The logical one needs no registration, and registrars can set only its
// metadata; without any, nodeOf returns nil.
func (r *registrationBody) nodeOf() *catalog.Node {
	switch {
	case nodeOf(r.node) == "" && r.meta == nil:
		return nil
	case nodeOf(r.node) == "":
		return &catalog.Node{Meta: pairsOf(r.meta)}
	}
	return &catalog.Node{ID: r.id, Name: r.node, Address: r.address, Tagged: pairsOf(r.tagged), Meta: pairsOf(r.meta)}
}

func (r *registrationBody) serviceOn(node, address string) (*catalog.Service, *registry.Instance, error) {
	name := cmp.Or(r.service.service, r.service.name)
	if name == "" {
		return nil, nil, rejected("Must provide service name")
	}
	if node == "" && r.service.id == itselfID {
		return nil, nil, malformed("Invalid service id, %q stands for the cluster itself", itselfID)
	}
	return r.service.register(node, name, address)
}

// checksOn returns Check and Checks together.
func (r *registrationBody) checksOn(node string) ([]*catalog.Check, error) {
	bodies := r.checks
	if r.check != nil {
		bodies = append([]catalogCheckBody{*r.check}, bodies...)
	}
	var checks []*catalog.Check
	for _, body := range bodies {
		if body.node != "" && !strings.EqualFold(body.node, r.node) {
			return nil, rejected("check node %q does not match node %q", body.node, r.node)
		}
		check, err := body.check(node)
		if err != nil {
			return nil, err
		}
		checks = append(checks, check)
	}
	return checks, nil
}

func (c *catalogCheckBody) check(node string) (*catalog.Check, error) {
	status, known := parseStatus(c.status)
	switch {
	case c.status == "":
		status = catalog.Critical
	case !known:
		return nil, malformed("Invalid check status: '%s'", c.status)
	}
	check := &catalog.Check{
		Node: node, ID: cmp.Or(c.checkID, c.name), Name: c.name, Notes: c.notes, Output: c.output, Status: status, Service: c.service,
		Type: cmp.Or(c.kind, c.derivedType()), Definition: c.given(),
	}
	return check, checkName("check id", check.ID)
}

// derivedType returns the type that a definition implies, or "".
func (c *catalogCheckBody) derivedType() string {
	for _, way := range [...]struct{ field, kind string }{
		{"http", "http"}, {"tcp", "tcp"}, {"udp", "udp"}, {"grpc", "grpc"}, {"osservice", "os_service"},
	} {
		for name, value := range c.definition {
			if folded(name) == way.field && !isZero(value) {
				return way.kind
			}
		}
	}
	return ""
}

// given returns the definition as it is echoed, or nil if it is empty. It writes every duration as a text.
func (c *catalogCheckBody) given() []byte {
	shown := map[string]json.RawMessage{}
	for name, value := range c.definition {
		if isZero(value) {
			continue
		}
		switch folded(name) {
		case "interval", "timeout", "deregistercriticalserviceafter":
			var d duration
			if d.UnmarshalJSON(value) == nil {
				value, _ = json.Marshal(time.Duration(d).String()) // cannot fail: it is a text
			}
		}
		shown[name] = value
	}
	if len(shown) == 0 {
		return nil
	}
	encoded, _ := json.Marshal(shown) // cannot fail: what was decoded encodes, sorted by name
	return encoded
}

// decodeDeregistration reads the body of catalog/deregister, and the datacenter that it names, or "". Errors: a
// refusal.
func decodeDeregistration(body []byte) (op registry.DeregisterCatalog, datacenter string, err error) {
	var node string
	err = decodeFields(body, map[string]any{"node": &node, "serviceid": &op.Service, "checkid": &op.Check, "datacenter": &datacenter})
	switch {
	case err != nil:
		return op, "", undecodable(requestFailed, err)
	case node == "":
		return op, "", rejected("Must provide node")
	case op.Service != "":
		op.Check = "" // the reference, too, only looks at the service
	}
	op.Node = nodeOf(node)
	return op, datacenter, nil
}
