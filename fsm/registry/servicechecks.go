package registry

import (
	"cmp"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// statusOf returns the status that follows from the worst check; maintenance overrides it.
func statusOf(worst catalog.CheckStatus, maintenance bool) Status {
	switch {
	case maintenance:
		return OutOfService
	case worst == catalog.Critical:
		return Down
	}
	return Up
}

// statusByChecks returns the status that follows from a service's checks and those of its node.
func (r *Registry) statusByChecks(s *catalog.Service) Status { return statusOf(r.catalog.Worst(s)) }

// perform records the reported status and output of a check, and counts the report as its heartbeat. A check that
// keeps passing keeps its first passing output: such a heartbeat is not a change.
func (op SetCheck) perform(r *Registry, term uint64, origin Origin) Result {
	if op.Epoch != (Epoch{}) && !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	row, ok := r.catalog.Check(op.Node, op.Check)
	switch {
	case !ok:
		return Result{Outcome: NotFound}
	case op.TTL && row.Check.TTL == 0:
		return Result{Outcome: NoTTL}
	}
	if a := row.Check.Alias; a != nil && op.Epoch != (Epoch{}) && r.level >= Level3 {
		if op.Reads == a.Reads {
			return Result{}
		}
		return r.exchangeCheck(origin, row, row.Check.Reading(op.Reads, r.moment()))
	}
	row.Beat(r.clock.Lease)
	if row.Check.Status == op.Status && (op.Status == catalog.Passing || row.Check.Output == op.Output) {
		return Result{}
	}
	return r.exchangeCheck(origin, row, row.Check.Reported(op.Status, op.Output, r.moment()))
}

// perform turns a check critical after its TTL has passed, unless the epoch is over, a heartbeat came after the
// proposal, or the check is already critical.
func (op ExpireCheck) perform(r *Registry, term uint64, origin Origin) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	row, ok := r.catalog.Check(op.Node, op.Check)
	if !ok || !row.Expires() || row.LastBeat() != op.RenewedAt {
		return Result{Outcome: NotFound}
	}
	output := "TTL expired"
	if last := row.Check.Output; last != "" {
		output += " (last output before timeout follows): " + last
	}
	return r.exchangeCheck(origin, row, row.Check.Reported(catalog.Critical, output, r.moment()))
}

// exchangeCheck replaces a check of a service or of a node by c.
func (r *Registry) exchangeCheck(origin Origin, old catalog.CheckRow, c *catalog.Check) Result {
	if old.Of == (Key{}) {
		n, _ := r.catalog.Node(c.Node)
		return r.exchangeNodeChecks(origin, n, catalog.WithCheck(n.Checks, c))
	}
	l := r.handles.byKey(old.Of)
	return r.exchangeChecks(origin, l, catalog.WithCheck(l.Service.Checks, c))
}

// exchangeChecks gives the service of a lease new checks, and the lease the resulting status.
func (r *Registry) exchangeChecks(origin Origin, old *Lease, checks []*catalog.Check) Result {
	s := *old.Service
	s.Checks = checks
	return r.exchangeService(origin, old, &s, old.Instance)
}

// exchangeNodeChecks gives a node new checks, and its services the resulting status.
func (r *Registry) exchangeNodeChecks(origin Origin, old *catalog.Node, checks []*catalog.Check) Result {
	n := *old
	n.Checks = checks
	r.exchangeNode(old, &n)
	r.updateServicesOn(origin, old.Name, old)
	return Result{Index: r.index}
}

// updateServicesOn gives the services of a node the status that follows from the node's checks, and the node's
// address if they have none of their own. Each service that changes gets a change of its own. before is the node as
// it was, nil if it did not exist. All services may be on one node, so none is visited unless the node's address or
// status changed.
func (r *Registry) updateServicesOn(origin Origin, node string, before *catalog.Node) {
	now, _ := r.catalog.Node(node)
	if nodeAddress(before) == nodeAddress(now) && statusByNodeChecks(before) == statusByNodeChecks(now) {
		return
	}
	for _, key := range r.catalog.ServicesOn(node) {
		l := r.handles.byKey(key)
		if i := r.withNodeAddress(l.Service, l.Instance); i != l.Instance || l.reported() != r.statusByChecks(l.Service) {
			r.exchangeService(origin, l, l.Service, i)
		}
	}
}

// nodeAddress returns a node's address as its services adopt it, or "" if the node does not exist.
func nodeAddress(n *catalog.Node) string {
	if n == nil {
		return ""
	}
	return cmp.Or(n.Address, n.Name)
}

// statusByNodeChecks returns the status that follows from a node's own checks.
func statusByNodeChecks(n *catalog.Node) Status {
	if n == nil {
		return Up
	}
	return statusOf(catalog.Worst(n.Checks))
}

