package sim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// How fast watchers are served (docs/use/watch.md, docs/adr/0009-watch.md).
const (
	gap       = 50 * time.Millisecond // between two sends to one watcher
	slowAfter = 5 * time.Second       // how long a write to a watcher takes before the watcher is sent away
	cutAfter  = 30 * time.Second      // how long a write takes before the watcher is cut off
	// nodes without consensus have told each other a change within it, with its copies
	toldAll = time.Second
)

// eachMode runs a scenario in both modes.
func eachMode(t *testing.T, scenario func(t *testing.T, mode string)) {
	t.Helper()
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) { scenario(t, mode) })
	}
}

// reaches returns how soon what a node did reaches the readers of all nodes.
func reaches(mode string) time.Duration {
	if mode == config.AP {
		return toldAll
	}
	return gap + moment
}

func TestWatchStreamsOfAllNodesHaveTheSameEvents(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			var streams []*sim.Stream
			for _, n := range w.Names() {
				streams = append(streams, w.Watch(n, ""))
			}
			one := w.Watch("n1", "app=orders")
			acts := []struct{ method, path, want string }{
				{"POST", "/eureka/apps/ORDERS a", "ADDED registered ORDERS/a UP"},
				{"POST", "/eureka/apps/BILLS b", "ADDED registered BILLS/b UP"},
				{"PUT", "/v1/rollcall/apps/ORDERS/a/override?value=OUT_OF_SERVICE", "MODIFIED changed ORDERS/a OUT_OF_SERVICE"},
				{"PUT", "/v1/rollcall/apps/BILLS/b/quarantine?for=1h&reason=r", "DELETED quarantined BILLS/b UP"},
				{"DELETE", "/eureka/apps/ORDERS/a", "DELETED canceled ORDERS/a OUT_OF_SERVICE"},
			}
			var want []string
			for i, act := range acts {
				path, id, registers := strings.Cut(act.path, " ")
				if registers {
					w.Register(strings.TrimPrefix(path, "/eureka/apps/")+"/"+id, time.Hour)
				} else {
					r := w.Call(w.Names()[i%3], act.method, path, "")
					need.That(w, r.Status/100 == 2, "%s %s: %v", act.method, path, r)
				}
				want = append(want, act.want)
				w.Wait(reaches(mode))
				for _, s := range streams {
					var got []string
					for _, c := range w.Changes(s) {
						got = append(got, fmt.Sprintf("%s %s %s/%s %s", c.Action, c.Why, c.App, c.ID, c.Status))
					}
					expect.Slice(w, got, want, "%s, %v after act %d, streams", s.Node, reaches(mode), i)
				}
			}
			first := w.Changes(streams[0])
			for _, s := range streams[1:] {
				if mode == config.CP { // without consensus each node counts and times its own changes
					expect.Deep(w, w.Changes(s), first, "%s streams", s.Node)
				}
			}
			expect.Equal(w, len(w.Changes(one)), 3, "changes of one application:")
		})
	})
}

// position returns the number in an index.
func position(w *sim.World, index string) uint64 {
	w.Helper()
	_, number, _ := strings.Cut(index, "-")
	return need.Got(strconv.ParseUint(number, 10, 64))(w)
}

// Instances are registered while the leader dies again and again, or every node in turn and so the one that the
// watcher reads from.
func TestWatchMissesAndRepeatsNothingWhileNodesDie(t *testing.T) {
	for name, next := range map[string]func(w *sim.World, turn int) string{
		"the leader":   func(w *sim.World, _ int) string { return w.Leader() },
		"each in turn": func(w *sim.World, turn int) string { return w.Names()[turn] },
	} {
		t.Run(name, func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) { watchWhileNodesDie(w, next) })
		})
	}
}

