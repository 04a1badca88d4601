package registry

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// step is one random step in a registry's life, the same on every registry that takes it.
type step struct {
	pass     int64 // ms before it
	origin   Origin
	op       Op        // nil: only the clock moves
	evict    int       // at most so many of the expired leases
	epoch    Epoch     // established if not zero
	settings *Settings // configured if not nil
	end      bool      // whether overrides and quarantines end whose time has passed
}

func (s step) apply(r *Registry, now Stamp) Result {
	if s.settings != nil {
		r.Configure(*s.settings)
	}
	if s.epoch != (Epoch{}) {
		r.Establish(s.epoch, "cluster")
	}
	for r.Clock().Lease+maxLead < now.Lease { // the clock moves by at most an hour
		r.Advance(Stamp{Lease: r.Clock().Lease + maxLead, Wall: now.Wall})
	}
	switch {
	case s.end:
		var res Result
		for _, op := range r.Ending(now.Lease) {
			res = r.Apply(now, r.Epoch().Term, s.origin, op)
		}
		return res
	case s.evict > 0:
		r.Advance(now)
		return r.Apply(now, r.Epoch().Term, s.origin, Evict{Epoch: r.Epoch(), Items: r.Expired(now.Lease, s.evict)})
	case s.op == nil:
		r.Advance(now)
		return Result{}
	default:
		return r.Apply(now, r.Epoch().Term, s.origin, s.op)
	}
}

