package compare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both are the columns of most tests.
var both = columns("cp", "ap")

func columns(texts ...string) []scenario.Column {
	var all []scenario.Column
	for _, text := range texts {
		c, err := scenario.FindColumn(text)
		if err != nil {
			panic(err)
		}
		all = append(all, c)
	}
	return all
}

func configOf(l *launcher, s ...scenario.Scenario) Config {
	return Config{
		Plan:      trial.Plan{Seed: 1, Rounds: 1, Columns: both, Length: trial.Of(time.Second), Timeout: trial.Of(time.Second)},
		Machine:   trial.Machine{Cores: 2},
		Scenarios: s, Launch: l.launch,
		Health: func() (trial.Health, error) { return trial.Health{Busy: 5}, nil },
	}
}

func TestRunMeasuresEachColumnOnAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	s := small()
	s.Settings = map[string]string{"data.sync": "always"}
	s.Faults = []scenario.Fault{{At: scenario.Moment{Percent: 30}, For: scenario.Moment{Percent: 40}, Kind: scenario.Kill, Nodes: "leader"}}
	// The last heartbeats that it waits for come after the load, while others still
	l := &launcher{t: t, change: func(_ int, c *fakeCluster) error {
		c.rest = 9
		return nil
	}}
	var lines strings.Builder
	config := configOf(l, s)
	config.Progress = &lines
	c := need.Got(Run(t.Context(), config))(t)
	for i, column := range both {
		expect.Deep(t, l.specs[i], (Spec{Column: column, Datacenters: 1, Settings: s.Settings}), "cluster %d was launched by", i)
		closed := l.clusters[i].closed
		expect.That(t, closed == 1, "cluster %d was closed %d times, want once", i, closed)
		late := l.clusters[i].lateRequests()
		expect.That(t, late <= 0, "cluster %d got %d requests after its end", i, late)
		got := c.Trials[i]
		expect.That(t, got.Column == column.Name && got.Cores == 2 && got.Scenario == "small" && got.Round == 1 && got.Seed == c.Trials[0].Seed,
			"trial %d is of %s, %s, round %d, seed %d", i, got.Scenario, got.Column, got.Round, got.Seed)
		complete(t, &c.Trials[i])
	}
	for i, want := range []string{"leader node2 killed (-9)", "node1 killed (-9)"} {
		f := c.Trials[i].Faults[0]
		expect.That(t, f.Text == want && f.From >= trial.Of(300*time.Millisecond) && f.To >= f.From+trial.Of(400*time.Millisecond) && f.Ready >= f.To,
			"fault %+v, want %q from 300 ms to 700 ms, and ready after", f, want)
	}
	expect.That(t, c.Plan.Took > 0 && c.Date != "", "took %d µs on %q, want both filled in", c.Plan.Took, c.Date)
	for _, want := range []string{"[1/2] small, cp, round 1: starting a cluster\n", "[2/2] small, ap, round 1: ", "% answered, observed until "} {
		expect.That(t, strings.Contains(lines.String(), want), "progress lacks %q:\n%s", want, &lines)
	}
}

