package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const (
	first  = "http://10.0.0.1:8761"
	second = "http://10.0.0.2:8761"
)

// at is a time of the minute that the tests are about.
func at(second int) time.Time { return time.Date(2026, 1, 31, 12, 0, second, 0, time.UTC) }

// healthy is what a server says of a cluster that is well.
func healthy(second int) reading {
	heard := int64(400)
	r := reading{
		at: at(second), server: first,
		status: client.Status{
			Node: "node1", Datacenter: "dc1", Mode: "cp", Leader: "node2", Ready: true, Quorum: true, Condition: "well", Summary: "Healthy: one node may fail.",
			Nodes: []client.NodeStatus{
				{ID: "node1", Role: "follower", Version: "0.1", Contact: 31, DiskFree: 92_400_000_000, Zone: "a"},
				{ID: "node2", Role: "leader", Version: "0.1", DiskFree: 92_400_000_000, Zone: "b"},
				{ID: "node3", Role: "follower", Version: "0.1", Contact: 40, Lag: 4, DiskFree: 92_400_000_000, Zone: "c"},
			},
		},
		preserving: client.SelfPreservation{State: "off", Figures: client.Figures{Leases: 28, Counted: 27, Fresh: 24}, Applications: []client.AppFigures{
			{App: "ORDERS", Figures: client.Figures{Leases: 5, Counted: 4, Fresh: 1}, Overdue: []client.Overdue{{ID: "orders-2", SilentMS: 65_000}}},
			{App: "USERS", Figures: client.Figures{Leases: 9, Counted: 9, Fresh: 9}},
		}},
		peers: client.Peers{Peers: []client.Peer{
			{Name: "dc2", Kind: "datacenter", State: "ok", LagChanges: 12, LagMS: 1500, Incoming: &client.Incoming{Instances: 20, HeardMS: &heard, OnCut: "keep"}},
		}},
		figures: figures{known: true, up: 22, notUp: 6, apps: []appFigures{{"BILLING", 3, 4}, {"ORDERS", 2, 5}, {"PAY", 0, 2}, {"USERS", 9, 9}}},
	}
	for i := range 8 {
		r.figures.apps = append(r.figures.apps, appFigures{fmt.Sprintf("W%d", i+1), 1, 1})
	}
	return r
}

// sample is a model of a cluster that is well, with two changes.
func sample() *model {
	m := newModel([]string{first, second})
	m.add(healthy(0))
	m.follow(at(1), client.WatchStart{Server: first})
	m.follow(at(3), client.WatchChange{Action: "ADDED", Why: "registered", App: "ORDERS", ID: "orders-3", Status: "UP"})
	m.follow(at(4), client.WatchChange{Action: "DELETED", Why: "evicted", App: "BILLING", ID: "billing-9", Status: "UP"})
	return m
}

func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

func TestFrameOfAnOrdinaryTerminal(t *testing.T) {
	const want = `rollcall top  dc1  cp  http://10.0.0.1:8761 (node1)  12:00:05Z
Healthy: one node may fail. node2 leads; 3 of 3 nodes answer.
Instances 22 UP, 6 not UP   Applications 12   Changes a minute 2 in 4s
Overdue leases 3   Self-preservation off   Nodes 3 of 3   Peers 1 of 1 ok
NODE   ROLE      VERSION  CONTACT   LAG  DISK FREE  ZONE
node1  follower  0.1      31ms ago  0    92.4 GB    a
node2  leader    0.1      -         0    92.4 GB    b
node3  follower  0.1      40ms ago  4    92.4 GB    c
PEER  KIND        STATE  LAG  BEHIND BY  LINK
dc2   datacenter  ok     12   2s         up
NEEDS ATTENTION
PAY: 0 of 2 UP
ORDERS: 2 of 5 UP
ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s
UP  ALL  OVERDUE  APPLICATION  1-5 of 12
0   2    0        PAY
3   4    0        BILLING
2   5    3        ORDERS
9   9    0        USERS
1   1    0        W1
LAST CHANGES
12:00:04Z  DELETED  UP  evicted     BILLING/billing-9
12:00:03Z  ADDED    UP  registered  ORDERS/orders-3
q quit   / filter   ↑↓ scroll   ? help
`
	got := text(sample().frame(at(5), 80, 24))
	expect.That(t, got == want, "got\n%s\nwant\n%s", got, want)
}

