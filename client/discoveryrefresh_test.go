package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// wantList compares the current list with a text in the form of words.
func (d *Discovery) wantList(t *testing.T, when, want string) {
	t.Helper()
	got := words(d.Snapshot())
	expect.That(t, got == want, "%s the list is %q, want %q; %+v", when, got, want, d.Status())
}

// wantRequests compares what a server was asked for since the last call: the words full, delta, watch@INDEX, or the
// name of one application.
func (s *listServer) wantRequests(t *testing.T, when, want string) {
	t.Helper()
	expect.Equal(t, s.newRequests(), want, "%s the server is asked for", when)
}

// pass lets time pass, and waits until every goroutine has done what was due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestDiscoveryFollowsItsServer(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rollcall bool
		config   DiscoveryConfig
		first    string        // requests until the first list
		later    string        // requests after each change
		lag      time.Duration // until a change is in the list
		source   string
	}{
		{name: "Rollcall is watched", rollcall: true, first: "full watch@e-2", source: SourceWatch},
		{name: "stock Eureka has deltas", first: "full", later: "delta", lag: 30 * time.Second, source: SourceFetch},
		{name: "deltas are wanted", rollcall: true, config: DiscoveryConfig{Mode: RefreshDelta}, first: "full", later: "delta", lag: 30 * time.Second, source: SourceFetch},
		{name: "everything is wanted", rollcall: true, config: DiscoveryConfig{Mode: RefreshFull, Interval: time.Second}, first: "full", later: "full", lag: time.Second, source: SourceFetch},
		{name: "one application of Rollcall", rollcall: true, config: DiscoveryConfig{App: "orders"}, first: "ORDERS watch@e-2", source: SourceWatch},
		{name: "one application of stock Eureka", config: DiscoveryConfig{App: "orders"}, first: "ORDERS", later: "ORDERS", lag: 30 * time.Second, source: SourceFetch},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			app := strings.ToUpper(tc.config.App)
			known := newListModel("e", orders("o1", registry.Up), billing("b1"))
			s := newListServer(known, tc.rollcall)
			d := discover(t, tc.config, s)
			need.OK(t, d.Ready(t.Context()))
			synctest.Wait()
			d.wantList(t, "at first", known.words(app))
			s.wantRequests(t, "at first", tc.first)
			for _, change := range []struct {
				name string
				do   func()
			}{
				{"after a registration", func() { known.set(orders("o2", registry.Starting)) }},
				{"after a change of status", func() { known.set(orders("o2", registry.Up)) }},
				{"after a removal", func() { known.remove(orders("o2", registry.Up)) }},
			} {
				change.do()
				if tc.lag > 0 {
					pass(tc.lag - 1)
					s.wantRequests(t, change.name+", too early,", "")
					pass(1)
				}
				synctest.Wait()
				d.wantList(t, change.name, known.words(app))
				s.wantRequests(t, change.name, tc.later)
			}
			status := d.Status()
			expect.That(t, status.Source == tc.source && status.Server == "http://a" && status.Err == nil && status.Held == 0,
				"the status is %+v, want %s of http://a", status, tc.source)
			index := d.Status().Index
			expect.That(t, (index == "e-5") == tc.rollcall, "the index is %q", index)
		})
	}
}

func TestDiscoveryGoesOnAtAnotherServer(t *testing.T) {
	for _, tc := range []struct {
		name     string
		other    bool   // b has another history
		rollcall bool   // b is Rollcall
		asked    string // requests to b
		source   string
	}{
		{name: "of one history, where nothing is missed", rollcall: true, asked: "watch@e-2", source: SourceWatch},
		{name: "of another history, with everything", other: true, rollcall: true, asked: "watch@e-2 full watch@f-3", source: SourceWatch},
		{name: "from Rollcall to stock Eureka", other: true, asked: "watch@e-2 full", source: SourceFetch},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			one := newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up))
			a, b := newListServer(one, true), newListServer(one, tc.rollcall)
			if tc.other {
				b.listModel = newListModel("f", orders("o1", registry.Up), orders("o2", registry.Up), orders("o3", registry.Up))
			}
			d := discover(t, DiscoveryConfig{}, a, b)
			a.wantRequests(t, "at first", "full watch@e-2")
			a.kill()
			pass(time.Second)
			b.wantRequests(t, "after the first one's end", tc.asked)
			b.set(orders("o4", registry.Up))
			pass(DefaultRefreshInterval)
			d.wantList(t, "after the failover", b.words(""))
			status := d.Status()
			expect.That(t, status.Source == tc.source && status.Server == "http://b" && status.Err == nil,
				"the status is %+v, want %s of http://b", status, tc.source)
		})
	}
}