// complete reports which observations a trial lacks.
func complete(t *testing.T, got *trial.Trial) {
	t.Helper()
	expect.Equal(t, got.Failed, "", "%s failed:", got.Column)
	expect.That(t, len(got.Nodes) == 3 && got.Nodes[2] == (trial.Node{Name: "node3", Datacenter: "dc1"}), "%s has the nodes %v", got.Column, got.Nodes)
	expect.That(t, len(got.Series) != 0 && len(got.History) != 0 && len(got.Lists) != 0,
		"%s has %d series, %d calls and %d lists, want some of each", got.Column, len(got.Series), len(got.History), len(got.Lists))
	expect.That(t, len(got.Clients) != 0 && len(got.Sealed) == 10 && len(got.Machine) != 0 && got.Machine[0].Busy == 5,
		"%s has %d clients, %d sealed instances, looks at the machine %+v; want some, 10, and those of Health", got.Column, len(got.Clients), len(got.Sealed), got.Machine)
	expect.That(t, got.Agreed == got.Ended, "%s: the nodes agreed at %d, want at the end, %d", got.Column, got.Agreed, got.Ended)
	expect.That(t, got.Ended > got.Length, "%s was observed until %d, before the end of its load at %d", got.Column, got.Ended, got.Length)
	expect.That(t, len(got.Usage) != 0 && got.Usage[0].At < 0 && got.Usage[0].Instances == 0,
		"%s has the usage %+v, want that of the empty nodes first", got.Column, got.Usage)
	expect.That(t, len(got.Ending) == 3, "%s has %d endings, want 3", got.Column, len(got.Ending))
	for _, e := range got.Ending {
		expect.That(t, e.Failed == "" && len(e.Missing)+len(e.Revived)+len(e.Dead) == 0 && len(e.Keys) != 0 && len(e.Sealed) == 10,
			"%s ended with %+v, want the keys and nothing wrong", got.Column, e)
	}
}

func TestRunWaitsUntilTheLeasesOfTheDeadHaveEnded(t *testing.T) {
	died := trial.Fault{Kind: scenario.Die, From: 2e6, To: 2e6}
	back := trial.Fault{Kind: scenario.Kill, From: 1e6, To: 4e6, Ready: 5e6}
	for _, tt := range []struct {
		name   string
		faults []trial.Fault
		want   time.Duration
	}{
		{"no instance died", []trial.Fault{back}, 0},
		{"since their death", []trial.Fault{died}, 8 * time.Second},
		{"since a node is back that counts anew, twice", []trial.Fault{back, died}, 14 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run{turn: turn{scenario: small(), column: both[0]}}
			expect.Equal(t, r.deaths(tt.faults), tt.want, "awaited until")
		})
	}
}

func TestRunRecordsATrialThatFailedAndGoesOn(t *testing.T) {
	t.Parallel()
	paused := small()
	paused.Faults = []scenario.Fault{{At: scenario.Moment{Percent: 50}, For: scenario.Moment{Percent: 10}, Kind: scenario.Pause, Nodes: "node1"}}
	l := &launcher{t: t, change: func(number int, c *fakeCluster) error {
		switch number {
		case 1:
			return errors.New("no port is free")
		case 2:
			c.broken = errors.New("node3 ended by itself")
		}
		return nil
	}}
	steady := small()
	steady.Name = "steady"
	c := need.Got(Run(t.Context(), configOf(l, paused, steady)))(t)
	for i, want := range []string{"node1 paused (SIGSTOP): not in this fake", "start a cluster: no port is free", "end the cluster: node3 ended by itself", ""} {
		got := c.Trials[i].Failed
		expect.That(t, (want != "" || got == "") && strings.Contains(got, want), "trial %d failed with %q, want %q", i, got, want)
	}
	expect.That(t, len(c.Trials[0].Series) != 0 && len(c.Trials[2].Series) != 0, "what was measured before the failure is lost")
}

func TestTrialEndsIfNoNodeAcceptsItsRegistrations(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	c.refuse = true
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := run{config: configOf(&launcher{t: t}), turn: turn{scenario: small()}, cluster: c, nodes: c.Nodes()}
	err := r.register(ctx)
	expect.That(t, err != nil && strings.Contains(err.Error(), "register the first instances"), "register() = %v, want that no node took them", err)
}

