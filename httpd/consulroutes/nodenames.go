package consulroutes

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Consul compares names of nodes without case, and shows one spelling. Here that is the one by which the node was registered first:
// what a request says of a node by another one is said of that.

// spelledNode is the registry's name of a node whose name a request may spell otherwise. Only for one that this node does not know it
// waits for the newest view.
func (e *endpoints) spelledNode(ctx context.Context, name string) (string, error) {
	if v := web.StaleView(e.Service); v != nil {
		if spelled, known := v.SpelledNode(name); known {
			return spelled, nil
		}
	}
	v, err := e.newestForConsul(ctx)
	if err != nil {
		return "", err
	}
	spelled, _ := v.SpelledNode(name)
	return spelled, nil
}

// ownNode is the node of the call's agent, by the registry's name, for a change that would be refused if it is not there.
func (c call) ownNode() (string, error) { return c.spelledNode(c.R.Context(), c.agent().node) }

// onSpelledNode is a registration with its node, and the nodes that its checks follow, by the registry's names.
func (e *endpoints) onSpelledNode(ctx context.Context, op registry.RegisterCatalog) (registry.RegisterCatalog, error) {
	for _, check := range op.Checks {
		if check.Alias == nil {
			continue
		}
		spelled, err := e.spelledNode(ctx, check.Alias.Node)
		if err != nil {
			return op, err
		}
		check.Alias.Node = spelled
	}
	given := op.On()
	spelled, err := e.spelledNode(ctx, given)
	if err != nil || spelled == given {
		return op, err
	}
	return op.OnNode(spelled), nil
}

// spellNodes has the operations of a transaction name nodes as the registry does.
func (e *endpoints) spellNodes(ctx context.Context, ops []kv.TxnOp) (err error) {
	for _, op := range ops {
		if op.Catalog == nil {
			continue
		}
		if op.Catalog.Node, err = e.spelledNode(ctx, op.Catalog.Node); err != nil {
			return err
		}
		if given := op.Catalog.Register; given != nil {
			if *given, err = e.onSpelledNode(ctx, *given); err != nil {
				return err
			}
		}
	}
	return nil
}

// renamed is the node, by the registry's name, that a registration gives another name by its ID; "": none. Consul removes that one with
// all that is on it. Errors: a living node with another ID has the new name.
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
	v, err := c.newestForConsul(c.R.Context())
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
		return "", consulError(fmt.Sprintf("Error while renaming Node ID: %q: Node name %s is reserved by node %s with name %s (%s)", given.ID, given.Name, n.ID, n.Name, n.Address))
	case old == "":
		return "", nil
	}
	return old, c.Allow(registry.Needs(registry.DeregisterCatalog{Node: old}, v)...)
}

// spelled is the registry's name of a node that is read, by a view of now; an agent that is not registered is there for itself.
func (c *shownCatalog) spelled(shown string) string {
	name, known := c.SpelledNode(consul.NodeOf(shown))
	if !known && strings.EqualFold(name, c.self.node) {
		return c.self.node
	}
	return name
}
