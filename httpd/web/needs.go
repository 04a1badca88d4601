package web

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Needs is what a route needs, before its endpoint looks at the body.
type Needs func(c *Call) []access.Need

// Open is of the routes that everybody may call.
func Open(*Call) []access.Need { return nil }

// Known is of routes that tell every principal the same, or find out for themselves what is needed.
func Known(*Call) []access.Need { return []access.Need{} }

// ByOperation is of routes that change something, by operations that say themselves what they need. Nobody without a name
// gets so far.
func ByOperation(*Call) []access.Need { return []access.Need{} }

// ToDo is of routes that need a verb on a resource of which there is but one, or on all of it.
func ToDo(verb access.Verbs, on access.Resource) Needs {
	n := []access.Need{{Resource: on, Verb: verb}}
	return func(*Call) []access.Need { return n }
}

// ToRead is of routes that show a resource as a whole.
func ToRead(on access.Resource) Needs { return ToDo(access.Read, on) }

// ToReadNamed is of routes that show what a variable of the path names.
func ToReadNamed(on access.Resource, variable string) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Segment(variable)), Verb: access.Read}}
	}
}

// ToReadRest is ToReadNamed of a variable that takes all that is left of the path.
func ToReadRest(on access.Resource) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Rest()), Verb: access.Read}}
	}
}

// ToReadApp is of routes that show the application that the parameter app names, or all.
func ToReadApp(c *Call) []access.Need {
	return []access.Need{{Resource: access.App, Name: canonicalName(access.App, c.Text("app")), Verb: access.Read}}
}

func canonicalName(on access.Resource, name string) string {
	if on == access.App {
		return registry.NewKey(name, "").App
	}
	return name
}

// registering is what a client needs that registers an application, or renews it.
func registering(app string) access.Need {
	return access.Need{Resource: access.App, Name: app, Verb: access.Register}
}
