package registry

import (
	"math"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestSetCheckIsAChangeOnlyIfStatusOrOutputIsNew(t *testing.T) {
	for _, tt := range []struct {
		name    string
		before  catalog.CheckStatus
		status  catalog.CheckStatus
		output  string // "old" before
		changes bool
		want    string // output
	}{
		{"the same", catalog.Passing, catalog.Passing, "old", false, "old"},
		{"a passing check's output", catalog.Passing, catalog.Passing, "new", false, "old"},
		{"a warning's output", catalog.Warning, catalog.Warning, "new", true, "new"},
		{"a critical check's output", catalog.Critical, catalog.Critical, "new", true, "new"},
		{"the same, critical", catalog.Critical, catalog.Critical, "old", false, "old"},
		{"worse", catalog.Passing, catalog.Critical, "new", true, "new"},
		{"better", catalog.Critical, catalog.Passing, "new", true, "new"},
		{"warning", catalog.Passing, catalog.Warning, "", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			c := checkOf("web-1", "a", tt.before)
			c.Output = "old"
			g.registerInCatalog(service("web", "web-1", c))
			app, _ := g.View().App("WEB")
			index, changed := g.View().Index(), app.Changed
			res := g.report("a", tt.status, tt.output)
			app, _ = g.View().App("WEB")
			if moved := g.View().Index() > index; moved != tt.changes || (res.Index > 0) != moved || (app.Changed > changed) != moved {
				t.Errorf("index %d to %d, application's %d to %d, result %+v; want a change: %t", index, g.View().Index(), changed, app.Changed, res, tt.changes)
			}
			got := g.check("", "a")
			expect.That(t, got.Status == tt.status && got.Output == tt.want && (got.ModifyIndex > index) == tt.changes && got.CreateIndex <= index,
				"check %+v, want status %d and output %q", got, tt.status, tt.want)
			want := map[bool]Status{true: Down, false: Up}[tt.status == catalog.Critical]
			expect.That(t, g.status(web1) == want, "service is %s, want %s", g.status(web1), want)
			s := g.lease(web1).Service
			expect.That(t, s.ModifyIndex <= index, "the service was modified at %d by its check", s.ModifyIndex)
		})
	}
}

// Of a service's checks other servers get only the status that follows: its instance is newer by its timestamp when
// that status changes, and not otherwise.
func TestCheckThatChangesTheStatusMakesItNewerForOtherServers(t *testing.T) {
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
	dirty := g.lease(web1).Instance.LastDirty
	g.pass(1000)
	g.report("a", catalog.Warning, "slow")
	l := g.lease(web1)
	expect.That(t, l.Instance.LastDirty == dirty && l.Described != l.Changed,
		"a change without another status: timestamp %d after %d, described at %d of %d", l.Instance.LastDirty, dirty, l.Described, l.Changed)
	g.report("a", catalog.Critical, "gone")
	l = g.lease(web1)
	expect.That(t, l.Instance.LastDirty > dirty && l.Described == l.Changed && l.ByClient == l.Changed,
		"another status: timestamp %d after %d, described at %d of %d", l.Instance.LastDirty, dirty, l.Described, l.Changed)
}

func TestSetCheckNeedsItsNodeItsTTLAndTheLeadersEpoch(t *testing.T) {
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
	g.Establish(Epoch{Term: 2, Index: 7}, "c")
	for _, tt := range []struct {
		name string
		op   SetCheck
		want Outcome
	}{
		{"no check", SetCheck{Check: "x"}, NotFound},
		{"of another node", SetCheck{Node: "n1", Check: "a"}, NotFound},
		{"without a TTL", SetCheck{Check: "a", TTL: true, Status: catalog.Critical}, NoTTL},
		{"by a leader of before", SetCheck{Check: "a", Status: catalog.Critical, Epoch: Epoch{Term: 1, Index: 1}}, Refused},
		{"by the leader", SetCheck{Check: "a", Status: catalog.Critical, Epoch: Epoch{Term: 2, Index: 7}}, Done},
	} {
		res := g.client(tt.op)
		expect.That(t, res.Outcome == tt.want, "%s: %+v, want outcome %d", tt.name, res, tt.want)
		expect.Equal(t, g.check("", "a").Status == catalog.Critical, (tt.want == Done), "%s: critical", tt.name)
	}
}

