package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
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

// at returns a time in the minute that the tests are about.
func at(second int) time.Time { return time.Date(2026, 1, 31, 12, 0, second, 0, time.UTC) }

func healthy(second int) reading {
	heard := int64(400)
	o := client.Overview{
		Line: client.Line{Level: "well", Text: "Healthy. node2 leads; 3 of 3 nodes agree; one may fail."},
		Figures: client.OverviewFigures{Up: 22, NotUp: 6, Apps: 12, Changes: new(12.0), Writes: new(41.25), WriteP99: new(0.0021),
			Watchers: 2, Overdue: 3, Applications: 12, SampledMS: at(second).UnixMilli()},
		Attention: []client.Attention{
			{Level: "bad", Text: "PAY: none of 2 instances is UP", App: "PAY"},
			{Level: "warn", Text: "ORDERS: 2 UP, within ten minutes 5 were", App: "ORDERS"},
			{Level: "warn", Text: "ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s", App: "ORDERS"},
		},
		Apps: []client.AppCount{{App: "PAY", All: 2}, {App: "ORDERS", Up: 2, All: 5, Before: 5, Overdue: 3}, {App: "BILLING", Up: 3, All: 4}, {App: "USERS", Up: 9, All: 9}},
		Status: client.Status{
			Node: "node1", Datacenter: "dc1", Mode: "cp", Leader: "node2", Ready: true, Quorum: true, Condition: "well",
			Nodes: []client.NodeStatus{
				{ID: "node1", Role: "follower", Version: "0.1", Contact: 31, DiskFree: 92_400_000_000, Zone: "a"},
				{ID: "node2", Role: "leader", Version: "0.1", DiskFree: 92_400_000_000, Zone: "b"},
				{ID: "node3", Role: "follower", Version: "0.1", Contact: 40, Lag: 4, DiskFree: 92_400_000_000, Zone: "c"},
			},
		},
		SelfPreservation: client.SelfPreservation{State: "off"},
		Peers: client.Peers{Peers: []client.Peer{
			{Name: "dc2", Kind: "datacenter", State: "ok", LagChanges: 12, LagMS: 1500, Incoming: &client.Incoming{Instances: 20, HeardMS: &heard, OnCut: "keep"}},
		}},
	}
	for i := range 8 {
		o.Apps = append(o.Apps, client.AppCount{App: fmt.Sprintf("W%d", i+1), Up: 1, All: 1})
	}
	return reading{at: at(second), server: first, overview: o}
}

// sample returns a model of a healthy cluster, with two changes.
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
Healthy. node2 leads; 3 of 3 nodes agree; one may fail.
Instances 22 UP, 6 not UP   Applications 12   Overdue leases 3
Changes a minute 12   Writes a second 41.3, p99 2.1ms   Watchers 2
Self-preservation off   Nodes 3 of 3   Peers 1 of 1 ok
NODE   ROLE      VERSION  CONTACT   LAG  DISK FREE  ZONE
node1  follower  0.1      31ms ago  0    92.4 GB    a
node2  leader    0.1      -         0    92.4 GB    b
node3  follower  0.1      40ms ago  4    92.4 GB    c
PEER  KIND        STATE  LAG  BEHIND BY  LINK
dc2   datacenter  ok     12   2s         up
NEEDS ATTENTION
PAY: none of 2 instances is UP
ORDERS: 2 UP, within ten minutes 5 were
ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s
UP  ALL  OVERDUE  APPLICATION  1-4 of 12
0   2    0        PAY
2   5    3        ORDERS
3   4    0        BILLING
9   9    0        USERS
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

