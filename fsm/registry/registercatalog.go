package registry

import (
	"bytes"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// cataloging is a RegisterCatalog on its way.
type cataloging struct {
	*Registry
	origin Origin
	op     RegisterCatalog
	node   string       // its name
	former []checkEntry // the checks that something else had until now
	res    Result
}

// registerCatalog registers a node, a service and checks, or nothing. What is as it was takes no Index.
// Source: agent/consul/state/catalog.go (EnsureRegistration) of hashicorp/consul.
func (r *Registry) registerCatalog(origin Origin, op RegisterCatalog) Result {
	if len(op.Checks) > catalog.MaxChecks { // before anything is done for each of them
		return Result{Outcome: TooManyChecks}
	}
	c, before := &cataloging{Registry: r, origin: origin, op: op}, r.index
	if op.Node != nil {
		c.node = op.Node.Name
	}
	c.op.Checks = lastOfEach(op.Checks)
	if why := c.refused(); why != Done {
		return Result{Outcome: why}
	}
	c.noteFormer()
	node, _ := c.tables.catalog.nodes.Get(c.node)
	renoded := c.registerNode()
	c.registerChecks()
	c.registerService()
	c.takeFormer()
	if renoded { // else none of its services, which may be all there are, has anything to follow
		c.follow(origin, c.node, node)
	}
	c.hearChecks()
	if r.index > before {
		c.res.Index = r.index
	}
	return c.res
}

// lastOfEach returns checks with the last of each id only.
func lastOfEach(checks []*catalog.Check) []*catalog.Check {
	if len(checks) < 2 {
		return checks
	}
	seen := make(map[string]bool, len(checks))
	var last []*catalog.Check
	for _, check := range slices.Backward(checks) {
		if !seen[check.ID] {
			seen[check.ID] = true
			last = append(last, check)
		}
	}
	slices.Reverse(last)
	return last
}

// refused says why an operation cannot be done; Done: it can.
func (c *cataloging) refused() Outcome {
	if s := c.op.Service; s != nil && c.taken(s.Name, c.op.Instance.Key()) {
		return NameTaken
	}
	if why := c.clashes(); why != Done {
		return why
	}
	for _, check := range c.op.Checks {
		if s := c.op.Service; check.Service == "" || s != nil && s.ID == check.Service {
			continue
		}
		if _, ok := c.tables.catalog.service(c.node, check.Service); !ok {
			return UnknownService
		}
	}
	if c.crowded() {
		return TooManyChecks
	}
	return Done
}

// crowded says whether a service, or the node itself, would get checks that are new to it and then have too
// many. The one by which an operator takes it out of service always has a place.
func (c *cataloging) crowded() bool {
	change, fresh := map[string]int{}, map[string]bool{} // by service; "": the node
	given := make(map[string]bool, len(c.op.Checks))
	for _, check := range c.op.Checks {
		given[check.ID] = true
		e, known := c.tables.catalog.check(c.node, check.ID)
		if known && e.check.Service == check.Service || check.ID == catalog.MaintenanceOf(check.Service) {
			continue
		}
		if known {
			change[e.check.Service]--
		}
		change[check.Service]++
		fresh[check.Service] = true
	}
	// In whatever order: one that has too many is enough.
	for service := range fresh {
		if c.had(service, given)+change[service] > maxChecks(service) {
			return true
		}
	}
	return false
}

// had is how many checks a service ("": the node) has, without those that a registration which gives all of
// them drops.
func (c *cataloging) had(service string, given map[string]bool) (n int) {
	if service == "" {
		node, ok := c.tables.catalog.nodes.Get(c.node)
		if !ok {
			return 0
		}
		return len(node.Checks)
	}
	key, ok := c.tables.catalog.service(c.node, service)
	if !ok {
		return 0
	}
	replaced := c.op.ReplaceChecks && c.op.Service != nil && c.op.Service.ID == service
	for _, check := range c.handles.byKey(key).Service.Checks {
		if !replaced || given[check.ID] {
			n++
		}
	}
	return n
}

// maxChecks is how many checks a service ("": a node itself) may have.
func maxChecks(service string) int {
	if service == "" {
		return catalog.MaxNodeChecks
	}
	return catalog.MaxServiceChecks
}

// clashes says whether a registration would take an id from another host. Ids are unique on a node, and the
// programs of all hosts register on the logical one, where Consul has an agent for each host. So a service of
// the same id with another address is another host's: in its place the first would be lost without a word, and
// neither would be listed once one of them deregisters. So is a check of the same id for something else, which
// would lose it and count as healthy for ever. Other nodes belong to registrars, who know what is on them.
func (c *cataloging) clashes() Outcome {
	if c.node != "" {
		return Done
	}
	if s := c.op.Service; s != nil {
		if at, ok := c.tables.catalog.service("", s.ID); ok && c.handles.byKey(at).Service.Address != s.Address {
			return AddressTaken
		}
	}
	for _, check := range c.op.Checks {
		if e, ok := c.tables.catalog.check("", check.ID); ok && e.check.Service != check.Service {
			return CheckTaken
		}
	}
	return Done
}

// taken says whether other instances of a service's application have another name: what was registered
// through Consul's API has the one that it was given, all else is called by the application's name in
// lower case.
func (c *cataloging) taken(name string, key Key) bool {
	app, ok := c.tables.apps.Get(key.App)
	if !ok {
		app = &App{}
	}
	named, others, called := app.services, app.leases.Len()-app.services, app.service
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

// noteFormer notes the checks that move: from one service to another, or to or from their node.
func (c *cataloging) noteFormer() {
	for _, check := range c.op.Checks {
		if e, ok := c.tables.catalog.check(c.node, check.ID); ok && e.check.Service != check.Service {
			c.former = append(c.former, e)
		}
	}
}

// takeFormer takes checks away from what had them until now, from each owner all at once: a node's services
// follow every change of its checks.
func (c *cataloging) takeFormer() {
	var owners []checkOwner // in the order of the checks
	moved := map[checkOwner]map[string]bool{}
	for _, e := range c.former {
		owner := checkOwner{e.of, e.check.Service}
		if moved[owner] == nil {
			owners, moved[owner] = append(owners, owner), map[string]bool{}
		}
		moved[owner][e.check.ID] = true
	}
	for _, owner := range owners {
		c.takeFrom(owner, moved[owner])
	}
}

// checkOwner is what has a check: a service's instance, or (the zero value) the node.
type checkOwner struct {
	key     Key
	service string
}

// takeFrom takes those of its checks that moved away from what had them.
func (c *cataloging) takeFrom(owner checkOwner, moved map[string]bool) {
	if owner.key == (Key{}) {
		if n, ok := c.tables.catalog.nodes.Get(c.node); ok {
			if left := catalog.WithoutChecks(n.Checks, moved); len(left) < len(n.Checks) {
				c.recheckNode(c.origin, n, left)
			}
		}
		return
	}
	l := c.handles.byKey(owner.key)
	if l == nil || l.Service == nil || l.Service.ID != owner.service {
		return
	}
	if left := catalog.WithoutChecks(l.Service.Checks, moved); len(left) < len(l.Service.Checks) {
		c.recheck(c.origin, l, left)
	}
}

// registerNode enters the node and its checks, if something of them is new, and says whether it was.
func (c *cataloging) registerNode() bool {
	old, _ := c.tables.catalog.nodes.Get(c.node)
	n := c.nodeAfter(old)
	checks, changed := c.merge(n.Checks, "")
	if !changed && (n == old || c.node == "") {
		return false
	}
	entered := *n
	entered.Checks = checks
	c.renode(old, &entered)
	return true
}

// nodeAfter is the node with the checks that it has, itself if nothing else of it is new; old is nil if
// it was not there.
func (c *cataloging) nodeAfter(old *catalog.Node) *catalog.Node {
	if old != nil && (c.op.KeepNode || c.node == "" || sameNode(c.op.Node, old)) {
		return old
	}
	var n catalog.Node
	if c.node != "" {
		n = *c.op.Node
	}
	n.Checks, n.CreateIndex, n.ModifyIndex = nil, c.Next(), c.Next()
	if old != nil {
		n.Checks, n.CreateIndex = old.Checks, old.CreateIndex
	}
	return &n
}

// sameNode compares two nodes in what was registered, without their checks.
func sameNode(n *catalog.Node, o *catalog.Node) bool {
	return n.ID == o.ID && n.Address == o.Address && slices.Equal(n.Tagged, o.Tagged) && slices.Equal(n.Meta, o.Meta)
}

// registerService enters the service with its checks, if something of them is new. One of that id that
// had another name goes; its checks stay.
func (c *cataloging) registerService() {
	s := c.op.Service
	if s == nil {
		return
	}
	key := c.op.Instance.Key()
	before := new(Lease)
	if at, ok := c.tables.catalog.service(c.node, s.ID); ok {
		before = c.handles.byKey(at)
	}
	service := *s
	service.Node, service.CreateIndex, service.ModifyIndex = c.node, c.Next(), c.Next()
	if before.Service != nil {
		service.CreateIndex, service.Checks = before.Service.CreateIndex, before.Service.Checks
	} else {
		service.Checks = nil
	}
	service.Checks, _ = c.merge(c.kept(service.Checks), s.ID)
	in := c.addressed(&service, c.op.Instance)
	if before.Service != nil && before.Key() == key && sameService(s, before.Service) && sameRegistration(in, c.addressed(&service, before.Instance)) {
		c.keepService(before, service.Checks)
		return
	}
	c.res = c.place(c.origin, &service, in)
	if before.Service != nil && before.Key() != key {
		c.remove(before, Canceled, c.origin, Event{Kind: EventCanceled})
	}
}

// keepService gives a service that is as it was other checks, if they are.
func (c *cataloging) keepService(l *Lease, checks []*catalog.Check) {
	c.res.Handle = l.Handle
	if !slices.Equal(checks, l.Service.Checks) {
		c.recheck(c.origin, l, checks)
	}
}

// kept are those of the service's checks that stay its own.
func (c *cataloging) kept(checks []*catalog.Check) []*catalog.Check {
	given := make(map[string]*catalog.Check, len(c.op.Checks))
	for _, check := range c.op.Checks {
		given[check.ID] = check
	}
	var kept []*catalog.Check
	for _, check := range checks {
		now, ok := given[check.ID]
		if ok && now.Service == check.Service || !ok && !c.op.ReplaceChecks {
			kept = append(kept, check)
		}
	}
	return kept
}

// sameService compares two services in what was registered, without their checks.
func sameService(s *catalog.Service, o *catalog.Service) bool {
	return s.Name == o.Name && s.ID == o.ID && s.Address == o.Address && s.Port == o.Port && s.Kind == o.Kind &&
		s.SocketPath == o.SocketPath && s.WeightPassing == o.WeightPassing && s.WeightWarning == o.WeightWarning &&
		s.TagOverride == o.TagOverride && slices.Equal(s.Tags, o.Tags) && slices.Equal(s.Tagged, o.Tagged) &&
		bytes.Equal(s.Locality, o.Locality) && bytes.Equal(s.Ports, o.Ports)
}

// sameRegistration compares an instance with a stored one in everything that the registry does not decide.
func sameRegistration(i *Instance, stored *Instance) bool {
	return i.with(stored.Status, stored.Overridden, stored.LastDirty).Equal(stored)
}

// addressed is a service's instance with the address of its node, where the service has none of its own
// and the node is not the logical one.
func (r *Registry) addressed(s *catalog.Service, i *Instance) *Instance {
	n, ok := r.tables.catalog.nodes.Get(s.Node)
	if !ok || s.Address != "" || s.Node == "" {
		return i
	}
	address := n.Address
	if address == "" {
		address = n.Name
	}
	if i.HostName == address && i.IPAddr == address {
		return i
	}
	c := *i
	c.HostName, c.IPAddr = address, address
	return &c
}

// registerChecks enters the checks of other services of the node.
func (c *cataloging) registerChecks() {
	for _, check := range c.op.Checks {
		if check.Service == "" || c.op.Service != nil && c.op.Service.ID == check.Service {
			continue
		}
		key, _ := c.tables.catalog.service(c.node, check.Service)
		l := c.handles.byKey(key)
		if checks, changed := c.merge(l.Service.Checks, check.Service); changed {
			c.recheck(c.origin, l, checks)
		}
	}
}

// merge returns checks with those in it that are registered for a service ("": for the node), and
// whether that changed anything.
func (c *cataloging) merge(checks []*catalog.Check, service string) (merged []*catalog.Check, changed bool) {
	for _, given := range c.op.Checks {
		if given.Service != service {
			continue
		}
		check := c.complete(given)
		at, ok := catalog.FindCheck(checks, check.ID)
		if ok && checks[at] == check {
			continue
		}
		if !changed {
			checks, changed = slices.Clone(checks), true
		}
		if ok {
			checks[at] = check
		} else {
			checks = slices.Insert(checks, at, check)
		}
	}
	return checks, changed
}

// complete is a check as it is entered: itself, if it is there already.
func (c *cataloging) complete(given *catalog.Check) *catalog.Check {
	check := *given
	check.Node, check.CreateIndex, check.ModifyIndex = c.node, c.Next(), c.Next()
	check.TTL, check.ReapAfter = max(check.TTL, 0), max(check.ReapAfter, 0)
	e, known := c.tables.catalog.check(c.node, check.ID)
	if known {
		check.CreateIndex = e.check.CreateIndex
		if c.op.KeepStatus {
			check.Status, check.Output = e.check.Status, e.check.Output
		}
		if check.Equal(e.check) {
			return e.check
		}
	}
	check.CriticalSince = c.criticalSince(e.check, check.Status)
	return &check
}

// hearChecks takes a registration for a heartbeat of the checks in it.
func (c *cataloging) hearChecks() {
	for _, check := range c.op.Checks {
		if e, ok := c.tables.catalog.check(c.node, check.ID); ok && e.beat != nil {
			e.beat.heard.Store(c.clock.Lease)
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
	r.showStanding(l, in, r.newer(old.Instance.LastDirty))
	res := r.restart(origin, old, l, r.clock)
	r.noteAgain(old, l, origin)
	return res
}

// placeNew is place where the key has no instance.
func (r *Registry) placeNew(origin Origin, s *catalog.Service, in *Instance) Result {
	key := in.Key()
	l := &Lease{Life: 1, Origin: origin, Owner: ownerBy(origin, ""), Permanent: true, Service: s}
	stored := int64(0)
	rec, ok := r.record(key)
	if ok {
		l.Life, stored = rec.Lease.Life+1, rec.Lease.Instance.LastDirty
		l.Quarantine = quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next())
		r.supersede(key)
	}
	r.showStanding(l, in, r.newer(stored))
	return r.enter(origin, l, r.clock, rec.History)
}
