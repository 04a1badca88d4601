package compare

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var bothModes = []scenario.Mode{scenario.CP, scenario.AP}

func configOf(l *launcher, s ...scenario.Scenario) Config {
	return Config{Plan: trial.Plan{Seed: 1, Modes: bothModes, Length: trial.Of(time.Second), Timeout: trial.Of(time.Second)}, Scenarios: s, Launch: l.launch}
}

func TestRunMeasuresEachModeOnAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	s := small()
	s.Settings = map[string]string{"data.sync": "always"}
	s.Faults = []scenario.Fault{{At: scenario.Moment{Percent: 30}, For: scenario.Moment{Percent: 40}, Kind: scenario.Kill, Nodes: "leader"}}
	// The last heartbeats that it waits for come after the load, while others still observe.
	l := &launcher{t: t, change: func(_ int, c *fakeCluster) error {
		c.rest = 9
		return nil
	}}
	var lines strings.Builder
	config := configOf(l, s)
	config.Progress = &lines
	c := need.Got(Run(t.Context(), config))(t)
	for i, mode := range bothModes {
		if want := (Spec{Mode: mode, Datacenters: 1, Settings: s.Settings}); !reflect.DeepEqual(l.specs[i], want) {
			t.Errorf("cluster %d was launched by %+v, want %+v", i, l.specs[i], want)
		}
		if closed := l.clusters[i].closed; closed != 1 {
			t.Errorf("cluster %d was closed %d times, want once", i, closed)
		}
		if late := l.clusters[i].lateRequests(); late > 0 {
			t.Errorf("cluster %d got %d requests after its end", i, late)
		}
		if got := c.Trials[i]; got.Mode != mode || got.Scenario != "small" || got.Round != 1 || got.Seed != c.Trials[0].Seed {
			t.Errorf("trial %d is of %s, %s, round %d, seed %d", i, got.Scenario, got.Mode, got.Round, got.Seed)
		}
		complete(t, &c.Trials[i])
	}
	for i, want := range []string{"leader node2 killed (-9)", "node1 killed (-9)"} {
		f := c.Trials[i].Faults[0]
		if f.Text != want || f.From < trial.Of(300*time.Millisecond) || f.To < f.From+trial.Of(400*time.Millisecond) || f.Ready < f.To {
			t.Errorf("fault %+v, want %q from 300 ms to 700 ms, and ready after", f, want)
		}
	}
	if c.Plan.Took <= 0 || c.Date == "" {
		t.Errorf("took %d µs on %q, want both filled in", c.Plan.Took, c.Date)
	}
	for _, want := range []string{"[1/2] small, cp, round 1: starting a cluster\n", "[2/2] small, ap, round 1: ", "% answered, settled "} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, &lines)
		}
	}
}

// complete reports what a trial lacks of its observations.
func complete(t *testing.T, got *trial.Trial) {
	t.Helper()
	if got.Failed != "" {
		t.Errorf("%s failed: %s", got.Mode, got.Failed)
	}
	if len(got.Nodes) != 3 || got.Nodes[2] != (trial.Node{Name: "node3", Datacenter: "dc1"}) {
		t.Errorf("%s has the nodes %v", got.Mode, got.Nodes)
	}
	if len(got.Series) == 0 || len(got.History) == 0 || len(got.Lists) == 0 {
		t.Errorf("%s has %d series, %d calls and %d lists, want some of each", got.Mode, len(got.Series), len(got.History), len(got.Lists))
	}
	if got.Settled <= got.Length {
		t.Errorf("%s had settled at %d, before the end of its load at %d", got.Mode, got.Settled, got.Length)
	}
	if len(got.Usage) == 0 || got.Usage[0].At >= 0 || got.Usage[0].Instances != 0 {
		t.Errorf("%s has the usage %+v, want that of the empty nodes first", got.Mode, got.Usage)
	}
	if len(got.Ending) != 3 {
		t.Errorf("%s has %d endings, want 3", got.Mode, len(got.Ending))
	}
	for _, e := range got.Ending {
		if e.Failed != "" || len(e.Missing)+len(e.Revived)+len(e.Dead) > 0 || len(e.Keys) == 0 {
			t.Errorf("%s ended with %+v, want the keys and nothing wrong", got.Mode, e)
		}
	}
}

func TestTheDeadAreAwaitedUntilTheirLeasesEnd(t *testing.T) {
	died := trial.Fault{Kind: scenario.Die, From: 2e6, To: 2e6}
	back := trial.Fault{Kind: scenario.Kill, From: 1e6, To: 4e6, Ready: 5e6}
	for _, tt := range []struct {
		name   string
		faults []trial.Fault
		want   time.Duration
	}{
		{"nobody died", []trial.Fault{back}, 0},
		{"since their death", []trial.Fault{died}, 5*time.Second + evictionLag},
		{"since a node is back that counts anew, twice", []trial.Fault{back, died}, 11*time.Second + evictionLag},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run{turn: turn{scenario: small()}}
			if got := r.deaths(tt.faults); got != tt.want {
				t.Errorf("awaited until %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTrialsThatCannotBeCompletedAreNotedAndEndNothing(t *testing.T) {
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
		if got := c.Trials[i].Failed; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("trial %d failed with %q, want %q", i, got, want)
		}
	}
	if len(c.Trials[0].Series) == 0 || len(c.Trials[2].Series) == 0 {
		t.Error("what was measured before the failure is lost")
	}
}

func TestTheFirstClusterThatCannotBeStartedIsAnError(t *testing.T) {
	t.Parallel()
	l := &launcher{t: t, change: func(int, *fakeCluster) error { return errors.New("no such binary") }}
	if _, err := Run(t.Context(), configOf(l, small())); err == nil || !strings.Contains(err.Error(), "start a cluster: no such binary") {
		t.Errorf("Run() = %v, want what kept the cluster from starting", err)
	}
	if len(l.specs) != 1 {
		t.Errorf("%d clusters were tried, want 1", len(l.specs))
	}
}

func TestRegistrationsThatNobodyTakesEndTheTrial(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	c.refuse = true
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := run{config: configOf(&launcher{t: t}), turn: turn{scenario: small()}, cluster: c, nodes: c.Nodes()}
	if err := r.register(ctx); err == nil || !strings.Contains(err.Error(), "register the first instances") {
		t.Errorf("register() = %v, want that nobody took them", err)
	}
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
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want that it was canceled", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run has not ended a minute after it was told to")
	}
	if closed := l.clusters[0].closed; closed != 1 {
		t.Errorf("the cluster was closed %d times, want once", closed)
	}
}

func TestScenariosThatDoNotFitAreRefusedBeforeAnythingStarts(t *testing.T) {
	s := small()
	s.Faults = []scenario.Fault{{At: scenario.Moment{Fixed: 2 * time.Second}, Kind: scenario.Die, Instances: "1"}}
	l := &launcher{t: t}
	if _, err := Run(t.Context(), configOf(l, s)); err == nil || !strings.Contains(err.Error(), "scenario small: faults[0]: lasts from 2s") {
		t.Errorf("Run() = %v, want which fault does not fit", err)
	}
	if len(l.specs) > 0 {
		t.Error("a cluster was started")
	}
}

type writerFunc func(line string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}
