package compare

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// target is whom a fault strikes.
type target struct {
	nodes []int
	text  string // as in "leader node2"
}

// target finds out whom a selector means now. Without one nobody is meant.
func (i *injector) target(ctx context.Context, selector string) (target, error) {
	if selector == "" {
		return target{}, nil
	}
	leader := 0
	if i.leader != nil && byRole(selector) {
		var err error
		if leader, err = i.leader(ctx); err != nil {
			return target{}, err
		}
	}
	nodes, err := scenario.Select(selector, i.nodes, leader)
	return target{nodes: nodes, text: i.describe(selector, nodes)}, err
}

var roles = []string{"leader", "follower", "followers"}

// byRole reports whether a selector depends on who leads.
func byRole(selector string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return strings.Contains(selector, role) })
}

// describe names nodes. Their role is said where there are roles, and the selector is nothing else.
func (i *injector) describe(selector string, nodes []int) string {
	if len(nodes) == len(i.nodes) {
		return "all nodes"
	}
	var names []string
	for _, n := range nodes {
		names = append(names, i.nodes[n].Name)
	}
	text := enumerate(names)
	if i.leader != nil && slices.Contains(roles, selector) {
		text = selector + " " + text
	}
	return text
}

// enumerate is "a", "a and b", or "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