func TestFramesFitEverySize(t *testing.T) {
	for width := 1; width <= 120; width += 7 {
		for height := 1; height <= 60; height++ {
			for _, help := range []bool{false, true} {
				m := sample()
				m.help = help
				lines := m.frame(at(5), width, height)
				need.Equal(t, len(lines), height, "lines of a frame of %d by %d:", width, height)
				for _, l := range lines {
					need.That(t, uniseg.StringWidth(l.text) <= width, "a frame of %d columns has %q", width, l.text)
				}
			}
		}
	}
}

func TestFrameWithoutLimitsHasEverything(t *testing.T) {
	got := text(sample().frame(at(5), 0, 0))
	for _, want := range []string{"\n1   1    0        W8\n", "\n\nLAST CHANGES\n", "node3  follower"} {
		expect.That(t, strings.Contains(got, want), "there is no %q in\n%s", want, got)
	}
	expect.That(t, !strings.Contains(got, "q quit"), "text that nobody reads on a terminal speaks of keys:\n%s", got)
}

// Whatever a service, a peer or a server is called, and whatever people type, reaches the terminal as visible characters.
func TestHostileNamesDoNotReachTheTerminal(t *testing.T) {
	const hostile = "x\x1b]0;owned\x07\x1b[2J\u202egnp\u2066.\u200f\u009b31m\r\n\t\xff\u200by"
	for _, tc := range []struct {
		name string
		make func(r *reading)
	}{
		{"node", func(r *reading) {
			r.status.Nodes[0].ID, r.status.Nodes[1].Zone, r.status.Nodes[1].Version = hostile, hostile, hostile
		}},
		{"cluster", func(r *reading) { r.status.Datacenter, r.status.Leader, r.status.Node = hostile, hostile, hostile }},
		{"summary", func(r *reading) { r.status.Summary, r.status.Warning = hostile, hostile }},
		{"foreign node", func(r *reading) {
			r.status.Foreign = []client.ForeignNode{{ID: hostile, Address: hostile, ClusterID: hostile}}
		}},
		{"peer", func(r *reading) {
			r.peers.Peers[0] = client.Peer{Name: hostile, Kind: hostile, State: "failing", Reason: hostile, Incoming: &client.Incoming{Cut: true, OnCut: hostile}}
		}},
		{"application", func(r *reading) { r.figures.apps[2].name = hostile }},
		{"overdue", func(r *reading) {
			r.preserving = client.SelfPreservation{State: "on", Reason: hostile, Applications: []client.AppFigures{
				{App: hostile, Figures: client.Figures{Counted: 2}, Overdue: []client.Overdue{{ID: hostile}}},
			}}
		}},
		{"refusal", func(r *reading) { r.gaps = []string{hostile} }},
		{"no server", func(r *reading) { *r = reading{at: at(1), failures: []failure{{hostile, errors.New(hostile)}}} }},
		{"server", func(r *reading) { r.server = hostile }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, m := healthy(0), sample()
			tc.make(&r)
			m.add(r)
			m.follow(at(4), client.WatchChange{Action: hostile, Why: hostile, App: hostile, ID: hostile, Status: hostile})
			m.follow(at(4), client.WatchReset{Reason: hostile})
			m.breakStream(at(4), hostile)
			m.filter = hostile
			for _, size := range [][2]int{{80, 24}, {80, 60}, {0, 0}} {
				for _, l := range m.frame(at(5), size[0], size[1]) {
					bare := strings.Map(func(r rune) rune {
						if unicode.IsPrint(r) {
							return -1
						}
						return r
					}, l.text)
					expect.That(t, bare == "", "a frame of %d by %d has %q in %q", size[0], size[1], bare, l.text)
				}
			}
		})
	}
}

