package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const registryPage = "../../docs/reference/protocol/eureka-registry.md"

// beaten returns a heartbeat's answer as HTTP has it.
func beaten(g *rig, origin Origin, op Renew) string {
	return map[Outcome]string{Done: "200", Newer: "404", NotFound: "404", Older: "409"}[g.apply(origin, op).Outcome]
}

// underTheSameTimestamp says what becomes of heartbeats that report a status, when another one was registered under
// the same timestamp and operators did something: for a client that sends nothing else, for one that registers the
// old status after each 404, and for one that registers the new one; at the node that has the registration, at
// another one, and in turn.
func underTheSameTimestamp(t *testing.T, stored, said Status, alone bool, acts ...Op) (cell string) {
	t.Helper()
	for _, where := range []string{"here", "there", "in turn"} {
		for _, how := range []string{"beats on", "registers the old", "registers the new"} {
			s := newSites(t, codec.Newest, fromNode, fromNode, append([]Op{Register{instance(orders1, stored, 100)}}, acts...)...)
			s.here.withoutConsensus, s.there.withoutConsensus = alone, alone
			before := s.here.find(orders1).reported()
			var answers []string
			dirty := int64(100)
			for n := range 6 {
				at := map[string]*rig{"here": s.here, "there": s.there, "in turn": []*rig{s.here, s.there}[n%2]}[where]
				answers = append(answers, beaten(at, FromClient, Renew{Key: orders1, Status: said, LastDirty: dirty}))
				if answers[n] == "404" && how == "registers the old" {
					at.client(Register{instance(orders1, stored, dirty)})
				}
				if answers[n] == "404" && how == "registers the new" {
					dirty++
					at.client(Register{instance(orders1, said, dirty)})
				}
				s.exchange()
			}
			what := fmt.Sprintf("%s registered, %s said %s, client %s, alone %t, acts %v", stored, said, where, how, alone, acts)
			asked := len(answers) - len(slices.DeleteFunc(slices.Clone(answers), func(a string) bool { return a == "404" }))
			is := s.here.find(orders1).reported()
			got := answers[0]
			switch {
			case is != before && answers[0] == "200":
				got = is.String() + " at once"
			case is != before:
				got += ", then " + is.String()
			}
			if stored != Unknown { // else it waits for a registration
				nodes := map[string]int{"in turn": 2}[where]
				expect.That(t, asked <= cmp.Or(nodes, 1), "%s: asked to register %d times", what, asked)
			}
			// An instance without a status accepts any registration.
			if cell = cmp.Or(cell, got); how == "beats on" || stored != Unknown {
				expect.Equal(t, got, cell, "%s: it", what)
			}
			for _, g := range []*rig{s.here, s.there} {
				l := g.find(orders1)
				expect.That(t, l.reported() == is && l.Version() == s.here.find(orders1).Version(), "%s: sites have %s at %+v and %s", what, l.reported(), l.Version(), is)
				expect.That(t, len(acts) == 0 || l.Quarantine != nil || l.Instance.Overridden == OutOfService, "%s: what operators decided is gone", what)
				need.OK(t, check(g.Registry))
			}
		}
	}
	return cell
}

