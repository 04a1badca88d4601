package registry

import (
	"cmp"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// intents are the acts of operators on an instance that docs/adr/0035 compares.
var intents = map[string]Op{
	"drain":      SetOverride{Key: orders1, Status: OutOfService, By: keeper, Drain: true},
	"override":   SetOverride{Key: orders1, Status: OutOfService, By: keeper},
	"by itself":  SetOverride{Key: orders1, Status: OutOfService},
	"quarantine": Quarantine{Key: orders1, For: 24 * 60 * 60 * 1000, By: keeper},
}

// shownAs returns how lists show orders-1: its status, or that no list has it.
func (g *rig) shownAs() string {
	switch l, there := g.View().Find(orders1); {
	case !there:
		return "gone"
	case l.Quarantine != nil:
		return "hidden"
	default:
		return l.Instance.Status.String()
	}
}

// sites are two registries that exchange news, and an operator's act at the first, which both know.
type sites struct {
	here, there *rig
	fromHere    Origin // as there sees it
	fromThere   Origin
	level       byte
}

func newSites(t *testing.T, level byte, fromHere, fromThere Origin, before ...Op) *sites {
	s := &sites{newRig(t), newRig(t), fromHere, fromThere, level}
	for _, g := range []*rig{s.here, s.there} {
		g.SetLevel(level)
		g.apply(fromNode, Contact{Sender: "other"})
	}
	for _, op := range before {
		s.here.client(op)
	}
	s.exchange()
	return s
}

// exchange makes both sites send each other everything until nothing changes.
func (s *sites) exchange() {
	for range 4 {
		for _, way := range []struct {
			from, to *rig
			origin   Origin
		}{{s.here, s.there, s.fromHere}, {s.there, s.here, s.fromThere}} {
			way.to.now = s.here.now
			v := way.from.View()
			for l := range v.All() {
				way.to.apply(way.origin, v.ReplicaOf(l, s.here.now.Lease))
			}
			for rec := range v.Removals() {
				way.to.apply(way.origin, v.RemoveOf(rec, s.here.now.Lease))
			}
		}
	}
}

// TestIntentOfOperatorsOverTheLivesOfAnInstance walks the table of ADR 35: what becomes of an operator's act. "by
// itself" is the client's own PUT status, which stays as in Eureka, and "before" any override below level 3.
func TestIntentOfOperatorsOverTheLivesOfAnInstance(t *testing.T) {
	dc1, dc2 := Origin{Kind: RemoteDC, DC: "dc1"}, Origin{Kind: RemoteDC, DC: "dc2"}
	again := func(g *rig, dirty int64) { g.client(Register{instance(orders1, Up, dirty)}) }
	type want struct{ drain, override, itself, before string }
	gone, stays, eureka := "UP", "OUT_OF_SERVICE", "UP"
	for _, row := range []struct {
		name                string
		fromHere, fromThere Origin
		happens             func(s *sites)
		want                want
	}{
		{"a heartbeat", fromNode, fromNode, func(s *sites) { s.here.client(Renew{Key: orders1, LastDirty: 100}) }, want{stays, stays, stays, stays}},
		{"the same registration again", fromNode, fromNode, func(s *sites) { again(s.here, 100) }, want{stays, stays, stays, stays}},
		{"an older registration", fromNode, fromNode, func(s *sites) { again(s.here, 99) }, want{stays, stays, stays, stays}},
		{"cancel", fromNode, fromNode, func(s *sites) { canceled(s.here); s.exchange(); again(s.here, 101) }, want{gone, stays, eureka, "UP"}},
		{"cancel, the same timestamp", fromNode, fromNode, func(s *sites) { canceled(s.here); s.exchange(); again(s.here, 100) }, want{gone, stays, eureka, "UP"}},
		{"eviction", fromNode, fromNode, func(s *sites) { evicted(s.here); again(s.here, 101) }, want{gone, stays, stays, stays}},
		{"eviction, the same timestamp", fromNode, fromNode, func(s *sites) { evicted(s.here); again(s.here, 100) }, want{gone, stays, eureka, "UP"}},
		{"restart", fromNode, fromNode, func(s *sites) { again(s.here, 101) }, want{gone, stays, stays, stays}},
		{"restart at another node", fromNode, fromNode, func(s *sites) { again(s.there, 101) }, want{gone, stays, stays, stays}},
		{"move to another datacenter", dc1, dc2, func(s *sites) { again(s.there, 101) }, want{gone, stays, stays, stays}},
		{"cancel, and back in another datacenter", dc1, dc2, func(s *sites) { canceled(s.here); s.exchange(); again(s.there, 101) }, want{gone, stays, eureka, "UP"}},
		{"cancel, and back at a node that never had it", fromNode, fromNode, func(s *sites) {
			canceled(s.here)
			s.there = &rig{Registry: New(), t: s.here.t, now: s.here.now}
			s.there.SetLevel(s.level)
			again(s.there, 101)
		}, want{gone, stays, eureka, "UP"}},
		{"cancel that the second node missed", fromNode, fromNode, func(s *sites) { canceled(s.here); again(s.here, 101) }, want{gone, stays, eureka, "UP"}},
		{"cancel that the second node missed, and back there", fromNode, fromNode, func(s *sites) { canceled(s.here); again(s.there, 101) }, want{gone, stays, stays, stays}},
		{"restore", fromNode, fromNode, func(s *sites) {
			saved := s.here.View().SavedOf(s.here.find(orders1))
			canceled(s.here)
			s.here.Readmit(Image{Instances: []Saved{saved}}, keeper)
		}, want{stays, stays, stays, stays}},
		{"restore of what was saved before", fromNode, fromNode, func(s *sites) {
			canceled(s.here)
			s.here.Readmit(Image{Instances: []Saved{{Replica: Replica{Instance: instance(orders1, Up, 100), Life: 1}}}}, keeper)
		}, want{gone, stays, eureka, "UP"}},
		{"restore, and a restart", fromNode, fromNode, func(s *sites) {
			saved := s.here.View().SavedOf(s.here.find(orders1))
			canceled(s.here)
			s.here.Readmit(Image{Instances: []Saved{saved}}, keeper)
			again(s.here, 101)
		}, want{gone, stays, stays, stays}},
		{"cancel and registration at a Eureka peer", fromNode, fromNode, func(s *sites) {
			s.here.peer(Cancel{orders1})
			s.here.pass(maxUnderWay + 1)
			s.here.peer(Register{instance(orders1, Up, 101)})
		}, want{gone, stays, eureka, "UP"}},
		{"restart at a Eureka peer", fromNode, fromNode, func(s *sites) { s.here.peer(Register{instance(orders1, Up, 101)}) }, want{stays, stays, stays, stays}},
	} {
		timed := intents["override"].(SetOverride)
		timed.For = 24 * 60 * 60 * 1000
		for act, ops := range map[string][]Op{
			"drain": {intents["drain"]}, "override": {intents["override"]}, "by itself": {intents["by itself"]}, "quarantine": {intents["quarantine"]},
			"override, drained": {intents["override"], intents["drain"]}, "override for a time, drained": {timed, intents["drain"]},
		} {
			for level, wants := range map[byte]string{
				codec.Newest: cmp.Or(map[string]string{"drain": row.want.drain, "by itself": row.want.itself, "quarantine": "hidden"}[act], row.want.override),
				Level3 - 1:   map[string]string{"quarantine": "hidden"}[act],
			} {
				if wants == "" {
					wants = row.want.before
				}
				for mode, alone := range map[string]bool{"cp": false, "ap": true} {
					s := newSites(t, level, row.fromHere, row.fromThere, append([]Op{Register{instance(orders1, Up, 100)}}, ops...)...)
					s.here.withoutConsensus, s.there.withoutConsensus = alone, alone
					row.happens(s)
					s.exchange()
					for name, g := range map[string]*rig{"the first site": s.here, "the second site": s.there} {
						expect.Equal(t, g.shownAs(), wants, "%s, %s, level %d, mode %s: %s has", row.name, act, level, mode, name)
						need.OK(t, check(g.Registry))
					}
				}
			}
		}
	}
}

// An override waits in the record of the removal until its end, even when the record is reduced, but at most a day.
func TestIntentWaitsForADayAtMost(t *testing.T) {
	const hour = 60 * 60 * 1000
	for name, tc := range map[string]struct {
		lasts, after int64
		want         string
	}{
		"a moment later":           {0, 1000, "OUT_OF_SERVICE"},
		"at the end of the record": {0, 23 * hour, "OUT_OF_SERVICE"},
		"when that is forgotten":   {0, 25 * hour, "UP"},
		"before its end":           {2 * hour, hour, "OUT_OF_SERVICE"},
		"at its end":               {2 * hour, 2 * hour, "UP"},
	} {
		g := withOrders(t)
		g.client(SetOverride{Key: orders1, Status: OutOfService, For: tc.lasts, By: keeper})
		canceled(g)
		for left := tc.after; left > 0; left -= min(left, hour) {
			g.pass(min(left, hour))
			g.Advance(g.now)
		}
		thawed := need.Got(Thaw(g.Freeze()))(t)
		thawed.SetLevel(codec.Newest)
		for _, r := range []*Registry{g.Registry, thawed} {
			again := &rig{Registry: r, t: t, now: g.now}
			again.register(instance(orders1, Up, 101))
			expect.Equal(t, again.shownAs(), tc.want, "%s: it is", name)
			if l := again.find(orders1); l.Override != nil {
				expect.That(t, l.Override.By == keeper && l.Override.Reported == Up && (tc.lasts == 0) == (l.Override.Until == 0),
					"%s: %+v, want the operator's, over UP, with its end", name, l.Override)
			}
			need.OK(t, check(r))
		}
	}
}

// A drain of an instance that an operator keeps out of service for a time ends when that time has passed and its
// client has started again.
func TestIntentOfADrainWithinAnOverridesTime(t *testing.T) {
	const hour = 60 * 60 * 1000
	ends := func(g *rig) {
		g.pass(hour)
		for _, op := range g.Ending(g.now.Lease) {
			g.client(op)
		}
	}
	comesBack := func(g *rig) {
		canceled(g)
		g.register(instance(orders1, Up, 101))
	}
	restarts := func(g *rig) { g.register(instance(orders1, Up, g.find(orders1).Instance.LastDirty+1)) }
	for name, tc := range map[string]struct {
		first, then func(*rig)
	}{"its time passes first": {ends, restarts}, "the restart comes first": {restarts, ends}, "it is canceled first": {comesBack, ends}} {
		g := withOrders(t)
		timed := intents["override"].(SetOverride)
		timed.For = hour
		g.client(timed)
		g.client(intents["drain"])
		edit := g.find(orders1).Edit
		tc.first(g)
		l := g.find(orders1)
		expect.That(t, g.shownAs() == "OUT_OF_SERVICE" && l.Edit == edit+1 && l.Override.By == keeper, "%s: %s, %+v, want it out of service, by a newer edit", name, g.shownAs(), l)
		tc.then(g)
		expect.Equal(t, g.shownAs(), "UP", "%s: and then the other", name)
		need.OK(t, check(g.Registry))
	}
}

func TestIntentThatWaitsCanBeEnded(t *testing.T) {
	g := withOrders(t)
	g.client(intents["override"])
	g.client(intents["quarantine"])
	canceled(g)
	for _, op := range []Op{DeleteOverride{Key: orders1, By: keeper}, Quarantine{Key: orders1, By: keeper}} {
		expect.Equal(t, g.client(op), (Result{Count: 1}), "%T:", op)
		expect.Equal(t, g.client(op), (Result{Outcome: NotFound}), "%T again:", op)
	}
	g.register(instance(orders1, Up, 101))
	expect.Equal(t, g.shownAs(), "UP", "it comes back")
}

// A registration through Consul's API has no client timestamp: only a deregistration ends its drain.
func TestIntentForAServiceOfConsul(t *testing.T) {
	for act, want := range map[string]string{"drain": "UP", "override": "OUT_OF_SERVICE", "by itself": "UP", "quarantine": "hidden"} {
		g := newRig(t)
		key := Key{App: "WEB", ID: "web-1"}
		g.client(service("web", "web-1"))
		switch op := intents[act].(type) {
		case SetOverride:
			op.Key = key
			g.client(op)
		case Quarantine:
			op.Key = key
			g.client(op)
		}
		g.client(service("web", "web-1"))
		l := g.find(key)
		expect.That(t, l.Quarantine != nil || l.Instance.Status == OutOfService, "%s: registered again it is %s", act, l.Instance.Status)
		g.client(DeregisterCatalog{Service: "web-1"})
		g.client(service("web", "web-1"))
		got := g.find(key).Instance.Status.String()
		if g.find(key).Quarantine != nil {
			got = "hidden"
		}
		expect.Equal(t, got, want, "%s: deregistered and registered it is", act)
		need.OK(t, check(g.Registry))
	}
}