// An operation that no leader should have proposed must not make a state whose snapshot no node accepts.
func TestCheckWithNegativeTimesHasNone(t *testing.T) {
	g := newRig(t)
	given := withTTL("a", -1)
	given.Service, given.ReapAfter = "web-1", -1
	g.registerInCatalog(service("web", "web-1", given))
	c := g.check("", "a")
	expect.That(t, c.TTL == 0 && c.ReapAfter == 0, "TTL %d and end after %d, want none", c.TTL, c.ReapAfter)
	expect.OK(t, expect.Err(Thaw(g.Freeze())))
}

// withTTL is a passing check with a TTL.
func withTTL(id string, ttl int64) *catalog.Check {
	c := checkOf("web-1", id, catalog.Passing)
	c.TTL = ttl
	return c
}

// applyEnding performs what is due now, as the leader would, and returns it.
func (g *rig) applyEnding() []Op {
	ops := g.Ending(g.now.Lease)
	for _, op := range ops {
		if res := g.client(op); res.Outcome != Done {
			g.t.Fatalf("%+v: %+v, want it done", op, res)
		}
	}
	return ops
}

func TestCheckTurnsCriticalWhenItsTTLHasPassed(t *testing.T) {
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", withTTL("a", 10_000), withTTL("b", 20_000)))
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	g.pass(9000)
	index := g.View().Index()
	g.report("a", catalog.Passing, "fine") // says nothing new, and is a heartbeat all the same
	if got := g.View().LastHeartbeat(g.check("", "a")); got != g.now.Lease || g.View().Index() != index {
		t.Errorf("heard at %d, index %d; want %d and %d", got, g.View().Index(), g.now.Lease, index)
	}
	g.pass(10_000)
	ops := g.applyEnding()
	expect.That(t, len(ops) == 0, "at the last moment: %+v, want nothing due", ops)
	g.pass(1)
	g.Lost()
	want := []Op{ExpireCheck{Epoch: Epoch{Term: 1, Index: 1}, Check: "a", RenewedAt: 10_000}}
	need.Slice(t, g.applyEnding(), want, "due")
	if c := g.check("", "a"); c.Status != catalog.Critical || c.Output != "TTL expired" || c.CriticalSince != g.now.Lease || g.status(web1) != Down {
		t.Errorf("check %+v of an instance that is %s, want both to say that the TTL has passed", c, g.status(web1))
	}
	lost := g.Lost()
	expect.That(t, slices.Equal(lost, []catalog.CheckRef{{Node: "", ID: "a"}}), "lost %v, want the check that turned critical", lost)
	g.pass(1000)
	ops = g.applyEnding()
	expect.That(t, len(ops) == 1 && g.check("", "b").Status == catalog.Critical, "due %+v, want the other one, and nothing more of the first", ops)
	g.report("a", catalog.Warning, "slow")
	g.pass(10_001)
	g.applyEnding()
	expect.Equal(t, g.check("", "a").Output, "TTL expired (last output before timeout follows): slow", "output")
}

func TestExpireCheckDoesNothingUnlessTheCheckIsStillSilent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(g *rig)
		op     ExpireCheck
		want   Outcome
	}{
		{"it fits", func(*rig) {}, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, Done},
		{"a heartbeat came", func(g *rig) { g.pass(1); g.report("a", catalog.Passing, "") }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it is critical already", func(g *rig) { g.client(SetCheck{Check: "a", Status: catalog.Critical}) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it is gone", func(g *rig) { g.client(Cancel{web1}) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"it expects no heartbeats", func(g *rig) { g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing))) }, ExpireCheck{Epoch{Term: 1, Index: 1}, "", "a", 1000}, NotFound},
		{"another leader", func(*rig) {}, ExpireCheck{Epoch{Term: 1, Index: 2}, "", "a", 1000}, Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.registerInCatalog(service("web", "web-1", withTTL("a", 10_000)))
			g.Establish(Epoch{Term: 1, Index: 1}, "c")
			tt.before(g)
			res := g.client(tt.op)
			expect.That(t, res.Outcome == tt.want, "got %+v, want outcome %d", res, tt.want)
		})
	}
}