var (
	drawOrigin = rapid.SampledFrom([]Origin{FromClient, FromClient, FromClient, FromEureka, {Kind: LocalPeer}, {Kind: RemoteDC, DC: "dc2"}})
	drawStatus = rapid.SampledFrom(append([]Status{Up, Up}, Statuses()...))
	drawDirty  = rapid.SampledFrom([]int64{0, 100, 101, 102, 103, startOfWall, startOfWall + 60_000})
	drawPass   = rapid.SampledFrom([]int64{0, 0, 0, 1, 999, 999, 5000, 5000, 29_999, 30_000, 30_000, 61_000, 61_000, MaxRemovalAge / 2})
	drawKey    = rapid.Custom(func(t *rapid.T) Key {
		return Key{App: rapid.SampledFrom([]string{"BILLING", "ORDERS"}).Draw(t, "app"), ID: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "id")}

	})
	drawInstance = rapid.Custom(func(t *rapid.T) *Instance {
		i := instance(drawKey.Draw(t, "key"), drawStatus.Draw(t, "status"), drawDirty.Draw(t, "dirty"))
		i.VIP = rapid.SampledFrom([]string{"", "a", "a,b", "b,c"}).Draw(t, "vip")
		i.SecureVIP = rapid.SampledFrom([]string{"", "a", "b,a"}).Draw(t, "secure vip")
		i.Duration = rapid.SampledFrom([]int32{0, 3, 10, 600}).Draw(t, "duration")
		i.Overridden = rapid.SampledFrom([]Status{Unknown, Unknown, Unknown, OutOfService}).Draw(t, "override")
		return i
	})
	drawAct      = rapid.SampledFrom([]Act{{}, {Author: "ann", Reason: "maintenance"}, {Author: "bob", Says: "robert"}})
	drawFor      = rapid.SampledFrom([]int64{0, 5000, 60_000, 60_000})
	drawSettings = rapid.Custom(func(t *rapid.T) *Settings {
		s := DefaultSettings()
		s.SelfPreservation, s.Expectation = rapid.Bool().Draw(t, "self-preservation"), rapid.Bool().Draw(t, "expectation")
		s.Threshold = rapid.SampledFrom([]Share{0, 500_000, DefaultSettings().Threshold, Whole}).Draw(t, "threshold")
		s.Population = rapid.Uint32Range(0, 4).Draw(t, "population")
		s.Bound = rapid.SampledFrom([]int64{0, 10_000, 60_000}).Draw(t, "bound")
		s.ExpectationUpdate = rapid.SampledFrom([]int64{1000, 900_000}).Draw(t, "update")
		s.DoubledLease = rapid.Bool().Draw(t, "doubled")
		return &s
	})
	drawPreservation = rapid.Custom(func(t *rapid.T) SelfPreservation {
		state := rapid.SampledFrom([]PreservationState{PreservationOff, PreservationOn, PreservationReleased, PreservationHeld})
		return SelfPreservation{
			Epoch: rapid.SampledFrom([]Epoch{{}, {Term: 1, Index: 1}, {Term: 2, Index: 2}}).Draw(t, "epoch"),
			From:  state.Draw(t, "from"),
			To:    state.Draw(t, "to"),
			For:   rapid.SampledFrom([]int64{0, 5000, 60_000}).Draw(t, "for"),
			By:    rapid.SampledFrom([]Act{{}, {Author: "ann", Reason: "maintenance"}}).Draw(t, "by"),
		}
	})
	drawLife    = rapid.Uint32Range(0, 3)
	drawAge     = rapid.SampledFrom([]int64{0, 0, 1, 5000, 61_000, 120_001, -1, math.MaxInt64})
	drawOwner   = rapid.SampledFrom([]string{"", "eureka", "dc2"})
	drawReplica = rapid.Custom(func(t *rapid.T) Replica {
		i := drawInstance.Draw(t, "instance")
		i.Overridden = Unknown
		return Replica{
			Instance: i, Life: drawLife.Draw(t, "life"), Edit: rapid.Uint32Range(0, 3).Draw(t, "edit"),
			Owner: drawOwner.Draw(t, "owner"), Age: drawAge.Draw(t, "age"),
			Permanent:   rapid.Bool().Draw(t, "permanent"),
			Overridden:  rapid.SampledFrom([]Status{Unknown, Unknown, OutOfService, Down}).Draw(t, "override"),
			OverrideBy:  drawAct.Draw(t, "override by"),
			OverrideFor: drawFor.Draw(t, "override for"), QuarantineFor: drawFor.Draw(t, "quarantine for"),
			QuarantineBy: drawAct.Draw(t, "quarantine by"), Drain: rapid.Bool().Draw(t, "drain"), Yields: rapid.Bool().Draw(t, "yields"),
		}
	})
	drawPeerOp = rapid.Custom(func(t *rapid.T) Op {
		name := rapid.SampledFrom([]string{"dc2", "n2"}).Draw(t, "peer")
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			return ForgetSender{Sender: name}
		case 1:
			return PausePeer{Peer: name, Paused: rapid.Bool().Draw(t, "paused"), By: drawAct.Draw(t, "by")}
		}
		return AckPeer{Peer: name, Cursor: Index(rapid.Uint64Range(0, 100).Draw(t, "cursor"))}
	})
	drawStep = rapid.Custom(func(t *rapid.T) step {
		s := step{pass: drawPass.Draw(t, "pass"), origin: drawOrigin.Draw(t, "origin")}
		key, dirty := drawKey.Draw(t, "key"), drawDirty.Draw(t, "dirty")
		switch rapid.IntRange(0, 33).Draw(t, "kind") {
		case 0, 1, 2, 3:
			s.op = Register{drawInstance.Draw(t, "instance")}
		case 4, 5:
			s.op = Renew{Key: key, LastDirty: dirty, Overridden: drawStatus.Draw(t, "override"), Status: drawStatus.Draw(t, "status")}
		case 6:
			s.op = Renew{Handle: Handle{Slot: rapid.Uint32Range(0, 5).Draw(t, "slot"), Gen: rapid.Uint64Range(1, 8).Draw(t, "gen")}}
		case 7, 12:
			s.op = Cancel{key}
		case 8:
			s.op = SetOverride{
				Key: key, Status: drawStatus.Draw(t, "override"), LastDirty: dirty,
				For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by"), Drain: rapid.Bool().Draw(t, "drain"),
			}
		case 9:
			s.op = DeleteOverride{Key: key, Fallback: drawStatus.Draw(t, "fallback"), LastDirty: dirty, By: drawAct.Draw(t, "by")}
		case 10:
			s.op = UpdateMetadata{Key: key, Pairs: []Pair{{Key: "k", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "v")}}}
		case 11:
			s.evict = rapid.IntRange(0, 3).Draw(t, "evict")
			s.epoch = rapid.SampledFrom([]Epoch{{}, {}, {Term: 1, Index: 1}, {Term: 2, Index: 2}}).Draw(t, "epoch")
		case 13:
			s.settings = drawSettings.Draw(t, "settings")
		case 14:
			s.op = drawPreservation.Draw(t, "self-preservation")
		case 15, 16, 17:
			s.op = Quarantine{Key: key, For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by")}
		case 18:
			s.end = true
		case 19, 20:
			s.op = drawReplica.Draw(t, "replica")
		case 21:
			s.op = Remove{
				Key: key, Kind: rapid.SampledFrom([]ChangeKind{Canceled, Evicted}).Draw(t, "kind of removal"),
				Life: drawLife.Draw(t, "life"), LastDirty: dirty, Owner: drawOwner.Draw(t, "owner"), Age: drawAge.Draw(t, "age"),
			}
		case 22:
			s.op = Contact{
				DC: drawOwner.Draw(t, "dc"), Sender: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "sender"),
				Incarnation: rapid.Uint64Range(1, 6).Draw(t, "incarnation"), Clock: rapid.Int64Range(0, 10).Draw(t, "clock"),
				Cut: rapid.SampledFrom([]int64{-1, 0, 15_000}).Draw(t, "cut"), Age: drawAge.Draw(t, "age"),
			}
		case 23:
			s.op = drawPeerOp.Draw(t, "peer")
		case 24:
			s.op = Renew{Key: key, LastDirty: dirty, Life: drawLife.Draw(t, "life"), Age: drawAge.Draw(t, "age")}
		case 25, 26, 27, 28:
			s.op = drawCatalog.Draw(t, "registration")
		case 29, 30:
			s.op = SetCheck{
				Node: drawNode.Draw(t, "node"), Check: drawCheckID.Draw(t, "check"), Status: drawCheckStatus.Draw(t, "status"),
				Output: drawOutput.Draw(t, "output"), TTL: rapid.Bool().Draw(t, "ttl"),
			}
		case 31:
			s.op = DeregisterCatalog{
				Node:    drawNode.Draw(t, "node"),
				Service: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "service"),
				Check:   rapid.SampledFrom([]string{"", "a", "b", catalog.NodeMaintenance}).Draw(t, "check"),
			}
		case 32, 33:
			s.end = true
		}
		return s
	})
	drawSteps = rapid.SliceOfN(drawStep, 30, 200)
)

