package registry

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Ids of the checks by which operators take a service, or all of a node, out of service.
const (
	NodeMaintenance    = "_node_maintenance"
	ServiceMaintenance = "_service_maintenance:" // and the service's id
)

// maintenanceOf is the id of the check that takes a service out of service; "": the node itself.
func maintenanceOf(service string) string {
	if service == "" {
		return NodeMaintenance
	}
	return ServiceMaintenance + service
}

// Maintenance says that the check takes what it is of out of service.
func (c *Check) Maintenance() bool {
	return c.ID == NodeMaintenance || strings.HasPrefix(c.ID, ServiceMaintenance)
}

// Bounds of checks, with which the cost of every operation on one is bounded too: those of a service, those of a
// node itself, and those that one registration may have.
const (
	MaxServiceChecks = 64
	MaxNodeChecks    = 256
	MaxChecks        = 256
)

// standing is the status that follows from checks: the worst of them decides, and maintenance over all.
func standing(lists ...[]*Check) Status {
	status := Up
	for _, list := range lists {
		for _, c := range list {
			switch {
			case c.Maintenance():
				return OutOfService
			case c.Status == Critical:
				status = Down
			}
		}
	}
	return status
}

// standing is the status that a service's checks, and those of its node, say it has.
func (r *Registry) standing(s *CatalogService) Status {
	if n, ok := r.tables.catalog.nodes.Get(s.Node); ok {
		return standing(s.Checks, n.Checks)
	}
	return standing(s.Checks)
}

// findCheck finds a check by its id, in a list sorted by it.
func findCheck(checks []*Check, id string) (at int, ok bool) {
	return slices.BinarySearchFunc(checks, id, func(c *Check, id string) int { return strings.Compare(c.ID, id) })
}

// withCheck returns a list with a check in the place of the one of its id.
func withCheck(checks []*Check, c *Check) []*Check {
	at, ok := findCheck(checks, c.ID)
	changed := slices.Clone(checks)
	if ok {
		changed[at] = c
		return changed
	}
	return slices.Insert(changed, at, c)
}

// withoutCheck returns a list without the check of an id; nil if that was the last one.
func withoutCheck(checks []*Check, id string) []*Check {
	at, ok := findCheck(checks, id)
	if !ok {
		return checks
	}
	if len(checks) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(checks), at, at+1)
}

// withoutChecks returns a list without the checks of some ids; nil if those were all.
func withoutChecks(checks []*Check, gone map[string]bool) (left []*Check) {
	for _, c := range checks {
		if !gone[c.ID] {
			left = append(left, c)
		}
	}
	return left
}

// equal compares two checks in what was registered and reported.
func (c *Check) equal(o *Check) bool {
	return c == o || c.sameIdentity(o) && c.sameState(o) && c.sameDefinition(o)
}

func (c *Check) sameIdentity(o *Check) bool {
	return c.Node == o.Node && c.ID == o.ID && c.Service == o.Service
}

func (c *Check) sameState(o *Check) bool { return c.Status == o.Status && c.Output == o.Output }

func (c *Check) sameDefinition(o *Check) bool {
	return c.Name == o.Name && c.Notes == o.Notes && c.Type == o.Type && c.TTL == o.TTL && c.ReapAfter == o.ReapAfter &&
		c.Probe.equal(o.Probe) && bytes.Equal(c.Definition, o.Definition)
}

func (p *Probe) equal(o *Probe) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.HTTP == o.HTTP && p.Method == o.Method && p.Body == o.Body && slices.Equal(p.Header, o.Header) &&
		p.SkipVerify == o.SkipVerify && p.NoRedirects == o.NoRedirects && p.TCP == o.TCP && p.Interval == o.Interval && p.Timeout == o.Timeout &&
		p.SuccessBeforePassing == o.SuccessBeforePassing && p.FailuresBeforeWarning == o.FailuresBeforeWarning &&
		p.FailuresBeforeCritical == o.FailuresBeforeCritical
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
	if e.check.Status == op.Status && (op.Status == Passing || e.check.Output == op.Output) {
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
	return r.exchangeCheck(origin, e, r.reported(e.check, Critical, output))
}

// reported is a check with another state, until it is entered.
func (r *Registry) reported(old *Check, status CheckStatus, output string) *Check {
	c := *old
	c.Status, c.Output, c.ModifyIndex = status, strings.Clone(output), r.Next()
	c.CriticalSince = r.criticalSince(old, status)
	return &c
}