func TestRunEndsWithItsContextAndClosesTheCluster(t *testing.T) {
	t.Parallel()
	s := small()
	s.Length = scenario.Span(time.Hour)
	s.Faults = []scenario.Fault{{At: scenario.Moment{Fixed: time.Millisecond}, For: scenario.Moment{Percent: 50}, Kind: scenario.Kill, Nodes: "node3"}}
	l := &launcher{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	config := configOf(l, s)
	config.Progress = writerFunc(func(line string) {
		if strings.Contains(line, "calls/s") {
			cancel()
		}
	})
	go func() {
		_, err := Run(ctx, config)
		ended <- err
	}()
	select {
	case err := <-ended:
		expect.That(t, errors.Is(err, context.Canceled), "Run() = %v, want that it was canceled", err)
	case <-time.After(time.Minute):
		t.Fatal("Run has not ended a minute after it was told to")
	}
	closed := l.clusters[0].closed
	expect.That(t, closed == 1, "the cluster was closed %d times, want once", closed)
}

func TestRunRefusesScenariosThatDoNotFitBeforeAnythingStarts(t *testing.T) {
	s := small()
	s.Faults = []scenario.Fault{{At: scenario.Moment{Fixed: 2 * time.Second}, Kind: scenario.Die, Instances: "1"}}
	l := &launcher{t: t}
	_, err := Run(t.Context(), configOf(l, s))
	expect.That(t, err != nil && strings.Contains(err.Error(), "scenario small: faults[0]: lasts from 2s"),
		"Run() = %v, want which fault does not fit", err)
	expect.That(t, len(l.specs) == 0, "a cluster was started")
}

type writerFunc func(line string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// fakeCluster is a set of servers in this process that share one registry, so that every node always agrees. node2
// leads.
type fakeCluster struct {
	servers  []*httptest.Server
	registry http.Handler

	mu     sync.Mutex
	down   []bool
	rest   int   // how many heartbeats a started node leaves to the others before it answers
	asleep []int // by node: how many of them are left
	refuse bool  // registrations
	closed int
	late   int   // requests that came after Close
	broken error // what Close returns
}

// startFake starts a cluster of three nodes. Close ends it, or else the end of the test.
func startFake(t *testing.T) *fakeCluster {
	c := &fakeCluster{registry: httpdtest.NewCoordinated(t, httpd.Config{}).Handler, down: make([]bool, 3), asleep: make([]int, 3)}
	for node := range c.down {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(node, w, r) }))
		t.Cleanup(s.Close)
		c.servers = append(c.servers, s)
	}
	return c
}

func (c *fakeCluster) serve(node int, w http.ResponseWriter, r *http.Request) {
	switch {
	case !c.answers(node, r):
		panic(http.ErrAbortHandler) // the connection ends without a response
	case r.URL.Path == "/v1/rollcall/status":
		fmt.Fprint(w, `{"leader": "node2", "term": 1, "quorum": true}`)
	case c.refuse && r.Method == http.MethodPost:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		c.registry.ServeHTTP(w, r)
	}
}

// answers reports whether a node answers a request.
func (c *fakeCluster) answers(node int, r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed > 0 {
		c.late++
	}
	if c.down[node] || c.asleep[node] > 0 {
		return false
	}
	if r.Method == http.MethodPut {
		for i := range c.asleep {
			c.asleep[i]--
		}
	}
	return true
}

func (c *fakeCluster) Nodes() []Node {
	var all []Node
	for i, s := range c.servers {
		all = append(all, Node{Name: fmt.Sprintf("node%d", i+1), Datacenter: "dc1", HTTP: s.Listener.Addr().String()})
	}
	return all
}

func (c *fakeCluster) set(node int, down bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[node] = down
	return nil
}

func (c *fakeCluster) Kill(node int) error                    { return c.set(node, true) }
func (c *fakeCluster) Lose(node int) error                    { return c.set(node, true) }
func (c *fakeCluster) Stop(_ context.Context, node int) error { return c.set(node, true) }

func (c *fakeCluster) Start(_ context.Context, node int) error {
	c.mu.Lock()
	c.asleep[node] = c.rest
	c.mu.Unlock()
	return c.set(node, false)
}

func (c *fakeCluster) Pause(int) error                     { return errors.New("not in this fake") }
func (c *fakeCluster) Resume(int) error                    { return errors.New("not in this fake") }
func (c *fakeCluster) Cut(int, int)                        {}
func (c *fakeCluster) Heal()                               {}
func (c *fakeCluster) SlowDisk(int, time.Duration) error   { return errors.New("not in this fake") }
func (c *fakeCluster) Usage(node int) (trial.Usage, error) { return trial.Usage{Memory: 1 << 20}, nil }