// check verifies that everything the registry keeps twice agrees, taking the table of handles for the truth.
func check(r *Registry) error {
	v := r.View()
	all := slices.DeleteFunc(slices.Clone(r.handles.leases), func(l *Lease) bool { return l == nil })
	slices.SortFunc(all, compareLeases)
	var ends int
	for _, l := range all {
		if err := checkLive(r, v, l); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		eachEnd(l, func(int64, leaseEnd) { ends++ })
	}
	permanent := 0
	for _, l := range all {
		permanent += int(one(l.Permanent))
	}
	if n := len(all); len(r.handles.slots) != n || r.expiry.Len() != n-permanent || v.tables.permanent != permanent || v.tables.live.Len() != n || v.Total() != n {
		return fmt.Errorf("%d leases; slots %d, heap %d, change list %d, total %d", n, len(r.handles.slots), r.expiry.Len(), v.tables.live.Len(), v.Total())
	}
	if r.ends.Len() != ends {
		return fmt.Errorf("%d ends, kept %d", ends, r.ends.Len())
	}
	if v.tables.removed.Len() != len(r.records) {
		return fmt.Errorf("%d records, %d by key", v.tables.removed.Len(), len(r.records))
	}
	removed, nodes := 0, 0
	v.tables.removed.Scan(func(_ Index, rec Removal) bool {
		removed += rec.weight()
		return true
	})
	for n := range v.Nodes() {
		nodes += n.Weight()
	}
	if r.recordBytes != removed || v.CatalogBytes() != nodes {
		return fmt.Errorf("%d bytes of records and %d of nodes, counted as %d and %d", removed, nodes, r.recordBytes, v.CatalogBytes())
	}
	if got := slices.Collect(v.All()); !slices.Equal(got, all) {
		return fmt.Errorf("all leases are %v, want %v", got, all)
	}
	hidden := slices.DeleteFunc(slices.Clone(all), func(l *Lease) bool { return l.Quarantine == nil })
	if got := slices.Collect(v.Quarantined); !slices.Equal(got, hidden) {
		return fmt.Errorf("quarantined are %v, want %v", got, hidden)
	}
	if err := checkCatalog(r, v, all); err != nil {
		return err
	}
	return checkLists(v, slices.DeleteFunc(all, func(l *Lease) bool { return l.Quarantine != nil }))
}