func TestFiguresThatAreNotKnownAreNotMadeUp(t *testing.T) {
	started := healthy(0) // a server that has just started has no rates
	f := &started.overview.Figures
	f.Changes, f.Writes, f.WriteP99, f.Overdue, f.SampledMS = nil, nil, nil, 0, 0
	idle := healthy(0)
	idle.overview.Figures.Writes, idle.overview.Figures.WriteP99, idle.overview.Peers = new(0.0), nil, client.Peers{}
	for _, tc := range []struct {
		name string
		read reading
		want []string
	}{
		{"before the first response", reading{}, []string{
			"Instances ?   Applications ?   Overdue leases ?", "Changes a minute ?   Writes a second ?, p99 ?   Watchers ?", "Self-preservation ?   Nodes ?   Peers ?"}},
		{"of a server that has just started", started, []string{
			"Instances 22 UP, 6 not UP   Applications 12   Overdue leases ?", "Changes a minute ?   Writes a second ?, p99 ?   Watchers 2", "Self-preservation off   Nodes 3 of 3   Peers 1 of 1 ok"}},
		{"of a server that nothing is written to, without peers", idle, []string{
			"Instances 22 UP, 6 not UP   Applications 12   Overdue leases 3", "Changes a minute 12   Writes a second 0, p99 ?   Watchers 2", "Self-preservation off   Nodes 3 of 3   Peers none"}},
	} {
		m := newModel([]string{first})
		m.last = tc.read
		var got []string
		for _, l := range m.figureLines() {
			got = append(got, l.text)
		}
		expect.Slice(t, got, tc.want, "%s: figures", tc.name)
	}
}

func TestApplicationsMatchTheServer(t *testing.T) {
	all := healthy(0).overview.Apps
	for _, tc := range []struct {
		name, part string
		apps       []client.AppCount
		there      int // on the server
		want       string
	}{
		{"all", "", all[:2], 2, "UP  ALL  OVERDUE  APPLICATION\n0   2    0        PAY\n2   5    3        ORDERS\n"},
		{"more than a response has", "", all[:2], 1002, "\n2   5    3        ORDERS\n… and 1000 more, which a filter shows\n"},
		{"filtered", "er", []client.AppCount{all[1], all[3]}, 2, "APPLICATION  (2 have \"er\" in their names)\n2   5    3        ORDERS\n9   9    0        USERS\n"},
		{"none", "q", nil, 0, "APPLICATION  (0 have \"q\" in their names)\n"},
	} {
		m, r := newModel([]string{first}), healthy(0)
		r.part, r.overview.Apps, r.overview.Figures.Applications = tc.part, tc.apps, tc.there
		m.add(r)
		got := text(m.frame(at(5), 0, 0))
		expect.That(t, strings.Contains(got, tc.want), "%s: there is no %q in\n%s", tc.name, tc.want, got)
	}
	var styles []style
	for _, l := range sample().apps().rows[:4] {
		styles = append(styles, l.style)
	}
	expect.Slice(t, styles, []style{bad, warn, warn, plain}, "PAY, ORDERS, BILLING and USERS have the styles")
}

func spoil(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem(), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			spoil(v.Field(i), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i), text)
		}
	}
}

