package catalog

import (
	"bytes"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Registration is what is registered in one step: a node, or a service on it, and checks of both.
type Registration struct {
	// Node is nil for the logical node, which stays as it is. KeepNode leaves a registered node as it is.
	Node     *Node
	KeepNode bool
	Service  *Service // may be nil
	Checks   []*Check
	// ReplaceChecks removes the service's checks that are not among Checks. KeepStatus leaves an existing check its
	// state and output.
	ReplaceChecks, KeepStatus bool
	// Agent: the programs of a host register, and Node is named after it. An existing node adopts only the address, a
	// new one gets AgentAlive, and ids that another host may have given are refused, see clash.
	Agent bool
	// Readdress lets a service replace the one with its id even if that has another address.
	Readdress bool
	// Bounded refuses alias checks beyond MaxFollowers; otherwise they are only counted.
	Bounded bool
	// Judged lets alias checks follow only what their tokens may read, and probes keep where they were registered
	// from.
	Judged bool
}

// On returns the name of the node, "" for the logical one.
func (r *Registration) On() string {
	if r.Node == nil {
		return ""
	}
	return r.Node.Name
}

// Registering is a registration in progress, with each check once.
type Registering struct {
	Registration
	catalog *Catalog
	node    string
}

// Registering begins a registration. If several checks have one id, the last counts.
func (c *Catalog) Registering(r Registration) *Registering {
	if r.Agent && r.On() != "" {
		if _, alive := c.Check(r.On(), SerfHealth); !alive {
			r.Checks = append(slices.Clip(r.Checks), &AgentAlive)
		}
	}
	if len(r.Checks) > 1 {
		seen := make(map[string]bool, len(r.Checks))
		var last []*Check
		for _, check := range slices.Backward(r.Checks) {
			if !seen[check.ID] {
				seen[check.ID] = true
				last = append(last, check)
			}
		}
		slices.Reverse(last)
		r.Checks = last
	}
	return &Registering{Registration: r, catalog: c, node: r.On()}
}

// Refusal is the reason to refuse a registration.
type Refusal uint8

// The refusals.
const (
	// Accepted: the registration is not refused.
	Accepted Refusal = iota
	// AddressTaken: the agent has a service with that id and another address.
	AddressTaken
	// CheckTaken: the agent has a check with that id for something else.
	CheckTaken
	// UnknownService: a check names a service that its node does not have.
	UnknownService
	// TooManyChecks: a service or the node would have too many.
	TooManyChecks
	// TooManyFollowers: more than MaxFollowers alias checks would follow a service or node.
	TooManyFollowers
)

// Refusal returns why the registration is refused, or Accepted.
func (r *Registering) Refusal() Refusal {
	if why := r.clash(); why != Accepted {
		return why
	}
	for _, check := range r.Checks {
		if s := r.Service; check.Service == "" || s != nil && s.ID == check.Service {
			continue
		}
		if _, _, ok := r.catalog.Service(r.node, check.Service); !ok {
			return UnknownService
		}
	}
	if r.crowded() {
		return TooManyChecks
	}
	switch figures := r.catalog.figures; {
	case !r.overfollowed(MaxFollowers):
	case !r.Bounded:
		figures.WouldRefuse.Add(1)
	default:
		figures.Refused.Add(1)
		return TooManyFollowers
	}
	return Accepted
}

// clash reports whether a registration would take an id from another host. Ids are unique on a node. The programs of
// all hosts may register on the logical one, and those of several hosts on an agent's if they share an address. So a
// service with the same id and another address belongs to another host. If it were replaced, the first would be lost
// silently, and neither would be listed once one of them deregisters. The same goes for a check with the same id for
// something else, which would lose its check and count as healthy for ever. Other nodes belong to registrars, who
// know what is on their nodes.
func (r *Registering) clash() Refusal {
	if r.node != "" && !r.Agent {
		return Accepted
	}
	if s := r.Service; s != nil && !r.Readdress {
		if _, present, ok := r.catalog.Service(r.node, s.ID); ok && present.Address != s.Address {
			return AddressTaken
		}
	}
	for _, check := range r.Checks {
		if row, ok := r.catalog.Check(r.node, check.ID); ok && row.Check.Service != check.Service {
			return CheckTaken
		}
	}
	return Accepted
}

// crowded reports whether a service, or the node itself, would get new checks and then have too many. There is always
// room for the check with which an operator takes it out of service.
func (r *Registering) crowded() bool {
	change, fresh := map[string]int{}, map[string]bool{} // by service; "": the node
	given := make(map[string]bool, len(r.Checks))
	for _, check := range r.Checks {
		given[check.ID] = true
		row, known := r.catalog.Check(r.node, check.ID)
		if known && row.Check.Service == check.Service || check.ID == maintenanceOf(check.Service) {
			continue
		}
		if known {
			change[row.Check.Service]--
		}
		change[check.Service]++
		fresh[check.Service] = true
	}
	// The order does not matter: one that has too many is enough.
	for service := range fresh {
		most := MaxServiceChecks
		if service == "" {
			most = MaxNodeChecks
		}
		if r.checksOf(service, given)+change[service] > most {
			return true
		}
	}
	return false
}

// checksOf returns how many checks a service ("": the node) has, without those that a registration with ReplaceChecks
// drops.
func (r *Registering) checksOf(service string, given map[string]bool) (n int) {
	if service == "" {
		node, ok := r.catalog.Node(r.node)
		if !ok {
			return 0
		}
		return len(node.Checks)
	}
	_, present, ok := r.catalog.Service(r.node, service)
	if !ok {
		return 0
	}
	replaced := r.ReplaceChecks && r.Service != nil && r.Service.ID == service
	for _, check := range present.Checks {
		if !replaced || given[check.ID] {
			n++
		}
	}
	return n
}

// Move holds checks that one owner has and another owner registers.
type Move struct {
	From    order.Key // key of the service; zero: the node
	Service string    // its id
	IDs     map[string]bool
}

// owner owns a check: a service with its id, or, as the zero value, the node.
type owner struct {
	of      order.Key
	service string
}

// Moves returns the checks that move from one service to another, or to or from their node. Each owner appears once,
// in the order of the checks, because a node's services follow every change of its checks.
func (r *Registering) Moves() (moves []Move) {
	places := map[owner]int{} // in moves
	for _, check := range r.Checks {
		row, ok := r.catalog.Check(r.node, check.ID)
		if !ok || row.Check.Service == check.Service {
			continue
		}
		from := owner{row.Of, row.Check.Service}
		at, known := places[from]
		if !known {
			at, places[from] = len(moves), len(moves)
			moves = append(moves, Move{From: row.Of, Service: row.Check.Service, IDs: map[string]bool{}})
		}
		moves[at].IDs[row.Check.ID] = true
	}
	return moves
}

// NodeAfter returns the node to enter, or old itself if nothing is new. old is nil if the node did not exist.
func (r *Registering) NodeAfter(old *Node, at Moment) *Node {
	n := r.described(old, at)
	checks, changed := r.Merge(n.Checks, "", at)
	if !changed && (n == old || r.Node == nil) {
		return old
	}
	entered := *n
	entered.Checks = checks
	return &entered
}

// described returns the node with its checks, or old itself if nothing else is new. old is nil if the node did not
// exist.
func (r *Registering) described(old *Node, at Moment) *Node {
	var n Node
	switch {
	case r.Node == nil:
	case old != nil && r.Agent: // registrars may have said more about it
		n = *old
		n.Address = r.Node.Address
	default:
		n = *r.Node
	}
	if old != nil && (r.KeepNode || r.Node == nil || old.sameRegistration(&n)) {
		return old
	}
	n.Checks, n.CreateIndex, n.ModifyIndex = nil, at.Next, at.Next
	if old != nil {
		n.Checks, n.CreateIndex = old.Checks, old.CreateIndex
	}
	return &n
}

// sameRegistration compares what was registered about two nodes, without their checks.
func (n *Node) sameRegistration(o *Node) bool {
	return n.ID == o.ID && n.Address == o.Address && slices.Equal(n.Tagged, o.Tagged) && slices.Equal(n.Meta, o.Meta)
}

// ServiceAfter returns the service as it replaces old, the one with its id, which may be nil.
func (r *Registering) ServiceAfter(old *Service, at Moment) *Service {
	s := *r.Service
	s.Node, s.CreateIndex, s.ModifyIndex = r.node, at.Next, at.Next
	if old == nil {
		s.Checks = nil
	} else {
		s.CreateIndex, s.Checks = old.CreateIndex, old.Checks
	}
	s.Checks, _ = r.Merge(r.kept(s.Checks), s.ID, at)
	return &s
}

// IsAt reports whether two services have the same name, address and port.
func (s *Service) IsAt(o *Service) bool {
	return s.Name == o.Name && s.Address == o.Address && s.Port == o.Port
}

// SameRegistration compares what was registered about two services, without their checks.
func (s *Service) SameRegistration(o *Service) bool {
	return s.Name == o.Name && s.ID == o.ID && s.Address == o.Address && s.Port == o.Port && s.Kind == o.Kind &&
		s.SocketPath == o.SocketPath && s.WeightPassing == o.WeightPassing && s.WeightWarning == o.WeightWarning &&
		s.TagOverride == o.TagOverride && slices.Equal(s.Tags, o.Tags) && slices.Equal(s.Tagged, o.Tagged) &&
		bytes.Equal(s.Locality, o.Locality) && bytes.Equal(s.Ports, o.Ports) && bytes.Equal(s.Proxy, o.Proxy) && s.Native == o.Native
}

// kept returns the checks that stay with the service.
func (r *Registering) kept(checks []*Check) []*Check {
	given := make(map[string]*Check, len(r.Checks))
	for _, check := range r.Checks {
		given[check.ID] = check
	}
	var kept []*Check
	for _, check := range checks {
		now, ok := given[check.ID]
		if ok && now.Service == check.Service || !ok && !r.ReplaceChecks {
			kept = append(kept, check)
		}
	}
	return kept
}

// Merge returns checks merged with those registered for a service ("": for the node), and whether that changed
// anything.
func (r *Registering) Merge(checks []*Check, service string, at Moment) (merged []*Check, changed bool) {
	for _, given := range r.Checks {
		if given.Service != service {
			continue
		}
		check := r.complete(given, at)
		i, ok := findCheck(checks, check.ID)
		if ok && checks[i] == check {
			continue
		}
		if !changed {
			checks, changed = slices.Clone(checks), true
		}
		if ok {
			checks[i] = check
		} else {
			checks = slices.Insert(checks, i, check)
		}
	}
	return checks, changed
}

// complete returns the check to enter, or the present one if nothing is new.
func (r *Registering) complete(given *Check, at Moment) *Check {
	check := *given
	check.Node, check.CreateIndex, check.ModifyIndex = r.node, at.Next, at.Next
	check.TTL, check.ReapAfter = max(check.TTL, 0), max(check.ReapAfter, 0)
	row, known := r.catalog.Check(r.node, check.ID)
	if a := check.Alias; a != nil {
		if !r.Judged {
			check.Alias = &Alias{Named: a.Named, Node: a.Node, Service: a.Service}
		}
		check.Status, check.Output = Passing, "" // until the end of the operation, see Follow
	}
	if p := check.Probe; p != nil && !r.Judged && p.From != "" {
		before := *p
		before.From, check.Probe = "", &before
	}
	if known {
		check.CreateIndex = row.Check.CreateIndex
		if r.KeepStatus || check.Alias != nil {
			check.Status, check.Output = row.Check.Status, row.Check.Output
		}
		if a := check.Alias; a != nil && a.By != "" && a.Reads == "" && check.sameTarget(row.Check) && a.By == row.Check.Alias.By {
			check.Alias = row.Check.Alias // keep the leader's judgment: the other node did not know the target
		}
		if check.equal(row.Check) {
			return row.Check
		}
	}
	check.CriticalSince = criticalSince(row.Check, check.Status, at)
	return &check
}

// Beat counts a registration as a heartbeat of its checks.
func (r *Registering) Beat(now int64) {
	for _, check := range r.Checks {
		if row, ok := r.catalog.Check(r.node, check.ID); ok {
			r.catalog.keepBeat(row)
			row.Beat(now)
		}
	}
}

// Growth returns roughly how many bytes a registration would add to the nodes.
func (t *Tables) Growth(r Registration) (bytes int) {
	old, known := t.Node(r.On())
	if r.Node != nil && !(known && r.KeepNode) {
		bytes += r.Node.ownWeight()
		if known {
			bytes -= old.ownWeight()
		}
	}
	for _, c := range r.Checks {
		if c.Service != "" {
			continue
		}
		bytes += c.Weight()
		if row, ok := t.Check(r.On(), c.ID); ok {
			bytes -= row.Check.Weight()
		}
	}
	return bytes
}
