package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Catalog is the mutable catalog. It belongs to one goroutine at a time.
type Catalog struct {
	Tables
	ends order.Schedule[CheckRef] // see addEnd
	// lost has the checks that turned critical or were removed, and the nodes that were removed, since Lost.
	lost   []CheckRef
	left   []string    // nodes that a service or a check of their own has left, see Deserted
	shared *Tables     // the copy that views get; nil if the catalog changed since
	undo   *order.Undo // of the attempt in progress; nil outside one
	aliases
}

// Moment is the moment of a change.
type Moment struct {
	Lease       int64       // the lease clock, ms
	Established int64       // lease clock when the leadership was established, ms
	Next        order.Index // of the change
}

// New returns an empty catalog.
func New() *Catalog {
	return &Catalog{
		Tables: Tables{
			nodes: order.NewMap[string, *Node](0),
			nodeChanges: order.NewTree(func(a, b *Node) int {
				return cmp.Or(cmp.Compare(a.changed(), b.changed()), strings.Compare(a.Name, b.Name))
			}),
			spellings: order.NewTree(func(a, b spelling) int {
				return cmp.Or(strings.Compare(a.lower, b.lower), strings.Compare(a.name, b.name))
			}),
			services: order.NewTree(func(a, b serviceRow) int {
				return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.id, b.id))
			}),
			checks:   order.NewTree(func(a, b CheckRow) int { return compareCheckRefs(a.Check.ref(), b.Check.ref()) }),
			byTarget: order.NewBoxedTree(compareAliases),
			figures:  new(AliasFigures),
		},
		ends: order.NewSchedule(compareCheckRefs),
	}
}

// Share returns a copy of the tables for views. It stays the same until the catalog changes, because most
// changes of a registry do not touch the catalog.
func (c *Catalog) Share() *Tables {
	if c.shared == nil {
		t := c.Tables.copy()
		c.shared = &t
	}
	return c.shared
}

// Record makes u take back all changes from now on; with nil, changes are final again. Call it between operations,
// when nothing is lost, deserted or waiting to follow.
func (c *Catalog) Record(u *order.Undo) {
	c.undo = u
	if u == nil {
		return
	}
	tables, ends, shared := c.Tables.copy(), c.ends.Copy(), c.shared
	u.Add(func() { c.Tables, c.ends, c.shared = tables, ends, shared })
}

// keepBeat makes the undo restore the last heartbeat of a check.
func (c *Catalog) keepBeat(row CheckRow) {
	if c.undo == nil || row.beat == nil {
		return
	}
	last, due := row.beat.last.Load(), row.beat.due
	c.undo.Add(func() {
		row.beat.last.Store(last)
		row.beat.due = due
	})
}

// ReplaceService keeps a service and its checks findable when now replaces old. Either may be nil.
func (c *Catalog) ReplaceService(of order.Key, old, now *Service, at Moment) {
	c.shared = nil
	moved := old != nil && now != nil && old.Node != now.Node
	if now != nil {
		c.services.Set(serviceRow{now.Node, now.ID, of, now})
	}
	if old != nil && (now == nil || moved || now.ID != old.ID) {
		if present, _, _ := c.Service(old.Node, old.ID); present == of { // or the service has another name now
			c.services.Delete(serviceRow{node: old.Node, id: old.ID})
			c.left = append(c.left, old.Node)
		}
	}
	var before, after []*Check
	if old != nil {
		before = old.Checks
	}
	if now != nil {
		after = now.Checks
		c.enterChecks(before, after, of, at)
	}
	for _, check := range before {
		if _, kept := findCheck(after, check.ID); !kept || moved {
			c.removeCheck(check, of)
		}
	}
}

// ReplaceNode replaces old by now, the node of the same name, with its checks; index is the change's. Either may be
// nil. It records in now when the parts of the node last changed.
func (c *Catalog) ReplaceNode(old, now *Node, index order.Index, at Moment) {
	c.nodesChanged = index
	var none order.Key
	var before, after []*Check
	if old != nil {
		before = old.Checks
	}
	if now != nil {
		after = now.Checks
		now.ChecksChanged, now.ServiceLeft = 0, 0
		if old != nil {
			now.ChecksChanged, now.ServiceLeft = old.ChecksChanged, old.ServiceLeft
			if now.Alive() != old.Alive() { // an agent's node is shown with more than was registered
				now.ModifyIndex = index
			}
		}
		if !slices.Equal(before, after) {
			now.ChecksChanged = index
		}
		c.setNode(now)
		c.enterChecks(before, after, none, at)
	} else {
		c.shared = nil
		if stored, ok := c.nodes.Delete(old.Name); ok { // not old itself if a service has left it since
			c.bytes -= stored.Weight()
			c.nodeChanges.Delete(stored)
			c.spellings.Delete(spellingOf(old.Name))
		}
	}
	for _, check := range before {
		if _, kept := findCheck(after, check.ID); !kept {
			c.removeCheck(check, none)
			if now != nil { // a removed node cannot be deserted, and the next operation may register a namesake
				c.left = append(c.left, check.Node)
			}
		}
	}
}