// Whatever a service, a peer or a server is called, whatever servers say and people type, reaches the terminal as
// visible characters.
func TestHostileNamesDoNotReachTheTerminal(t *testing.T) {
	const hostile = "x\x1b]0;owned\x07\x1b[2J\u202egnp\u2066.\u200f\u009b31m\r\n\t\xff\u200by"
	for _, tc := range []struct {
		name string
		make func(r *reading)
	}{
		{"every text of the overview", func(r *reading) { spoil(reflect.ValueOf(&r.overview), hostile) }},
		{"no server", func(r *reading) { *r = reading{at: at(1), failures: []failure{{hostile, errors.New(hostile)}}} }},
		{"server", func(r *reading) { r.server = hostile }},
		{"filter", func(r *reading) { r.part = hostile }},
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
				lines := m.frame(at(5), size[0], size[1])
				expect.That(t, strings.Contains(text(lines), "owned"), "a frame of %d by %d has nothing of it", size[0], size[1])
				for _, l := range lines {
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
		{"down", []press{down, down}, "APPLICATION  3-6 of 12\n3   4    0        BILLING\n"},
		{"up from the top", []press{up, up}, "APPLICATION  1-4 of 12\n"},
		{"page down", []press{{tcell.KeyPgDn, 0}}, "APPLICATION  5-8 of 12\n"},
		{"to the end and up", []press{{tcell.KeyEnd, 0}, up}, "APPLICATION  8-11 of 12\n"},
		{"back to the top", []press{{tcell.KeyEnd, 0}, {tcell.KeyHome, 0}}, "APPLICATION  1-4 of 12\n"},
		{"letters", append(typed("jjk"), down), "APPLICATION  3-6 of 12\n"},
		{"filter", append(typed("/er"), enter), "\nFilter: er   / changes it"},
		{"filter from further down", append([]press{down, down}, typed("/e")...), "APPLICATION  1-4 of 12\n"},
		{"filter that is being typed", typed("/er"), "\nFilter: er_ "},
		{"corrected filter", append(typed("/erq"), press{tcell.KeyBackspace2, 0}, enter), "\nFilter: er   / changes it"},
		{"filter that is given up", append(typed("/er"), esc), "\nq quit   / filter"},
		{"filter that is cleared later", append(typed("/er"), enter, esc), "\nq quit   / filter"},
		{"help", typed("?"), "\nq, Ctrl-C     quit\n"},
		{"help and back", typed("??"), "APPLICATION  1-4 of 12\n"},
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

func TestLastChangesAreTheStreamsAndTheEventsBefore(t *testing.T) {
	m := newModel([]string{first})
	m.follow(at(0), client.WatchStart{Server: first})
	for i := range 30 {
		m.follow(at(i), client.WatchChange{App: "A", ID: "a"})
	}
	expect.That(t, len(m.changes) == keptChanges && m.changes[0].at.Equal(at(29)), "of 30 changes %d are kept, the first %v", len(m.changes), m.changes[0])

	old := newModel([]string{first})
	old.addEvents(at(59), client.Events{
		Registered: []client.Event{{At: at(50).UnixMilli(), App: "A", ID: "a"}, {At: at(-10).UnixMilli(), App: "A", ID: "b"}},
		Canceled:   []client.Event{{At: at(55).UnixMilli(), App: "A", ID: "a"}},
	})
	expect.That(t, len(old.changes) == 3 && old.changes[0].action == "DELETED" && old.changes[2].id == "b", "changes %v, want the newest first", old.changes)

	both := newModel([]string{first})
	both.follow(at(52), client.WatchStart{Server: first})
	both.follow(at(55), client.WatchChange{Action: "DELETED", App: "A", ID: "a"})
	both.addEvents(at(59), client.Events{Registered: []client.Event{{At: at(50).UnixMilli(), App: "A", ID: "a"}}, Canceled: []client.Event{{At: at(55).UnixMilli(), App: "A", ID: "a"}}})
	expect.That(t, len(both.changes) == 2 && both.changes[1].action == "ADDED", "of both: %v; want each change once", both.changes)
}

func lose(m *model) {
	for n := range 2 {
		m.add(reading{at: at(3 + n), failures: []failure{{first, errors.New("connection refused")}, {second, errors.New("no route")}}})
	}
}

func moves(r *reading) {
	r.server, r.failures = second, []failure{{first, errors.New("connection refused")}}
}

func breaks(m *model) {
	m.breakStream(at(4), "EOF")
	m.breakStream(at(5), "connection refused")
}

func saying(level, text string) func(r *reading) {
	return func(r *reading) { r.overview.Line = client.Line{Level: level, Text: text} }
}

// states has a row for each truth: its cause, and the resulting line of state.
var states = []struct {
	name  string
	read  func(r *reading) // what the server says, at second 2
	later func(m *model)   // what happens besides
	want  line
}{
	{name: "no server responds", later: lose, want: line{"No answer from any server since 12:00:03Z: http://10.0.0.1:8761 (connection refused), http://10.0.0.2:8761 (no route). Trying again. You see what node1 knew 4s ago.", bad}},
	{name: "the server's line", want: line{"Healthy. node2 leads; 3 of 3 nodes agree; one may fail.", good}},
	{name: "another server", read: moves, want: line{"No answer from http://10.0.0.1:8761 since 12:00:02Z. http://10.0.0.2:8761 is asked instead.", warn}},
	{name: "no stream", later: breaks, want: line{"No changes come since 12:00:04Z (connection refused). The next server is tried.", warn}},
}

func inState(read func(*reading), later func(*model)) *model {
	m, r := sample(), healthy(2)
	if read != nil {
		read(&r)
	}
	m.add(r)
	if later != nil {
		later(m)
	}
	return m
}

func TestLineOfStateSaysTheWorst(t *testing.T) {
	untested := map[string]bool{}
	for _, truth := range truths {
		untested[truth.name] = true
	}
	for _, tc := range states {
		expect.Equal(t, inState(tc.read, tc.later).holding(at(6))[0], tc.want, "%s: the line of state is", tc.name)
		delete(untested, tc.name)
	}
	expect.That(t, len(untested) == 0, "no test has the states %v", untested)
}

func TestServersLineHasItsLevel(t *testing.T) {
	for _, tc := range []struct {
		level, text string
		want        line
	}{
		{"well", "Healthy.", line{"Healthy.", good}},
		{"warn", "dc2 is not heard.", line{"dc2 is not heard.", warn}},
		{"bad", "No leader.", line{"No leader.", bad}},
		{"dire", "What a later version says.", line{"What a later version says.", warn}},
		{"", "", line{"http://10.0.0.1:8761 does not say how the cluster is.", warn}},
	} {
		expect.Slice(t, inState(saying(tc.level, tc.text), nil).holding(at(6)), []line{tc.want}, "of level %q it shows", tc.level)
	}
}

func TestTruthsAreShownTheWorstFirst(t *testing.T) {
	for _, tc := range []struct {
		name, level string
		read        func(*reading)
		later       func(*model)
		want        []string // the names of truths
	}{
		{"well", "well", nil, nil, []string{"the server's line"}},
		{"well, elsewhere", "well", moves, nil, []string{"another server", "the server's line"}},
		{"well, elsewhere, without a stream", "well", moves, breaks, []string{"another server", "no stream", "the server's line"}},
		{"a warning, elsewhere, without a stream", "warn", moves, breaks, []string{"the server's line", "another server", "no stream"}},
		{"bad, without a stream", "bad", nil, breaks, []string{"the server's line", "no stream"}},
		{"bad, and no server responds", "bad", nil, lose, []string{"no server responds", "the server's line"}},
	} {
		m := inState(tc.read, tc.later)
		m.last.overview.Line.Level = tc.level
		var got []string
		for _, l := range m.holding(at(6)) {
			for _, truth := range truths {
				if truth.say(m, at(6)) == l {
					got = append(got, truth.name)
				}
			}
		}
		expect.Slice(t, got, tc.want, "%s: it shows", tc.name)
	}
}

func TestStateBeforeTheFirstResponse(t *testing.T) {
	m := newModel([]string{first, second})
	expect.Slice(t, m.holding(at(0)), []line{{"Asking http://10.0.0.1:8761, http://10.0.0.2:8761 …", dim}}, "at first:")
	lose(m)
	expect.Slice(t, m.holding(at(6)), []line{{"No answer from any server since 12:00:03Z: http://10.0.0.1:8761 (connection refused), http://10.0.0.2:8761 (no route). Trying again.", bad}}, "without a response:")
}

func TestAttentionIsTheWorstFirstAndBounded(t *testing.T) {
	m := inState(moves, breaks)
	m.last.overview.Line = client.Line{Level: "warn", Text: "Degraded."}
	attention := func() []line { return m.attention(m.holding(at(6))[1:]) }
	listed := []line{
		{"PAY: none of 2 instances is UP", bad}, {"ORDERS: 2 UP, within ten minutes 5 were", warn}, {"ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s", warn},
	}
	expect.Slice(t, attention(), append([]line{states[2].want, states[3].want}, listed...), "attention")
	m.last.overview.Line = client.Line{Level: "well", Text: "Healthy."}
	expect.Slice(t, attention(), append([]line{states[3].want}, listed...), "without the good news")

	for n := range 9 {
		m.last.overview.Attention = append(m.last.overview.Attention, client.Attention{Level: "warn", Text: fmt.Sprintf("W%d", n)})
	}
	bounded := attention()
	expect.That(t, len(bounded) == mostTroubles && slices.Contains(bounded, line{"W4", warn}) && bounded[mostTroubles-1].text == "… and 4 more",
		"of 13 it shows %v", bounded)
}

// What servers say of a cluster.
var (
	led = client.Overview{
		Line:    client.Line{Level: "well", Text: "Healthy. n1 leads; 1 of 1 nodes agree."},
		Figures: client.OverviewFigures{Up: 2, NotUp: 1, Apps: 2},
		Apps:    []client.AppCount{{App: "ORDERS", Up: 1, All: 2}, {App: "USERS", Up: 1, All: 1}},
		Status:  client.Status{Node: "n1", Mode: "cp", Leader: "n1", Ready: true, Quorum: true, Nodes: []client.NodeStatus{{ID: "n1", Role: "leader"}}},
	}
	leaderless = client.Overview{Line: client.Line{Level: "bad", Text: "No leader."}, Status: client.Status{Node: "n2", Mode: "cp", Ready: true}}
	down       = client.Overview{} // says nothing, because it cannot be reached
)

// serving makes the responses of a server: its overview, with the requested applications, events, and a stream of
// changes that starts and stays silent.
func serving(o client.Overview) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/rollcall/watch":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: start\nid: e-5\ndata: {\"index\":\"e-5\"}\n\n")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/v1/rollcall/overview":
			said, part := o, strings.ToUpper(r.URL.Query().Get("q"))
			said.Apps = slices.DeleteFunc(slices.Clone(o.Apps), func(a client.AppCount) bool { return !strings.Contains(a.App, part) })
			said.Figures.Applications = len(said.Apps)
			json.NewEncoder(w).Encode(said)
		case "/v1/rollcall/events":
			io.WriteString(w, `{"registered":[{"at":1000,"app":"ORDERS","id":"o1"}]}`)
		default:
			http.NotFound(w, r)
		}
	})
}