// The tables of the page, made by go test ./fsm/registry -run Heartbeats -update: what heartbeats report against what
// is stored. They include a new status automatically.
func TestHeartbeatsAgainstWhatIsStored(t *testing.T) {
	var all []Status
	for s := range Status(statusCount) {
		all = append(all, s)
	}
	states := []struct {
		name string
		acts []Op
	}{
		{"as it registered", nil}, {"quarantined", []Op{intents["quarantine"]}}, {"overridden", []Op{intents["override"]}},
		{"overridden by its client", []Op{intents["by itself"]}}, {"drained", []Op{intents["drain"]}},
	}
	table := "| The instance is | Registered | Heartbeats say |" + strings.Repeat(" |", len(all)-2) + "\n|---|---|" + strings.Repeat("---|", len(all)-1) + "\n| | |"
	for _, said := range all[1:] {
		table += fmt.Sprintf(" `%s` |", said)
	}
	names := map[string][]string{} // of the states with equal rows
	var order []string
	for _, state := range states {
		var rows string
		for _, stored := range all {
			rows += fmt.Sprintf("`%s` |", stored)
			for _, said := range all[1:] {
				cp, ap := underTheSameTimestamp(t, stored, said, false, state.acts...), underTheSameTimestamp(t, stored, said, true, state.acts...)
				expect.Equal(t, ap, cp, "%s, %s registered, %s said: without consensus", state.name, stored, said)
				rows += fmt.Sprintf(" %s |", cp)
			}
			rows += "\n"
		}
		if names[rows] == nil {
			order = append(order, rows)
		}
		names[rows] = append(names[rows], state.name)
	}
	for _, rows := range order {
		for line := range strings.Lines(rows) {
			table += fmt.Sprintf("\n| %s | %s", strings.Join(names[rows], ", "), strings.TrimSuffix(line, "\n"))
		}
	}
	table += "\n\n| `STARTING` was registered, at 100. Heartbeats say `UP` | Answers | It is then |\n|---|---|---|\n"
	for _, row := range []struct {
		name   string
		origin Origin
		level  byte
		dirty  int64
		before []Op
	}{
		{"at 100", FromClient, codec.Newest, 100, nil},
		{"without a timestamp", FromClient, codec.Newest, 0, nil},
		{"at an older one", FromClient, codec.Newest, 99, nil},
		{"at a newer one", FromClient, codec.Newest, 101, nil},
		{"at 100, after a change of metadata", FromClient, codec.Newest, 100, []Op{UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "a", Value: "b"}}}}},
		{"at 50, and a registration at 50 has replaced that at 100", FromClient, codec.Newest, 50, []Op{Register{instance(orders1, Starting, 50)}}},
		{"at 100, which a registration at 50 has replaced", FromClient, codec.Newest, 100, []Op{Register{instance(orders1, Starting, 50)}}},
		{"the same, from a Eureka server", FromEureka, codec.Newest, 100, []Op{Register{instance(orders1, Starting, 50)}}},
		{"at 100, from a Eureka server", FromEureka, codec.Newest, 100, nil},
		{"at 100, from another datacenter", Origin{Kind: RemoteDC, DC: "dc2"}, codec.Newest, 100, nil},
		{"at 100, from a node of this datacenter", fromNode, codec.Newest, 100, nil},
		{"at 100, below level 3 of the formats", FromClient, Level3 - 1, 100, nil},
	} {
		s := newSites(t, row.level, fromNode, fromNode, append([]Op{Register{instance(orders1, Starting, 100)}}, row.before...)...)
		var answers []string
		for range 3 {
			answers = append(answers, beaten(s.here, row.origin, Renew{Key: orders1, Status: Up, LastDirty: row.dirty}))
		}
		s.exchange()
		expect.Equal(t, s.there.status(orders1), s.here.status(orders1), "%s: at the second site", row.name)
		table += fmt.Sprintf("| %s | %s | `%s` |\n", row.name, strings.Join(answers, ", "), s.here.status(orders1))
	}
	golden.Part(t, registryPage, "<!-- heartbeats: made by go test ./fsm/registry -run Heartbeats -update -->\n", "<!-- end of heartbeats -->", table)
}

// at returns an instance at an address.
func at(address string, dirty int64) Register {
	i := instance(orders1, Up, dirty)
	i.IPAddr = address
	return Register{i}
}