// checkLive verifies everything about a live lease, quarantined or not.
func checkLive(r *Registry, v *View, l *Lease) error {
	key, kind := l.Key(), Live
	if l.Quarantine != nil {
		kind = Hidden
	}
	if r.handles.byKey(key) != l || r.handles.byHandle(l.Handle) != l {
		return errors.New("the handle table has another lease")
	}
	if got, ok := v.Find(key); !ok || got != l {
		return fmt.Errorf("found %v, want %v", got, l)
	}
	if got, ok := v.Lease(key); ok != (kind == Live) || ok && got != l {
		return fmt.Errorf("listed %v, want %v, kind %d", got, l, kind)
	}
	if c, err := v.Changes(l.Changed-1, 1); err == nil && (len(c) != 1 || c[0].Lease != l || c[0].Kind != kind) {
		return fmt.Errorf("not in the change list at %d as kind %d", l.Changed, kind)
	}
	if l.Permanent {
		if r.leaseEndsAt(l) != math.MaxInt64 || r.expiry.Has(l.Handle.Slot) {
			return errors.New("permanent, with an end")
		}
	} else if !r.expiry.Has(l.Handle.Slot) || r.expiry.Known(l.Handle.Slot) > r.leaseEndsAt(l) {
		return errors.New("not in the heap, or later than its end")
	}
	if _, removed := r.record(key); removed {
		return errors.New("live, with a record of removal")
	}
	if l.Override != nil && l.Instance.Overridden == Unknown {
		return fmt.Errorf("details %+v of no override", *l.Override)
	}
	if history := v.History(key); len(history) == 0 || len(history) > EventsKept {
		return fmt.Errorf("%d events, want 1 to %d", len(history), EventsKept)
	}
	missing := 0
	eachEnd(l, func(at int64, e leaseEnd) {
		if !r.ends.Has(at, e) {
			missing++
		}
	})
	if missing > 0 {
		return fmt.Errorf("%d of its ends are not kept", missing)
	}
	return nil
}

// checkLists verifies that readers find the listed leases, and no others.
func checkLists(v *View, listed []*Lease) error {
	byID, byVIP, bySecureVIP := map[string]int{}, map[string]int{}, map[string]int{}
	var counts Counts
	for _, l := range listed {
		counts[l.Instance.Status]++
		byID[l.Key().ID]++
		countParts(byVIP, l.Instance.VIP)
		countParts(bySecureVIP, l.Instance.SecureVIP)
	}
	if got := slices.Collect(v.Leases()); !slices.Equal(got, listed) {
		return fmt.Errorf("listed are %v, want %v", got, listed)
	}
	if counts != v.tables.counts || v.Len() != len(listed) {
		return fmt.Errorf("%d listed by status %v; counted %v, %d", len(listed), counts, v.tables.counts, v.Len())
	}
	for _, id := range []string{"1", "2", "3"} {
		if got := len(keysOf(v.ByID(id))); got != byID[id] {
			return fmt.Errorf("by id %s: %d, want %d", id, got, byID[id])
		}
	}
	for _, vip := range []string{"a", "b", "c"} {
		if got := len(keysOf(v.ByVIP(vip))); got != byVIP[vip] {
			return fmt.Errorf("by VIP %s: %d, want %d", vip, got, byVIP[vip])
		}
		if got := len(keysOf(v.BySecureVIP(vip))); got != bySecureVIP[vip] {
			return fmt.Errorf("by secure VIP %s: %d, want %d", vip, got, bySecureVIP[vip])
		}
	}
	return nil
}

func countParts(counts map[string]int, address string) {
	unique := map[string]bool{}
	for part := range parts(address) {
		unique[part] = true
	}
	for part := range maps.Keys(unique) {
		counts[part]++
	}
}

