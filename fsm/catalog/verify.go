package catalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Frozen is what the values of a frozen catalog are verified against.
type Frozen struct {
	Moment
	Newest order.Index // of the last change
}

// Thaw verifies and enters the nodes of a frozen catalog. changed is the index of the last change of a node.
func (c *Catalog) Thaw(nodes []*Node, changed order.Index, at Frozen) error {
	if changed > at.Newest {
		return fmt.Errorf("a node changed at %d, but the last change was at %d", changed, at.Newest)
	}
	c.nodesChanged = changed
	for i, n := range nodes {
		if i > 0 && nodes[i-1].Name >= n.Name {
			return errors.New("nodes are not in ascending order of their names")
		}
		if err := c.verifyNode(n, at); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		c.setNode(n)
		var none order.Key
		c.enterChecks(nil, n.Checks, none, at.Moment)
	}
	return nil
}

func (c *Catalog) verifyNode(n *Node, at Frozen) error {
	if err := verifyIndexes(n.CreateIndex, n.ModifyIndex, at); err != nil {
		return err
	}
	if n.changed() > at.Newest {
		return fmt.Errorf("changed at %d; the last change was at %d", n.changed(), at.Newest)
	}
	return c.verifyChecks(n.Checks, n.Name, "", at)
}

// VerifyService verifies a service before it enters the catalog.
func (c *Catalog) VerifyService(s *Service, at Frozen) error {
	_, known := c.Node(s.Node)
	_, _, twice := c.Service(s.Node, s.ID)
	switch {
	case s.Node != "" && !known:
		return fmt.Errorf("node %q is not there", s.Node)
	case twice:
		return fmt.Errorf("service %q of node %q is there twice", s.ID, s.Node)
	}
	if err := verifyIndexes(s.CreateIndex, s.ModifyIndex, at); err != nil {
		return err
	}
	return c.verifyChecks(s.Checks, s.Node, s.ID, at)
}

// verifyChecks verifies the checks of a service or, with "", of a node.
func (c *Catalog) verifyChecks(checks []*Check, node, service string, at Frozen) error {
	for i, check := range checks {
		if i > 0 && checks[i-1].ID >= check.ID {
			return errors.New("checks are not in ascending order of their ids")
		}
		if err := c.verifyCheck(check, node, service, at); err != nil {
			return fmt.Errorf("check %q: %w", check.ID, err)
		}
	}
	return nil
}

func (c *Catalog) verifyCheck(check *Check, node, service string, at Frozen) error {
	_, twice := c.Check(node, check.ID)
	switch {
	case check.Node != node || check.Service != service:
		return fmt.Errorf("it is of service %q of node %q", check.Service, check.Node)
	case twice:
		return errors.New("its node has it twice")
	case check.TTL < 0 || check.ReapAfter < 0:
		return fmt.Errorf("a TTL of %d ms or an end after %d ms is negative", check.TTL, check.ReapAfter)
	case check.CriticalSince > at.Lease:
		return fmt.Errorf("critical since %d, at a lease clock of %d", check.CriticalSince, at.Lease)
	}
	return verifyIndexes(check.CreateIndex, check.ModifyIndex, at)
}

func verifyIndexes(created, modified order.Index, at Frozen) error {
	if created == 0 || created > modified || modified > at.Newest {
		return fmt.Errorf("created at %d, modified at %d; the last change was at %d", created, modified, at.Newest)
	}
	return nil
}

// ThawHeartbeats enters the last heartbeats of checks that came with nodes and services. It verifies that every check
// with a TTL has one, and no other check does.
func (c *Catalog) ThawHeartbeats(beats []CheckHeartbeat, at Moment) error {
	want := c.Heartbeats()
	same := func(a, b CheckHeartbeat) bool { return a.Node == b.Node && a.Check == b.Check }
	if !slices.EqualFunc(want, beats, same) {
		return fmt.Errorf("%d heartbeats of checks, want those of %d with a TTL", len(beats), len(want))
	}
	for _, b := range beats {
		if b.At > at.Lease {
			return fmt.Errorf("check %q had a heartbeat at %d, at a lease clock of %d", b.Check, b.At, at.Lease)
		}
	}
	for _, b := range beats {
		row, _ := c.Check(b.Node, b.Check)
		c.deleteEnd(row)
		row.Beat(b.At)
		c.addEnd(row, at.Established)
	}
	c.shared = nil
	return nil
}

// Verify checks, for tests, that everything derived from nodes and services agrees with them.
func (c *Catalog) Verify(established int64) error {
	checks, ends, aliases := 0, 0, 0
	verify := func(list []*Check, of order.Key) error {
		for _, check := range list {
			row, ok := c.Check(check.Node, check.ID)
			if !ok || row.Check != check || row.Of != of || (row.beat == nil) != (check.TTL == 0) {
				return fmt.Errorf("check %s of node %q is found as %+v", check.ID, check.Node, row)
			}
			checks++
			if check.Alias != nil {
				aliases++
				if row, ok := c.byTarget.Get(aliasRow{check.target(), check}); !ok || row.check != check {
					return fmt.Errorf("alias check %s of node %q is not found by what it follows", check.ID, check.Node)
				}
			}
			end, ok := row.endsAt()
			if ok && (!c.ends.Has(end, check.ref()) || row.Expires() && end > row.expiry(established)) {
				return fmt.Errorf("check %s of node %q: its end is not kept, or too late", check.ID, check.Node)
			}
			if ok {
				ends++
			}
		}
		return nil
	}
	var err error
	var none order.Key
	c.nodes.Scan(func(name string, n *Node) bool {
		err = verify(n.Checks, none)
		if _, found := c.spellings.Get(spellingOf(name)); err == nil && !found {
			err = fmt.Errorf("node %q is not found by another spelling", name)
		}
		return err == nil
	})
	if err == nil && c.spellings.Len() != c.nodes.Len() {
		err = fmt.Errorf("found %d spellings of %d nodes", c.spellings.Len(), c.nodes.Len())
	}
	c.services.Scan(func(row serviceRow) bool {
		if err == nil {
			err = verify(row.service.Checks, row.of)
		}
		return err == nil
	})
	if err == nil && (c.checks.Len() != checks || c.ends.Len() != ends || c.byTarget.Len() != aliases) {
		err = fmt.Errorf("found %d checks, %d ends and %d aliases; want %d, %d and %d", c.checks.Len(), c.ends.Len(), c.byTarget.Len(), checks, ends, aliases)
	}
	return err
}