func TestDiscoveryWatchesAsSoonAsAServerCanBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stock, rollcall := newListServer(newListModel("", orders("o1", registry.Up)), false), newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{}, stock, rollcall)
		stock.wantRequests(t, "at first", "full")
		stock.kill()
		pass(DefaultRefreshInterval)
		rollcall.wantRequests(t, "after the stock server's end", "delta full watch@e-1")
		rollcall.set(orders("o2", registry.Up))
		synctest.Wait()
		d.wantList(t, "at once", "ORDERS/o1=UP ORDERS/o2=UP")
	})
}

func TestDiscoveryFetchesEverythingWhereADeltaDoesNotGiveTheServersList(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(s *listServer) // spoils the deltas
	}{
		{name: "another hash", spoil: func(s *listServer) { s.setFalseHash("UP_7_") }},
		{name: "a delta that lacks a change", spoil: func(s *listServer) { s.loseHistory() }},
		{name: "deltas are disabled", spoil: func(s *listServer) { s.setFault("/apps/delta", fake.Always(403, "")) }},
		{name: "no deltas at all", spoil: func(s *listServer) { s.setFault("/apps/delta", fake.Always(404, "")) }},
		{name: "a document of nothing", spoil: func(s *listServer) {
			s.setFault("/apps/delta", fake.Always(200, `{"applications":{"apps__hashcode":"UP_2_"}}`))
		}},
		{name: "no document", spoil: func(s *listServer) { s.setFault("/apps/delta", fake.Always(200, `<html>`)) }},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			s := newListServer(newListModel("", orders("o1", registry.Up), orders("o2", registry.Up)), false)
			d := discover(t, DiscoveryConfig{}, s)
			s.wantRequests(t, "at first", "full")
			s.set(orders("o3", registry.Up))
			tc.spoil(s)
			for range 2 {
				pass(DefaultRefreshInterval)
				d.wantList(t, "after an interval", s.words(""))
			}
			got := s.newRequests()
			expect.That(t, strings.HasPrefix(got, "delta full delta"), "the server is asked for %q, want a delta, everything at once, and deltas again", got)
			status := d.Status()
			expect.That(t, status.Err == nil && status.Age == 0, "the status is %+v, want no error and no age", status)
		})
	}
}

func TestDiscoveryFetchesEverythingAfterAReset(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(s *listServer) // what the cluster loses while the client cannot reach it
		asks string              // requests at the beginning
	}{
		{name: "too old an index", lose: func(s *listServer) {
			s.remove(orders("o2", registry.Up))
			s.loseHistory()
		}, asks: "watch@e-3 full watch@e-5"},
		{name: "a cluster that lost everything", lose: func(s *listServer) {
			s.restart("f")
			s.set(orders("o1", registry.Up), orders("o2", registry.Down))
		}, asks: "watch@e-3 full watch@f-2"},
		{name: "a cluster that has gone back", lose: func(s *listServer) {
			// The client's index is ahead of the cluster's, so the watch is refused, not reset.
			s.restart("e")
			s.set(orders("o1", registry.Up), orders("o2", registry.Down))
		}, asks: "watch@e-3"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			s := newListServer(newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up), orders("o3", registry.Up)), true)
			d := discover(t, DiscoveryConfig{Guard: Guard{Share: -1}}, s)
			s.wantRequests(t, "at first", "full watch@e-3")
			s.kill()
			tc.lose(s)
			s.revive()
			pass(2 * DefaultRefreshInterval)
			got := s.newRequests()
			expect.That(t, strings.HasPrefix(got, tc.asks), "the server is asked for %q, want %q at the beginning", got, tc.asks)
			d.wantList(t, "in the end", s.words(""))
		})
	}
}

