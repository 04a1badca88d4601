package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rig is a registry that leads, services with given responses, and a Prober, in a bubble of virtual time.
type rig struct {
	*fsmtest.Memory
	t      *testing.T
	prober *Prober
	epoch  registry.Epoch

	mu        sync.Mutex          // guards the fields below
	responses map[string]response // by URL; passing if missing
	runs      map[string][]time.Duration
	running   int
	most      int           // most attempts at once
	lingers   time.Duration // how long ended attempts linger
	started   time.Time
}

// response is a service's response, and how long it takes.
type response struct {
	result
	takes time.Duration
}

func inBubble(t *testing.T, do func(g *rig)) {
	synctest.Test(t, func(t *testing.T) {
		g := &rig{
			Memory: fsmtest.New(), t: t,
			responses: map[string]response{}, runs: map[string][]time.Duration{}, started: time.Now(),
		}
		g.epoch = g.Registry.Epoch()
		g.prober = New(Config{Registry: g, Watch: func() (<-chan struct{}, func()) { return g.Watchers.Join(registry.Topic{Kind: registry.AllTopic}) }})
		g.prober.attempt = g.attempt
		g.prober.draw = func(d time.Duration) time.Duration { return d / 2 }
		do(g)
	})
}

// lead runs the prober until the returned function is called, which waits for its end.
func (g *rig) lead() (lose func()) {
	ctx, cancel := context.WithCancel(g.t.Context())
	var all sync.WaitGroup
	all.Go(func() { g.prober.Run(ctx, g.epoch) })
	return func() {
		cancel()
		all.Wait()
	}
}

// Apply is Memory's, but every operation must succeed.
func (g *rig) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	results, err := g.Memory.Apply(ctx, origin, ops...)
	for i, r := range results {
		expect.That(g.t, r.Outcome == registry.Done, "%+v: %v", ops[i], r.Outcome)
	}
	return results, err
}

func (g *rig) attempt(ctx context.Context, p *catalog.Probe, _ location) result {
	a := g.start(p.HTTP)
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
	}()
	select {
	case <-time.After(a.takes):
		return a.result
	case <-ctx.Done():
		time.Sleep(g.lingers)
		return result{catalog.Critical, ctx.Err().Error()}
	}
}

func (g *rig) start(url string) response {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[url] = append(g.runs[url], time.Since(g.started))
	g.running++
	g.most = max(g.most, g.running)
	return g.responses[url]
}

// counts returns how many attempts run, how many have run at once, and how many at a URL have started.
func (g *rig) counts(url string) (running, most, runs int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.most, len(g.runs[url])
}

func (g *rig) respond(url string, status catalog.CheckStatus, output string, takes time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.responses[url] = response{result{status, output}, takes}
}

func (g *rig) apply(op registry.Op) {
	g.t.Helper()
	if _, err := g.Apply(g.t.Context(), registry.FromClient, op); err != nil {
		g.t.Fatal(err)
	}
}

// register adds a service with one check, whose URL is the service's id.
func (g *rig) register(id string, p catalog.Probe) {
	g.t.Helper()
	g.registerAs("web", id, p)
}

func (g *rig) registerAs(service, id string, p catalog.Probe) {
	g.t.Helper()
	p.HTTP = id
	g.apply(registry.RegisterCatalog{
		Service: &catalog.Service{Name: service, ID: id, WeightPassing: 1, WeightWarning: 1},
		Instance: &registry.Instance{
			App: strings.ToUpper(service), InstanceID: id, HostName: "10.0.0.1", IPAddr: "10.0.0.1", Status: registry.Up,
			DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 30, Duration: 90,
		},
		Checks: []*catalog.Check{{ID: "service:" + id, Name: id, Service: id, Status: catalog.Critical, Type: "http", Probe: &p}},
	})
}

func (g *rig) wantRuns(url string, want ...time.Duration) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.runs[url], want) {
		g.t.Errorf("%s was probed at %v, want %v", url, g.runs[url], want)
	}
}

func (g *rig) wantStatus(id string, want catalog.CheckStatus, output string) {
	g.t.Helper()
	v, _ := g.View(g.t.Context(), registry.Stale)
	c, ok := v.CheckOn("", "service:"+id)
	if !ok || c.Status != want || c.Output != output {
		g.t.Errorf("check of %s: %+v, want status %d and output %q", id, c, want, output)
	}
}