func (c *fakeCluster) lateRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

func (c *fakeCluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return c.broken
}

// launcher starts fake clusters, and keeps them and the requested specs.
type launcher struct {
	t      *testing.T
	change func(number int, c *fakeCluster) error // before it is handed over; may be nil
	refuse func(Spec) error                       // why no cluster can be started; nil if it can

	specs    []Spec
	clusters []*fakeCluster
}

func (l *launcher) launch(_ context.Context, s Spec) (Cluster, error) {
	if l.refuse != nil {
		if err := l.refuse(s); err != nil {
			l.specs = append(l.specs, s)
			return nil, err
		}
	}
	c := startFake(l.t)
	number := len(l.specs)
	l.specs, l.clusters = append(l.specs, s), append(l.clusters, c)
	if l.change != nil {
		if err := l.change(number, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// small returns a scenario whose trial is as short as possible.
func small() scenario.Scenario {
	return scenario.Scenario{
		Name: "small", Datacenters: 1, Length: scenario.Span(time.Second),
		Load: scenario.Load{Instances: 6, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second), Writes: 20, Reads: 40, Fetches: 5, OwnKeys: 3, SharedKeys: 2, Sealed: 10},
	}
}

func TestLeaderThatIsNotElectedInTimeIsAnError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	r := run{nodes: make([]Node, 3), observer: newObserver(observed{Nodes: []string{"a", "b", "c"}})}
	got, err := r.leader(ctx)
	expect.That(t, err != nil, "leader is %d, want an error", got)
}

func TestTurnsAlternateTheColumns(t *testing.T) {
	steady, kill := scenario.Scenario{Name: "steady", Datacenters: 1, Load: scenario.Load{Reads: 1}}, scenario.Scenario{Name: "kill", Datacenters: 1, Chosen: true, Load: scenario.Load{Reads: 1}}
	idle := scenario.Scenario{Name: "idle", Datacenters: 1}
	two := scenario.Scenario{Name: "two", Datacenters: 2, Load: scenario.Load{Reads: 1}}
	for _, tt := range []struct {
		name      string
		rounds    int
		columns   []scenario.Column
		scenarios []scenario.Scenario
		only      []string
		want      []string
	}{
		{"rounds", 3, both, []scenario.Scenario{steady, kill}, nil, []string{
			"steady cp 1", "steady ap 1", "kill cp 1", "kill ap 1",
			"steady ap 2", "steady cp 2", "kill ap 2", "kill cp 2",
			"steady cp 3", "steady ap 3", "kill cp 3", "kill ap 3",
		}},
		{"brief columns", 4, columns("cp", "cp-stale"), []scenario.Scenario{steady, kill}, nil, []string{
			"steady cp 1", "kill cp 1", "kill cp-stale 1",
			"steady cp 2", "kill cp-stale 2", "kill cp 2",
			"steady cp 3", "kill cp 3", "kill cp-stale 3",
		}},
		{"costs", 5, both[1:], []scenario.Scenario{idle}, nil, []string{"idle ap 1", "idle ap 2", "idle ap 3"}},
		{"what a column cannot", 1, columns("cp", "eureka"), []scenario.Scenario{two, steady}, nil, []string{"two cp 1", "steady cp 1", "steady eureka 1"}},
		{"some only", 2, both, []scenario.Scenario{steady, kill}, []string{"kill", "ap"}, []string{
			"steady ap 1", "kill cp 1", "kill ap 1", "steady ap 2", "kill ap 2", "kill cp 2",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			c := Config{Plan: trial.Plan{Columns: tt.columns, Rounds: tt.rounds, Only: tt.only}, Scenarios: tt.scenarios}
			for _, turn := range c.turns() {
				got = append(got, fmt.Sprintf("%s %s %d", turn.scenario.Name, turn.column.Name, turn.round))
			}
			expect.Slice(t, got, tt.want, "turns are")
			for i, column := range tt.columns {
				expect.Equal(t, c.Plan.Columns[i].Name, column.Name, "the plan's columns are turned round:")
			}
		})
	}
}

func TestTurnsOfARoundShareTheirSeedAndNoOthersDo(t *testing.T) {
	c := Config{
		Plan:      trial.Plan{Seed: 7, Columns: both, Rounds: 2},
		Scenarios: []scenario.Scenario{{Name: "a", Datacenters: 1}, {Name: "b", Datacenters: 1}},
	}
	seen := make(map[uint64]string)
	for _, turn := range c.turns() {
		of := fmt.Sprintf("%s %d", turn.scenario.Name, turn.round)
		other, ok := seen[turn.seed]
		expect.That(t, !ok || other == of, "%s has the seed of %s", of, other)
		seen[turn.seed] = of
	}
	expect.That(t, len(seen) == 4, "%d seeds, want one for each of the 4 scenarios and rounds", len(seen))
	expect.That(t, seed(1, "a", 1) != seed(2, "a", 1), "another seed of the comparison gives the same trial")
}

func done(scenario, column string, round int) trial.Trial {
	return trial.Trial{Scenario: scenario, Column: column, Round: round, Seed: 99, Took: trial.Of(time.Minute)}
}

func namesOf(c *trial.Comparison) []string {
	var all []string
	for _, t := range c.Trials {
		text := fmt.Sprintf("%s %s %d", t.Scenario, t.Column, t.Round)
		if t.Seed == 99 {
			text += " again"
		}
		all = append(all, text)
	}
	return all
}

func TestRunGoesOnWithTheTrialsThatAnEarlierOneLeft(t *testing.T) {
	t.Parallel()
	l := &launcher{t: t}
	c := configOf(l, small())
	c.Plan.Rounds = 2
	c.Done = []trial.Trial{done("small", "cp", 2), done("small", "cp", 1), done("other", "ap", 1), done("small", "ap", 2)}
	var kept []string
	c.Keep = func(one *trial.Trial) error {
		kept = append(kept, fmt.Sprintf("%s %s %d", one.Scenario, one.Column, one.Round))
		return nil
	}
	got := need.Got(Run(t.Context(), c))(t)
	expect.Slice(t, namesOf(got), []string{"small cp 1 again", "small ap 1", "small ap 2 again", "small cp 2 again"}, "trials are")
	expect.That(t, len(l.specs) == 1 && l.specs[0].Column.Name == "ap", "clusters of %+v were started, want one of ap", l.specs)
	expect.Slice(t, kept, []string{"small ap 1"}, "kept are")
	expect.That(t, got.Plan.Took > trial.Of(3*time.Minute), "took %s, want that of the earlier trials included", got.Plan.Took.Duration())
}

func TestRunEndsIfATrialCannotBeKept(t *testing.T) {
	full := errors.New("the disk is full")
	l := &launcher{t: t, change: func(int, *fakeCluster) error { return errors.New("no port is free") }}
	c := configOf(l, small())
	c.Keep = func(*trial.Trial) error { return full }
	expect.ErrorIs(t, expect.Err(Run(t.Context(), c)), full, "Run() =")
	expect.Equal(t, len(l.specs), 1, "clusters that were tried:")
}

func TestRunLeavesAColumnOutThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	l := &launcher{t: t, refuse: func(s Spec) error {
		if s.Column.Name == "ap" {
			return errors.New("no such binary")
		}
		return nil
	}}
	c := configOf(l, small())
	c.Plan.Rounds, c.Plan.LeftOut = 3, []string{"A sentence of the plan."}
	c.Done = []trial.Trial{done("small", "cp", 1), done("small", "cp", 2)}
	got := need.Got(Run(t.Context(), c))(t)
	expect.Slice(t, namesOf(got), []string{"small cp 1 again", "small ap 1", "small ap 2", "small cp 2 again", "small cp 3"}, "trials are")
	expect.Slice(t, got.Plan.LeftOut, []string{"A sentence of the plan.", "Column AP was left out: start a cluster: no such binary."}, "left out are")
	expect.That(t, got.Trials[1].Failed != "" && got.Trials[4].Failed == "", "failed: %q and %q, want those of ap only", got.Trials[1].Failed, got.Trials[4].Failed)
}