func TestDiscoveryFetchesFromAServerThatCannotBeWatched(t *testing.T) {
	for name, response := range map[string]func(*http.Request) (*http.Response, error){
		"no such route":          fake.Always(404, "<html>"),
		"a page for everything":  fake.Always(200, "<html>", "Content-Type", "text/html; charset=utf-8"),
		"not for this user":      fake.Always(403, ""),
		"what cannot be read":    stream("event: change\ndata: {\n\n"),
		"an index is not wanted": fake.Always(400, ""),
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
			s.setFault("/v1/rollcall/watch", response)
			d := discover(t, DiscoveryConfig{}, s)
			s.set(orders("o2", registry.Up))
			pass(DefaultRefreshInterval)
			d.wantList(t, "after an interval", s.words(""))
			s.wantRequests(t, "until then", "full watch@e-1 delta")
		})
	}
}

func TestDiscoveryFetchesOncePerIntervalWhereNoServerHasPlaceForAWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		s.setFault("/v1/rollcall/watch", fake.Always(503, ""))
		d := discover(t, DiscoveryConfig{}, s)
		for range 20 {
			pass(DefaultRefreshInterval)
			age := d.Age()
			expect.That(t, age <= DefaultRefreshInterval+wait.LongestRetry, "the list is %v old", age)
		}
		fetches := strings.Count(s.newRequests(), "full")
		expect.That(t, fetches >= 15 && fetches <= 21, "%d fetches in 20 intervals", fetches)
		s.setFault("/v1/rollcall/watch", nil)
		pass(wait.LongestRetry)
		expect.That(t, d.Status().Source == SourceWatch, "the status is %+v, want a watch", d.Status())
	})
}

// streamSilence is how long a stream may be silent before the client leaves it.
const streamSilence = 45 * time.Second

func TestDiscoveryLeavesASilentStreamForAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := newListModel("e", orders("o1", registry.Up))
		a, b := newListServer(known, true), newListServer(known, true)
		a.markEvery = -1
		d := discover(t, DiscoveryConfig{}, a, b)
		pass(streamSilence - 1)
		b.wantRequests(t, "before", "")
		expect.That(t, d.Age() == streamSilence-1, "the list is %v old, want %v", d.Age(), streamSilence-1)
		pass(time.Second)
		b.wantRequests(t, "after the silence", "watch@e-1")
		for range 10 {
			pass(7 * time.Second)
			age := d.Age()
			expect.That(t, age <= 15*time.Second, "the list is %v old while its server is heard of", age)
		}
		b.wantRequests(t, "after that", "")
	})
}

func TestDiscoveryAgesWhileNoServerCanBeReached(t *testing.T) {
	for _, rollcall := range []bool{true, false} {
		fake.InBubble(t, fmt.Sprintf("Rollcall: %v", rollcall), func(t *testing.T) {
			s := newListServer(newListModel("e", orders("o1", registry.Up)), rollcall)
			d := discover(t, DiscoveryConfig{}, s)
			s.kill()
			pass(time.Hour)
			expect.Equal(t, d.Age(), time.Hour, "the age of the list is")
			expect.That(t, d.Status().Err != nil, "the status has no error")
			d.wantList(t, "after an hour", "ORDERS/o1=UP")
			fetches := strings.Count(s.newRequests(), "full")
			expect.That(t, fetches <= 1+int(time.Hour/DefaultRefreshInterval), "everything was asked for %d times, want once per interval at most", fetches)
			s.set(orders("o2", registry.Up))
			s.revive()
			pass(10 * DefaultRefreshInterval)
			d.wantList(t, "when it is back", "ORDERS/o1=UP ORDERS/o2=UP")
			status := d.Status()
			expect.That(t, status.Err == nil && status.Age <= DefaultRefreshInterval, "the status is %+v", status)
		})
	}
}

