package registry

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// Needs returns what a client must be allowed to do to send an operation. v tells who owns the services and checks
// that an operation names by their ids. Whatever is missing needs nothing, because nothing can be done to it.
func Needs(op Op, v *View) []access.Need { return op.needs(v) }

// appNeed returns a need about an application.
func appNeed(app string, verb access.Verbs) access.Need {
	return access.Need{Resource: access.App, Name: strings.ToUpper(app), Verb: verb}
}

// ToRegister is what a client needs to register an application or VIP, in capitals.
func ToRegister(name string) access.Need { return appNeed(name, access.Register) }

func registering(app string) []access.Need { return []access.Need{ToRegister(app)} }

func overriding(key Key) []access.Need { return []access.Need{appNeed(key.App, access.Override)} }

// operating is the need of cluster operators. Operations that no client sends have it too: the leader's decisions,
// and those from other servers, which may act as peers.
func operating() []access.Need { return []access.Need{{Resource: access.Operator, Verb: access.Write}} }

// ofAct returns the need of a client's own act, or of an operator's, which has an author.
func ofAct(key Key, by Act) []access.Need {
	if by == (Act{}) {
		return registering(key.App)
	}
	return overriding(key)
}

func (op Renew) needs(*View) []access.Need            { return registering(op.Key.App) }
func (op Cancel) needs(*View) []access.Need           { return registering(op.Key.App) }
func (op UpdateMetadata) needs(*View) []access.Need   { return registering(op.Key.App) }
func (op SetOverride) needs(*View) []access.Need      { return ofAct(op.Key, op.By) }
func (op DeleteOverride) needs(*View) []access.Need   { return ofAct(op.Key, op.By) }
func (op Quarantine) needs(*View) []access.Need       { return overriding(op.Key) }
func (op EndOverride) needs(*View) []access.Need      { return operating() }
func (op EndQuarantine) needs(*View) []access.Need    { return operating() }
func (op Evict) needs(*View) []access.Need            { return operating() }
func (op SelfPreservation) needs(*View) []access.Need { return operating() }
func (op Replica) needs(*View) []access.Need          { return operating() }
func (op Remove) needs(*View) []access.Need           { return operating() }
func (op Contact) needs(*View) []access.Need          { return operating() }
func (op AckPeer) needs(*View) []access.Need          { return operating() }
func (op PausePeer) needs(*View) []access.Need        { return operating() }
func (op ForgetSender) needs(*View) []access.Need     { return operating() }
func (op ExpireCheck) needs(*View) []access.Need      { return operating() }

// needs asks for every VIP besides the application's name, because under another one the instance would get calls
// meant for others. Without that right it is refused if an application has that name now, and otherwise only counted.
func (op Register) needs(v *View) []access.Need {
	all := registering(op.Instance.App)
	for _, name := range OtherVIPs(op.Instance) {
		n := ToRegister(name)
		n.Counted = !v.hasApp(name)
		all = append(all, n)
	}
	return all
}

