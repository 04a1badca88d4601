package top

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// What a server says of a cluster.
const (
	led        = `{"node":"n1","mode":"cp","leader":"n1","ready":true,"quorum":true,"condition":"well","summary":"Healthy: no node may fail.","nodes":[{"id":"n1","role":"leader"}]}`
	leaderless = `{"node":"n2","mode":"cp","ready":true,"condition":"leaderless","summary":"No leader."}`
)

// serve is a server with documents by path; without a status it is down, and without a leader it lists only what it has at hand. The stream of changes starts, and stays silent.
func serve(t *testing.T, status string) string {
	t.Helper()
	documents := map[string]string{
		"/v1/rollcall/status":            status,
		"/v1/rollcall/self-preservation": `{"state":"off"}`,
		"/v1/rollcall/apps":              `[{"app":"ORDERS","id":"o1","status":"UP"},{"app":"ORDERS","id":"o2","status":"DOWN"},{"app":"USERS","id":"u1","status":"UP"}]`,
		"/v1/rollcall/events":            `{"registered":[{"at":1000,"app":"ORDERS","id":"o1"}]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/rollcall/watch" {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: start\nid: e-5\ndata: {\"index\":\"e-5\"}\n\n")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if status == leaderless && r.URL.Path == "/v1/rollcall/apps" && r.URL.Query().Get("consistency") != "stale" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, ok := documents[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotImplemented)
			body = `{"error":"this node replicates nothing"}`
		}
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	if status == "" {
		s.Close()
	}
	return s.URL
}

func configOf(servers ...string) Config {
	return Config{Servers: servers, Interval: time.Second, Open: func(some []string, consistency string, log *slog.Logger) (*client.Client, error) {
		return client.New(client.Config{Servers: some, InOrder: true, Consistency: consistency, Log: log})
	}}
}

func TestReaderAsksUntilAServerKnowsALeader(t *testing.T) {
	for _, tc := range []struct {
		name     string
		statuses []string
		want     int // of the servers; -1: none
		failures int
	}{
		{"the first", []string{led, leaderless}, 0, 0},
		{"the first is down", []string{"", led}, 1, 1},
		{"the first is cut off", []string{leaderless, led}, 1, 0},
		{"none knows a leader", []string{"", leaderless, leaderless}, 1, 1},
		{"all are down", []string{"", ""}, -1, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var urls []string
			for _, status := range tc.statuses {
				urls = append(urls, serve(t, status))
			}
			r, _, err := configOf(urls...).open(func(string) {})
			need.OK(t, err)
			for range 2 { // the second time it begins with the one that it found
				read := r.read(t.Context())
				want := ""
				if tc.want >= 0 {
					want = urls[tc.want]
				}
				expect.Equal(t, read.server, want, "server")
				if tc.want < 0 {
					continue
				}
				expect.That(t, read.figures.known && read.figures.up == 2 && read.figures.notUp == 1 && read.gaps == nil, "figures %v and gaps %q", read.figures, read.gaps)
			}
			r.first = 0
			expect.Equal(t, len(r.read(t.Context()).failures), tc.failures, "failures")
		})
	}
}

func TestReaderReturnsToTheFirstServer(t *testing.T) {
	r, _, err := configOf(serve(t, led), serve(t, led)).open(func(string) {})
	need.OK(t, err)
	r.first, r.movedAt = 1, time.Now()
	expect.Equal(t, r.read(t.Context()).server, r.servers[1].name, "at first")
	r.movedAt = time.Now().Add(-returnAfter - time.Second)
	expect.Equal(t, r.read(t.Context()).server, r.servers[0].name, "later")
}

// Counting is dear to the server: it happens when something has changed, and never for more than a twentieth of the time.
func TestInstancesAreCountedNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{count: func(context.Context, *client.Client) (figures, error) {
			time.Sleep(time.Second)
			return figures{known: true, up: 7}, nil
		}}
		due := func(want bool, when string) {
			t.Helper()
			expect.Equal(t, r.countIsDue(), want, "%s a count is due:", when)
		}
		due(true, "at first")
		need.OK(t, r.recount(t.Context(), nil))
		expect.Equal(t, r.figures.up, 7, "counted")
		r.changed.Store(true)
		time.Sleep(19 * time.Second)
		due(false, "19 s after one that took a second")
		time.Sleep(time.Second)
		due(true, "20 s after one")
		r.changed.Store(false)
		due(false, "while nothing changes")
		time.Sleep(countAnyway)
		due(true, "after a while")

		r.count = func(context.Context, *client.Client) (figures, error) { return figures{}, errors.New("denied") }
		expect.ErrorSays(t, r.recount(t.Context(), nil), "denied", "recount")
		expect.Equal(t, r.figures.up, 7, "after a failure the figures are")
	})
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
	need.OK(t, Print(t.Context(), configOf(serve(t, ""), serve(t, led)), &out))
	for _, want := range []string{"is asked instead.", "\n1   2    0        ORDERS\n", "\n00:00:01Z  ADDED  -  registered  ORDERS/o1\n"} {
		expect.That(t, strings.Contains(out.String(), want), "there is no %q in\n%s", want, out.String())
	}
	out.Reset()
	err := Print(t.Context(), configOf(serve(t, "")), &out)
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

// await waits for a frame with a text.
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
			screen.await(t, "Healthy: no node may fail. n1 leads; 1 of 1 nodes answer.")
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
	dying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, led) }))
	config := configOf(dying.URL, serve(t, led))
	config.Interval = 200 * time.Millisecond
	screen, ended := newFakeScreen(), make(chan error)
	go func() { ended <- run(ctx, config, screen) }()
	screen.await(t, "n1 leads")
	dying.CloseClientConnections()
	dying.Close()
	screen.await(t, "No answer from "+dying.URL)
	cancel()
	expect.OK(t, <-ended)
}