func TestCheckGetsAGraceAfterALeadershipBegan(t *testing.T) {
	for _, tt := range []struct{ ttl, want int64 }{{3000, 3000}, {10_000, 7000}, {60_000, 32_000}} {
		g := newRig(t)
		g.registerInCatalog(service("web", "web-1", withTTL("a", tt.ttl)))
		end := g.now.Lease + tt.ttl + tt.want
		for term := range uint64(2) { // whoever leads next gives it no second grace
			g.pass(tt.ttl + 1000*int64(term))
			g.Advance(g.now)
			g.Establish(Epoch{Term: 1 + term, Index: 1}, "c")
			ops := g.Ending(end)
			expect.That(t, len(ops) == 0, "TTL %d, term %d: due before its end: %+v", tt.ttl, 1+term, ops)
			expect.That(t, len(g.Ending(end+1)) == 1, "TTL %d, term %d: not due after its end", tt.ttl, 1+term)
		}
	}
}

func TestCheckCriticalForTooLongRemovesItsService(t *testing.T) {
	reaped := func(id string) *catalog.Check {
		c := checkOf("web-1", id, catalog.Passing)
		c.ReapAfter = 60_000
		return c
	}
	g := newRig(t)
	node := reaped("n")
	node.Service = ""
	g.registerInCatalog(service("web", "web-1", reaped("a"), node))
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	g.report("a", catalog.Critical, "")
	g.report("n", catalog.Critical, "") // no service is reaped for a node's check
	since := g.now.Lease
	g.pass(30_000)
	g.report("a", catalog.Critical, "still") // it stays critical since the first report
	g.pass(30_000)
	ops := g.applyEnding()
	need.That(t, len(ops) == 0, "at the last moment: %+v, want nothing due", ops)
	r, err := Thaw(g.Freeze()) // the time that it is critical is part of the state
	need.OK(t, err)
	g.Registry = r
	g.pass(1)
	late := DeregisterCatalog{Service: "web-1", Check: "a", Epoch: Epoch{Term: 1, Index: 1}, CriticalSince: since}
	if ops := g.Ending(g.now.Lease); len(ops) != 1 || ops[0] != late {
		t.Fatalf("due %+v, want %+v", ops, late)
	}
	g.report("a", catalog.Passing, "")
	res := g.client(late)
	expect.That(t, res.Outcome == NotFound, "it passes again: %+v, want nothing done", res)
	g.report("a", catalog.Critical, "")
	res = g.client(late)
	expect.That(t, res.Outcome == NotFound, "critical since another moment: %+v, want nothing done", res)
	g.pass(60_001)
	stale := g.Ending(g.now.Lease)[0].(DeregisterCatalog)
	stale.Epoch = Epoch{Term: 1, Index: 2}
	res = g.client(stale)
	expect.That(t, res.Outcome == Refused, "by another leader: %+v, want it refused", res)
	g.applyEnding()
	_, ok := g.View().Lease(web1)
	expect.That(t, !ok, "the service is still there")
	rec, _ := g.View().Removal(web1)
	events := rec.History.Events()
	last := events[len(events)-1]
	expect.That(t, rec.Kind == Canceled && last.By.Reason == "its check a was critical for too long",
		"record of kind %d, by %+v; want it canceled, with the reason", rec.Kind, last.By)
}

func TestLostHasEachCheckThatTurnsCriticalOrIsRemoved(t *testing.T) {
	a := []catalog.CheckRef{{Node: "", ID: "a"}}
	for _, tt := range []struct {
		name string
		op   Op
		want []catalog.CheckRef
	}{
		{"critical", SetCheck{Check: "a", Status: catalog.Critical}, a},
		{"warning", SetCheck{Check: "a", Status: catalog.Warning}, nil},
		{"registered as critical", service("web", "web-1", checkOf("web-1", "a", catalog.Critical)), a},
		{"registered as it is", service("web", "web-1", checkOf("web-1", "a", catalog.Passing)), nil},
		{"a new one that is critical", service("web", "web-1", checkOf("web-1", "b", catalog.Critical)), nil},
		{"its instance canceled", Cancel{web1}, a},
		{"its instance replaced by one with a lease", Register{instance(web1, Up, math.MaxInt64)}, a},
		{"its instance replaced by another server's", Replica{Instance: instance(web1, Up, math.MaxInt64), Life: 1}, a},
		{"its instance removed elsewhere", Remove{Key: web1, Kind: Canceled, Life: 9}, a},
		{"its instance in quarantine", Quarantine{Key: web1, For: 1000}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.registerInCatalog(service("web", "web-1", checkOf("web-1", "a", catalog.Passing)))
			g.Lost()
			g.client(tt.op)
			expect.Slice(t, g.Lost(), tt.want, "lost")
			status, known := g.CheckState("", "a")
			expect.That(t, known != (tt.want != nil && status != catalog.Critical), "check is known: %t, with status %d", known, status)
		})
	}
}