func (g *rig) applied() (sets []registry.SetCheck) {
	g.Set(func(m *fsmtest.Memory) {
		for _, op := range m.Applied {
			if set, ok := op.(registry.SetCheck); ok {
				sets = append(sets, set)
			}
		}
	})
	return sets
}

func (g *rig) sets() int { return len(g.applied()) }

// after waits for d, and then until everything that happens at that moment is done.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestProberProbesAServiceAtItsIntervalFromARandomMoment(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.register("a", catalog.Probe{Interval: 10_000})
		defer g.lead()()
		after(31 * time.Second)
		g.wantRuns("a", 5*time.Second, 15*time.Second, 25*time.Second)
	})
}

// It also logs it once.
func TestProberCountsWhatLevel3WillRefuse(t *testing.T) {
	inBubble(t, func(g *rig) {
		var log bytes.Buffer
		g.prober.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		var from []string
		g.prober.attempt = func(_ context.Context, _ *catalog.Probe, at location) result {
			from = append(from, at.from)
			if at.counted == nil {
				return result{catalog.Critical, "refused"}
			}
			at.counted("because")
			return result{catalog.Passing, "fine"}
		}
		g.Registry.SetLevel(2)
		g.register("a", catalog.Probe{Interval: 10_000, By: "c1a7"})
		defer g.lead()()
		after(31 * time.Second)
		g.wantStatus("a", catalog.Passing, "fine")
		expect.Equal(t, testutil.ToFloat64(g.prober.metrics.beyond), 3, "counted:")
		g.Registry.SetLevel(3)
		g.register("a", catalog.Probe{Interval: 10_000, By: "c1a7", From: "10.0.0.5"})
		after(20 * time.Second)
		g.wantStatus("a", catalog.Critical, "refused")
		expect.Equal(t, testutil.ToFloat64(g.prober.metrics.beyond), 3, "counted from level 3 on:")
		expect.Equal(t, strings.Count(log.String(), "because"), 1, "said in the log %s: times", log.String())
		expect.That(t, from[0] == "" && from[len(from)-1] == "10.0.0.5", "registered from %q", from)
	})
}

func TestProberSetsAChecksStateWhenItChangesAndOnlyThen(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.respond("a", catalog.Passing, "fine", 0)
		g.register("a", catalog.Probe{Interval: 10_000})
		defer g.lead()()
		steps := []struct {
			status catalog.CheckStatus
			output string
			sets   int // so far, after an hour
		}{
			{catalog.Passing, "fine", 1},
			{catalog.Warning, "slow", 2},
			{catalog.Critical, "dead", 3},
			{catalog.Critical, "very dead", 4},
			{catalog.Passing, "fine again", 5},
		}
		for _, s := range steps {
			g.respond("a", s.status, s.output, 0)
			after(time.Hour)
			g.wantStatus("a", s.status, s.output)
			need.Equal(t, g.sets(), s.sets, "%+v: how often set:", s)
		}
		for _, set := range g.applied() {
			expect.That(t, set.Epoch == g.epoch && !set.TTL, "set %+v, want it under the epoch of the leadership", set)
		}
	})
}

func TestProberSetsAnOutputThatChangesEachTimeOnceAMinute(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.register("a", catalog.Probe{Interval: 1000})
		defer g.lead()()
		for i := range 600 {
			g.respond("a", catalog.Critical, fmt.Sprint(i), 0)
			after(time.Second)
		}
		got := g.sets()
		expect.That(t, got >= 9 && got <= 11, "set %d times in ten minutes", got)
	})
}