var (
	drawNode        = rapid.SampledFrom([]string{"", "n1", "n2"})
	drawCheckID     = rapid.SampledFrom([]string{"a", "b", "c", catalog.NodeMaintenance, catalog.ServiceMaintenance + "1"})
	drawCheckStatus = rapid.SampledFrom([]catalog.CheckStatus{catalog.Passing, catalog.Warning, catalog.Critical})
	drawOutput      = rapid.SampledFrom([]string{"", "fine", "no answer"})
	drawAlias       = rapid.Custom(func(t *rapid.T) *catalog.Alias {
		if rapid.IntRange(0, 2).Draw(t, "no alias") > 0 {
			return nil
		}
		a := &catalog.Alias{Named: rapid.Bool().Draw(t, "named"), Service: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "aliased"),
			By: rapid.SampledFrom([]string{"", "t"}).Draw(t, "by")}
		if a.By != "" {
			a.Reads = rapid.SampledFrom([]string{"", "A", "far"}).Draw(t, "reads")
		}
		if a.Named {
			a.Node = drawNode.Draw(t, "aliased node")
		}
		return a
	})
	drawChecks = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *catalog.Check {
		id := drawCheckID.Draw(t, "id")
		return &catalog.Check{
			ID: id, Name: id, Service: rapid.SampledFrom([]string{"", "1", "1", "2"}).Draw(t, "service"),
			Status: drawCheckStatus.Draw(t, "status"), Output: drawOutput.Draw(t, "output"),
			TTL:       rapid.SampledFrom([]int64{0, 5000, 30_000}).Draw(t, "ttl"),
			ReapAfter: rapid.SampledFrom([]int64{0, 60_000}).Draw(t, "reap after"),
			Alias:     drawAlias.Draw(t, "alias"),
		}
	}), 0, 3)
	drawCatalog = rapid.Custom(func(t *rapid.T) RegisterCatalog {
		op := RegisterCatalog{
			Checks: drawChecks.Draw(t, "checks"), KeepNode: rapid.Bool().Draw(t, "keep node"),
			ReplaceChecks: rapid.Bool().Draw(t, "replace checks"), KeepStatus: rapid.Bool().Draw(t, "keep status"),
			Agent: rapid.Bool().Draw(t, "agent"), Readdress: rapid.Bool().Draw(t, "readdress"),
		}
		node := drawNode.Draw(t, "node")
		if node != "" {
			op.Node = &catalog.Node{Name: node, Address: rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "address")}
		}
		if rapid.IntRange(0, 3).Draw(t, "with a service") > 0 {
			s := &catalog.Service{
				Name: rapid.SampledFrom([]string{"orders", "billing", "Orders"}).Draw(t, "name"),
				ID:   rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id"), Port: rapid.Int32Range(1, 2).Draw(t, "port"),
			}
			op.Service, op.Instance = s, serviceInstance(node, s)
		}
		return op
	})
)

// serviceInstance returns the instance of a service as the API makes it.
func serviceInstance(node string, s *catalog.Service) *Instance {
	id := s.ID
	if node != "" {
		id = node + ":" + s.ID
	}
	i := instance(Key{App: strings.ToUpper(s.Name), ID: id}, Up, 0)
	i.HostName, i.IPAddr = node, node
	return i
}

// checkCatalog verifies that services and checks are found where leases and nodes have them, and that the
// consequences of checks hold.
func checkCatalog(r *Registry, v *View, all []*Lease) error {
	services := 0
	checkIndexes := func(checks []*catalog.Check) error {
		for _, c := range checks {
			if c.CreateIndex == 0 || c.CreateIndex > c.ModifyIndex || c.ModifyIndex > v.Index() {
				return fmt.Errorf("check %s was created at %d and modified at %d", c.ID, c.CreateIndex, c.ModifyIndex)
			}
		}
		return nil
	}
	names := map[string]string{}
	for _, l := range all {
		if l.Service == nil {
			continue
		}
		services++
		if err := checkService(r, v, l, names); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		if of, s, ok := r.catalog.Service(l.Service.Node, l.Service.ID); !ok || of != l.Key() || s != l.Service {
			return fmt.Errorf("%s: its service is found as that of %s", l.Key(), of)
		}
		if err := checkIndexes(l.Service.Checks); err != nil {
			return err
		}
	}
	found := len(r.catalog.ServicesOn(""))
	for n := range v.Nodes() {
		if n.Name != "" {
			found += len(r.catalog.ServicesOn(n.Name))
		}
		if err := checkIndexes(n.Checks); err != nil {
			return err
		}
	}
	if found != services {
		return fmt.Errorf("found %d services, want %d", found, services)
	}
	if err := r.catalog.Verify(r.established); err != nil {
		return err
	}
	if err := checkAliases(r, v); err != nil {
		return err
	}
	if v.CatalogIndex() > v.Index() || v.Index() >= r.Next() {
		return fmt.Errorf("nodes changed at %d, all at %d, next is %d", v.CatalogIndex(), v.Index(), r.Next())
	}
	return checkNodesLists(v, all)
}

// checkAliases verifies that each alias check has the worst state of the checks that it follows, even through other
// alias checks.
func checkAliases(r *Registry, v *View) error {
	for c := range allChecks(r, v) {
		if c.Alias == nil {
			continue
		}
		want := worstFollowed(r, v, c, map[*catalog.Check]bool{})
		if c.Status != want || c.Output == "" || (c.Status == catalog.Passing) != (c.Output == "All checks passing." || c.Output == "No checks found.") {
			return fmt.Errorf("alias check %s of node %q is %d (%s), want %d", c.ID, c.Node, c.Status, c.Output, want)
		}
	}
	return nil
}

