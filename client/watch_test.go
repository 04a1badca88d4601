package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// stream responds with events and stays open.
func stream(events ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := fake.Respond(200, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(strings.Join(events, "")), fake.Open{Ctx: r.Context()}))
		return resp, err
	}
}

// cut responds with events and dies.
func cut(events ...string) func(*http.Request) (*http.Response, error) {
	return fake.Always(200, strings.Join(events, ""))
}

func started(n int) string {
	return fmt.Sprintf("event: start\nid: e-%d\ndata: {\"index\":\"e-%d\"}\n\n", n, n)
}

func changed(n int) string {
	return fmt.Sprintf("event: change\nid: e-%d\ndata: {\"index\":\"e-%d\",\"action\":\"ADDED\",\"why\":\"registered\",\"app\":\"ORDERS\",\"id\":\"o%d\",\"status\":\"UP\"}\n\n", n, n, n)
}

const wasReset = "event: reset\nid: e-30\ndata: {\"reason\":\"too old\",\"index\":\"e-30\"}\n\n"

// asked records the queries that reach a server.
type asked struct {
	mu      sync.Mutex
	queries []string
}

func (a *asked) around(next func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.queries = append(a.queries, r.URL.Path+"?"+r.URL.RawQuery)
		a.mu.Unlock()
		return next(r)
	}
}

// eventWords records the events of a watch, as words.
type eventWords struct {
	words []string
	until string // the word that ends it
}

var errEnough = errors.New("enough")

func (l *eventWords) each(event WatchEvent) error {
	var word string
	switch e := event.(type) {
	case WatchStart:
		word = "start " + e.Index
	case WatchChange:
		word = "change " + e.Index
	case WatchReset:
		word = "reset " + e.Index
	}
	l.words = append(l.words, word)
	if word == l.until {
		return errEnough
	}
	return nil
}

func TestWatchGoesOnWhereItWas(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config WatchConfig
		a, b   func(*http.Request) (*http.Response, error)
		words  []string // the last one ends it
		asks   []string // queries to b
	}{
		{name: "one server",
			a: stream(started(5), changed(6), changed(7)), words: []string{"start e-5", "change e-6", "change e-7"}},
		{name: "cut off after a change", config: WatchConfig{App: "orders"},
			a: cut(started(5), changed(6)), b: stream(started(6), changed(7)), words: []string{"start e-5", "change e-6", "start e-6", "change e-7"}, asks: []string{"app=ORDERS&index=e-6"}},
		{name: "cut off before anything", config: WatchConfig{Index: "e-4"},
			a: cut(), b: stream(started(4), changed(5)), words: []string{"start e-4", "change e-5"}, asks: []string{"index=e-4"}},
		{name: "cut off in the middle of a change",
			a: cut(started(5), strings.TrimSuffix(changed(6), "\n")), b: stream(started(5), changed(6)), words: []string{"start e-5", "start e-5", "change e-6"}, asks: []string{"index=e-5"}},
		{name: "cut off after a mark",
			a: cut(started(5), "id: e-9\n: nothing happens\n\n"), b: stream(started(9), changed(10)), words: []string{"start e-5", "start e-9", "change e-10"}, asks: []string{"index=e-9"}},
		{name: "cut off after a reset",
			a: cut(started(5), wasReset), b: stream(started(30), changed(31)), words: []string{"start e-5", "reset e-30", "start e-30", "change e-31"}, asks: []string{"index=e-30"}},
		{name: "a reset on the way",
			a: stream(started(5), wasReset, changed(31)), words: []string{"start e-5", "reset e-30", "change e-31"}},
		{name: "an event of another version",
			a: cut(started(5), "event: weather\nid: e-6\ndata: fine\n\n"), b: stream(started(6), changed(7)), words: []string{"start e-5", "start e-6", "change e-7"}, asks: []string{"index=e-6"}},
		{name: "no process listens", a: fake.Unreachable, b: stream(started(5)), words: []string{"start e-5"}, asks: []string{""}},
		{name: "no leader", a: fake.Always(503, ""), b: stream(started(5)), words: []string{"start e-5"}, asks: []string{""}},
		{name: "too many watchers", a: fake.Always(429, ""), b: stream(started(5)), words: []string{"start e-5"}, asks: []string{""}},
		{name: "no response", a: fake.Silent, b: stream(started(5)), words: []string{"start e-5"}, asks: []string{""}},
		{name: "silence", a: stream(started(5), changed(6)), b: stream(started(6)), words: []string{"start e-5", "change e-6", "start e-6"}, asks: []string{"index=e-6"}},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			var b asked
			got := eventWords{until: tc.words[len(tc.words)-1]}
			err := clientOf(t, fake.Servers{"a": tc.a, "b": b.around(tc.b)}, "a", "b").Watch(t.Context(), tc.config, got.each)
			expect.That(t, err == errEnough && reflect.DeepEqual(got.words, tc.words), "got %q, %v, want %q", got.words, err, tc.words)
			var want []string
			for _, q := range tc.asks {
				want = append(want, "/v1/rollcall/watch?"+q)
			}
			expect.Deep(t, b.queries, want, "the second server is asked for")
		})
	}
}