func TestRunFailsIfNoClusterOfAnyColumnCanBeStarted(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"all columns":           func(*Config) {},
		"several rounds":        func(c *Config) { c.Plan.Rounds = 5 },
		"one that never has to": func(c *Config) { c.Plan.Columns = columns("cp", "ap", "cp-stale") },
		"one column only":       func(c *Config) { c.Plan.Only = []string{"ap"} },
	} {
		l := &launcher{t: t, refuse: func(Spec) error { return errors.New("no such binary") }}
		c := configOf(l, small())
		change(&c)
		expect.ErrorSays(t, expect.Err(Run(t.Context(), c)), "start a cluster: no such binary", "%s: Run() =", name)
		expect.That(t, len(l.specs) <= mostLaunches*2, "%s: %d clusters were tried, want two of each column at most", name, len(l.specs))
	}
}

func TestColumnOfEurekaIsLoadedAndAwaitedAsItsServersAre(t *testing.T) {
	s := small()
	s.Load.Watchers = 6
	for name, want := range map[string]struct {
		watchers int
		lease    time.Duration
	}{"cp": {6, 6 * time.Second}, "eureka": {0, 106 * time.Second}} {
		r := run{turn: turn{scenario: s, column: columns(name)[0]}}
		expect.Equal(t, r.clients().Watchers, want.watchers, "%s: watchers", name)
		expect.Equal(t, r.leaseEnds(), want.lease, "%s: a dead instance must be gone after", name)
	}
}