func allChecks(r *Registry, v *View) iter.Seq[*catalog.Check] {
	return func(yield func(*catalog.Check) bool) {
		for n := range v.Nodes() {
			for _, c := range n.Checks {
				yield(c)
			}
		}
		for l := range v.All() {
			if l.Service != nil {
				for _, c := range l.Service.Checks {
					yield(c)
				}
			}
		}
	}
}

// worstFollowed returns the worst status that an alias check follows.
func worstFollowed(r *Registry, v *View, c *catalog.Check, seen map[*catalog.Check]bool) (worst catalog.CheckStatus) {
	seen[c] = true
	node := c.Node
	if c.Alias.Named {
		node = c.Alias.Node
	}
	if !readable(v, c, node) {
		return catalog.Critical
	}
	var checks []*catalog.Check
	n, ok := v.Node(node)
	if ok {
		checks = n.Checks
	}
	if id := c.Alias.Service; id != "" {
		l, _ := v.ServiceOn(node, id)
		switch {
		case l == nil:
			return catalog.Critical
		case l.Service != nil:
			checks = slices.Concat(checks, l.Service.Checks)
			if l.Instance.Overridden != Unknown && l.Instance.Status != Up {
				return catalog.Critical
			}
		case l.Instance.Status != Up:
			return catalog.Critical
		}
	} else if !ok && node != "" {
		return catalog.Critical
	}
	for _, check := range checks {
		switch {
		case check.Alias == nil:
			worst = max(worst, check.Status)
		case !seen[check]:
			worst = max(worst, worstFollowed(r, v, check, seen))
		}
	}
	return worst
}

// readable reports whether an alias check may follow its target on a node.
func readable(v *View, c *catalog.Check, node string) bool {
	name, l := v.Followed(c.Node, c.Alias), (*Lease)(nil)
	if c.Service != "" {
		l, _ = v.ServiceOn(c.Node, c.Service)
	}
	ownApp := c.Alias.Service != "" && l != nil && l.Key().App == name
	ownNode := c.Alias.Service == "" && c.Node == node
	return c.Alias.By == "" || name != "" && (name == c.Alias.Reads || ownApp || ownNode)
}

func checkService(r *Registry, v *View, l *Lease, names map[string]string) error {
	s := l.Service
	if name, ok := names[l.Instance.App]; ok && name != s.Name {
		return fmt.Errorf("called %s, another one %s", s.Name, name)
	}
	names[l.Instance.App] = s.Name
	if found, _ := v.ServiceOn(s.Node, s.ID); found != l {
		return fmt.Errorf("service %s of node %q is found as %v", s.ID, s.Node, found)
	}
	if !r.HasNode(s.Node) {
		return errors.New("its node is not there")
	}
	want := r.statusByChecks(s)
	if l.reported() != want {
		return fmt.Errorf("reported %s, want %s by its checks", l.reported(), want)
	}
	if l.Instance.Overridden != Unknown {
		want = l.Instance.Overridden
	}
	if !l.Permanent || l.Instance.Status != want {
		return fmt.Errorf("permanent: %t, shown as %s, want %s", l.Permanent, l.Instance.Status, want)
	}
	return nil
}

// checkNodesLists verifies that each listed lease is a service of one node.
func checkNodesLists(v *View, all []*Lease) error {
	listed := keysOf(v.ServicesOn(""))
	for n := range v.Nodes() {
		if n.Name != "" {
			listed = append(listed, keysOf(v.ServicesOn(n.Name))...)
		}
	}
	slices.SortFunc(listed, Key.Compare)
	if want := keysOf(v.Leases()); !slices.Equal(listed, want) {
		return fmt.Errorf("services of all nodes are %v, want %v", listed, want)
	}
	for app := range v.Apps() {
		want, called := 0, strings.ToLower(app.Name)
		for l := range app.Leases() {
			if l.Service != nil {
				want, called = want+1, l.Service.Name
			}
		}
		if app.services != want || app.ServiceName() != called {
			return fmt.Errorf("%s has %d services and is called %s, want %d and %s", app.Name, app.services, app.ServiceName(), want, called)
		}
	}
	return nil
}