func TestDiscoveryFetchesBackOffAndReturnToTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 10 * time.Second
		s := newListServer(newListModel("", orders("o1", registry.Up)), false)
		discover(t, DiscoveryConfig{Interval: interval}, s)
		s.setFault("", fake.Unreachable)
		s.newRequests()
		pass(time.Hour)
		s.state.Lock()
		times := s.times
		s.state.Unlock()
		longest := interval
		for i := 1; i < len(times); i++ {
			longest = min(2*longest, 10*interval)
			pause := times[i].Sub(times[i-1])
			expect.That(t, pause >= longest/2 && pause <= longest, "pause %d is %v, want %v to %v", i, pause, longest/2, longest)
		}
		expect.That(t, len(times) >= 36, "%d tries in an hour", len(times))
		s.revive()
		pass(10 * interval)
		s.newRequests()
		pass(10 * interval)
		s.wantRequests(t, "afterwards", strings.TrimSpace(strings.Repeat("delta ", 10)))
	})
}

func TestDiscoveryTriesMoreOftenForItsFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		s.kill()
		d := discover(t, DiscoveryConfig{}, s)
		pass(time.Minute)
		tries := len(strings.Fields(s.newRequests()))
		expect.That(t, tries >= 12 && tries <= 40, "%d tries in a minute, want one per %v at least", tries, wait.LongestRetry)
		err := d.Ready(fake.Within(t, time.Second))
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "connection refused"),
			"Ready: %v, want the end of its context and the connection refused", err)
		status := d.Status()
		expect.That(t, status.Source == SourceNone && status.Age == 0 && status.Err != nil && d.Snapshot().Len() == 0, "the status is %+v", status)
		s.revive()
		pass(wait.LongestRetry)
		expect.OK(t, d.Ready(t.Context()))
	})
}

func TestDiscoveryKeepsItsListWhenAServerIsSuddenlyEmpty(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rollcall bool
		lag      time.Duration // until a change is in the list
		asked    string        // while instances are held
		after    string        // in the interval after that
	}{
		{name: "Rollcall", rollcall: true, asked: "watch@e-3 full watch@f-0 full watch@f-2 full watch@f-2 full watch@f-2"},
		{name: "stock Eureka", lag: DefaultRefreshInterval, asked: "delta full full full full", after: "delta"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			s := newListServer(newListModel("e", orders("o1", registry.Up), orders("o2", registry.Up), orders("o3", registry.Up)), tc.rollcall)
			d := discover(t, DiscoveryConfig{}, s)
			s.newRequests()
			s.restart("f")
			s.hangUp()
			pass(tc.lag + wait.ShortestRetry + wait.LongestRetry) // a fetch is in flight within this time
			d.wantList(t, "at once", "ORDERS/o1=UP ORDERS/o2=UP ORDERS/o3=UP")
			expect.Equal(t, d.Status().Held, 3, "instances held:")
			s.set(orders("o1", registry.Down))
			s.remove(orders("o2", registry.Up))
			pass(tc.lag)
			if tc.rollcall { // a removal that the server names is believed
				d.wantList(t, "after the removal", "ORDERS/o1=DOWN ORDERS/o3=UP")
				expect.Equal(t, d.Status().Held, 1, "after the removal there are held")
			}
			pass(DefaultGuardHold - tc.lag - wait.ShortestRetry - wait.LongestRetry - 1)
			expect.That(t, strings.Contains(words(d.Snapshot()), "ORDERS/o3=UP"), "the list is %q before the time is up", words(d.Snapshot()))
			pass(wait.ShortestRetry + wait.LongestRetry)
			d.wantList(t, "in the end", "ORDERS/o1=DOWN")
			s.wantRequests(t, "meanwhile", tc.asked)
			pass(DefaultRefreshInterval)
			s.wantRequests(t, "after that", tc.after)
			guarded := testutil.ToFloat64(d.client.metrics.guarded)
			expect.That(t, guarded >= 3, "%v answers were not believed, want 3", guarded)
		})
	}
}