func TestProberFollowsTheChecksOfTheRegistry(t *testing.T) {
	inBubble(t, func(g *rig) {
		defer g.lead()()
		after(time.Second)
		g.register("late", catalog.Probe{Interval: 10_000})
		after(10 * time.Second) // at 6.1 s: noticed after at most 0.1 s
		if runs := g.runs["late"]; len(runs) != 1 || runs[0] < 6*time.Second || runs[0] > 6100*time.Millisecond {
			t.Errorf("a service that came later was probed at %v", runs)
		}
		g.register("late", catalog.Probe{Interval: 10_000}) // the same again
		after(10 * time.Second)
		if runs := g.runs["late"]; len(runs) != 2 || runs[1]-runs[0] != 10*time.Second {
			t.Errorf("after it was registered again as it was, it was probed at %v", runs)
		}
		g.register("late", catalog.Probe{Interval: 2000})
		after(10 * time.Second)
		if runs := g.runs["late"]; len(runs) < 6 || runs[3]-runs[2] != 2*time.Second {
			t.Errorf("with another interval it was probed at %v", runs)
		}
		expect.Equal(t, testutil.ToFloat64(g.prober.metrics.checks), 1, "checks are probed:")
		g.apply(registry.DeregisterCatalog{Service: "late"})
		after(refreshPause)
		runs := len(g.runs["late"])
		after(time.Minute)
		expect.That(t, len(g.runs["late"]) == runs, "probed after it was deregistered")
	})
}

func TestProberProbesTheChecksOfNodes(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.register("other", catalog.Probe{Interval: 10_000})
		defer g.lead()()
		after(time.Second)
		g.apply(registry.RegisterCatalog{Checks: []*catalog.Check{{ID: "disk", Name: "disk", Status: catalog.Critical, Type: "http", Probe: &catalog.Probe{HTTP: "disk", Interval: 10_000}}}})
		after(10 * time.Second)
		expect.That(t, len(g.runs["disk"]) == 1, "probed at %v, want once", g.runs["disk"])
		v, _ := g.View(t.Context(), registry.Stale)
		c, ok := v.CheckOn("", "disk")
		expect.That(t, ok && c.Status == catalog.Passing, "the check is %+v, want it passing", c)
		g.apply(registry.DeregisterCatalog{Check: "disk"})
		after(time.Minute)
		expect.That(t, len(g.runs["disk"]) == 1 && len(g.runs["other"]) >= 6,
			"after it went it was probed at %v, another one at %v", g.runs["disk"], g.runs["other"])
	})
}

func TestProberBoundsItsAttemptsInTimeAndNumber(t *testing.T) {
	inBubble(t, func(g *rig) {
		const services = 3 * atOnce
		for i := range services {
			id := fmt.Sprint(i)
			g.respond(id, catalog.Passing, "", time.Hour) // it hangs
			g.registerAs("web"+id, id, catalog.Probe{Interval: 60_000, Timeout: 5000})
		}
		defer g.lead()()
		after(5 * time.Minute)
		expect.That(t, g.most == atOnce, "%d attempts ran at once, want %d", g.most, atOnce)
		for i := range services {
			runs := len(g.runs[fmt.Sprint(i)])
			expect.That(t, runs >= 4, "service %d was probed %d times in five minutes", i, runs)
		}
		g.wantStatus("0", catalog.Critical, context.DeadlineExceeded.Error())
	})
}

func TestProberStopsWhenLeadershipIsLost(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.respond("slow", catalog.Passing, "", 8*time.Second)
		g.register("slow", catalog.Probe{Interval: 10_000})
		lose := g.lead()
		after(6 * time.Second) // an attempt is in progress
		need.That(t, g.running == 1, "%d attempts run, want 1", g.running)
		g.lingers = time.Second
		lost := time.Now()
		lose()
		took := time.Since(lost)
		expect.That(t, took == g.lingers && g.running == 0, "it ended after %v with %d attempts, want it to end with the last one", took, g.running)
		after(time.Hour)
		g.wantRuns("slow", 5*time.Second)
		expect.That(t, g.sets() == 0, "set %+v", g.applied())
		lose = g.lead() // and again
		defer lose()
		after(14 * time.Second)
		g.wantStatus("slow", catalog.Passing, "")
	})
}

func TestProberRepeatsAResultThatWasNotCommitted(t *testing.T) {
	inBubble(t, func(g *rig) {
		g.respond("a", catalog.Passing, "fine", 0)
		g.register("a", catalog.Probe{Interval: 10_000})
		g.Fail(errors.New("no leader"))
		defer g.lead()()
		after(20 * time.Second)
		g.wantStatus("a", catalog.Critical, "")
		g.Fail(nil)
		after(10 * time.Second)
		g.wantStatus("a", catalog.Passing, "fine")
	})
}

