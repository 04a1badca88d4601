package node

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// named is a thing by its kind and its name.
type named struct{ kind, name string }

// names lists the things that an operation makes.
type names []named

// add adds a thing, unless it exists already: its name can no longer be refused.
func (n *names) add(there bool, kind, name string) {
	if !there {
		*n = append(*n, named{kind, name})
	}
}

// namesIn returns what an operation on the registry creates.
func namesIn(v *registry.View, op registry.Op) (made names) {
	switch op := op.(type) {
	case registry.Register:
		i := op.Instance
		_, there := v.App(i.App)
		made.add(there, "application", i.App)
		_, there = v.Lease(i.Key())
		made.add(there, "instance", i.ID())
	vips:
		for vip := range strings.SplitSeq(i.VIP+","+i.SecureVIP, ",") {
			for range v.ByVIP(vip) {
				continue vips
			}
			for range v.BySecureVIP(vip) {
				continue vips
			}
			made.add(false, "VIP address", vip)
		}
	case registry.RegisterCatalog:
		node := op.On()
		_, there := v.Node(node)
		made.add(there, "node", node)
		if op.Service != nil {
			l, _ := v.ServiceOn(node, op.Service.ID)
			made.add(l != nil, "service", op.Service.ID)
			_, there = v.App(op.Instance.App)
			made.add(there, "service", op.Service.Name)
		}
		for _, c := range op.Checks {
			_, there = v.CheckOn(node, c.ID)
			made.add(there, "check", c.ID)
			made.add(there, "check", c.Name)
		}
	}
	return made
}

// namesOf returns the sessions, locks, roles and tokens that an operation creates. Keys may have any bytes, as in
// Consul.
func namesOf(v *kv.View, op kv.Op) (made names) {
	switch op := op.(type) {
	case kv.CreateSession:
		made.add(false, "session", op.Name)
	case kv.AcquirePermit:
		p, _ := v.Permits(op.Kind, op.Name)
		made.add(p != nil, "lock or semaphore", op.Name)
	case kv.Access:
		for _, r := range op.PutRoles {
			made.add(v.Access().Role(r.Name) != nil, "role", r.Name)
		}
		for _, k := range op.Create {
			made.add(false, "token", k.Name)
		}
	}
	return made
}