// savedAs returns the list in a file, in the form of words, or "none".
func savedAs(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return "none"
	}
	var file struct{ List json.RawMessage }
	need.OK(t, json.Unmarshal(text, &file))
	var all []string
	for _, l := range need.Got(eureka.DecodeApplications(file.List))(t).Leases {
		all = append(all, word(l.Instance))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestDiscoveryFileIsTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		before := discover(t, DiscoveryConfig{File: path}, s)
		pass(time.Minute)
		need.OK(t, before.Close(t.Context()))
		s.kill()
		pass(time.Hour)
		var changes recorder
		d := discover(t, DiscoveryConfig{File: path, OnChange: changes.each}, s)
		need.OK(t, d.Ready(t.Context()))
		status := d.Status()
		// It was last heard at the earliest 15 s before the end.
		expect.That(t, status.Source == SourceFile && status.Server == "" && status.Age >= time.Hour && status.Age <= time.Hour+15*time.Second,
			"the status is %+v, want a file of an hour", status)
		d.wantList(t, "without a server", "ORDERS/o1=UP")
		pass(time.Minute)
		age := d.Age()
		expect.That(t, age >= time.Hour+time.Minute, "a minute later it is %v old", age)
		s.set(orders("o2", registry.Up))
		s.revive()
		pass(wait.LongestRetry)
		d.wantList(t, "with a server", "ORDERS/o1=UP ORDERS/o2=UP")
		changes.want(t, "", "ORDERS/o1=UP", "ORDERS/o1=UP ORDERS/o2=UP")
		status = d.Status()
		expect.That(t, status.Source == SourceWatch, "the status is %+v, want a watch", status)
	})
}

func TestDiscoveryFileIsSavedOncePerIntervalAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{File: path}, s)
		first := "ORDERS/o1=UP"
		s.set(orders("o2", registry.Up))
		pass(time.Second)
		expect.Equal(t, savedAs(t, path), first, "after the first list there is saved")
		s.set(orders("o3", registry.Up))
		pass(DefaultRefreshInterval - time.Second - 1)
		expect.Equal(t, savedAs(t, path), first, "before the interval is over there is saved")
		pass(1)
		expect.Equal(t, savedAs(t, path), s.words(""), "after the interval there is saved")
		need.OK(t, os.Remove(path))
		pass(10 * DefaultRefreshInterval)
		expect.Equal(t, savedAs(t, path), "none", "although nothing has changed, there is saved")
		s.set(orders("o4", registry.Up))
		pass(1)
		s.set(orders("o5", registry.Up))
		pass(1)
		need.OK(t, d.Close(t.Context()))
		expect.Equal(t, savedAs(t, path), s.words(""), "at the end there is saved")
	})
}

func TestDiscoveryFileThatIsDamagedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		need.OK(t, os.WriteFile(path, []byte(`{"version":1,`), 0o600))
		s := newListServer(newListModel("e"), true)
		s.kill()
		c := clientOfLists(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		d := need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		synctest.Wait()
		expect.That(t, d.Status().Source == SourceNone && strings.Contains(log.String(), "cannot be used") && strings.Contains(log.String(), "damaged"),
			"the status is %+v, the log %q", d.Status(), log.String())
		s.revive()
		pass(wait.LongestRetry)
		expect.Equal(t, savedAs(t, path), "", "saved")
	})
}

func TestDiscoveryFileThatCannotBeSavedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		path := filepath.Join(dir, "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		c := clientOfLists(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		pass(5 * DefaultRefreshInterval)
		need.OK(t, os.Mkdir(dir, 0o700))
		pass(DefaultRefreshInterval)
		expect.Equal(t, savedAs(t, path), "ORDERS/o1=UP", "saved")
		for text, want := range map[string]int{"cannot be saved": 1, "saved again": 1} {
			expect.Equal(t, strings.Count(log.String(), text), want, "%s\nhow often the log says %q:", log.String(), text)
		}
	})
}

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
