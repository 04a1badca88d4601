package registry

import (
	"cmp"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// standing is the status that follows from checks: the worst of them decides, and maintenance over all.
func standing(lists ...[]*catalog.Check) Status {
	status := Up
	for _, list := range lists {
		for _, c := range list {
			switch {
			case c.Maintenance():
				return OutOfService
			case c.Status == catalog.Critical:
				status = Down
			}
		}
	}
	return status
}

// standing is the status that a service's checks, and those of its node, say it has.
func (r *Registry) standing(s *catalog.Service) Status {
	if n, ok := r.tables.catalog.nodes.Get(s.Node); ok {
		return standing(s.Checks, n.Checks)
	}
	return standing(s.Checks)
}

// setCheck notes what a check was found to be. The output of a passing check is kept as it was when it
// turned so: a heartbeat that says nothing new is no change.
func (r *Registry) setCheck(term uint64, origin Origin, op SetCheck) Result {
	if op.Epoch != (Epoch{}) && !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	e, ok := r.tables.catalog.check(op.Node, op.Check)
	switch {
	case !ok:
		return Result{Outcome: NotFound}
	case op.TTL && e.check.TTL == 0:
		return Result{Outcome: NoTTL}
	}
	if e.beat != nil {
		e.beat.heard.Store(r.clock.Lease)
	}
	if e.check.Status == op.Status && (op.Status == catalog.Passing || e.check.Output == op.Output) {
		return Result{}
	}
	return r.exchangeCheck(origin, e, r.reported(e.check, op.Status, op.Output))
}

// expireCheck turns a check critical whose TTL has passed, unless the epoch is over, a heartbeat came
// or it is critical already.
func (r *Registry) expireCheck(term uint64, origin Origin, op ExpireCheck) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	e, ok := r.tables.catalog.check(op.Node, op.Check)
	if !ok || !e.expires() || e.beat.heard.Load() != op.RenewedAt {
		return Result{Outcome: NotFound}
	}
	output := "TTL expired"
	if last := e.check.Output; last != "" {
		output += " (last output before timeout follows): " + last
	}
	return r.exchangeCheck(origin, e, r.reported(e.check, catalog.Critical, output))
}

// reported is a check with another state, until it is entered.
func (r *Registry) reported(old *catalog.Check, status catalog.CheckStatus, output string) *catalog.Check {
	c := *old
	c.Status, c.Output, c.ModifyIndex = status, strings.Clone(output), r.Next()
	c.CriticalSince = r.criticalSince(old, status)
	return &c
}

// criticalSince is when (lease clock, ms) a check turned critical that has a status now; old is the check
// before, nil if there was none. 0: it is not critical.
func (r *Registry) criticalSince(old *catalog.Check, status catalog.CheckStatus) int64 {
	switch {
	case status != catalog.Critical:
		return 0
	case old != nil && old.Status == catalog.Critical:
		return old.CriticalSince
	}
	return r.clock.Lease
}

// exchangeCheck puts c in the place of a check.
func (r *Registry) exchangeCheck(origin Origin, old checkEntry, c *catalog.Check) Result {
	if old.of == (Key{}) {
		n, _ := r.tables.catalog.nodes.Get(c.Node)
		return r.recheckNode(origin, n, catalog.WithCheck(n.Checks, c))
	}
	l := r.handles.byKey(old.of)
	return r.recheck(origin, l, catalog.WithCheck(l.Service.Checks, c))
}

// recheck gives a service other checks, and the status that follows from them.
func (r *Registry) recheck(origin Origin, old *Lease, checks []*catalog.Check) Result {
	s := *old.Service
	s.Checks = checks
	return r.stand(origin, old, &s, old.Instance)
}

// recheckNode gives a node other checks, and its services the status that follows. The logical node is
// kept only while it has some.
func (r *Registry) recheckNode(origin Origin, old *catalog.Node, checks []*catalog.Check) Result {
	if old.Name == "" && len(checks) == 0 {
		r.renode(old, nil)
	} else {
		n := *old
		n.Checks = checks
		r.renode(old, &n)
	}
	r.follow(origin, old.Name, old)
	return Result{Index: r.index}
}

