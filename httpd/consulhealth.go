package httpd

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// healthService is GET /v1/health/service/{name}.
func (c *call) healthService() (any, error) {
	text, passing := c.lookup("passing") // only services are wanted of which every check is passing
	if text != "" {
		passing = c.truth(text, "Invalid value for ?passing")
	}
	return c.readService(func(cat *shownCatalog, services []consul.Service) any {
		shown := []consul.HealthService{}
		for _, s := range services {
			node := cat.on(s.Node)
			if one := consul.With(node.Node, node.checks, s); !passing || one.Passing() {
				shown = append(shown, one)
			}
		}
		return shown
	})
}

// healthChecks is GET /v1/health/checks/{name}.
func (c *call) healthChecks() (any, error) {
	return c.readService(func(_ *shownCatalog, services []consul.Service) any {
		checks := []consul.Check{}
		for _, s := range services {
			checks = append(checks, s.Checks...)
		}
		return sortedChecks(checks)
	})
}

// healthNode is GET /v1/health/node/{node}.
func (c *call) healthNode() (any, error) {
	return c.readNode(func(cat *shownCatalog, node string) any {
		if !cat.knows(node) || !cat.on(node).shown {
			return []consul.Check{}
		}
		return sortedChecks(cat.checksOn(node))
	})
}

// checksOn are all checks of a node: its own and those of its services.
func (c *shownCatalog) checksOn(node string) []consul.Check {
	checks := slices.Clone(c.on(node).checks)
	for _, s := range c.all(node, false) {
		checks = append(checks, s.Checks...)
	}
	return checks
}

// anyState is the word for all states.
const anyState = "any"

// healthState is GET /v1/health/state/{state}; a word that is no state has no checks.
func (c *call) healthState() (any, error) {
	state := c.rest()
	if state == "" {
		return nil, badRequest("Missing check state")
	}
	return c.readTable((*shownCatalog).weight, func(cat *shownCatalog) any {
		checks := []consul.Check{}
		for _, node := range cat.names() {
			checks = append(checks, cat.checksOn(node)...)
		}
		checks = slices.DeleteFunc(checks, func(check consul.Check) bool { return state != anyState && check.Status != state })
		return sortedChecks(checks)
	})
}

// sortedChecks sorts checks by node and id.
func sortedChecks(checks []consul.Check) []consul.Check {
	slices.SortStableFunc(checks, func(a, b consul.Check) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.CheckID, b.CheckID))
	})
	return checks
}