// A clock that was ahead, a crash, and the same id at a new address with the right clock.
func TestRegistrationsOfAClientCountInTheOrderInWhichTheyCome(t *testing.T) {
	dc1, dc2 := Origin{Kind: RemoteDC, DC: "dc1"}, Origin{Kind: RemoteDC, DC: "dc2"}
	const ahead = 3_599_000
	beat := func(dirty int64) Renew { return Renew{Key: orders1, LastDirty: dirty} }
	color := func(value string) Op {
		return UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "color", Value: value}}}
	}
	for _, row := range []struct {
		name  string
		then  func(s *sites) // after dead was registered at ahead
		want  string         // address
		dirty int64
	}{
		{"at the same node", func(s *sites) { s.here.client(at("new", 100)) }, "new", 100},
		{"at another node", func(s *sites) { s.there.client(at("new", 100)) }, "new", 100},
		{"it was evicted meanwhile", func(s *sites) { evicted(s.here); s.here.client(at("new", 100)) }, "new", 100},
		{"and registers again", func(s *sites) { s.here.client(at("new", 100)); s.exchange(); s.there.client(at("newer", 200)) }, "newer", 200},
		{"what the dead one had sent comes late", func(s *sites) { s.here.client(at("new", 100)); s.here.client(at("dead", ahead)) }, "new", 100},
		{"what the dead one had sent comes late elsewhere", func(s *sites) { s.here.client(at("new", 100)); s.exchange(); s.there.client(at("dead", ahead)) }, "new", 100},
		{"after an eviction what the dead one had sent comes late", func(s *sites) { evicted(s.here); s.here.client(at("new", 100)); s.here.client(at("dead", ahead)) }, "new", 100},
		{"a Eureka server has the dead one", func(s *sites) {
			s.here.client(at("new", 100))
			expect.Equal(t, s.here.peer(at("dead", ahead)).Outcome, KeptExisting, "the server's copy:")
			expect.Equal(t, s.here.peer(at("dead", ahead-1)).Outcome, KeptExisting, "its copy of before a change of metadata:")
		}, "new", 100},
		{"a Eureka server overrides the dead one", func(s *sites) {
			s.here.client(at("new", 100))
			s.here.peer(SetOverride{Key: orders1, Status: OutOfService, LastDirty: ahead})
			s.here.peer(DeleteOverride{Key: orders1, Fallback: Up, LastDirty: ahead})
			expect.Equal(t, s.here.peer(at("dead", ahead)).Outcome, KeptExisting, "the server's copy after an override:")
		}, "new", 100},
		{"and it is sent once more", func(s *sites) { s.here.client(at("new", ahead+1)); s.here.client(at("dead", ahead)) }, "new", ahead + 1},
		{"one that was under way for long, until the next heartbeat", func(s *sites) {
			s.here.client(at("new", ahead+1))
			s.here.client(at("newer", ahead+3))
			s.exchange()
			s.there.client(at("late", ahead+2))
			s.exchange()
			expect.Equal(t, s.here.lease(orders1).Instance.IPAddr, "late", "until the next heartbeat it is")
			expect.Equal(t, s.here.client(beat(ahead+3)).Outcome, Newer, "the next heartbeat:")
			s.here.client(at("newer", ahead+3))
		}, "newer", ahead + 3},
		{"of a clock that goes on ahead", func(s *sites) { s.here.client(at("new", 100)); s.here.client(at("newer", ahead+1)) }, "newer", ahead + 1},
		{"metadata was changed, and it is sent once more", func(s *sites) {
			s.here.client(at("new", 100))
			s.here.client(color("blue"))
			s.here.client(color("red"))
			s.exchange()
			s.here.client(at("new", 100))
			s.there.client(at("new", 100))
			expect.Equal(t, s.there.lease(orders1).Instance.Meta("color"), "red", "metadata")
		}, "new", 102},
		{"metadata was changed, and it registers older", func(s *sites) { s.here.client(color("blue")); s.there.client(at("new", 100)) }, "new", 100},
	} {
		for _, origins := range [][2]Origin{{fromNode, fromNode}, {dc1, dc2}} {
			for _, alone := range []bool{false, true} {
				for _, level := range []byte{codec.Newest, Level3 - 1} {
					s := newSites(t, level, origins[0], origins[1], at("dead", ahead))
					s.here.withoutConsensus, s.there.withoutConsensus = alone, alone
					if level == codec.Newest {
						row.then(s)
					} else {
						s.here.client(at("new", 100))
					}
					s.exchange()
					for name, g := range map[string]*rig{"the first": s.here, "the second": s.there} {
						i := g.find(orders1).Instance
						what := fmt.Sprintf("%s, %v, alone %t, level %d: %s site", row.name, origins, alone, level, name)
						if level == codec.Newest {
							expect.That(t, i.IPAddr == row.want && i.LastDirty == row.dirty, "%s has %s at %d, want %s at %d", what, i.IPAddr, i.LastDirty, row.want, row.dirty)
						} else {
							expect.Equal(t, i.IPAddr, "dead", "%s has", what)
						}
						for range 2 {
							expect.Equal(t, g.client(beat(min(row.dirty, i.LastDirty))).Outcome, Done, "%s: a heartbeat of the living", what)
							g.client(beat(ahead)) // from the dead one
						}
						expect.That(t, g.find(orders1).Instance == i, "%s: heartbeats changed it", what)
						need.OK(t, check(g.Registry))
					}
				}
			}
		}
	}
}

// Replicas answer alike, even one that was restored from a snapshot after the client was asked.
func TestHeartbeatThatWasAskedForCountsAfterASnapshot(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Starting, 100))
	beat := Renew{Key: orders1, Status: Up, LastDirty: 100}
	expect.Equal(t, g.client(beat).Outcome, Newer, "the first:")
	thawed := need.Got(Thaw(g.Freeze()))(t)
	thawed.SetLevel(codec.Newest)
	again := &rig{Registry: thawed, t: t, now: g.now}
	expect.Equal(t, again.client(beat).Outcome, Done, "the second:")
	expect.Equal(t, again.status(orders1), Up, "it is")
}