func watchWhileNodesDie(w *sim.World, next func(w *sim.World, turn int) string) {
	w.Helper()
	var servers []string
	for _, n := range w.Names() {
		servers = append(servers, w.URL(n))
	}
	cl := need.Got(client.New(client.Config{Servers: servers, InOrder: true, HTTPClient: w.Client("127.0.9.2")}))(w)
	var mu sync.Mutex
	var seen []client.WatchChange
	ctx, end := context.WithCancel(w.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		err := cl.Watch(ctx, client.WatchConfig{App: "RECORDED"}, func(e client.WatchEvent) error {
			mu.Lock()
			defer mu.Unlock()
			switch e := e.(type) {
			case client.WatchChange:
				seen = append(seen, e)
			case client.WatchReset:
				return errors.New("it may have missed something")
			}
			return nil
		})
		expect.OKf(w, err, "the watch")
	})
	w.Wait(time.Second)

	acked := map[string]uint64{} // index by id
	tried := map[string]bool{}
	newest := uint64(0)
	registered := 0
	register := func(times int) {
		for range times {
			id := fmt.Sprintf("recorded-%05d", registered)
			registered++
			tried[id] = true
			at := w.Names()[registered%3]
			r := w.Call(at, "POST", "/eureka/apps/RECORDED", fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"RECORDED","hostName":"h","ipAddr":"10.1.1.1",`+
				`"status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600}}}`, id))
			if r.Status == http.StatusNoContent {
				newest = position(w, r.Header.Get("X-Rollcall-Index"))
				acked[id] = newest
			}
			w.Wait(30 * time.Millisecond)
		}
	}
	for turn := range 3 {
		register(30)
		victim := next(w, turn)
		w.Kill(victim)
		register(60)
		w.Start(victim)
		w.ReadyBy(victim, sim.ReadyWithin)
	}
	register(30)
	last := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 0 {
			return 0
		}
		return position(w, seen[len(seen)-1].Index)
	}
	w.Wait(gap + moment)
	expect.That(w, last() >= newest, "%v after the last registration at %d the watch is at %d", gap+moment, newest, last())
	end()
	watching.Wait()
	need.OK(w, cl.Close(w.Context()))

	at := map[string]uint64{}
	before := uint64(0)
	for _, c := range seen {
		index := position(w, c.Index)
		expect.That(w, index > before, "%+v came after %d", c, before)
		_, twice := at[c.ID]
		expect.That(w, !twice && tried[c.ID] && c.Action == "ADDED", "%+v came twice, or is nothing that was registered", c)
		at[c.ID], before = index, index
	}
	for id, index := range acked {
		expect.Equal(w, at[id], index, "%s was acknowledged at %d, and the watch shows it at", id, index)
	}
	expect.That(w, len(acked) > 150, "%d of %d registrations were acknowledged", len(acked), registered)
}

// poll sends a long poll, and returns its changes with the index from which the next one continues.
func poll(w *sim.World, node, query string) api.Changes {
	w.Helper()
	return documentOf[api.Changes](w, w.Hold(node, "GET", "/v1/rollcall/watch?"+query, ""))
}

// pollOn polls a node from an index on, while an instance is registered elsewhere, and returns the index that it
// reached.
func pollOn(w *sim.World, mode, node, elsewhere, index, id string) string {
	w.Helper()
	type reply struct {
		sim.Reply
		at time.Time
	}
	polled := make(chan reply, 1)
	go func() {
		r := w.Hold(node, "GET", "/v1/rollcall/watch?wait=30s&app=polled&index="+index, "")
		polled <- reply{r, time.Now()}
	}()
	w.Wait(time.Second)
	register := func(app, id string) {
		r := w.Call(elsewhere, "POST", "/eureka/apps/"+app, fmt.Sprintf(`{"instance":{"instanceId":%q,"app":%q,"hostName":"h","ipAddr":"10.1.1.1",`+
			`"status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600}}}`, id, app))
		need.Equal(w, r.Status, http.StatusNoContent, "%v: the registration is answered", r)
	}
	register("OTHER", "other-"+id)
	w.Wait(reaches(mode))
	expect.Equal(w, len(polled), 0, "polls that another application woke:")
	register("POLLED", id)
	registered := time.Now()
	r := <-polled
	took := r.at.Sub(registered)
	got := documentOf[api.Changes](w, r.Reply)
	need.That(w, len(got.Changes) == 1 && got.Changes[0].ID == id && took <= reaches(mode),
		"the poll of %s returned %+v after %v, want the registration of %s within %v", node, got, took, id, reaches(mode))
	return got.Index
}

func refusePolls(w *sim.World, node, index string) {
	w.Helper()
	expect.Equal(w, w.Call(node, "GET", "/v1/rollcall/watch?wait=1s&index=elsewhere-1", "").Status, http.StatusGone, "an index of another registry:")
	expect.Equal(w, w.Call(node, "GET", "/v1/rollcall/watch?wait=1s&index="+index+"000", "").Status, http.StatusBadRequest, "an index from the future:")
	began := time.Now()
	expect.Equal(w, len(poll(w, node, "wait=3s&index="+index).Changes), 0, "changes of a quiet registry:")
	took := time.Since(began)
	expect.That(w, took >= 3*time.Second && took <= 3*time.Second+moment, "a poll that waits for 3s took %v", took)
}

