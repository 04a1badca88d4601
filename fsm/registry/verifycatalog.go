package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// verifyCatalog checks nodes, services and checks.
func (f *Frozen) verifyCatalog() error {
	c := catalogVerifier{f, newCatalogTables()}
	for i, n := range f.Nodes {
		if n == nil || i > 0 && f.Nodes[i-1].Name >= n.Name {
			return errors.New("nodes are not in ascending order of their names")
		}
		if err := c.node(n); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
	}
	for _, s := range f.Leases {
		if err := c.lease(s.Lease); err != nil {
			return fmt.Errorf("lease %s: %w", s.Lease.Key(), err)
		}
	}
	if f.CatalogIndex > f.Index {
		return fmt.Errorf("a node changed at %d, but the last change was at %d", f.CatalogIndex, f.Index)
	}
	return c.heard()
}

// catalogVerifier has what was met so far.
type catalogVerifier struct {
	f    *Frozen
	seen *catalogTables
}

func (c catalogVerifier) node(n *Node) error {
	if err := c.indexes(n.CreateIndex, n.ModifyIndex); err != nil {
		return err
	}
	if n.Name == "" && len(n.Checks) == 0 {
		return errors.New("the logical node is there without checks")
	}
	c.seen.setNode(n)
	return c.checks(n.Checks, n.Name, "", Key{})
}

func (c catalogVerifier) lease(l *Lease) error {
	s := l.Service
	if s == nil {
		return nil
	}
	_, known := c.seen.nodes.Get(s.Node)
	_, twice := c.seen.service(s.Node, s.ID)
	switch {
	case !l.Permanent:
		return errors.New("registered through Consul's API, with a lease")
	case strings.ToUpper(s.Name) != l.Instance.App:
		return fmt.Errorf("service %q is not of this application", s.Name)
	case s.Node != "" && !known:
		return fmt.Errorf("node %q is not there", s.Node)
	case twice:
		return fmt.Errorf("service %q of node %q is there twice", s.ID, s.Node)
	}
	c.seen.replaceService(&Lease{}, l)
	if err := c.indexes(s.CreateIndex, s.ModifyIndex); err != nil {
		return err
	}
	return c.checks(s.Checks, s.Node, s.ID, l.Key())
}

// checks checks those of a service, or ("") of a node.
func (c catalogVerifier) checks(checks []*Check, node, service string, of Key) error {
	for i, check := range checks {
		if check == nil || i > 0 && checks[i-1].ID >= check.ID {
			return errors.New("checks are not in ascending order of their ids")
		}
		if err := c.check(check, node, service); err != nil {
			return fmt.Errorf("check %q: %w", check.ID, err)
		}
		c.seen.setCheck(checkEntry{check: check, of: of})
	}
	return nil
}

func (c catalogVerifier) check(check *Check, node, service string) error {
	_, twice := c.seen.check(node, check.ID)
	switch {
	case check.Node != node || check.Service != service:
		return fmt.Errorf("it is of service %q of node %q", check.Service, check.Node)
	case twice:
		return errors.New("its node has it twice")
	case check.Status > Critical:
		return fmt.Errorf("status %d has no name", check.Status)
	case check.TTL < 0 || check.ReapAfter < 0:
		return fmt.Errorf("a TTL of %d ms or an end after %d ms is negative", check.TTL, check.ReapAfter)
	case check.CriticalSince > c.f.Clock.Lease:
		return fmt.Errorf("critical since %d, at a lease clock of %d", check.CriticalSince, c.f.Clock.Lease)
	}
	return c.indexes(check.CreateIndex, check.ModifyIndex)
}

func (c catalogVerifier) indexes(created, modified Index) error {
	if created == 0 || created > modified || modified > c.f.Index {
		return fmt.Errorf("created at %d, modified at %d; the last change was at %d", created, modified, c.f.Index)
	}
	return nil
}

// heard checks that each check with a TTL has its last heartbeat, and no other.
func (c catalogVerifier) heard() error {
	var want []CheckHeartbeat
	c.seen.checks.Scan(func(e checkEntry) bool {
		if e.check.TTL > 0 {
			want = append(want, CheckHeartbeat{Node: e.check.Node, Check: e.check.ID})
		}
		return true
	})
	same := func(a, b CheckHeartbeat) bool { return a.Node == b.Node && a.Check == b.Check }
	if !slices.EqualFunc(want, c.f.Heard, same) {
		return fmt.Errorf("%d heartbeats of checks, want those of %d with a TTL", len(c.f.Heard), len(want))
	}
	for _, h := range c.f.Heard {
		if h.At > c.f.Clock.Lease {
			return fmt.Errorf("check %q had a heartbeat at %d, at a lease clock of %d", h.Check, h.At, c.f.Clock.Lease)
		}
	}
	return nil
}
