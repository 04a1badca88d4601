package consul

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// keyNeeds returns the need to read a key, or all below one.
func keyNeeds(c *web.Call) []access.Need {
	return []access.Need{{Resource: access.KV, Name: c.Rest(), Below: c.Given("recurse") || c.Given("keys"), Verb: access.Read}}
}

// sessionNeeds returns the needs to read what the answer to a new session reveals: whether a node other than the
// agent's exists, and the state of its checks. Naming a check that does not exist needs the right to read nodes, or
// the answer would reveal that. It is looked up in the newest view, because it may have been registered a moment ago.
func (c call) sessionNeeds(op kv.CreateSession, self string) (all []access.Need, err error) {
	ids := slices.DeleteFunc(slices.Concat(op.NodeChecks, op.ServiceChecks), func(id string) bool {
		return id == catalog.SerfHealth // it only reveals that its node exists
	})
	elsewhere := op.Node != "" && op.Node != self
	if len(ids) == 0 && !elsewhere {
		return nil, nil
	}
	v, err := c.newest()
	if err != nil {
		return nil, err
	}
	readNode := access.Need{Resource: access.Node, Verb: access.Read}
	if elsewhere {
		all = append(all, readNode)
	}
	for _, id := range ids {
		check := registry.CatalogOp{Verb: registry.CatalogGet, Node: op.Node, Check: id}.Needs(v)
		if len(check) == 0 {
			check = []access.Need{readNode}
		}
		all = append(all, check...)
	}
	for i := range all {
		all[i].Counted = v.CountsNewRights()
	}
	return all, nil
}

// nodeNeeds returns the needs to read nodes with everything on them.
func nodeNeeds(*web.Call) []access.Need {
	return []access.Need{{Resource: access.Node, Verb: access.Read}, {Resource: access.App, Verb: access.Read}}
}