func TestLongPollGoesOnAtAnotherNode(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		index := poll(w, "n1", "wait=0s").Index
		for i, n := range w.Names() {
			index = pollOn(w, config.CP, n, w.Others(n)[0], index, fmt.Sprintf("polled-%d", i))
		}
		refusePolls(w, "n1", index)
	})
}

func TestLongPollWithoutConsensusIsOfOneNode(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 2, Mode: config.AP}, func(w *sim.World) {
		index := poll(w, "n1", "wait=0s").Index
		for i := range 3 {
			index = pollOn(w, config.AP, "n1", "n2", index, fmt.Sprintf("polled-%d", i))
		}
		refusePolls(w, "n1", index)
		expect.Equal(w, w.Call("n2", "GET", "/v1/rollcall/watch?wait=1s&index="+index, "").Status, http.StatusGone, "another node's index:")
	})
}

// stalledWatcher is a watcher of everything that reads nothing from its connection until it wakes.
type stalledWatcher struct{ net.Conn }

func newStalledWatcher(w *sim.World, node string) *stalledWatcher {
	w.Helper()
	conn := w.Dial("127.0.9.3", node)
	need.Got(fmt.Fprintf(conn, "GET /v1/rollcall/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"))(w)
	return &stalledWatcher{conn}
}

// wake reads everything that was sent, and returns the names of the events.
func (s *stalledWatcher) wake() (names []string, err error) {
	defer s.Close()
	if err := s.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(s), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for events := api.NewEventReader(resp.Body, 4<<10); ; {
		e, err := events.Next()
		if err != nil {
			return names, err
		}
		if len(e.Name) > 0 {
			names = append(names, string(e.Name))
		}
	}
}

// A fifth of the watchers read nothing, while megabytes that only these asked for make the nodes wait for them. Half
// of them wake in time to read that they must fetch everything; the others are cut off.
func TestWatchersThatAreSlowAreSentAwayAndDelayNoOther(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			const slow, all = 12, 60
			var stalledWatchers []*stalledWatcher
			for i := range slow {
				stalledWatchers = append(stalledWatchers, newStalledWatcher(w, w.Names()[i%3]))
			}
			var streams []*sim.Stream
			for i := range all - slow {
				streams = append(streams, w.Watch(w.Names()[i%3], "app=watched"))
			}
			watchers := func() (sum int) {
				for _, n := range w.Names() {
					sum += int(w.Metric(n, "rollcall_http_watchers"))
				}
				return sum
			}
			need.Equal(w, watchers(), all, "watchers are")
			register := func(app, id, text string) {
				r := w.Call("n1", "POST", "/eureka/apps/"+app, fmt.Sprintf(`{"instance":{"instanceId":%q,"app":%q,"hostName":"h","ipAddr":"10.1.1.1","status":"UP",`+
					`"dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600},"metadata":{"text":%q}}}`, id, app, text))
				need.Equal(w, r.Status, http.StatusNoContent, "%v: the registration is answered", r)
			}
			stuck := time.Now()
			bulk := strings.Repeat("x", 60<<10)
			for i := range 40 { // more than a connection holds if nobody reads
				register("BULKY", fmt.Sprint("bulky-", i), bulk)
			}
			filled := time.Now()
			for i := range 5 {
				register("WATCHED", fmt.Sprint("watched-", i), "")
				w.Wait(reaches(mode))
				for _, s := range streams {
					expect.Equal(w, len(w.Changes(s)), i+1, "changes at a watcher of %s %v after change %d:", s.Node, reaches(mode), i)
				}
			}
			w.Wait(time.Until(filled.Add(2*slowAfter)) + toldAll)
			expect.Equal(w, watchers(), all, "watchers are")
			for i, s := range stalledWatchers[:slow/2] {
				names, err := s.wake()
				expect.That(w, err == io.EOF && names[len(names)-1] == "reset" && slices.Contains(names, "change"), "watcher %d that woke up was sent %q and then %v, want a reset as the last one and the end", i, names, err)
			}
			expect.Equal(w, watchers(), all-slow/2, "watchers are, when half of the slow ones woke up")
			w.Wait(time.Until(stuck.Add(cutAfter)) - moment)
			expect.Equal(w, watchers(), all-slow/2, "watchers are, before slow ones may be cut off")
			w.Wait(time.Until(filled.Add(cutAfter)) + toldAll)
			expect.Equal(w, watchers(), all-slow, "watchers are, %v after they read nothing", cutAfter)
			for i, s := range stalledWatchers[slow/2:] {
				_, err := s.wake()
				expect.That(w, err != nil && err != io.EOF, "watcher %d that slept on reads %v", i, err)
			}
		})
	})
}