func TestTrialThatIsNotValidIsRunAgain(t *testing.T) {
	t.Parallel()
	heartbeats := scenario.Scenario{Name: "beats", Datacenters: 1, Length: scenario.Span(500 * time.Millisecond), Load: small().Load}
	heartbeats.Load = scenario.Load{Instances: 3, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second)}
	brief := small()
	brief.Length = scenario.Span(300 * time.Millisecond)
	for _, tt := range []struct {
		name    string
		s       scenario.Scenario
		invalid int // tries before a valid one
		repeats []string
		left    int // reasons that the last try still has
	}{
		{"once", brief, 1, []string{"reason 1"}, 0},
		{"as often as it may be", brief, 9, []string{"reason 1", "reason 2"}, 1},
		{"once where costs are measured", heartbeats, 9, []string{"reason 1"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := &launcher{t: t}
			c := configOf(l, tt.s)
			c.Plan.Columns, c.Repeats = both[:1], 2
			tries, kept := 0, 0
			c.Invalid = func(*trial.Trial) []string {
				if tries++; tries <= tt.invalid {
					return []string{fmt.Sprintf("reason %d", tries), "and another one"}
				}
				return nil
			}
			c.Keep = func(one *trial.Trial) error {
				kept++
				expect.Slice(t, one.Repeats, tt.repeats, "kept with")
				return nil
			}
			var lines strings.Builder
			c.Progress = &lines
			got := need.Got(Run(t.Context(), c))(t)
			expect.That(t, len(got.Trials) == 1 && kept == 1, "%d trials, %d kept, want 1", len(got.Trials), kept)
			expect.Slice(t, got.Trials[0].Repeats, tt.repeats, "the trial says")
			expect.Equal(t, len(l.specs), len(tt.repeats)+1, "clusters:")
			if tt.s.HeartbeatsOnly() {
				lists := got.Trials[0].Lists
				expect.That(t, len(lists) > 0 && lists[0].Asked >= got.Trials[0].Length, "lists were asked for from %+v on, want none during the load", lists[:min(1, len(lists))])
			}
			expect.That(t, strings.Contains(lines.String(), "not valid, and run again: reason 1\n"), "progress does not say so:\n%s", &lines)
		})
	}
}