func serve(t *testing.T, o client.Overview) string {
	t.Helper()
	s := httptest.NewServer(serving(o))
	t.Cleanup(s.Close)
	if o.Line == down.Line {
		s.Close()
	}
	return s.URL
}

func configOf(servers ...string) Config {
	return Config{Servers: servers, Interval: time.Second, Open: func(some []string, log *slog.Logger) (*client.Client, error) {
		return client.New(client.Config{Servers: some, InOrder: true, Consistency: "stale", Log: log})
	}}
}

func TestReaderAsksUntilAServerKnowsALeader(t *testing.T) {
	for _, tc := range []struct {
		name     string
		servers  []client.Overview
		want     int // of the servers; -1 for none
		failures int
	}{
		{"the first", []client.Overview{led, leaderless}, 0, 0},
		{"the first is down", []client.Overview{down, led}, 1, 1},
		{"the first is cut off", []client.Overview{leaderless, led}, 1, 0},
		{"none knows a leader", []client.Overview{down, leaderless, leaderless}, 1, 1},
		{"all are down", []client.Overview{down, down}, -1, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var urls []string
			for _, o := range tc.servers {
				urls = append(urls, serve(t, o))
			}
			r, _, err := configOf(urls...).open(func(string) {})
			need.OK(t, err)
			for range 2 { // the second time it begins with the one that it found
				read := r.read(t.Context(), "")
				if tc.want < 0 {
					expect.Equal(t, read.server, "", "server")
					continue
				}
				expect.Equal(t, read.server, urls[tc.want], "server")
				expect.Equal(t, read.overview.Line, tc.servers[tc.want].Line, "its line")
			}
			r.first = 0
			expect.Equal(t, len(r.read(t.Context(), "").failures), tc.failures, "failures")
		})
	}
}