// OtherVIPs returns each VIP and secure VIP of an instance, in capitals, that differs from its application's name.
func OtherVIPs(i *Instance) (names []string) {
	for _, vips := range []string{i.VIP, i.SecureVIP} {
		for vip := range parts(vips) {
			name := strings.ToUpper(strings.TrimSpace(vip))
			if name != "" && name != strings.ToUpper(i.App) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// hasApp reports whether an application is registered; in a nil view, none is.
func (v *View) hasApp(name string) bool {
	if v == nil {
		return false
	}
	_, there := v.App(name)
	return there
}

func (op SetCheck) needs(v *View) []access.Need { return catalogNeeds(v, op.Node, "", op.Check, false) }

func (op DeregisterCatalog) needs(v *View) []access.Need {
	return catalogNeeds(v, op.Node, op.Service, op.Check, false)
}

// An agent's node exists for its services, and needs nothing of its own. But if it gets another address, so do its
// services.
func (op RegisterCatalog) needs(v *View) (all []access.Need) {
	node := op.On()
	old, known := v.Node(node)
	switch {
	case op.Node == nil || known && op.KeepNode:
	case !op.Agent:
		all = append(all, nodeNeed(access.Write))
	case known && old.Address != op.Node.Address:
		for l := range v.ServicesOn(node) {
			if l.Service.Address == "" { // it uses the node's address
				all = append(all, registering(l.Key().App)...)
			}
		}
	}
	own := "" // the id of the service that comes with it
	if op.Service != nil {
		own = op.Service.ID
		all = append(all, registering(op.Service.Name)...)
		all = append(all, serviceNeeds(v, node, own, false)...) // the one it replaces
	}
	for _, c := range op.Checks {
		switch {
		case c.Service == "":
			all = append(all, nodeNeed(access.Write))
		case c.Service != own:
			all = append(all, serviceNeeds(v, node, c.Service, false)...)
		}
		all = append(all, catalogNeeds(v, node, "", c.ID, false)...) // the one it replaces
		all = append(all, op.followNeeds(v, c)...)
	}
	return all
}

// followNeeds returns what a client must be allowed to read for an alias check. What the check shows about its own
// application and node, its readers may see anyway.
func (op RegisterCatalog) followNeeds(v *View, c *catalog.Check) (all []access.Need) {
	if c.Alias == nil {
		return nil
	}
	own := ""
	if s := op.Service; s != nil && s.ID == c.Service {
		own = strings.ToUpper(s.Name)
	} else if l, _ := v.ServiceOn(op.On(), c.Service); l != nil && c.Service != "" {
		own = l.Key().App
	}
	names := []string{v.Followed(op.On(), c.Alias), c.Alias.Reads}
	for _, name := range slices.Compact(names) {
		if name == "" || name == own && c.Alias.Service != "" || c.Alias.Target(op.On()) == (catalog.Target{Node: op.On()}) {
			continue
		}
		n := ToFollow(c.Alias, name)
		n.Counted = v.CountsNewRights()
		all = append(all, n)
	}
	return all
}

// CountsNewRights reports whether the rights that level 3 asks of checks, sessions and peers are still only counted.
func (v *View) CountsNewRights() bool { return v.level < Level3 }

// ToFollow returns what a token needs so that its alias check may follow a named target, see View.Followed.
func ToFollow(a *catalog.Alias, name string) access.Need {
	if a.Service == "" {
		return nodeNeed(access.Read)
	}
	return appNeed(name, access.Read)
}

// Needs returns what a client must be allowed to do to have the operation in a transaction. To remove something that
// is missing, it must be allowed to remove anything: somebody else's may exist by the time the transaction takes
// effect.
func (op CatalogOp) Needs(v *View) []access.Need {
	all := catalogNeeds(v, op.Node, op.Service, op.Check, !op.Verb.Writes())
	switch {
	case op.Register != nil:
		all = append(all, op.Register.needs(v)...)
	case len(all) == 0 && op.Verb.Writes():
		all = []access.Need{nodeNeed(access.Write)}
	}
	return all
}

// catalogNeeds returns the needs for a check (given), a service (given), or a node with everything on it. If both are
// given it covers both, because which one is meant depends on the operation.
func catalogNeeds(v *View, node, service, check string, reads bool) []access.Need {
	switch {
	case check != "" && service != "":
		return append(catalogNeeds(v, node, service, "", reads), catalogNeeds(v, node, "", check, reads)...)
	case check != "":
		c, ok := v.CheckOn(node, check)
		switch {
		case !ok:
			return nil
		case c.Service != "":
			return serviceNeeds(v, node, c.Service, reads)
		case reads:
			return []access.Need{nodeNeed(access.Read)}
		}
		return []access.Need{nodeNeed(access.Write)}
	case service != "":
		return serviceNeeds(v, node, service, reads)
	case reads:
		return []access.Need{nodeNeed(access.Read)}
	}
	all := []access.Need{nodeNeed(access.Write)}
	for l := range v.ServicesOn(node) {
		all = append(all, registering(l.Key().App)...)
	}
	return all
}

// serviceNeeds returns the needs for a service by its id.
func serviceNeeds(v *View, node, id string, reads bool) []access.Need {
	l, _ := v.ServiceOn(node, id)
	switch {
	case l == nil:
		return nil
	case reads:
		return []access.Need{appNeed(l.Key().App, access.Read)}
	}
	return registering(l.Key().App)
}

func nodeNeed(verb access.Verbs) access.Need { return access.Need{Resource: access.Node, Verb: verb} }
