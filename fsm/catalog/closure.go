package catalog

import (
	"slices"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// MaxFollowers bounds how many alias checks follow one service, directly or through the services they belong to: one
// heartbeat sets them all in motion. For a node, only alias checks on other nodes count, because its own checks need
// rights over nodes. The logical node is not bounded.
const MaxFollowers = 1000

// TooManyFollowersText refuses a registration that would exceed MaxFollowers.
const TooManyFollowersText = "at most 1000 alias checks may follow one service, or from other nodes one node, directly or through the services that they belong to; with this registration more would, or too many services are connected to count them. Give the service a check of its own in the place of the alias"

// MaxSteps bounds what it may cost to count the followers of one registration, or of all in one transaction:
// the alias checks met on the way up and down. Closures that share nothing are counted one by one.
const MaxSteps = 20 * MaxFollowers

// stepsToFollow is roughly how many steps it costs to make one alias check follow; counting one costs one step.
const stepsToFollow = 8

// Steps returns how many steps have been taken to count alias checks and make them follow. An operation adds the same
// number on every replica.
func (a *aliases) Steps() int { return a.steps }

// AliasFigures counts since the program started. It decides nothing, is not part of the state, and is live in views.
type AliasFigures struct {
	// Refused and WouldRefuse count registrations beyond MaxFollowers that were refused, or were accepted because of
	// the level.
	Refused, WouldRefuse atomic.Int64
	// Largest is the largest number of alias checks that one operation set in motion.
	Largest atomic.Int64
}

// AliasFigures returns the figures of alias checks.
func (t *Tables) AliasFigures() *AliasFigures { return t.figures }

// closures counts the alias checks that would follow something after a registration.
type closures struct {
	*Catalog
	byTarget order.Tree[aliasRow] // as it would be
	most     int                  // alias checks that may follow one target
	fresh    map[Target][]*Check  // those new with the registration, by their owners
	covered  map[Target]bool      // targets whose followers were counted as a part of more
	visits   int                  // that are left
}

// overfollowed reports whether the new alias checks of a registration would give a service or node more than most
// followers. Checks that already exceeded the bound may be registered again.
//
// A new alias check adds itself, and the followers of its owner, to everything above its target. So everything above
// is counted, the furthest first: its count covers what is below it.
func (r *Registering) overfollowed(most int) bool {
	c, next := r.closures()
	defer func() { r.catalog.steps += MaxSteps - c.visits }()
	c.most = most
	var above []Target
	seen := map[Target]bool{}
	for len(next) > 0 && c.visits > 0 {
		t := next[0]
		if next = next[1:]; seen[t] {
			continue
		}
		seen[t] = true
		above = append(above, t)
		for _, check := range c.following(t) {
			next = append(next, check.above()...)
		}
	}
	for _, t := range slices.Backward(above) {
		if c.visits > 0 && t != (Target{}) && !c.covered[t] && c.below(t) > c.most {
			return true
		}
	}
	return c.visits <= 0
}

// closures returns the alias checks as the registration would leave them, and what is directly above the new ones.
func (r *Registering) closures() (c *closures, above []Target) {
	c = &closures{Catalog: r.catalog, fresh: map[Target][]*Check{}, covered: map[Target]bool{}, visits: MaxSteps}
	for _, check := range r.Checks {
		row, known := r.catalog.Check(r.node, check.ID)
		if check.Alias == nil || known && row.Check.Service == check.Service && check.sameTarget(row.Check) {
			continue
		}
		if above == nil {
			c.byTarget = r.catalog.byTarget.Copy()
		}
		if known && row.Check.Alias != nil {
			c.byTarget.Delete(aliasRow{row.Check.target(), row.Check})
		}
		entered := *check
		entered.Node = r.node
		c.byTarget.Set(aliasRow{entered.target(), &entered})
		c.fresh[entered.owner()] = append(c.fresh[entered.owner()], &entered)
		above = append(above, entered.above()...)
	}
	if above == nil || r.Service == nil || !r.ReplaceChecks {
		return c, above
	}
	if _, s, ok := r.catalog.Service(r.node, r.Service.ID); ok {
		for _, check := range s.Checks {
			if check.Alias != nil && !slices.ContainsFunc(r.Checks, func(given *Check) bool { return given.ID == check.ID }) {
				c.byTarget.Delete(aliasRow{check.target(), check})
			}
		}
	}
	return c, above
}

// above returns what an alias check follows: its target, and the target's node, unless that is the check's own.
func (c *Check) above() []Target {
	t := c.target()
	if t.Service != "" && t.Node != c.Node {
		return []Target{t, {Node: t.Node}}
	}
	return []Target{t}
}

// following returns the alias checks that the state of a target depends on: its own, and those of its node.
func (c *closures) following(t Target) (checks []*Check) {
	stored, node := c.checksAt(t), Target{Node: t.Node}
	all := slices.Concat(stored[0], stored[1], c.fresh[t])
	if t != node {
		all = append(all, c.fresh[node]...)
	}
	for _, check := range all {
		if check.Alias == nil {
			continue
		}
		c.visits--
		if row, ok := c.byTarget.Get(aliasRow{check.target(), check}); ok && row.check == check { // not replaced
			checks = append(checks, check)
		}
	}
	return checks
}

// below counts the alias checks that follow a target, up to one beyond the bound.
func (c *closures) below(root Target) int {
	found, seen := map[*Check]bool{}, map[Target]bool{}
	next := []Target{root}
	for len(next) > 0 && len(found) <= c.most && c.visits > 0 {
		t := next[len(next)-1]
		if next = next[:len(next)-1]; seen[t] {
			continue
		}
		seen[t] = true
		c.covered[t] = c.covered[t] || root.Service != "" // the count for a node leaves out some followers
		followers(c.byTarget, t, func(check *Check) bool {
			if t == root && t.Service == "" && check.Node == t.Node {
				return true // it follows its own node
			}
			c.visits--
			if !found[check] {
				found[check] = true
				next = append(next, check.owner())
			}
			return len(found) <= c.most && c.visits > 0
		})
	}
	return len(found)
}
