package capacity

import (
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/naming"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// named is a thing by its kind and its name.
type named struct{ kind, name string }

// hiding returns a thing that an operation on the registry would make, whose name has characters that are not seen, or the zero
// value. Names that the view has already are nobody's to refuse.
func hiding(v *registry.View, op registry.Op) named {
	switch op := op.(type) {
	case registry.Register:
		return first(ofInstance(v, op.Instance)...)
	case registry.RegisterCatalog:
		return first(inCatalog(v, op)...)
	}
	return named{}
}

func first(made ...named) named {
	for _, n := range made {
		if naming.Hides(n.name) {
			return n
		}
	}
	return named{}
}

func ofInstance(v *registry.View, i *registry.Instance) (made []named) {
	if _, there := v.App(i.App); !there {
		made = append(made, named{"application", i.App})
	}
	if _, there := v.Lease(i.Key()); !there {
		made = append(made, named{"instance", i.ID()})
	}
	for vip := range strings.SplitSeq(i.VIP+","+i.SecureVIP, ",") {
		if naming.Hides(vip) && !isAny(v.ByVIP(vip)) && !isAny(v.BySecureVIP(vip)) {
			made = append(made, named{"VIP address", vip})
		}
	}
	return made
}

func isAny(all iter.Seq[*registry.Lease]) bool {
	for range all {
		return true
	}
	return false
}

func inCatalog(v *registry.View, op registry.RegisterCatalog) (made []named) {
	node := op.On()
	if _, there := v.Node(node); !there {
		made = append(made, named{"node", node})
	}
	if op.Service != nil {
		if l, _ := v.ServiceOn(node, op.Service.ID); l == nil {
			made = append(made, named{"service", op.Service.ID})
		}
		if _, there := v.App(op.Instance.App); !there {
			made = append(made, named{"service", op.Service.Name})
		}
	}
	for _, c := range op.Checks {
		if _, there := v.CheckOn(node, c.ID); !there {
			made = append(made, named{"check", c.ID}, named{"check", c.Name})
		}
	}
	return made
}

// hidingIn is hiding for sessions, locks, semaphores, roles and tokens. Keys may have any bytes, as Consul's may.
func hidingIn(v *kv.View, op kv.Op) named {
	switch op := op.(type) {
	case kv.Once:
		return hidingIn(v, op.Op)
	case kv.CreateSession:
		return first(named{"session", op.Name})
	case kv.AcquirePermit:
		if p, _ := v.Permits(op.Kind, op.Name); p == nil {
			return first(named{"lock or semaphore", op.Name})
		}
	case kv.Access:
		var made []named
		for _, r := range op.PutRoles {
			if v.Access().Role(r.Name) == nil {
				made = append(made, named{"role", r.Name})
			}
		}
		for _, k := range op.Create {
			made = append(made, named{"token", k.Name})
		}
		return first(made...)
	}
	return named{}
}