func TestKeysScrollAndFilterApplications(t *testing.T) {
	type press struct {
		key tcell.Key
		r   rune
	}
	typed := func(text string) (all []press) {
		for _, r := range text {
			all = append(all, press{tcell.KeyRune, r})
		}
		return all
	}
	down, up, enter, esc := press{tcell.KeyDown, 0}, press{tcell.KeyUp, 0}, press{tcell.KeyEnter, 0}, press{tcell.KeyEsc, 0}
	for _, tc := range []struct {
		name string
		keys []press
		want string // in the frame
	}{
		{"down", []press{down, down}, "APPLICATION  3-7 of 12\n2   5    3        ORDERS\n"},
		{"up from the top", []press{up, up}, "APPLICATION  1-5 of 12\n"},
		{"page down", []press{{tcell.KeyPgDn, 0}}, "APPLICATION  6-10 of 12\n"},
		{"to the end and up", []press{{tcell.KeyEnd, 0}, up}, "APPLICATION  7-11 of 12\n"},
		{"back to the top", []press{{tcell.KeyEnd, 0}, {tcell.KeyHome, 0}}, "APPLICATION  1-5 of 12\n"},
		{"letters", append(typed("jjk"), down), "APPLICATION  3-7 of 12\n"},
		{"filter", append(typed("/er"), enter), "APPLICATION  (2 of 12 have \"er\" in their names)\n2   5    3        ORDERS\n9   9    0        USERS\nLAST"},
		{"filter that is being typed", typed("/er"), "\nFilter: er_ "},
		{"corrected filter", append(typed("/erq"), press{tcell.KeyBackspace2, 0}, enter), "(2 of 12 have"},
		{"filter without a match", append(typed("/q"), enter), "(0 of 12 have \"q\" in their names)\nLAST"},
		{"filter that is given up", append(typed("/er"), esc), "APPLICATION  1-5 of 12\n"},
		{"filter that is cleared later", append(typed("/er"), enter, esc), "APPLICATION  1-5 of 12\n"},
		{"help", typed("?"), "\nq, Ctrl-C     quit\n"},
		{"help and back", typed("??"), "APPLICATION  1-5 of 12\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := sample()
			for _, k := range tc.keys {
				m.frame(at(5), 80, 24) // which knows how far the list goes
				m.press(k.key, k.r)
			}
			got := text(m.frame(at(5), 80, 24))
			expect.That(t, strings.Contains(got, tc.want), "there is no %q in\n%s", tc.want, got)
			expect.That(t, !m.quit, "it quits")
		})
	}
	for _, quit := range [][]press{typed("q"), {{tcell.KeyCtrlC, 0}}, append(typed("/q"), press{tcell.KeyCtrlC, 0})} {
		m := sample()
		for _, k := range quit {
			m.press(k.key, k.r)
		}
		expect.That(t, m.quit, "after %v it does not quit", quit)
	}
}

func TestChangesAreCountedForAMinute(t *testing.T) {
	m := newModel([]string{first})
	expect.Equal(t, m.changeRate(at(0)), "?", "before the stream:")
	m.follow(at(0), client.WatchStart{Server: first})
	for i := range 30 {
		m.follow(at(i), client.WatchChange{App: "A", ID: "a"})
	}
	expect.Equal(t, m.changeRate(at(40)), "30 in 40s", "after 40 s:")
	expect.Equal(t, m.changeRate(at(70)), "19", "after 70 s:")
	expect.Equal(t, len(m.changes), keptChanges, "kept:")

	old := newModel([]string{first})
	old.addEvents(at(59), client.Events{
		Registered: []client.Event{{At: at(50).UnixMilli(), App: "A", ID: "a"}, {At: at(-10).UnixMilli(), App: "A", ID: "b"}},
		Canceled:   []client.Event{{At: at(55).UnixMilli(), App: "A", ID: "a"}},
	})
	expect.Equal(t, old.changeRate(at(59)), "2", "of what the server remembers:")
	expect.That(t, len(old.changes) == 3 && old.changes[0].action == "DELETED" && old.changes[2].id == "b", "changes %v, want the newest first", old.changes)

	both := newModel([]string{first})
	both.follow(at(52), client.WatchStart{Server: first})
	both.follow(at(55), client.WatchChange{Action: "DELETED", App: "A", ID: "a"})
	both.addEvents(at(59), client.Events{Registered: []client.Event{{At: at(50).UnixMilli(), App: "A", ID: "a"}}, Canceled: []client.Event{{At: at(55).UnixMilli(), App: "A", ID: "a"}}})
	expect.That(t, both.changeRate(at(59)) == "2" && len(both.changes) == 2, "of both: %s, and %v; want each change once", both.changeRate(at(59)), both.changes)
}