func TestReaderAsksForAPartOfTheNames(t *testing.T) {
	r, _, err := configOf(serve(t, led)).open(func(string) {})
	need.OK(t, err)
	for _, tc := range []struct {
		part string
		want []client.AppCount
	}{
		{"", led.Apps},
		{"us", led.Apps[1:]},
		{"a b&limit=0", nil},
	} {
		read := r.read(t.Context(), tc.part)
		expect.Slice(t, read.overview.Apps, tc.want, "with the part %q: applications", tc.part)
		expect.Equal(t, read.part, tc.part, "the part is")
	}
}

func TestReaderReturnsToTheFirstServer(t *testing.T) {
	r, _, err := configOf(serve(t, led), serve(t, led)).open(func(string) {})
	need.OK(t, err)
	r.first, r.movedAt = 1, time.Now()
	expect.Equal(t, r.read(t.Context(), "").server, r.servers[1].name, "at first")
	r.movedAt = time.Now().Add(-returnAfter - time.Second)
	expect.Equal(t, r.read(t.Context(), "").server, r.servers[0].name, "later")
}

func TestPasswordsOfServersAreNotShown(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"http://10.0.0.1:8761", "http://10.0.0.1:8761"},
		{"https://user:secret@rollcall.example.com/eureka", "https://rollcall.example.com/eureka"},
		{"unix:/var/lib/rollcall/admin.sock", "unix:/var/lib/rollcall/admin.sock"},
		{"http://user:sec%ret@host", "a server"},
	} {
		expect.Equal(t, withoutUser(tc.url), tc.want, "%q is shown as", tc.url)
	}
}

