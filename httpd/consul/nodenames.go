package consul

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Consul ignores the case of node names, and shows one spelling. Rollcall shows the one under which a node was
// first registered; requests may use any other.

// spelledNode returns the registry's name for a node that a request may spell differently. It waits for the newest
// view only if this node does not know the name.
func (c call) spelledNode(name string) (string, error) {
	if v := web.StaleView(c.Service); v != nil {
		if spelled, known := v.SpelledNode(name); known {
			return spelled, nil
		}
	}
	v, err := c.newest()
	if err != nil {
		return "", err
	}
	spelled, _ := v.SpelledNode(name)
	return spelled, nil
}

// ownNode returns the registry's name for the node of the call's agent, for a change that is refused if the node does
// not exist.
func (c call) ownNode() (string, error) { return c.spelledNode(c.agent().node) }

// onSpelledNode returns a registration with its node, and the nodes that its alias checks follow, under the
// registry's names.
func (c call) onSpelledNode(op registry.RegisterCatalog) (registry.RegisterCatalog, error) {
	for _, check := range op.Checks {
		if check.Alias == nil {
			continue
		}
		spelled, err := c.spelledNode(check.Alias.Node)
		if err != nil {
			return op, err
		}
		check.Alias.Node = spelled
	}
	given := op.On()
	spelled, err := c.spelledNode(given)
	if err != nil || spelled == given {
		return op, err
	}
	return op.OnNode(spelled), nil
}

// spellNodes gives the nodes in a transaction their names in the registry.
func (c call) spellNodes(ops []kv.TxnOp) (err error) {
	for _, op := range ops {
		if op.Catalog == nil {
			continue
		}
		if op.Catalog.Node, err = c.spelledNode(op.Catalog.Node); err != nil {
			return err
		}
		if given := op.Catalog.Register; given != nil {
			if *given, err = c.onSpelledNode(*given); err != nil {
				return err
			}
		}
	}
	return nil
}

// renamed returns the node, by the registry's name, that a registration renames by its ID, or "". Consul
// removes that node with everything on it. Errors: a living node with another ID has the new name.
// Source: agent/consul/state/catalog.go (ensureNodeTxn) of hashicorp/consul.
func (c call) renamed(op registry.RegisterCatalog) (old string, err error) {
	given := op.Node
	if given == nil || given.ID == "" {
		return "", nil
	}
	if v := web.StaleView(c.Service); v != nil {
		if n, known := v.Node(given.Name); known && (op.KeepNode || strings.EqualFold(n.ID, given.ID)) {
			return "", nil
		}
	}
	v, err := c.newest()
	if err != nil {
		return "", err
	}
	for n := range v.Nodes() {
		if strings.EqualFold(n.ID, given.ID) && n.Name != given.Name {
			old = n.Name
		}
	}
	n, known := v.Node(given.Name)
	switch {
	case known && (op.KeepNode || strings.EqualFold(n.ID, given.ID)):
		return "", nil
	case known && n.Alive() && (n.ID != "" || old != ""):
		return "", rejected("Error while renaming Node ID: %q: Node name %s is reserved by node %s with name %s (%s)", given.ID, given.Name, n.ID, n.Name, n.Address)
	case old == "":
		return "", nil
	}
	return old, c.Allow(registry.Needs(registry.DeregisterCatalog{Node: old}, v)...)
}