// exchangeService exchanges a live lease for one with this service and instance, and the status that follows from the
// service's checks. An override still decides which status readers see.
func (r *Registry) exchangeService(origin Origin, old *Lease, s *catalog.Service, i *Instance) Result {
	l := *old
	l.Service = s
	var events []Event
	dirty := i.LastDirty
	if old.reported() != r.statusByChecks(s) || i != old.Instance {
		dirty = r.newerTimestamp(dirty)
		events = append(events, Event{Kind: EventStatus})
	}
	r.setStatusByChecks(&l, i, dirty)
	if len(events) > 0 {
		l.outrank(old, r.level)
	}
	return r.exchange(old, &l, ActionModified, origin, events...)
}

// setStatusByChecks gives a lease an instance with the status of its override, or else of its service's checks.
func (r *Registry) setStatusByChecks(l *Lease, i *Instance, dirty int64) {
	status, override := r.statusByChecks(l.Service), Unknown
	if l.Instance != nil {
		override = l.Instance.Overridden
	}
	l.Override = hiding(l.Override, status, override, r.clock, r.Next())
	if override != Unknown {
		status = override
	}
	l.Instance = i.with(status, override, dirty)
}

// newerTimestamp returns a lastDirtyTimestamp from the registry itself, later than a stored one, so that other
// servers take an instance with it for newer.
func (r *Registry) newerTimestamp(stored int64) int64 { return max(r.clock.Wall, after(stored)) }

// exchangeNode replaces old by n, as a change. old is nil for a new node, n for a removed one.
func (r *Registry) exchangeNode(old, n *catalog.Node) {
	index := r.step()
	r.catalog.ReplaceNode(old, n, index, r.moment())
	r.tables.parts.markNode(old, n, index)
	r.catalog.Touch(catalog.Target{Node: cmp.Or(n, old).Name})
}

// Lost returns the checks that turned critical or were removed, and the nodes that were removed, since the last call.
// It is not part of the state.
func (r *Registry) Lost() []catalog.CheckRef { return r.catalog.Lost() }

// CheckState finds a check of a node or of a service on it. The logical node ("") always has serfHealth, which
// passes.
func (r *Registry) CheckState(node, id string) (status catalog.CheckStatus, known bool) {
	if row, ok := r.catalog.Check(node, id); ok {
		return row.Check.Status, true
	}
	return catalog.Passing, node == "" && id == catalog.SerfHealth
}

// HasNode reports whether a node is registered; "" always is.
func (r *Registry) HasNode(name string) bool {
	_, ok := r.catalog.Node(name)
	return ok || name == ""
}

// withNodeAddress returns a service's instance with the address of the service's node, if the service gives no
// address and the node is not the logical one; otherwise the instance itself.
func (r *Registry) withNodeAddress(s *catalog.Service, i *Instance) *Instance {
	n, ok := r.catalog.Node(s.Node)
	if !ok || s.Address != "" || s.Node == "" {
		return i
	}
	address := nodeAddress(n)
	if i.HostName == address && i.IPAddr == address {
		return i
	}
	c := *i
	c.HostName, c.IPAddr = address, address
	return &c
}

// followAliases makes the alias checks follow what an operation changed, within that operation.
func (r *Registry) followAliases(origin Origin) {
	if !r.catalog.Touched() {
		return
	}
	changed := r.catalog.Follow(r.beyondChecks)
	for i := 0; i < len(changed); {
		row, _ := r.catalog.Check(changed[i].Check.Node, changed[i].Check.ID)
		if row.Of == (Key{}) || !r.bounded() {
			r.exchangeCheck(origin, row, row.Check.Reported(changed[i].Status, changed[i].Output, r.moment()))
			i++
			continue
		}
		// From level 2 on, consecutive checks of one service are a single change of it.
		l := r.handles.byKey(row.Of)
		checks := l.Service.Checks
		for ; i < len(changed) && changed[i].Check.Node == l.Service.Node && changed[i].Check.Service == l.Service.ID; i++ {
			checks = catalog.WithCheck(checks, changed[i].Check.Reported(changed[i].Status, changed[i].Output, r.moment()))
		}
		r.exchangeChecks(origin, l, checks)
	}
	r.catalog.ForgetTouched()
}

// touchService records that the lease changed, for the alias checks that follow its service. l may be nil.
func (r *Registry) touchService(l *Lease) {
	switch {
	case l == nil:
	case l.Service != nil:
		r.catalog.Touch(catalog.Target{Node: l.Service.Node, Service: l.Service.ID})
	default:
		r.catalog.Touch(catalog.Target{Service: l.Instance.ID()})
	}
}

// beyondChecks returns the application of a service ("" if it does not exist), and what keeps it out of use apart
// from its checks and those of its node ("" if nothing does): an operator's decision, or what an instance of Eureka
// says about itself.
func (r *Registry) beyondChecks(t catalog.Target) (app, why string) {
	var l *Lease
	if key, _, ok := r.catalog.Service(t.Node, t.Service); ok {
		l = r.handles.byKey(key)
	} else if t.Node == "" {
		l, _ = r.tables.otherwise(t.Service)
	}
	if l == nil {
		return "", ""
	}
	app = l.Key().App
	if l.Instance.Status == Up || l.Service != nil && l.Instance.Overridden == Unknown {
		return app, ""
	}
	return app, "The status is " + l.Instance.Status.String()
}
