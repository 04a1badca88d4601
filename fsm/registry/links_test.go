package registry

import (
	"math"
	"strings"
	"testing"
)

func TestLinkKnowsWhenThePresentContactBegan(t *testing.T) {
	contact := func(age int64) Contact { return Contact{DC: "dc2", Cut: 15_000, Age: age} }
	tests := []struct {
		name   string
		passed []int64 // ms before each contact
		ages   []int64
		want   Link
	}{
		{"first", []int64{0}, []int64{0}, Link{"dc2", 1000, 1000, 15_000}},
		{"again in time", []int64{0, 15_000}, []int64{0, 0}, Link{"dc2", 16_000, 1000, 15_000}},
		{"again after it was cut", []int64{0, 15_001}, []int64{0, 0}, Link{"dc2", 16_001, 16_001, 15_000}},
		{"passed on, newer", []int64{0, 5000}, []int64{0, 1000}, Link{"dc2", 5000, 1000, 15_000}},
		{"passed on, older", []int64{0, 5000}, []int64{0, 6000}, Link{"dc2", 1000, 1000, 15_000}},
		{"passed on from long ago", []int64{0}, []int64{math.MaxInt64}, Link{"dc2", 1000 - maxAgo, 1000 - maxAgo, 15_000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			for i, ms := range tt.passed {
				g.pass(ms)
				if res := g.apply(fromDC2, contact(tt.ages[i])); res != (Result{}) {
					t.Errorf("got %+v, want no index", res)
				}
			}
			if got, ok := g.View().Link("dc2"); !ok || got != tt.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, tt.want)
			}
		})
	}
}

func TestLinkIsSilentAfterItsCut(t *testing.T) {
	l := Link{Heard: 1000, Cut: 15_000}
	for now, want := range map[int64]bool{1000: false, 16_000: false, 16_001: true} {
		if got := l.Silent(now); got != want {
			t.Errorf("at %d: silent %t, want %t", now, got, want)
		}
	}
	g := newRig(t)
	if l, ok := g.View().Link("dc2"); ok || g.View().Sender("n2") != (Sender{}) {
		t.Errorf("never heard: got %+v, %+v", l, g.View().Sender("n2"))
	}
	g.apply(FromEureka, Contact{DC: "eureka", Cut: 60_000})
	g.apply(FromEureka, Contact{DC: "eureka", Cut: 90_000})
	if l, _ := g.View().Link("eureka"); l.Cut != 90_000 {
		t.Errorf("got %+v, want the cut of the last contact", l)
	}
}

func TestMessageIsAsLateAsItsSendersNewestIsAhead(t *testing.T) {
	g := newRig(t)
	for _, op := range []Contact{
		{Sender: "n3", Boot: 9, Clock: 1}, {Sender: "n2", Boot: 2, Clock: 5000}, {Sender: "n2", Boot: 2, Clock: 4000}, {Sender: "n2", Boot: 1, Clock: 9000},
	} {
		g.apply(fromNode, op)
	}
	s := g.View().Sender("n2")
	if s != (Sender{"n2", 2, 5000}) {
		t.Fatalf("got %+v, want the newest of the newest boot", s)
	}
	tests := []struct {
		name  string
		boot  uint64
		clock int64
		want  int64
	}{
		{"newer", 2, 6000, 0},
		{"the same", 2, 5000, 0},
		{"older", 2, 3000, 2000},
		{"of an older boot", 1, 9000, maxLead},
		{"of a newer boot", 3, 1, 0},
	}
	for _, tt := range tests {
		if got := s.Late(tt.boot, tt.clock); got != tt.want {
			t.Errorf("%s: late by %d, want %d", tt.name, got, tt.want)
		}
	}
	g.apply(fromNode, Contact{Sender: "n2", Boot: 3, Clock: 1})
	if s := g.View().Sender("n2"); s != (Sender{"n2", 3, 1}) {
		t.Errorf("after a new start: got %+v", s)
	}
}

// The duration is 90 s, the interval 30 s.
func TestLeasesOfOthersEndLater(t *testing.T) {
	tests := []struct {
		name   string
		owner  Origin
		before func(g *rig)
		want   int64 // the registration is at 1000
	}{
		{"own", FromClient, func(*rig) {}, 91_000},
		{"no link", fromDC2, func(*rig) {}, 121_000},
		{"link since before", fromDC2, func(g *rig) { g.heard() }, 121_000},
		{"link again since later", fromDC2, func(g *rig) {
			g.heard()
			g.pass(60_000)
			g.heard()
		}, 151_000},
		{"another link again since later", fromDC2, func(g *rig) {
			g.pass(60_000)
			g.apply(FromEureka, Contact{DC: "eureka", Cut: cut})
		}, 121_000},
		{"established later", fromDC2, func(g *rig) {
			g.pass(100_000)
			g.Advance(g.now)
			g.Establish(Epoch{1, 1}, "c")
		}, 136_000},
		{"two durations", fromDC2, func(g *rig) {
			s := DefaultSettings()
			s.DoubledLease = true
			g.Configure(s)
			g.pass(1)
			g.apply(fromDC2, Renew{Key: orders1, Life: 1})
		}, 211_001},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.apply(tt.owner, Register{instance(orders1, Up, 100)})
			tt.before(g)
			if got := g.View().Ends(g.lease(orders1)); got != tt.want {
				t.Errorf("ends at %d, want %d", got, tt.want)
			}
			if due := g.Expired(tt.want, 10); len(due) != 0 {
				t.Errorf("expired at its end: %v", due)
			}
			if due := g.Expired(tt.want+1, 10); len(due) != 1 {
				t.Errorf("expired after its end: %v, want it", due)
			}
		})
	}
}