func TestWatchPassesAChangeWithItsInstance(t *testing.T) {
	const change = `event: change
data: {"index":"e-6","action":"DELETED","why":"evicted","app":"ORDERS","id":"orders-1","status":"OUT_OF_SERVICE","instance":%s}

`
	for _, tc := range []struct {
		name, instance string
		want           *registry.Instance
	}{
		{name: "with an instance", instance: `{"instanceId":"orders-1","app":"ORDERS","ipAddr":"10.0.0.1","status":"OUT_OF_SERVICE","port":{"$":80,"@enabled":"true"}}`,
			want: &registry.Instance{InstanceID: "orders-1", App: "ORDERS", IPAddr: "10.0.0.1", Status: registry.OutOfService, Port: registry.Port{Number: 80, Enabled: true}}},
		{name: "without", instance: "null"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got WatchChange
			c := clientOf(t, fake.Servers{"a": stream(fmt.Sprintf(change, tc.instance))}, "a")
			err := c.Watch(t.Context(), WatchConfig{}, func(e WatchEvent) error { got = e.(WatchChange); return errEnough })
			if err != errEnough {
				t.Fatal(err)
			}
			need.That(t, (got.Instance == nil) == (tc.want == nil), "got the instance %+v, want %+v", got.Instance, tc.want)
			if i := got.Instance; i != nil && (i.Key() != got.Key() || i.Instance.IPAddr != tc.want.IPAddr || i.Instance.Status != tc.want.Status || i.Instance.Port != tc.want.Port) {
				t.Errorf("got %+v, want %+v", i.Instance, tc.want)
			}
			got.Instance = nil
			expect.Equal(t, got, (WatchChange{Index: "e-6", Action: "DELETED", Why: "evicted", App: "ORDERS", ID: "orders-1", Status: "OUT_OF_SERVICE"}), "got")
		})
	}
}

func TestWatchThatIsRefusedEnds(t *testing.T) {
	for _, tc := range []struct {
		name     string
		response func(*http.Request) (*http.Response, error)
		says     string
	}{
		{name: "a malformed index", response: fake.Always(400, `{"error":"index: no"}`), says: "watch: http://a answered 400 Bad Request: index: no"},
		{name: "not offered", response: fake.Always(501, ""), says: "501"},
		{name: "an event that cannot be read", response: stream("event: change\ndata: {\n\n"), says: `event "change" of http://a`},
		{name: "an instance that cannot be read", response: stream("event: change\ndata: {\"app\":\"A\",\"id\":\"b\",\"instance\":1}\n\n"), says: "instance A/b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := clientOf(t, fake.Servers{"a": tc.response}, "a").Watch(t.Context(), WatchConfig{}, func(WatchEvent) error { return nil })
			expect.That(t, err != nil && strings.Contains(err.Error(), tc.says), "got %v, want %q in it", err, tc.says)
		})
	}
}

func TestWatchNeedsRollcall(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b func(*http.Request) (*http.Response, error)
		want error
	}{
		{name: "no server is Rollcall", a: fake.Always(404, "<html>"), b: fake.Always(405, ""), want: ErrNeedsRollcall},
		{name: "a page for everything", a: fake.Always(200, "<html>", "Content-Type", "text/html"), b: fake.Always(404, ""), want: ErrNeedsRollcall},
		{name: "one is", a: fake.Always(404, "<html>"), b: stream(started(5)), want: errEnough},
		{name: "it is not known yet", a: fake.Always(404, "<html>"), b: fake.Unreachable},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			ctx := fake.Within(t, time.Minute)
			err := clientOf(t, fake.Servers{"a": tc.a, "b": tc.b}, "a", "b").Watch(ctx, WatchConfig{}, func(WatchEvent) error { return errEnough })
			expect.ErrorIs(t, err, tc.want, "got")
		})
	}
}

func TestWatchAsksForOtherServersWhenNoneAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := fake.Servers{"a": fake.Unreachable, "b": stream(started(5))}
		start := time.Now()
		source := func(context.Context) ([]string, error) {
			if time.Since(start) < time.Second {
				return []string{"http://a"}, nil
			}
			return []string{"http://b"}, nil
		}
		c := need.Got(New(Config{HTTPClient: &http.Client{Transport: network}, Source: source}))(t)
		err := c.Watch(t.Context(), WatchConfig{}, func(WatchEvent) error { return errEnough })
		took := time.Since(start)
		expect.That(t, err == errEnough && took <= 2*wait.LongestRetry, "got %v after %v, want the new server's stream", err, took)
	})
}

func TestWatchThatFindsNoServerTriesMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fake.NewJournal()
		need.OK(t, clientOf(t, fake.Servers{"a": j.Around(fake.Unreachable)}, "a").Watch(fake.Within(t, time.Hour), WatchConfig{}, nil))
		times := j.Times()
		for i := 1; i < len(times); i++ {
			pause, longest := times[i]-times[i-1], min(wait.ShortestRetry<<min(i-1, 10), wait.LongestRetry)
			expect.That(t, pause < longest, "pause %d is %v, want less than %v", i, pause, longest)
		}
		// On average a pause is half of the longest one.
		fewest, most := int(time.Hour/wait.LongestRetry), 3*int(time.Hour/wait.LongestRetry)
		expect.That(t, len(times) >= fewest && len(times) <= most, "%d tries in an hour, want %d to %d", len(times), fewest, most)
	})
}

// ticking is a body that says nothing but a mark, now and then.
type ticking struct {
	ctx   context.Context
	every time.Duration
}

func (b ticking) Read(p []byte) (int, error) {
	if !wait.For(b.ctx, b.every) {
		return 0, b.ctx.Err()
	}
	return copy(p, ": nothing happens\n\n"), nil
}

func TestWatchThatIsQuietStaysWithItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fake.NewJournal()
		quiet := j.Around(func(r *http.Request) (*http.Response, error) {
			resp, err := fake.Respond(200, "")
			resp.Body = io.NopCloser(ticking{r.Context(), 15 * time.Second})
			return resp, err
		})
		ctx := fake.Within(t, time.Hour)
		err := clientOf(t, fake.Servers{"a": quiet}, "a").Watch(ctx, WatchConfig{}, nil)
		expect.That(t, err == nil && len(j.Times()) == 1, "got %v after %d tries, want one that lasts", err, len(j.Times()))
	})
}

// watchServer is a real server that streams what it is given.
func watchServer(t *testing.T, events <-chan string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		for flush() == nil {
			select {
			case e := <-events:
				io.WriteString(w, e)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func TestWatchOverRealConnectionsFailsOverAndLeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	events, others := make(chan string), make(chan string)
	a, b := watchServer(t, events), watchServer(t, others)
	transport := new(http.Transport)
	c := need.Got(New(Config{Servers: []string{a.URL, b.URL}, InOrder: true, HTTPClient: &http.Client{Transport: transport}}))(t)
	heard := make(chan string)
	ended := make(chan error, 1)
	go func() {
		got := eventWords{until: "change e-7"}
		ended <- c.Watch(t.Context(), WatchConfig{}, func(e WatchEvent) error {
			err := got.each(e)
			heard <- got.words[len(got.words)-1]
			return err
		})
	}()
	hears := func(want string) {
		t.Helper()
		expect.Equal(t, <-heard, want, "heard")
	}
	events <- started(5)
	hears("start e-5")
	events <- changed(6)
	hears("change e-6")
	a.CloseClientConnections()
	others <- started(6)
	hears("start e-6")
	others <- changed(7)
	hears("change e-7")
	expect.Equal(t, <-ended, errEnough, "Watch:")
	transport.CloseIdleConnections()
	a.Close()
	b.Close()
	fake.NoneLeft(t, before)
}

// Whatever it waits for.
func TestWatchEndsWithItsContextAndWithItsClient(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){
		"while nothing happens": stream(started(5)), "while no server responds": fake.Silent, "while no server is there": fake.Unreachable,
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			c := clientOf(t, fake.Servers{"a": server}, "a")
			watch := func(ctx context.Context) error {
				return c.Watch(ctx, WatchConfig{}, func(WatchEvent) error { return nil })
			}
			start := time.Now()
			err := watch(fake.Within(t, 3*time.Second))
			took := time.Since(start)
			expect.That(t, err == nil && took == 3*time.Second, "got %v after %v, want nil after 3s", err, took)
			result := make(chan error)
			go func() { result <- watch(context.Background()) }()
			time.Sleep(time.Second)
			need.OK(t, c.Close(t.Context()))
			expect.Equal(t, <-result, ErrClosed, "got")
		})
	}
}

func TestStreamIsIdleOncePerReadNotPerEvent(t *testing.T) {
	const changes = 1000
	var text strings.Builder
	text.WriteString("event: start\nid: e-1\ndata: {\"index\":\"e-1\"}\n\n")
	for n := range changes {
		fmt.Fprintf(&text, "event: change\nid: e-%[1]d\ndata: {\"index\":\"e-%[1]d\",\"action\":\"DELETED\",\"app\":\"ORDERS\",\"id\":\"o%[1]d\"}\n\n", n+2)
	}
	c := clientOf(t, fake.Servers{"a": fake.Always(200, text.String())}, "a").cluster
	events, lots, last := 0, 0, 0
	w := &changeStream{cluster: c, each: func(WatchEvent) error { events++; return nil }, idle: func() {
		if events != last {
			lots++
		}
		last = events
	}}
	_ = w.follow(t.Context(), c.Known()[0]) // it ends with the text
	most := text.Len()/fetchSSE + 2
	expect.That(t, events == changes+1 && last == events && lots <= most,
		"%d events in %d lots, the last one after %d, want %d in %d at most", events, lots, last, changes+1, most)
}
