package catalog

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// drawTarget draws one of a few services, or a node.
var drawTarget = rapid.Custom(func(t *rapid.T) Target {
	return Target{Node: rapid.SampledFrom([]string{"", "", "n"}).Draw(t, "node"), Service: rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "service")}
})

// graph has all services, and some of the test's checks.
type graph struct {
	*Catalog
	checks map[Target][]*Check // by owner
}

func newGraph() *graph {
	g := &graph{New(), map[Target][]*Check{}}
	for _, node := range []string{"", "n"} {
		g.enter(Target{Node: node}, nil)
		for _, id := range []string{"a", "b", "c", "d"} {
			g.enter(Target{node, id}, nil)
		}
	}
	return g
}

func (g *graph) enter(owner Target, checks []*Check) {
	at := Moment{Next: 1}
	if owner.Service == "" {
		old, _ := g.Node(owner.Node)
		g.ReplaceNode(old, &Node{Name: owner.Node, Checks: checks}, 1, at)
	} else {
		key := order.Key{App: "A", ID: owner.Node + ":" + owner.Service}
		_, old, _ := g.Service(owner.Node, owner.Service)
		g.ReplaceService(key, old, &Service{Node: owner.Node, ID: owner.Service, Checks: checks}, at)
	}
	g.checks[owner] = checks
}

// followers returns the alias checks that follow a target, by definition: a service follows its node, and whoever
// follows a service or node with an alias check follows what that check does. A node does not count checks of its own
// services.
func (g *graph) followers(root Target) int {
	found := map[*Check]bool{}
	var follow func(t Target)
	follow = func(t Target) {
		for _, checks := range g.checks {
			for _, c := range checks {
				at := c.target()
				if at.Node != t.Node || t.Service != "" && at.Service != t.Service || found[c] || t == root && t.Service == "" && c.Node == t.Node {
					continue
				}
				found[c] = true
				follow(c.owner())
			}
		}
	}
	follow(root)
	return len(found)
}

// The count must match the definition, for graphs of a few services with circles, moved and replaced checks.
func TestOverfollowedIsByTheDefinition(t *testing.T) {
	const most = 4
	refused, accepted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph()
		for range rapid.IntRange(1, 12).Draw(t, "registrations") {
			owner := drawTarget.Draw(t, "owner")
			r := Registration{Service: &Service{ID: owner.Service}, ReplaceChecks: true}
			if owner.Service == "" {
				r.Service, r.ReplaceChecks = nil, false
			}
			if owner.Node != "" {
				r.Node = &Node{Name: owner.Node}
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "checks") {
				at := drawTarget.Draw(t, "target")
				r.Checks = append(r.Checks, &Check{ID: fmt.Sprint(owner, i), Service: owner.Service, Alias: &Alias{Named: true, Node: at.Node, Service: at.Service}})
			}
			before := g.checks[owner]
			got := g.Registering(r).overfollowed(most)
			var after []*Check
			if owner.Service == "" { // a node keeps checks that are not given
				for _, c := range before {
					if !slices.ContainsFunc(r.Checks, func(given *Check) bool { return given.ID == c.ID }) {
						after = append(after, c)
					}
				}
			}
			isNew := false
			var above []Target
			for _, c := range r.Checks {
				entered := *c
				entered.Node = owner.Node
				after = append(after, &entered)
				i := slices.IndexFunc(before, func(old *Check) bool { return old.ID == c.ID })
				if i < 0 || !before[i].Alias.equal(c.Alias) {
					isNew = true
					above = append(above, entered.target())
				}
			}
			slices.SortFunc(after, func(a, b *Check) int { return compareCheckRefs(a.ref(), b.ref()) })
			was := g.checks[owner]
			g.enter(owner, after)
			want := false
			for _, node := range []string{"", "n"} {
				for _, id := range []string{"a", "b", "c", "d", ""} {
					root := Target{node, id}
					want = want || isNew && root != (Target{}) && g.reaches(root, above) && g.followers(root) > most
				}
			}
			need.That(t, got == want, "%v registers %d checks beside %d: refused %v, want %v", owner, len(r.Checks), len(was), got, want)
			if got {
				refused++
				g.enter(owner, was)
			} else if isNew {
				accepted++
			}
		}
	})
	expect.That(t, refused > 10 && accepted > 10, "%d were refused and %d accepted, which shows nothing", refused, accepted)
}

// reaches reports whether followers of any of the targets also follow root.
func (g *graph) reaches(root Target, targets []Target) bool {
	seen := map[Target]bool{}
	var up func(t Target, by *Check) bool
	up = func(t Target, by *Check) bool {
		if t == root || t.Service != "" && root == (Target{Node: t.Node}) && (by == nil || by.Node != t.Node) {
			return true
		}
		if seen[t] {
			return false
		}
		seen[t] = true
		owners := []Target{t, {Node: t.Node}}
		for _, owner := range owners {
			for _, c := range g.checks[owner] {
				if up(c.target(), c) {
					return true
				}
			}
		}
		return false
	}
	for _, t := range targets {
		if up(t, nil) {
			return true
		}
	}
	return false
}

// A service follows a node, which then follows the service. The node's followers on its own services count for it.
func TestANodesFollowersCountForWhatItFollows(t *testing.T) {
	g := newGraph()
	alias := func(id string, owner, at Target) *Check {
		return &Check{ID: id, Node: owner.Node, Service: owner.Service, Alias: &Alias{Named: true, Node: at.Node, Service: at.Service}}
	}
	b, a, n := Target{"", "b"}, Target{"n", "a"}, Target{Node: "n"}
	g.enter(b, []*Check{alias("1", b, n)})
	g.enter(a, []*Check{alias("2", a, n), alias("3", a, n), alias("4", a, n)})
	r := g.Registering(Registration{Node: &Node{Name: "n"}, Checks: []*Check{alias("5", n, b)}})
	expect.That(t, !r.overfollowed(5), "five alias checks follow b, and five may")
	expect.That(t, r.overfollowed(4), "five alias checks follow b, and four may")
}
