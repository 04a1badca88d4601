package consulroutes

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// keyNeeds is to read a key, or all below one.
func keyNeeds(c *web.Call) []access.Need {
	return []access.Need{{Resource: access.KV, Name: c.Rest(), Below: c.Given("recurse") || c.Given("keys"), Verb: access.Read}}
}

// nodeNeeds is to read nodes with what is on them.
func nodeNeeds(*web.Call) []access.Need {
	return []access.Need{{Resource: access.Node, Verb: access.Read}, {Resource: access.App, Verb: access.Read}}
}
