package registry

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// cataloging is a RegisterCatalog in progress.
type cataloging struct {
	*Registry
	*catalog.Registering
	origin   Origin
	instance *Instance
	res      Result
}

// perform registers a node, a service and checks, or nothing at all. A part that does not change takes no Index.
// Source: agent/consul/state/catalog.go (EnsureRegistration) of hashicorp/consul.
func (op RegisterCatalog) perform(r *Registry, _ uint64, origin Origin) Result {
	if len(op.Checks) > catalog.MaxChecks { // before anything is done for each of them
		return Result{Outcome: TooManyChecks}
	}
	// A node resolves names before it proposes, and cannot know about a registration under another spelling that is
	// still on its way.
	if spelled, known := r.catalog.SpelledNode(op.On()); known && spelled != op.On() && r.spellsNodes() {
		op = op.OnNode(spelled)
	}
	given := op.registration()
	given.Bounded, given.Judged = r.bounded(), r.level >= Level3
	c, before := &cataloging{Registry: r, Registering: r.catalog.Registering(given), origin: origin, instance: op.Instance}, r.index
	if r.bounded() && c.readdressed() && r.catalog.Crowded(c.On(), MaxRemoved) {
		return Result{Outcome: TooMany}
	}
	if why := c.refused(); why != Done {
		return Result{Outcome: why}
	}
	moves := c.Moves()
	node, _ := r.catalog.Node(c.On())
	next := c.NodeAfter(node, c.moment())
	if next != node {
		c.exchangeNode(node, next)
	}
	c.registerChecks()
	c.registerService()
	for _, m := range moves {
		c.removeMovedFrom(m)
	}
	if next != node { // otherwise its services, which may be all there are, need no visit
		c.updateServicesOn(origin, c.On(), node)
	}
	c.Beat(r.clock.Lease)
	if r.index > before {
		c.res.Index = r.index
	}
	return c.res
}

// readdressed reports whether an agent's node that has services gets another address. Registrars may do that to any
// node.
func (c *cataloging) readdressed() bool {
	old, known := c.catalog.Node(c.On())
	return known && c.Agent && !c.KeepNode && c.Node != nil && old.Address != c.Node.Address
}

// refused returns why the operation cannot be done, or Done.
func (c *cataloging) refused() Outcome {
	if s := c.Service; s != nil {
		switch key := c.instance.Key(); {
		case c.nameTaken(s.Name, key):
			return NameTaken
		case c.instanceTaken(key):
			return AddressTaken
		}
	}
	switch c.Refusal() {
	case catalog.AddressTaken:
		return AddressTaken
	case catalog.CheckTaken:
		return CheckTaken
	case catalog.UnknownService:
		return UnknownService
	case catalog.TooManyChecks:
		return TooManyChecks
	case catalog.TooManyFollowers:
		return TooMany
	}
	return Done
}

// nameTaken reports whether other instances of a service's application have another name: anything registered through
// Consul's API keeps the name it was given, everything else has the application's name in lower case.
func (c *cataloging) nameTaken(name string, key Key) bool {
	var named, others int
	var called string
	if app, ok := c.tables.apps.Get(key.App); ok {
		named, others, called = app.services, app.leases.Len()-app.services, app.service
	}
	count := func(l *Lease, n int) {
		if l.Service == nil {
			others += n
			return
		}
		named += n
		called = l.Service.Name
	}
	c.tables.quarantined.Ascend(&Lease{Instance: &Instance{App: key.App}}, func(l *Lease) bool {
		if l.Instance.App != key.App {
			return false
		}
		count(l, 1)
		return true
	})
	if old := c.handles.byKey(key); old != nil {
		count(old, -1)
	}
	return named > 0 && called != name || named == 0 && others > 0 && name != strings.ToLower(key.App)
}

// instanceTaken reports whether key already belongs to a service on another node. Node names and service ids may
// contain the colon that joins the two, and the other service would be lost silently.
func (c *cataloging) instanceTaken(key Key) bool {
	l := c.handles.byKey(key)
	return l != nil && l.Service != nil && l.Service.Node != c.On()
}

// removeMovedFrom removes checks from the service or node that they leave, in one step.
func (c *cataloging) removeMovedFrom(m catalog.Move) {
	if m.From == (Key{}) {
		if n, ok := c.catalog.Node(c.On()); ok {
			if left := catalog.WithoutChecks(n.Checks, m.IDs); len(left) < len(n.Checks) {
				c.exchangeNodeChecks(c.origin, n, left)
			}
		}
		return
	}
	l := c.handles.byKey(m.From)
	if l == nil || l.Service == nil || l.Service.ID != m.Service {
		return
	}
	if left := catalog.WithoutChecks(l.Service.Checks, m.IDs); len(left) < len(l.Service.Checks) {
		c.exchangeChecks(c.origin, l, left)
	}
}

// registerService enters the service with its checks, if anything is new. A service with the same id and another name
// goes; its checks stay.
func (c *cataloging) registerService() {
	if c.Service == nil {
		return
	}
	before := c.present(c.On())
	key, service := c.instance.Key(), c.ServiceAfter(before.Service, c.moment())
	in := c.withNodeAddress(service, c.instance)
	if before.Service != nil && before.Key() == key && c.Service.SameRegistration(before.Service) && sameRegistration(in, c.withNodeAddress(service, before.Instance)) {
		c.res.Handle = before.Handle
		if !slices.Equal(service.Checks, before.Service.Checks) {
			c.exchangeChecks(c.origin, before, service.Checks)
		}
		return
	}
	c.res = c.place(c.origin, service, in)
	if before.Service != nil && before.Key() != key {
		c.remove(before, Canceled, c.origin, Event{Kind: EventCanceled})
	}
	if same := c.present(""); c.Agent && c.On() != "" && same.Service != nil && same.Service.IsAt(service) {
		// This is now registered on its own agent; the earlier registration did not tell agents apart.
		c.remove(same, Canceled, c.origin, Event{Kind: EventCanceled, By: Act{Reason: "it is registered on " + c.On() + " now"}})
	}
}

