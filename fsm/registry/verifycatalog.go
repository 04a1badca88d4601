package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// catalogVerifier checks nodes, services and checks before they enter the catalog, which has those before them.
type catalogVerifier struct {
	f     *Frozen
	known *catalogTables
}

func (c catalogVerifier) node(n *Node) error {
	if err := c.indexes(n.CreateIndex, n.ModifyIndex); err != nil {
		return err
	}
	if n.Name == "" && len(n.Checks) == 0 {
		return errors.New("the logical node is there without checks")
	}
	return c.checks(n.Checks, n.Name, "")
}

func (c catalogVerifier) lease(l *Lease) error {
	s := l.Service
	if s == nil {
		return nil
	}
	_, known := c.known.nodes.Get(s.Node)
	_, twice := c.known.service(s.Node, s.ID)
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
	if err := c.indexes(s.CreateIndex, s.ModifyIndex); err != nil {
		return err
	}
	return c.checks(s.Checks, s.Node, s.ID)
}

// checks checks those of a service, or ("") of a node.
func (c catalogVerifier) checks(checks []*Check, node, service string) error {
	for i, check := range checks {
		if i > 0 && checks[i-1].ID >= check.ID {
			return errors.New("checks are not in ascending order of their ids")
		}
		if err := c.check(check, node, service); err != nil {
			return fmt.Errorf("check %q: %w", check.ID, err)
		}
	}
	return nil
}

func (c catalogVerifier) check(check *Check, node, service string) error {
	_, twice := c.known.check(node, check.ID)
	switch {
	case check.Node != node || check.Service != service:
		return fmt.Errorf("it is of service %q of node %q", check.Service, check.Node)
	case twice:
		return errors.New("its node has it twice")
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

// verifyHeard checks that each check with a TTL has its last heartbeat, and no other.
func (f *Frozen) verifyHeard(want []CheckHeartbeat) error {
	same := func(a, b CheckHeartbeat) bool { return a.Node == b.Node && a.Check == b.Check }
	if !slices.EqualFunc(want, f.Heard, same) {
		return fmt.Errorf("%d heartbeats of checks, want those of %d with a TTL", len(f.Heard), len(want))
	}
	for _, h := range f.Heard {
		if h.At > f.Clock.Lease {
			return fmt.Errorf("check %q had a heartbeat at %d, at a lease clock of %d", h.Check, h.At, f.Clock.Lease)
		}
	}
	return nil
}
