package catalog

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Tables is what readers see: the nodes, and where to find services and checks. An order.Key stands for a service in
// the registry. The trees are copy-on-write; a copy is never written again, but the heartbeats of checks in it are
// live.
type Tables struct {
	nodes        order.Map[string, *Node]
	nodeChanges  order.Tree[*Node]      // the same by Node.changed
	spellings    order.Tree[spelling]   // of their names, by lower case
	services     order.Tree[serviceRow] // by node, then id
	checks       order.Tree[CheckRow]   // by node, then id
	byTarget     order.Tree[aliasRow]   // those of the checks that are aliases
	nodesChanged order.Index            // of the last change of a node or of one of its checks
	bytes        int                    // of all nodes, see Node.Weight
	figures      *AliasFigures
}

// spelling finds the name of a node by its lower case.
type spelling struct{ lower, name string }

func spellingOf(name string) spelling { return spelling{strings.ToLower(name), name} }

// serviceRow holds a service on a node, and its key in the registry.
type serviceRow struct {
	node, id string
	of       order.Key
	service  *Service
}

// CheckRow holds a check and the service that has it, or the zero order.Key for a node's check.
type CheckRow struct {
	Check *Check
	Of    order.Key
	beat  *beat // nil: it does not expect heartbeats
}

// beat holds the last heartbeat of a check. It outlives changes of the check, and is live in views.
type beat struct {
	last atomic.Int64 // lease clock of the last one, ms
	due  int64        // for the writer only: the check's time in Catalog.ends
}

// copy returns a copy of the tables, at a cost that does not depend on their content.
func (t *Tables) copy() Tables {
	c := *t
	c.nodes, c.nodeChanges, c.services, c.checks = t.nodes.Copy(), t.nodeChanges.Copy(), t.services.Copy(), t.checks.Copy()
	c.spellings, c.byTarget = t.spellings.Copy(), t.byTarget.Copy()
	return c
}

// Nodes yields the nodes by name. The logical one ("") comes first, but only once it has had checks of its own.
func (t *Tables) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		t.nodes.Scan(func(_ string, n *Node) bool { return yield(n) })
	}
}

// NodesChangedAfter yields the nodes that changed after an index, see Node.changed, oldest change first.
func (t *Tables) NodesChangedAfter(after order.Index) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		t.nodeChanges.Ascend(&Node{ModifyIndex: after + 1}, yield)
	}
}

// NodeCount returns how many nodes Nodes yields.
func (t *Tables) NodeCount() int { return t.nodes.Len() }

func (t *Tables) Node(name string) (*Node, bool) { return t.nodes.Get(name) }

// SpelledNode returns the name under which a node is registered: Consul compares node names in lower case. If no such
// node is known, it returns name itself.
func (t *Tables) SpelledNode(name string) (spelled string, known bool) {
	if _, known := t.nodes.Get(name); known || name == "" {
		return name, true
	}
	lower := strings.ToLower(name)
	t.spellings.Ascend(spelling{lower: lower}, func(s spelling) bool {
		if known = s.lower == lower; known {
			name = s.name
		}
		return false
	})
	return name, known
}

// Bytes returns roughly how many bytes the nodes take with their checks. Services are not counted.
func (t *Tables) Bytes() int { return t.bytes }

// Changed returns the Index of the last change of a node or of a node's check.
func (t *Tables) Changed() order.Index { return t.nodesChanged }

// Check finds a check of a node or of a service on it.
func (t *Tables) Check(node, id string) (CheckRow, bool) {
	return t.checks.Get(CheckRow{Check: &Check{Node: node, ID: id}})
}

// Aliases yields the alias checks, by what they follow.
func (t *Tables) Aliases() iter.Seq[*Check] {
	return func(yield func(*Check) bool) {
		t.byTarget.Scan(func(row aliasRow) bool { return yield(row.check) })
	}
}

// Service finds a service on a node, and its key in the registry.
func (t *Tables) Service(node, id string) (of order.Key, service *Service, ok bool) {
	row, ok := t.services.Get(serviceRow{node: node, id: id})
	return row.of, row.service, ok
}

// ServicesOn returns the keys of the services on a node, by service id.
func (t *Tables) ServicesOn(node string) []order.Key { return slices.Collect(t.EachServiceOn(node)) }

// EachServiceOn yields what ServicesOn returns.
func (t *Tables) EachServiceOn(node string) iter.Seq[order.Key] {
	return func(yield func(order.Key) bool) {
		t.services.Ascend(serviceRow{node: node}, func(row serviceRow) bool {
			return row.node == node && yield(row.of)
		})
	}
}

// Crowded reports whether a node has more than most services and checks of services.
func (t *Tables) Crowded(node string, most int) bool {
	t.services.Ascend(serviceRow{node: node}, func(row serviceRow) bool {
		if row.node == node {
			most -= 1 + len(row.service.Checks)
		}
		return row.node == node && most >= 0
	})
	return most < 0
}

// Worst returns the worst status of a service's checks and its node's, and whether one of them is a maintenance check.
func (t *Tables) Worst(s *Service) (worst CheckStatus, maintenance bool) {
	if n, ok := t.nodes.Get(s.Node); ok {
		return Worst(s.Checks, n.Checks)
	}
	return Worst(s.Checks)
}

// Heartbeats returns the last heartbeats of checks with a TTL, once each, by node, then id.
func (t *Tables) Heartbeats() []CheckHeartbeat {
	var all []CheckHeartbeat
	t.checks.Scan(func(row CheckRow) bool {
		if row.beat != nil {
			all = append(all, CheckHeartbeat{Node: row.Check.Node, Check: row.Check.ID, At: row.LastBeat()})
		}
		return true
	})
	return all
}

// LastBeat returns when (lease clock, ms) the check last had a heartbeat, live, or 0 if it expects none.
func (row CheckRow) LastBeat() int64 {
	if row.beat == nil {
		return 0
	}
	return row.beat.last.Load()
}

// Beat records a heartbeat at a moment of the lease clock (ms), if the check expects any. It does not count as a
// change.
func (row CheckRow) Beat(now int64) {
	if row.beat != nil {
		row.beat.last.Store(now)
	}
}

// Expires reports whether the check turns critical without heartbeats.
func (row CheckRow) Expires() bool { return row.beat != nil && row.Check.Status != Critical }

// Reaped reports whether the check's service is removed if the check stays critical.
func (row CheckRow) Reaped() bool {
	return row.Check.ReapAfter > 0 && row.Check.Service != "" && row.Check.Status == Critical
}

// endsAt returns when (lease clock, ms) a check is due, if ever: its TTL passes, or its service must be removed.
func (row CheckRow) endsAt() (at int64, ok bool) {
	switch {
	case row.Expires():
		return row.beat.due, true
	case row.Reaped():
		return order.Later(row.Check.CriticalSince, row.Check.ReapAfter), true
	}
	return 0, false
}

// checkGrace is the extra time (ms) for a check after a leadership was established, on top of half its TTL: clients
// send two heartbeats per TTL.
const checkGrace = 2000

// expiry returns the last moment of a check that expects heartbeats.
func (row CheckRow) expiry(established int64) int64 {
	ttl := row.Check.TTL
	return order.EndWithGrace(order.Later(row.beat.last.Load(), ttl), established, min(ttl, ttl/2+checkGrace))
}