// criticalSince is when (lease clock, ms) a check turned critical that has a status now; old is the check
// before, nil if there was none. 0: it is not critical.
func (r *Registry) criticalSince(old *Check, status CheckStatus) int64 {
	switch {
	case status != Critical:
		return 0
	case old != nil && old.Status == Critical:
		return old.CriticalSince
	}
	return r.clock.Lease
}

// exchangeCheck puts c in the place of a check.
func (r *Registry) exchangeCheck(origin Origin, old checkEntry, c *Check) Result {
	if old.of == (Key{}) {
		n, _ := r.tables.catalog.nodes.Get(c.Node)
		return r.recheckNode(origin, n, withCheck(n.Checks, c))
	}
	l := r.handles.byKey(old.of)
	return r.recheck(origin, l, withCheck(l.Service.Checks, c))
}

// recheck gives a service other checks, and the status that follows from them.
func (r *Registry) recheck(origin Origin, old *Lease, checks []*Check) Result {
	s := *old.Service
	s.Checks = checks
	return r.stand(origin, old, &s, old.Instance)
}

// recheckNode gives a node other checks, and its services the status that follows. The logical node is
// kept only while it has some.
func (r *Registry) recheckNode(origin Origin, old *Node, checks []*Check) Result {
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
func (r *Registry) follow(origin Origin, node string, before *Node) {
	now, _ := r.tables.catalog.nodes.Get(node)
	if before.address() == now.address() && before.standing() == now.standing() {
		return
	}
	for _, key := range r.tables.catalog.servicesOn(node) {
		l := r.handles.byKey(key)
		if i := r.addressed(l.Service, l.Instance); i != l.Instance || l.reported() != r.standing(l.Service) {
			r.stand(origin, l, l.Service, i)
		}
	}
}

// address is a node's address as its services take it over; "" if there is no such node.
func (n *Node) address() string {
	if n == nil {
		return ""
	}
	return cmp.Or(n.Address, n.Name)
}

// standing is the status that follows from a node's own checks.
func (n *Node) standing() Status {
	if n == nil {
		return Up
	}
	return standing(n.Checks)
}

// stand exchanges a live lease for one with a service and an instance, and the status that follows from
// its checks. An override goes on to decide what is shown.
func (r *Registry) stand(origin Origin, old *Lease, s *CatalogService, i *Instance) Result {
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
	l.Override = l.Override.hiding(status, override, r.clock, r.Next())
	if override != Unknown {
		status = override
	}
	l.Instance = i.with(status, override, dirty)
}

// newer is a lastDirtyTimestamp of the registry's own, later than a stored one: other servers take what
// comes with it for newer.
func (r *Registry) newer(stored int64) int64 { return max(r.clock.Wall, after(stored)) }

// ref names the check.
func (c *Check) ref() CheckRef { return CheckRef{c.Node, c.ID} }

func (e checkEntry) expires() bool { return e.beat != nil && e.check.Status != Critical }
func (e checkEntry) reaped() bool {
	return e.check.ReapAfter > 0 && e.check.Service != "" && e.check.Status == Critical
}

// addEnd enters the end of a check, if it has one: a moment at which something is to be done about it. One that
// expects heartbeats has waited for too long then, or one that is critical was so for too long. The former is a
// lower bound: a heartbeat does not touch it, and it is corrected when its time has come.
func (r *Registry) addEnd(e checkEntry) {
	if e.expires() {
		e.beat.due = e.ends(r.established)
	}
	if at, ok := e.end(); ok {
		r.checkEnds.Set(at, e.check.ref())
	}
}

// deleteEnd is the inverse of addEnd, for the check as it was then.
func (r *Registry) deleteEnd(e checkEntry) {
	if at, ok := e.end(); ok {
		r.checkEnds.Delete(at, e.check.ref())
	}
}

// end is the end that is entered for a check (lease clock, ms).
func (e checkEntry) end() (at int64, ok bool) {
	switch {
	case e.expires():
		return e.beat.due, true
	case e.reaped():
		return order.Later(e.check.CriticalSince, e.check.ReapAfter), true
	}
	return 0, false
}

// checkGrace is what a check is given (ms) after a leadership was established, beyond half its TTL:
// clients send their heartbeats twice per TTL.
const checkGrace = 2000

// ends is the last moment of a check that expects heartbeats.
func (e checkEntry) ends(established int64) int64 {
	ttl := e.check.TTL
	return max(order.Later(e.beat.heard.Load(), ttl), order.Later(established, min(ttl, ttl/2+checkGrace)))
}

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

// NeedsClock says that something waits for the lease clock: a lease, self-preservation, an override or
// quarantine that ends, a check that expects heartbeats or is to be reaped.
func (r *Registry) NeedsClock() bool {
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.Len() > 0 || r.checkEnds.Len() > 0
}