// Deserted returns the agents' nodes that have been left with nothing since the last call: no service, no check
// except AgentAlive, and nothing that a registrar said. Agents come and go with addresses, and nobody deregisters
// them.
func (c *Catalog) Deserted() (nodes []*Node) {
	for _, name := range c.left {
		n, ok := c.Node(name)
		if ok && !slices.Contains(nodes, n) && n.isAgentAlone() && len(c.ServicesOn(name)) == 0 {
			nodes = append(nodes, n)
		}
	}
	c.left = c.left[:0]
	return nodes
}

// isAgentAlone reports whether nothing is known about a node except its agent.
func (n *Node) isAgentAlone() bool {
	return n.Name != "" && len(n.Checks) == 1 && n.Alive() && n.ID == "" && len(n.Tagged) == 0 && len(n.Meta) == 0
}

// setNode stores a node, replacing the one of its name.
func (c *Catalog) setNode(n *Node) {
	c.shared = nil
	if old, ok := c.nodes.Set(n.Name, n); ok {
		c.bytes -= old.Weight()
		c.nodeChanges.Delete(old)
	} else {
		c.spellings.Set(spellingOf(n.Name))
	}
	c.nodeChanges.Set(n)
	c.bytes += n.Weight()
}

// LeaveNode records in a stored node that a service has left it, at an index.
func (c *Catalog) LeaveNode(name string, index order.Index) {
	if old, ok := c.nodes.Get(name); ok {
		n := *old
		n.ServiceLeft = index
		c.setNode(&n)
	}
}

// enterChecks makes the checks that were not there before findable as a service's, or as their node's. One that was
// there may already have another owner, which is about to remove it. A check keeps an earlier last heartbeat.
func (c *Catalog) enterChecks(before, after []*Check, of order.Key, at Moment) {
	for _, check := range after {
		if i, ok := findCheck(before, check.ID); ok && before[i] == check {
			continue
		}
		now := CheckRow{Check: check, Of: of}
		if row, known := c.Check(check.Node, check.ID); known {
			c.deleteEnd(row)
			c.deleteAlias(row.Check)
			now.beat = row.beat
			if check.Status == Critical && row.Check.Status != Critical {
				c.lost = append(c.lost, check.ref())
			}
		}
		switch {
		case check.TTL == 0:
			now.beat = nil
		case now.beat == nil:
			now.beat = new(beat)
			now.beat.last.Store(at.Lease)
		}
		c.shared = nil
		c.checks.Set(now)
		if check.Alias != nil {
			c.byTarget.Set(aliasRow{check.target(), check})
			c.entered = append(c.entered, check)
		}
		c.addEnd(now, at.Established)
	}
}

// removeCheck reverts enterChecks for one of them, unless the check already has another owner.
func (c *Catalog) removeCheck(check *Check, of order.Key) {
	row, known := c.Check(check.Node, check.ID)
	if !known || row.Of != of {
		return
	}
	c.deleteEnd(row)
	c.deleteAlias(row.Check)
	c.shared = nil
	c.checks.Delete(row)
	c.lost = append(c.lost, check.ref())
}

// LoseNode adds a removed node to what Lost returns.
func (c *Catalog) LoseNode(name string) { c.lost = append(c.lost, CheckRef{Node: name}) }

// Lost returns the checks that turned critical or were removed, and the nodes that were removed, since the
// last call. It is not part of the state.
func (c *Catalog) Lost() []CheckRef {
	lost := c.lost
	c.lost = nil
	return lost
}

// addEnd enters the moment, if any, when something must be done about a check: heartbeats have not come for too long,
// or the check has been critical for too long. The former is a lower bound: a heartbeat does not touch it; it is
// corrected when its time comes.
func (c *Catalog) addEnd(row CheckRow, established int64) {
	if row.Expires() {
		c.keepBeat(row)
		row.beat.due = row.expiry(established)
	}
	if at, ok := row.endsAt(); ok {
		c.ends.Set(at, row.Check.ref())
	}
}

// deleteEnd reverts addEnd, for the check as it was then.
func (c *Catalog) deleteEnd(row CheckRow) {
	if at, ok := row.endsAt(); ok {
		c.ends.Delete(at, row.Check.ref())
	}
}

// Due returns the checks whose TTL has passed before a moment of the lease clock (ms), and those that have
// been critical for longer than their ReapAfter, oldest end first.
func (c *Catalog) Due(now, established int64) []CheckRow {
	for _, row := range c.rowsDue(now) { // heartbeats came since they were entered
		c.deleteEnd(row)
		c.addEnd(row, established)
	}
	return c.rowsDue(now)
}

func (c *Catalog) rowsDue(now int64) (rows []CheckRow) {
	for _, ref := range c.ends.Due(now - 1) {
		row, _ := c.Check(ref.Node, ref.ID)
		rows = append(rows, row)
	}
	return rows
}

// Ends returns how many checks have an end.
func (c *Catalog) Ends() int { return c.ends.Len() }