func TestPrintWritesOneFrame(t *testing.T) {
	var out strings.Builder
	need.OK(t, Print(t.Context(), configOf(serve(t, down), serve(t, led)), &out))
	for _, want := range []string{"is asked instead.", "\n1   2    0        ORDERS\n", "\n00:00:01Z  ADDED  -  registered  ORDERS/o1\n"} {
		expect.That(t, strings.Contains(out.String(), want), "there is no %q in\n%s", want, out.String())
	}
	out.Reset()
	err := Print(t.Context(), configOf(serve(t, down)), &out)
	expect.That(t, err != nil && out.Len() == 0, "without a server: %v, and %q", err, out.String())
}

// fakeScreen records what it shows, and whether it was finished.
type fakeScreen struct {
	tcell.SimulationScreen
	shown    chan string
	finished bool
}

func newFakeScreen() *fakeScreen {
	return &fakeScreen{SimulationScreen: tcell.NewSimulationScreen(""), shown: make(chan string, 100)}
}

func (s *fakeScreen) Show() {
	s.SimulationScreen.Show()
	var b strings.Builder
	cells, width, _ := s.GetContents()
	for i, cell := range cells {
		b.WriteString(string(cell.Runes))
		if i%width == width-1 {
			b.WriteString("\n")
		}
	}
	select {
	case s.shown <- b.String():
	default: // the test has seen enough
	}
}

func (s *fakeScreen) Fini() {
	s.SimulationScreen.Fini()
	s.finished = true
}

func (s *fakeScreen) await(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case frame := <-s.shown:
			if strings.Contains(frame, text) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("no frame has %q", text)
		}
	}
}

func TestRunEndsWithTheTerminalRestored(t *testing.T) {
	for _, tc := range []struct {
		name string
		quit func(s *fakeScreen, cancel func())
	}{
		{"by q", func(s *fakeScreen, _ func()) { s.InjectKey(tcell.KeyRune, 'q', tcell.ModNone) }},
		{"by Ctrl-C", func(s *fakeScreen, _ func()) { s.InjectKey(tcell.KeyCtrlC, 0, tcell.ModNone) }},
		{"by SIGTERM", func(_ *fakeScreen, cancel func()) { cancel() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			screen, ended := newFakeScreen(), make(chan error)
			config := configOf(serve(t, led))
			go func() { ended <- run(ctx, config, screen) }()
			screen.await(t, led.Line.Text)
			screen.InjectKey(tcell.KeyRune, '?', tcell.ModNone)
			screen.await(t, "Page Up and Down")
			tc.quit(screen, cancel)
			expect.OK(t, <-ended)
			expect.That(t, screen.finished, "the terminal is not restored")
		})
	}
}

func TestRunSaysThatTheServerDied(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dying := httptest.NewServer(serving(led))
	config := configOf(dying.URL, serve(t, led))
	config.Interval = 200 * time.Millisecond
	screen, ended := newFakeScreen(), make(chan error)
	go func() { ended <- run(ctx, config, screen) }()
	screen.await(t, "n1 leads")
	dying.Listener.Close() // before its connections, so that no stream starts again
	dying.CloseClientConnections()
	dying.Close()
	screen.await(t, "No answer from "+dying.URL)
	cancel()
	expect.OK(t, <-ended)
}

// A filter is applied when it is typed, however long the interval is.
func TestRunFiltersAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := configOf(serve(t, led))
	config.Interval = time.Hour
	screen, ended := newFakeScreen(), make(chan error)
	go func() { ended <- run(ctx, config, screen) }()
	const orders = "1   2    0        ORDERS"
	screen.await(t, orders)
	for _, r := range "/us" {
		screen.InjectKey(tcell.KeyRune, r, tcell.ModNone)
	}
	screen.await(t, `(1 have "us" in their names)`)
	screen.InjectKey(tcell.KeyEsc, 0, tcell.ModNone)
	screen.await(t, orders)
	cancel()
	expect.OK(t, <-ended)
}