// present returns the lease of a node's service with the registered id, empty if it has no such service.
func (c *cataloging) present(node string) *Lease {
	if at, _, ok := c.catalog.Service(node, c.Service.ID); ok {
		return c.handles.byKey(at)
	}
	return new(Lease)
}

// sameRegistration compares everything about an instance that the registry does not decide itself.
func sameRegistration(i *Instance, stored *Instance) bool {
	return i.with(stored.Status, stored.Overridden, stored.LastDirty).Equal(stored)
}

// registerChecks enters the checks of the node's other services.
func (c *cataloging) registerChecks() {
	for _, check := range c.Checks {
		if check.Service == "" || c.Service != nil && c.Service.ID == check.Service {
			continue
		}
		key, _, _ := c.catalog.Service(c.On(), check.Service)
		l := c.handles.byKey(key)
		if checks, changed := c.Merge(l.Service.Checks, check.Service, c.moment()); changed {
			c.exchangeChecks(c.origin, l, checks)
		}
	}
}

// place makes a service the instance of its key, without a lease.
func (r *Registry) place(origin Origin, s *catalog.Service, in *Instance) Result {
	old := r.handles.byKey(in.Key())
	if old == nil {
		return r.placeNew(origin, s, in)
	}
	l := registeredAgain(old, old.Instance, old.Override, origin)
	l.Permanent, l.Service, l.Owner = true, s, ownerBy(origin, old.Owner)
	r.setStatusByChecks(l, in, r.newerTimestamp(old.Instance.LastDirty))
	l.outrank(old, r.level)
	res := r.restart(origin, old, l, r.clock)
	r.recordReregistration(old, l, origin)
	return res
}

// placeNew does what place does, for a key that has no instance.
func (r *Registry) placeNew(origin Origin, s *catalog.Service, in *Instance) Result {
	key := in.Key()
	l := &Lease{Life: 1, Origin: origin, Owner: ownerBy(origin, ""), Permanent: true, Service: s}
	stored := int64(0)
	rec, ok := r.record(key)
	if ok {
		l.Life, stored = rec.Lease.Life+1, rec.Lease.Instance.LastDirty
		l.Quarantine = quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next())
		if l.Override = r.overrideAgain(rec); l.Override != nil {
			l.Instance = in.with(Unknown, OutOfService, 0)
		}
		r.supersede(key)
	}
	r.setStatusByChecks(l, in, r.newerTimestamp(stored))
	return r.enter(origin, l, r.clock, rec.History)
}

// perform removes a service, a check or a node. The leader's proposal to remove something that was critical for too
// long takes effect only if the check is still critical.
func (op DeregisterCatalog) perform(r *Registry, term uint64, origin Origin) Result {
	if op.Epoch != (Epoch{}) {
		if !r.epoch.Leads(term, op.Epoch) {
			return Result{Outcome: Refused}
		}
		row, ok := r.catalog.Check(op.Node, op.Check)
		if !ok || !row.Reaped() || row.Check.Service != op.Service || row.Check.CriticalSince != op.CriticalSince {
			return Result{Outcome: NotFound}
		}
		return r.deregisterService(origin, op.Node, op.Service, Act{Reason: "its check " + op.Check + " was critical for too long"})
	}
	switch {
	case op.Service != "":
		return r.deregisterService(origin, op.Node, op.Service, Act{})
	case op.Check != "":
		return r.deregisterCheck(origin, op.Node, op.Check)
	case op.Node != "":
		return r.deregisterNode(origin, op.Node)
	}
	return Result{Outcome: NotFound}
}

// deregisterService removes a service of a node by its id. On the logical node, that may be an instance registered
// outside Consul's API, if no other has its id.
func (r *Registry) deregisterService(origin Origin, node, id string, by Act) Result {
	var l *Lease
	if key, _, ok := r.catalog.Service(node, id); ok {
		l = r.handles.byKey(key)
	} else if node == "" {
		l, _ = r.tables.otherwise(id)
	}
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.remove(l, Canceled, origin, Event{Kind: EventCanceled, By: by})
	return Result{Index: r.index}
}

// deregisterCheck removes a check of a node or of a service on it.
func (r *Registry) deregisterCheck(origin Origin, node, id string) Result {
	row, ok := r.catalog.Check(node, id)
	if !ok {
		return Result{Outcome: NotFound}
	}
	if row.Of == (Key{}) {
		n, _ := r.catalog.Node(node)
		return r.exchangeNodeChecks(origin, n, catalog.WithoutCheck(n.Checks, id))
	}
	l := r.handles.byKey(row.Of)
	return r.exchangeChecks(origin, l, catalog.WithoutCheck(l.Service.Checks, id))
}

// deregisterNode removes a node with all services and checks on it. The logical node cannot go.
func (r *Registry) deregisterNode(origin Origin, name string) Result {
	n, ok := r.catalog.Node(name)
	if !ok {
		return Result{Outcome: NotFound}
	}
	if r.bounded() && r.catalog.Crowded(name, MaxRemoved) {
		return Result{Outcome: TooMany}
	}
	for _, key := range r.catalog.ServicesOn(name) {
		r.remove(r.handles.byKey(key), Canceled, origin, Event{Kind: EventCanceled})
	}
	r.forgetNode(n)
	return Result{Index: r.index}
}

// forgetNode removes a node that has no services.
func (r *Registry) forgetNode(n *catalog.Node) {
	r.exchangeNode(n, nil)
	r.catalog.LoseNode(n.Name)
}