func TestProberDropsTheResultOfACheckThatWasReplacedMeanwhile(t *testing.T) {
	// the attempt ends after 13 s
	for _, replaced := range []time.Duration{6 * time.Second, 13*time.Second - refreshPause/2} {
		inBubble(t, func(g *rig) {
			g.respond("a", catalog.Passing, "of the old one", 8*time.Second)
			g.register("a", catalog.Probe{Interval: 10_000})
			defer g.lead()()
			after(replaced)
			g.respond("a", catalog.Passing, "of the new one", 0)
			g.register("a", catalog.Probe{Interval: 20_000})
			after(time.Minute)
			expect.That(t, g.sets() == 1, "replaced after %v: set %+v, want one result", replaced, g.applied())
			g.wantStatus("a", catalog.Passing, "of the new one")
			expect.That(t, len(g.runs["a"]) == 4, "replaced after %v: probed at %v, want once in the old way and then every 20 s", replaced, g.runs["a"])
		})
	}
}

func TestProberKeepsPlacesForOtherServicesWhenTheChecksOfOneHang(t *testing.T) {
	inBubble(t, func(g *rig) {
		for i := range 2 * atOnce {
			id := fmt.Sprint("slow", i)
			g.respond(id, catalog.Passing, "", 100_000*time.Hour)
			g.registerAs("slow", id, catalog.Probe{Interval: 10_000, Timeout: 36_000_000_000})
		}
		g.register("well", catalog.Probe{Interval: 10_000})
		defer g.lead()()
		after(46 * time.Second)
		g.wantRuns("well", 5*time.Second, 15*time.Second, 25*time.Second, 35*time.Second, 45*time.Second)
		_, most, _ := g.counts("well")
		expect.That(t, most <= perService+1, "%d attempts ran at once, want %d of the slow service", most, perService)
		// 200 checks, 10 slots, 10 s each.
		after(5 * time.Minute)
		age := g.prober.metrics.queueAge()
		expect.That(t, age >= 60 && age <= 300, "the queue is %v s old", age)
		for i := range 2 * atOnce {
			id := fmt.Sprint("slow", i)
			_, _, runs := g.counts(id)
			expect.That(t, runs != 0, "%s was not probed in five minutes", id)
		}
		for i := range 2 * atOnce { // one that waits for a slot may go
			g.apply(registry.DeregisterCatalog{Service: fmt.Sprint("slow", i)})
		}
		after(time.Minute)
		running, _, _ := g.counts("well")
		age = g.prober.metrics.queueAge()
		expect.That(t, age <= 0 && running <= 0, "after they went the queue is %v s old, and %d attempts run", age, running)
	})
}

func TestProberKeepsTurnsForOtherServicesWhenManyHang(t *testing.T) {
	inBubble(t, func(g *rig) {
		for i := range 2 * atOnce {
			id := fmt.Sprint("slow", i)
			g.respond(id, catalog.Passing, "", 100_000*time.Hour)
			g.registerAs(id, id, catalog.Probe{Interval: 10_000, Timeout: 36_000_000_000})
		}
		g.register("well", catalog.Probe{Interval: 10_000})
		defer g.lead()()
		after(2 * time.Minute)
		_, _, runs := g.counts("well")
		expect.That(t, runs >= 4, "probed %d times in two minutes", runs)
	})
}

const (
	pass = catalog.Passing
	warn = catalog.Warning
	crit = catalog.Critical
)