func TestPeerStateKeepsTheNewestCursor(t *testing.T) {
	g := newRig(t)
	for range 9 {
		g.register(instance(orders1, Up, 100))
	}
	view := g.View()
	g.heard()
	linked := g.View()
	g.pass(1)
	g.heard()
	if l, _ := linked.Link("dc2"); l.Heard == g.now.Lease {
		t.Error("a view's link changed")
	}
	steps := []struct {
		name string
		op   Op
		want PeerState
	}{
		{"cursor 0 is one", AckPeer{"dc2", 0}, PeerState{Name: "dc2", Known: true}},
		{"forward", AckPeer{"dc2", 7}, PeerState{Name: "dc2", Known: true, Cursor: 7}},
		{"never back", AckPeer{"dc2", 5}, PeerState{Name: "dc2", Known: true, Cursor: 7}},
		{"not ahead of the changes", AckPeer{"dc2", 99}, PeerState{Name: "dc2", Known: true, Cursor: 9}},
		{"paused", PausePeer{"dc2", true, Act{"ann", "work"}}, PeerState{Name: "dc2", Known: true, Cursor: 9, Paused: true, By: Act{"ann", "work"}, Since: g.now}},
		{"paused already", PausePeer{"dc2", true, Act{"bob", ""}}, PeerState{Name: "dc2", Known: true, Cursor: 9, Paused: true, By: Act{"ann", "work"}, Since: g.now}},
		{"resumed", PausePeer{"dc2", false, Act{"bob", ""}}, PeerState{Name: "dc2", Known: true, Cursor: 9, By: Act{"bob", ""}, Since: g.now}},
	}
	for _, s := range steps {
		if res := g.client(s.op); res != (Result{}) {
			t.Errorf("%s: %+v, want no index", s.name, res)
		}
		if got := g.View().Peer("dc2"); got != s.want {
			t.Errorf("%s: got %+v, want %+v", s.name, got, s.want)
		}
	}
	if got := g.View().Peer("dc3"); got != (PeerState{Name: "dc3"}) {
		t.Errorf("another peer: got %+v", got)
	}
	if got := view.Peer("dc2"); got != (PeerState{Name: "dc2"}) {
		t.Errorf("a view changed: got %+v", got)
	}
}

func TestThawRefusesWhatCannotBeKnownOfOthers(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(f *Frozen)
		want  string
	}{
		{"link without a name", func(f *Frozen) { f.Links[0].DC = "" }, `link "" after ""`},
		{"links' order", func(f *Frozen) { f.Links[0].DC = "x" }, `link "eureka" after "x"`},
		{"link twice", func(f *Frozen) { f.Links[0].DC = "eureka" }, `link "eureka" after "eureka"`},
		{"heard in the future", func(f *Frozen) { f.Links[0].Heard = 1001 }, "last at 1001"},
		{"heard before it began", func(f *Frozen) { f.Links[0].Since = 1001 }, "heard since 1001"},
		{"cut before it was heard", func(f *Frozen) { f.Links[0].Cut = -1 }, "cut after -1"},
		{"sender without a name", func(f *Frozen) { f.Senders[0].Name = "" }, `sender ""`},
		{"peer without a name", func(f *Frozen) { f.Peers[0].Name = "" }, `peer ""`},
		{"cursor ahead", func(f *Frozen) { f.Peers[0].Cursor = 2 }, "cursor 2"},
		{"cursor that is none", func(f *Frozen) { f.Peers[0].Known = false }, "known: false"},
		{"paused in the future", func(f *Frozen) { f.Peers[0].Since.Lease = 1001 }, "resumed at 1001"},
		{"told later than changed", func(f *Frozen) {
			l := *f.Leases[0].Lease
			l.ByRemote = 2
			f.Leases[0].Lease = &l
		}, "a part of it changed at 2"},
		{"renewed by a client later", func(f *Frozen) { f.Leases[0].Client = 1001 }, "somebody renewed it at 1001"},
		{"renewed elsewhere later", func(f *Frozen) { f.Leases[0].Remote = 1001 }, "somebody renewed it at 1001"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.heard()
			g.apply(FromEureka, Contact{DC: "eureka", Sender: "n2", Cut: 1})
			g.client(AckPeer{"dc2", 1})
			thawed, err := Thaw(g.Freeze())
			if err != nil {
				t.Fatalf("the true state: %v", err)
			}
			f := thawed.Freeze()
			tt.spoil(&f)
			if _, err := Thaw(f); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
