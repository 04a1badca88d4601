package link

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestMergedTasksSayWhatBothDid(t *testing.T) {
	removal := registry.Remove{Kind: registry.Canceled, Life: 3}
	for _, tt := range []struct {
		name               string
		older, newer, want Task
	}{
		{"a heartbeat is dropped beside a registration that waits",
			Task{Facts: Registered, First: 4}, Task{Facts: Heartbeat}, Task{Facts: Registered, First: 4}},
		{"a heartbeat is dropped beside an override that waits",
			Task{Facts: Overridden, First: 4}, Task{Facts: Heartbeat}, Task{Facts: Overridden, First: 4}},
		{"a heartbeat is dropped beside a removal that waits",
			Task{Facts: Canceled, First: 4, Remove: removal}, Task{Facts: Heartbeat}, Task{Facts: Canceled, First: 4, Remove: removal}},
		{"two heartbeats are one",
			Task{Facts: Heartbeat, Tries: 2}, Task{Facts: Heartbeat}, Task{Facts: Heartbeat, Tries: 2}},
		{"a registration clears a heartbeat",
			Task{Facts: Heartbeat}, Task{Facts: Registered, First: 7}, Task{Facts: Registered, First: 7}},
		{"an override clears a heartbeat",
			Task{Facts: Heartbeat}, Task{Facts: Overridden, First: 7}, Task{Facts: Overridden, First: 7}},
		{"an override goes with a registration that waits",
			Task{Facts: Registered, First: 4, NewLife: true}, Task{Facts: Overridden, First: 7}, Task{Facts: Registered | Overridden, First: 4, NewLife: true}},
		{"a registration goes with an override that waits",
			Task{Facts: Overridden, First: 4}, Task{Facts: Registered, First: 7}, Task{Facts: Registered | Overridden, First: 4}},
		{"a removal clears all that was before",
			Task{Facts: Registered | Overridden, First: 4, NewLife: true}, Task{Facts: Canceled, First: 7, Remove: removal}, Task{Facts: Canceled, First: 4, Remove: removal}},
		{"a registration clears a removal, and begins a life that the peer does not know",
			Task{Facts: Canceled, First: 4, Remove: removal}, Task{Facts: Registered, First: 7}, Task{Facts: Registered, First: 4, NewLife: true}},
		{"an override after a removal says that the instance was registered in between",
			Task{Facts: Canceled, First: 4, Remove: removal}, Task{Facts: Overridden, First: 7}, Task{Facts: Registered | Overridden, First: 4, NewLife: true}},
		{"a change that comes back is as old as it was",
			Task{Facts: Registered, First: 9}, Task{Facts: Registered, First: 7}, Task{Facts: Registered, First: 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, Merge(tt.older, tt.newer), tt.want, "got")
		})
	}
}

func TestMergedTaskIsAsOldAsTheOlderOfBoth(t *testing.T) {
	before := time.Now()
	later := before.Add(time.Minute)
	older := Task{Facts: Registered, First: 3, Queued: before, AsOf: before}
	newer := Task{Facts: Canceled, First: 4, Queued: later, AsOf: later}
	got := Merge(older, newer)
	expect.Equal(t, got.Queued, before, "queued at")
	expect.Equal(t, got.AsOf, later, "the removal is as of")
}

func TestCallsCarryThePasswordThatTheFileHasNow(t *testing.T) {
	var user, password string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(path, []byte("first\n"), 0o600))
	for _, c := range []struct{ url, user string }{{server.URL, "rollcall"}, {strings.Replace(server.URL, "http://", "http://amy@", 1), "amy"}} {
		p := PeerConfig{URLs: []string{c.url}, TokenFile: path}
		setting.Fill(&p.Flow)
		client := NewClient(p)
		defer client.CloseIdleConnections()
		for _, want := range []string{"first", "second"} {
			need.OK(t, os.WriteFile(path, []byte(want+"\n"), 0o600))
			response := need.Got(client.Get(c.url))(t)
			response.Body.Close()
			expect.That(t, user == c.user && password == want, "%s: got %q with %q, want %q with %q", c.url, user, password, c.user, want)
		}
		need.OK(t, os.Chmod(path, 0o644))
		_, err := client.Post(c.url, "text/plain", strings.NewReader("x"))
		expect.That(t, err != nil && strings.Contains(err.Error(), "replication.token-files: "+path+" has mode 0644") && !strings.Contains(err.Error(), "second"), "got %v", err)
		need.OK(t, os.Chmod(path, 0o600))
	}
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRefusalIsLoggedOncePerChangeAndCountedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		r := NewRefusals(nil, slog.New(slog.NewTextHandler(log, nil)))
		big, lines := registry.NewKey("BIG", "b"), func() int { return strings.Count(log.String(), "\n") }
		for range 3 {
			r.Record(big, "register", "old1", "too much metadata")
			time.Sleep(time.Minute)
		}
		r.Record(big, "register", "old2", "too much metadata")
		r.Record(registry.NewKey("FINE", "f"), "register", "old1", "")
		expect.Equal(t, lines(), 2, "lines of two servers' refusals: %s", log)
		expect.Equal(t, testutil.ToFloat64(r.Total), 4, "refusals counted")
		all := r.List()
		expect.That(t, len(all) == 2 && all[0].From == "old1" && all[0].Times == 3 && all[0].Last-all[0].Since == 120_000 && all[0].Text == "too much metadata", "refused: %+v", all)

		r.Record(big, "register", "old1", "")
		expect.Equal(t, lines(), 3, "lines after it was accepted: %s", log)
		expect.That(t, len(r.List()) == 1 && r.List()[0].From == "old2", "refused after it was accepted: %+v", r.List())
		time.Sleep(refusedFor)
		expect.Equal(t, len(r.List()), 1, "refused an hour later")
		time.Sleep(time.Second)
		expect.Equal(t, len(r.List()), 0, "refused a second after that")
	})
}

func TestWhatIsHeldIsDueInTimeAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(nil, slog.New(slog.DiscardHandler))
		a, gone, refused := registry.NewKey("A", "a"), registry.NewKey("A", "gone"), registry.NewKey("A", "refused")
		r.Hold(a, "register", "", "held", time.Minute)
		r.Hold(gone, "register", "", "held", time.Minute)
		r.Record(refused, "register", "", "refused for good")
		due := func(want ...registry.Key) {
			t.Helper()
			expect.Slice(t, r.Due(10*time.Second, func(k registry.Key) bool { return k != gone }), want, "due")
		}
		expect.That(t, r.Held(a, "") && !r.Held(refused, "") && !r.Held(a, "dc2"), "held")
		due()
		time.Sleep(time.Minute)
		expect.That(t, !r.Held(a, ""), "it is held after its time")
		due(a)
		due()
		expect.Equal(t, len(r.List()), 2, "remembered after one is not there any more")
		time.Sleep(10 * time.Second)
		due(a) // nothing was heard of the first
		r.Drop(refused, "")
		r.Drop(a, "")
		expect.That(t, len(r.List()) == 1 && r.List()[0].ID == "refused", "remembered: %+v", r.List())
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	r := NewRefusals(nil, slog.New(slog.DiscardHandler))
	for n := range refusalsKept + 10 {
		r.Record(registry.NewKey("A", strconv.Itoa(n)), "register", "old1", strings.Repeat("ä", refusedText))
	}
	all := r.List()
	expect.Equal(t, len(all), refusalsKept, "remembered")
	expect.That(t, len(all[0].Text) <= refusedText+len("…")+len("\uFFFD"), "a reason of %d bytes is remembered", len(all[0].Text))
}
