package httpd

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// healthRoutes adds the endpoints of health.
func (h *Handler) healthRoutes() {
	h.consulRoute("/v1/health/service/{name}", unfiltered(h.healthService), http.MethodGet)
	h.consulRoute("/v1/health/checks/{name}", unfiltered(h.healthChecks), http.MethodGet)
	h.consulRoute("/v1/health/node/{node}", unfiltered(h.healthNode), http.MethodGet)
	h.consulRoute("/v1/health/state/{state}", unfiltered(h.healthState), http.MethodGet)
}

// healthService is GET /v1/health/service/{name}.
func (h *Handler) healthService(w http.ResponseWriter, r *http.Request) error {
	passing, err := passingParam(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return h.readService(w, r, func(c *shownCatalog, services []consul.Service) any {
		shown := []consul.HealthService{}
		for _, s := range services {
			node := c.on(s.Node)
			if one := consul.With(node.Node, node.checks, s); !passing || one.Passing() {
				shown = append(shown, one)
			}
		}
		return shown
	})
}

// passingParam says whether only services are wanted of which every check is passing.
func passingParam(query string) (bool, error) {
	text, given, err := param(query, "passing")
	if err != nil || !given || text == "" {
		return given, err
	}
	passing, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest("Invalid value for ?passing")
	}
	return passing, nil
}

// healthChecks is GET /v1/health/checks/{name}.
func (h *Handler) healthChecks(w http.ResponseWriter, r *http.Request) error {
	return h.readService(w, r, func(_ *shownCatalog, services []consul.Service) any {
		checks := []consul.Check{}
		for _, s := range services {
			checks = append(checks, s.Checks...)
		}
		return sortedChecks(checks)
	})
}

// healthNode is GET /v1/health/node/{node}.
func (h *Handler) healthNode(w http.ResponseWriter, r *http.Request) error {
	return h.readNode(w, r, func(c *shownCatalog, node string) any {
		if !c.knows(node) || !c.on(node).shown {
			return []consul.Check{}
		}
		return sortedChecks(c.checksOn(node))
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
func (h *Handler) healthState(w http.ResponseWriter, r *http.Request) error {
	state := restOfPath(r)
	if state == "" {
		return badRequest("Missing check state")
	}
	return h.readTable(w, r, (*shownCatalog).weight, func(c *shownCatalog) any {
		checks := []consul.Check{}
		for _, node := range c.names() {
			checks = append(checks, c.checksOn(node)...)
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