func TestTallyDecidesAStateByResultsInARow(t *testing.T) {
	type counts struct{ pass, warn, crit int32 }
	tests := []struct {
		name    string
		counts  counts
		present catalog.CheckStatus
		fresh   bool // nobody has probed it before
		results []catalog.CheckStatus
		want    []catalog.CheckStatus // the state after each
	}{
		{"without counts each result decides", counts{}, crit, false, []catalog.CheckStatus{pass, warn, crit, pass}, []catalog.CheckStatus{pass, warn, crit, pass}},
		{"three to pass", counts{pass: 3}, crit, false, []catalog.CheckStatus{pass, pass, pass}, []catalog.CheckStatus{crit, crit, pass}},
		{"a failure between begins anew", counts{pass: 2}, crit, false, []catalog.CheckStatus{pass, crit, pass, pass}, []catalog.CheckStatus{crit, crit, crit, pass}},
		{"warnings count as successes", counts{pass: 2}, crit, false, []catalog.CheckStatus{warn, warn, pass}, []catalog.CheckStatus{crit, warn, pass}},
		{"three to be critical", counts{crit: 3}, pass, false, []catalog.CheckStatus{crit, crit, crit}, []catalog.CheckStatus{pass, pass, crit}},
		{"a success between begins anew", counts{crit: 2}, pass, false, []catalog.CheckStatus{crit, pass, crit, crit}, []catalog.CheckStatus{pass, pass, pass, crit}},
		{"warning before critical", counts{warn: 2, crit: 4}, pass, false, []catalog.CheckStatus{crit, crit, crit, crit}, []catalog.CheckStatus{pass, warn, warn, crit}},
		{"the first result counts at once", counts{pass: 3, crit: 3}, crit, true, []catalog.CheckStatus{pass, crit, crit, crit, pass}, []catalog.CheckStatus{pass, pass, pass, crit, crit}},
		{"the first failure counts at once", counts{warn: 2, crit: 3}, pass, true, []catalog.CheckStatus{crit, pass, crit, warn}, []catalog.CheckStatus{crit, pass, pass, warn}},
		{"a failure makes nothing better", counts{warn: 1, crit: 3}, crit, false, []catalog.CheckStatus{crit, crit}, []catalog.CheckStatus{crit, crit}},
	}
	for _, tt := range tests {
		var tally tally
		p := &catalog.Probe{SuccessBeforePassing: tt.counts.pass, FailuresBeforeWarning: tt.counts.warn, FailuresBeforeCritical: tt.counts.crit}
		present := catalog.Check{Status: tt.present, Output: "of an earlier leader"}
		if tt.fresh {
			present.Output = ""
		}
		for i, found := range tt.results {
			if status, decided := tally.count(p, &present, found); decided {
				present.Status, present.Output = status, "of this one"
			}
			if present.Status != tt.want[i] {
				t.Errorf("%s: state %d after result %d of %v, want %v", tt.name, present.Status, i+1, tt.results, tt.want)
				break
			}
		}
	}
}

func TestTallySetsACheckWhenTheStateOrAFailuresOutputChanged(t *testing.T) {
	now := time.Unix(1000, 0)
	tests := []struct {
		name    string
		present catalog.Check
		found   result
		set     time.Duration // age of the newest output
		want    bool
	}{
		{"another state", catalog.Check{Status: pass}, result{crit, ""}, 0, true},
		{"passing, and the first output", catalog.Check{Status: pass}, result{pass, "b"}, 0, true},
		{"passing with another output", catalog.Check{Status: pass, Output: "a"}, result{pass, "b"}, time.Hour, false},
		{"critical with the same output", catalog.Check{Status: crit, Output: "a"}, result{crit, "a"}, time.Hour, false},
		{"critical with another output", catalog.Check{Status: crit, Output: "a"}, result{crit, "b"}, time.Hour, true},
		{"warning with another output", catalog.Check{Status: warn, Output: "a"}, result{warn, "b"}, outputPause, true},
		{"an output set lately", catalog.Check{Status: crit, Output: "a"}, result{crit, "b"}, outputPause - 1, false},
		{"another state set lately", catalog.Check{Status: crit, Output: "a"}, result{warn, "b"}, 0, true},
	}
	for _, tt := range tests {
		tally := tally{setAt: now.Add(-tt.set)}
		expect.Equal(t, tally.mustSet(&tt.present, tt.found, now), tt.want, "%s: set", tt.name)
	}
}

func TestCheckBoundsItsTimeOut(t *testing.T) {
	const hour = 3_600_000
	for _, tc := range []struct {
		interval, timeout int64
		want              time.Duration
	}{
		{60_000, 5000, 5 * time.Second},
		{60_000, 0, 10 * time.Second},
		{60_000, 10_000 * hour, 30 * time.Second},
		{60_000, math.MaxInt64, 30 * time.Second},
		{20_000, 10_000 * hour, 20 * time.Second},
		{2000, 0, 2 * time.Second},
		{10, 10_000, time.Second},
	} {
		c := check{probe: &catalog.Probe{Interval: tc.interval, Timeout: tc.timeout}}
		expect.Equal(t, c.timeout(), tc.want, "interval %d ms, time-out %d ms: bounded by", tc.interval, tc.timeout)
	}
}
