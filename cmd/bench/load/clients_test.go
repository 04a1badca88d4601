package load

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestClientFeelsTheTimeUntilItGetsAnAnswerAgain(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	answered := func(due, done int) func(*felt) { return func(f *felt) { f.add(at(due), at(done), true, due >= 1000) } }
	unanswered := func(due, done int) func(*felt) { return func(f *felt) { f.add(at(due), at(done), false, due >= 1000) } }
	stop := func(ms int) func(*felt) { return func(f *felt) { f.stop(at(ms)) } }
	for _, c := range []struct {
		name            string
		seen            []func(*felt)
		calls, answered int
		gap             trial.Micros // ms
		open            bool
	}{
		{"nothing", nil, 0, 0, 0, false},
		{"an answer takes its time", []func(*felt){answered(100, 130)}, 1, 1, 30, false},
		{"the longest counts", []func(*felt){answered(100, 130), answered(200, 280), answered(300, 310)}, 3, 3, 80, false},
		{"from when the first unanswered call was due", []func(*felt){answered(100, 110), unanswered(200, 250), unanswered(300, 350), answered(400, 410)}, 4, 2, 210, false},
		{"a call that was sent late counts from when it was due", []func(*felt){answered(100, 600)}, 1, 1, 500, false},
		{"a wait that does not end is as long as it was seen", []func(*felt){answered(100, 110), unanswered(300, 350)}, 2, 1, 1700, true},
		{"an answer ends it before the end", []func(*felt){unanswered(300, 350), answered(400, 410)}, 2, 1, 110, false},
		{"a client that stops waits no longer", []func(*felt){unanswered(300, 350), stop(400)}, 1, 0, 100, false},
		{"and waits anew when it calls again", []func(*felt){unanswered(300, 350), stop(400), unanswered(1950, 1960), unanswered(900, 910)}, 2, 0, 1100, true},
		{"a wait that does not end and is longer than one that did", []func(*felt){unanswered(100, 110), answered(900, 950), unanswered(1000, 1010), unanswered(990, 1010)}, 3, 1, 1010, true},
		{"an answer after the load ends a wait, and is no call of it", []func(*felt){unanswered(900, 950), unanswered(1100, 1150), answered(1200, 1210)}, 1, 0, 310, false},
		{"calls after the load begin no wait", []func(*felt){answered(900, 950), unanswered(1100, 1150)}, 1, 1, 50, false},
		{"a client that waits for nothing stops", []func(*felt){answered(100, 110), stop(900)}, 1, 1, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := new(felt)
			for _, see := range c.seen {
				see(f)
			}
			want := trial.Client{Operation: trial.Fetch, Home: 2, Calls: c.calls, Answered: c.answered, Gap: c.gap * 1000, Open: c.open}
			expect.Equal(t, f.saw(at(2000), trial.Fetch, 2), want, "it felt")
		})
	}
	var none *felt
	none.add(at(0), at(1), true, false) // nothing is kept of it
}

func TestClientsAreThoseThatCalled(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Instances: 3, Registers: 20, Fetches: 8})
	l.fleet.interval, l.fleet.stay = 100*time.Millisecond, 150*time.Millisecond
	need.OK(t, l.Register(t.Context()))
	t.Cleanup(l.Stop)
	began := time.Now()
	need.OK(t, l.Run(t.Context(), began, 500*time.Millisecond))
	found := make(map[trial.Operation]int)
	for _, client := range l.Clients() {
		found[client.Operation]++
		expect.That(t, client.Calls > 0 && client.Answered <= client.Calls, "%+v has not called", client)
	}
	// Deltas, of which the rate is 0, have no client; registrations before the begin do not count.
	expect.That(t, found[trial.Register] == 10 && found[trial.Heartbeat] >= 3 && found[trial.Fetch] == 4 && found[trial.Delta] == 0,
		"clients are %v, want 10 that registered, the 3 instances, and those of 4 fetches", found)
}

func TestClientsThatFetchPollInTurnAboutOnceASecond(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Fetches: 6, Deltas: 0.5})
	began := time.Now()
	l.recorder.window.Store(&window{began, began.Add(time.Minute)})
	l.fetching = l.fetchStreams()
	callers := l.newCallers(2)
	for range 7 {
		l.fetching[0].send(t.Context(), callers[1], time.Now())
	}
	l.fetching[1].send(t.Context(), callers[0], time.Now())
	for _, c := range callers {
		c.close()
	}
	var got []int
	for _, client := range l.Clients() {
		got = append(got, client.Calls)
		expect.Equal(t, client.Home, map[trial.Operation]int{trial.Fetch: 1}[client.Operation], "%s at home at", client.Operation)
	}
	expect.Slice(t, got, []int{3, 2, 2, 1}, "calls of the three clients of node 1, and of the one that asks for deltas:")
}

// forgets lets the servers forget an instance, and its client renew it.
func forgets(t *testing.T, c *fakeCluster, l *Load, i *instance) {
	t.Helper()
	c.remove(i.id)
	callers := l.newCallers(1)
	l.fleet.renew(t.Context(), callers[0], i, time.Now())
	callers[0].close()
}

func TestHeartbeatThatIsNotFoundIsForgottenWithTheLastAcknowledgedTime(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 2})
	i := l.fleet.lasting[0]
	began := time.Now()
	expect.Slice(t, l.Forgotten(began), nil, "before:")
	beat(t, l)
	acked := i.acked
	expect.That(t, acked.After(began), "the heartbeat was not acknowledged")
	forgets(t, c, l, i)
	again := i.acked // of the registration that followed
	forgets(t, c, l, i)
	got := l.Forgotten(began)
	need.That(t, len(got) == 2, "%d forgotten, want 2: %+v", len(got), got)
	for n, last := range []time.Time{acked, again} {
		at := got[n].At
		got[n].At = 0
		expect.Equal(t, got[n], trial.Forgotten{ID: i.id, Node: 0, Last: trial.Since(began, last)}, "forgotten are")
		expect.That(t, at >= got[n].Last, "forgotten at %d, before it was last acknowledged at %d", at, got[n].Last)
	}
}

func TestHeartbeatAfterACancelIsNotForgotten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int // of the first cancel; 0: it is done
		again  bool
		want   int
	}{
		{name: "canceled", want: 0},
		{name: "canceled, and registered again", again: true, want: 1},
		{name: "perhaps canceled, and registered again", status: http.StatusGatewayTimeout, again: true, want: 0},
		{name: "not canceled, and registered again", status: http.StatusForbidden, again: true, want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeCluster(t, 1)
			l := registered(t, c, scenario.Load{Instances: 1})
			i := l.fleet.lasting[0]
			callers := l.newCallers(1)
			c.decide(func(s seen) int { return map[string]int{http.MethodDelete: tc.status}[s.method] })
			l.fleet.cancelOnce(t.Context(), callers[0], i, time.Now())
			if tc.again {
				l.fleet.registerOnce(t.Context(), callers[0], i, time.Now())
			}
			callers[0].close()
			forgets(t, c, l, i)
			expect.Equal(t, len(l.Forgotten(time.Now())), tc.want, "forgotten:")
		})
	}
}
