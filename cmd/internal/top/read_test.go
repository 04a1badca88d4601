package top

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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

// serving makes the responses of a server: its overview, with the applications that are asked for, events, and a stream of
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
		want     int // of the servers; -1: none
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

// fakeScreen says what it shows, and whether it was finished.
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

// A filter is asked for when it is typed, however long the interval is.
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