// follow gives the services of a node the status that follows from its checks, and the address that
// follows from its own: each of them that changes is a change of its own. before is the node as it was, nil if it
// was not there. All services may be on one node, so they are not looked at if nothing of it concerns them.
func (r *Registry) follow(origin Origin, node string, before *catalog.Node) {
	now, _ := r.tables.catalog.nodes.Get(node)
	if nodeAddress(before) == nodeAddress(now) && nodeStanding(before) == nodeStanding(now) {
		return
	}
	for _, key := range r.tables.catalog.servicesOn(node) {
		l := r.handles.byKey(key)
		if i := r.addressed(l.Service, l.Instance); i != l.Instance || l.reported() != r.standing(l.Service) {
			r.stand(origin, l, l.Service, i)
		}
	}
}

// nodeAddress is a node's address as its services take it over; "" if there is no such node.
func nodeAddress(n *catalog.Node) string {
	if n == nil {
		return ""
	}
	return cmp.Or(n.Address, n.Name)
}

// nodeStanding is the status that follows from a node's own checks.
func nodeStanding(n *catalog.Node) Status {
	if n == nil {
		return Up
	}
	return standing(n.Checks)
}

// stand exchanges a live lease for one with a service and an instance, and the status that follows from
// its checks. An override goes on to decide what is shown.
func (r *Registry) stand(origin Origin, old *Lease, s *catalog.Service, i *Instance) Result {
	l := *old
	l.Service = s
	var events []Event
	dirty := i.LastDirty
	if old.reported() != r.standing(s) || i != old.Instance {
		dirty = r.newer(dirty)
		events = append(events, Event{Kind: EventStatus})
	}
	r.showStanding(&l, i, dirty)
	return r.exchange(old, &l, ActionModified, origin, events...)
}

// showStanding gives a lease an instance with the status that follows from its service's checks, hidden
// by its override if it has one.
func (r *Registry) showStanding(l *Lease, i *Instance, dirty int64) {
	status, override := r.standing(l.Service), Unknown
	if l.Instance != nil {
		override = l.Instance.Overridden
	}
	l.Override = hiding(l.Override, status, override, r.clock, r.Next())
	if override != Unknown {
		status = override
	}
	l.Instance = i.with(status, override, dirty)
}

// newer is a lastDirtyTimestamp of the registry's own, later than a stored one: other servers take what
// comes with it for newer.
func (r *Registry) newer(stored int64) int64 { return max(r.clock.Wall, after(stored)) }

// checksEnding is Ending for checks: an ExpireCheck for each whose TTL has passed, a DeregisterCatalog
// for each service with one that is critical for too long.
func (r *Registry) checksEnding(now int64) []Op {
	var found []checkEntry
	for _, ref := range r.checkEnds.Due(now - 1) {
		e, _ := r.tables.catalog.check(ref.Node, ref.ID)
		found = append(found, e)
	}
	for _, e := range found { // heartbeats came since they were entered
		r.deleteEnd(e)
		r.addEnd(e)
	}
	var due []Op
	for _, ref := range r.checkEnds.Due(now - 1) {
		e, _ := r.tables.catalog.check(ref.Node, ref.ID)
		due = append(due, r.atEnd(e))
	}
	return due
}

// atEnd is what is to be done at the end of a check.
func (r *Registry) atEnd(e checkEntry) Op {
	c := e.check
	if e.reaped() {
		return DeregisterCatalog{Node: c.Node, Service: c.Service, Check: c.ID, Epoch: r.epoch, CriticalSince: c.CriticalSince}
	}
	return ExpireCheck{Epoch: r.epoch, Node: c.Node, Check: c.ID, RenewedAt: e.beat.heard.Load()}
}
