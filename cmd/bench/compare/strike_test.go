package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func micros(d time.Duration) trial.Micros { return trial.Of(d) }

func TestFaultsAreInjectedAndUndoneAtTheirTimes(t *testing.T) {
	fault := func(kind scenario.Kind, text string, from, to int, nodes ...int) trial.Fault {
		began, ended := micros(time.Duration(from)*time.Second), micros(time.Duration(to)*time.Second)
		return trial.Fault{Kind: kind, Text: text, Nodes: append([]int{}, nodes...), From: began, To: ended}
	}
	of := func(count int, f trial.Fault) trial.Fault { f.Count = count; return f }
	ready := func(second int, f trial.Fault) trial.Fault {
		f.Ready = trial.Micros(second) * trial.Of(time.Second)
		return f
	}
	for _, tt := range []struct {
		name, text, lines string
		want              []trial.Fault
	}{
		{"a killed leader is started again", "faults: [{at: 20%, for: 30%, kind: kill, nodes: leader}]",
			"2s kill 1, 5s mark, 5s start 1",
			[]trial.Fault{ready(6, fault(scenario.Kill, "leader node2 killed (-9)", 2, 5, 1))}},
		{"a lost node is asked no more, and never comes back", "faults: [{at: 20%, kind: lose, nodes: follower}]",
			"2s drop 2, 2s lose 2",
			[]trial.Fault{fault(scenario.Lose, "follower node3 lost with its disk", 2, 2, 2)}},
		{"all nodes are stopped at once, and started at once", "faults: [{at: 3s, for: 1s, kind: restart, nodes: all}]",
			"3s stop 0, 3s stop 1, 3s stop 2, 4s mark, 4s start 0, 4s start 1, 4s start 2",
			[]trial.Fault{ready(5, fault(scenario.Restart, "all nodes stopped (SIGTERM)", 3, 4, 0, 1, 2))}},
		{"a paused follower goes on", "faults: [{at: 1s, for: 4s, kind: pause, nodes: follower}]",
			"1s pause 2, 5s mark, 5s resume 2",
			[]trial.Fault{fault(scenario.Pause, "follower node3 paused (SIGSTOP)", 1, 5, 2)}},
		{"an isolated node loses its links to both others, and its clients theirs",
			"faults: [{at: 1s, for: 4s, kind: isolate, nodes: node1}]",
			"1s cut 0 1, 1s cut 0 2, 1s split [0], 5s heal, 5s join, 5s mark",
			[]trial.Fault{fault(scenario.Isolate, "node1 isolated, clients included", 1, 5, 0)}},
		{"where a majority is isolated, the others count as struck",
			"faults: [{at: 1s, for: 4s, kind: isolate, nodes: followers}]",
			"1s cut 0 1, 1s cut 1 2, 1s split [0 2], 5s heal, 5s join, 5s mark",
			[]trial.Fault{fault(scenario.Isolate, "followers node1 and node3 isolated, clients included", 1, 5, 1)}},
		{"slow disks are fast again", "faults: [{at: 1s, for: 4s, kind: slow-disk, nodes: 'node1, node2', delay: 5ms}]",
			"1s slow 0 5ms, 1s slow 1 5ms, 5s mark, 5s slow 0 0s, 5s slow 1 0s",
			[]trial.Fault{fault(scenario.SlowDisk, "disks of node1 and node2 slower by 5ms", 1, 5, 0, 1)}},
		{"the dead stay dead", "faults: [{at: 1s, kind: die, instances: 10%}]",
			"1s die 10%",
			[]trial.Fault{of(30, fault(scenario.Die, "30 instances dead", 1, 1))}},
		{"clients of silent instances restart", "faults: [{at: 1s, for: 2s, kind: silence, instances: 100%}]",
			"1s silence 100%, 3s mark, 3s restart clients",
			[]trial.Fault{of(300, fault(scenario.Silence, "300 instances silent until their clients have restarted", 1, 3))}},
		{"flapping ends", "faults: [{at: 1s, for: 2s, kind: flap, instances: 30}]",
			"1s flap 30, 3s end flapping, 3s mark",
			[]trial.Fault{of(30, fault(scenario.Flap, "30 instances flapping", 1, 3))}},
		{"storms come and go", "storms: [{at: 10%, for: 2s, load: {reads: 9}}, {at: 50%, for: 10%, load: {writes: 0}}]",
			"1s rates map[reads:9], 3s rates map[], 5s rates map[writes:0], 6s rates map[]",
			[]trial.Fault{}},
		{"faults are recorded in the scenario's order",
			"faults:\n- {at: 6s, kind: die, instances: 1}\n- {at: 2s, for: 1s, kind: pause, nodes: node1}",
			"2s pause 0, 3s mark, 3s resume 0, 6s die 1",
			[]trial.Fault{
				of(30, fault(scenario.Die, "30 instances dead", 6, 6)),
				fault(scenario.Pause, "node1 paused (SIGSTOP)", 2, 3, 0),
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{startTakes: time.Second}
				i := injectorOf(j, scenarioOf(t, tt.text), 10*time.Second)
				need.OK(t, i.run(t.Context()))
				for n := range i.faults { // see the test of kills
					i.faults[n].Kills = nil
				}
				expect.Equal(t, strings.Join(j.sortedLines(), ", "), tt.lines, "what was done:")
				expect.Deep(t, i.faults, tt.want, "recorded")
			})
		})
	}
}

func TestFaultOfProcessesHasTheMomentOfEachEnd(t *testing.T) {
	for kind, want := range map[string][]trial.Kill{
		"kind: kill, for: 1s, nodes: all":         {{At: micros(time.Second)}, {At: micros(time.Second), Node: 1}, {At: micros(time.Second), Node: 2}},
		"kind: restart, for: 1s, nodes: follower": {{At: micros(time.Second), Node: 2}},
		"kind: lose, nodes: leader":               {{At: micros(time.Second), Node: 1}},
		"kind: pause, for: 1s, nodes: leader":     nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			i := injectorOf(new(journal), scenarioOf(t, "faults: [{at: 1s, "+kind+"}]"), 10*time.Second)
			need.OK(t, i.run(t.Context()))
			expect.Slice(t, i.faults[0].Kills, want, "%s: kills", kind)
		})
	}
}

func TestKillsAmidWritesComeOneAfterTheOtherEachWithAWriteOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{startTakes: 500 * time.Millisecond, writes: 100 * time.Millisecond}
		i := injectorOf(j, scenarioOf(t, "length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: leader, times: 4}]"), 60*time.Second)
		leaders := []int{1, 2, 2, 0} // at each kill
		i.leader = func(context.Context) (int, error) {
			next := leaders[0]
			leaders = leaders[1:]
			return next, nil
		}
		need.OK(t, i.run(t.Context()))
		expect.Slice(t, j.sortedLines(), []string{
			"10.1s kill 1", "10.1s write 1", "15s start 1",
			"20.1s kill 2", "20.1s write 2", "25s start 2",
			"30.1s kill 2", "30.1s write 2", "35s start 2",
			"40.1s kill 0", "40.1s write 0", "45s start 0",
			"50s mark",
		}, "what was done")
		f := i.faults[0]
		at := func(seconds float64) trial.Micros { return trial.Micros(seconds * 1e6) }
		expect.Slice(t, f.Kills, []trial.Kill{{At: at(10.1), Node: 1, Writing: 7}, {At: at(20.1), Node: 2, Writing: 7}, {At: at(30.1), Node: 2, Writing: 7}, {At: at(40.1), Node: 0, Writing: 7}}, "kills")
		expect.That(t, f.Text == "4 kills (-9) amid writes" && slices.Equal(f.Nodes, []int{0, 1, 2}), "%q of nodes %v, want 4 kills of all three", f.Text, f.Nodes)
		expect.That(t, f.From == at(10) && f.To == at(50) && f.Ready == at(50), "from %d to %d, ready at %d; want 10 s, 50 s and then at once", f.From, f.To, f.Ready)
	})
}

func TestKillsAmidWritesMoveOnOverTheNodesWhereNoneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		i := injectorOf(j, scenarioOf(t, "length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: leader, times: 4}]"), 60*time.Second)
		i.leader = nil
		need.OK(t, i.run(t.Context()))
		var nodes []int
		for _, k := range i.faults[0].Kills {
			nodes = append(nodes, k.Node)
		}
		expect.Slice(t, nodes, []int{0, 1, 2, 0}, "killed were")
	})
}

func TestKillComesSoonIfNoWriteDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{writes: time.Hour}
		i := injectorOf(j, scenarioOf(t, "length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: node1, times: 2}]"), 60*time.Second)
		need.OK(t, i.run(t.Context()))
		expect.Slice(t, j.sortedLines(), []string{"15s kill 0", "20s start 0", "35s kill 0", "40s start 0", "50s mark"}, "what was done")
		expect.Equal(t, i.faults[0].Kills[0].Writing, 0, "writes on their way:")
	})
}

func TestStartThatIsUnderWayIsCanceledByTheNextKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{startTakes: 12 * time.Second}
		i := injectorOf(j, scenarioOf(t, "length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: node1, times: 2}]"), 60*time.Second)
		need.OK(t, i.run(t.Context()))
		// The first start, from 20 s on, would end at 32 s: the second kill does not wait for it. The second start is
		// awaited.
		expect.Slice(t, j.sortedLines(), []string{"10s kill 0", "10s write 0", "20s start 0", "30s kill 0", "30s write 0", "40s start 0", "50s mark"}, "what was done")
		expect.Equal(t, i.faults[0].Ready, micros(52*time.Second), "ready at")
	})
}

func TestKillsAmidWritesThatFailAreReported(t *testing.T) {
	for _, tt := range []struct {
		name   string
		j      *journal
		leader error
		want   string
	}{
		{"a kill", &journal{failures: map[string]error{"kill 1": errors.New("no such process")}}, nil, "kills (-9) amid writes: no such process"},
		{"a start", &journal{failures: map[string]error{"start 1": errors.New("no port is free")}}, nil, `undo "2 kills (-9) amid writes": no port is free`},
		{"a leader that is not found", new(journal), errors.New("no leader within 5s"), "no leader within 5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := injectorOf(tt.j, scenarioOf(t, "length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: leader, times: 2}]"), 60*time.Second)
			asked := 0
			i.leader = func(context.Context) (int, error) {
				if asked++; asked == 2 {
					return 1, tt.leader
				}
				return 1, nil
			}
			expect.ErrorSays(t, i.run(t.Context()), tt.want, "%s: run() =", tt.name)
		})
	}
}

func TestFaultThatCutsDatacentersCutsEveryLinkBetweenThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		need.OK(t, injectorOf(j, scenarioOf(t, "datacenters: 2\nfaults: [{at: 1s, for: 1s, kind: cut-link}]"), 10*time.Second).run(t.Context()))
		var cuts []string
		for _, line := range slices.Compact(j.sortedLines()) {
			if what, ok := strings.CutPrefix(line, "1s cut "); ok {
				cuts = append(cuts, what)
			}
		}
		expect.Slice(t, cuts, []string{"0 3", "0 4", "0 5", "1 3", "1 4", "1 5", "2 3", "2 4", "2 5"}, "cut")
		for _, want := range []string{"1s split [0 1 2]", "1s split [3 4 5]", "2s heal", "2s join", "2s mark"} {
			expect.That(t, slices.Contains(j.sortedLines(), want), "%q is missing in\n%s", want, strings.Join(j.sortedLines(), "\n"))
		}
	})
}

// The mark separates what was acknowledged before the healing from what comes after it (truth.Book).
func TestFaultIsUndoneAfterTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		need.OK(t, injectorOf(j, scenarioOf(t, "faults: [{at: 1s, for: 1s, kind: pause, nodes: node1}]"), 10*time.Second).run(t.Context()))
		expect.Slice(t, j.lines, []string{"1s pause 0", "2s mark", "2s resume 0"}, "in order:")
	})
}

func TestFaultWithoutALeaderToStrikeIsAnErrorAndTheOthersAreInjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		i := injectorOf(j, scenarioOf(t, "faults:\n- {at: 1s, for: 1s, kind: kill, nodes: leader}\n- {at: 3s, kind: die, instances: 1}"), 10*time.Second)
		i.leader = func(context.Context) (int, error) { return 0, errors.New("no leader within 5s") }
		err := i.run(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "kill at 1s: no leader within 5s"),
			"run() = %v, want what could not be injected, and when", err)
		want := []string{"3s die 1"}
		expect.That(t, slices.Equal(j.sortedLines(), want), "done %q, want %q", j.sortedLines(), want)
	})
}

func TestFaultsThatFailAreReportedAndUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{failures: map[string]error{"pause 2": errors.New("no such process"), "resume 1": errors.New("gone")}}
		i := injectorOf(j, scenarioOf(t, "faults: [{at: 1s, for: 1s, kind: pause, nodes: all}]"), 10*time.Second)
		err := i.run(t.Context())
		for _, want := range []string{"all nodes paused (SIGSTOP): no such process", `undo "all nodes paused (SIGSTOP)": gone`} {
			expect.That(t, err != nil && strings.Contains(err.Error(), want), "run() = %v, want %q in it", err, want)
		}
		for _, want := range []string{"1s pause 0", "1s pause 1", "2s resume 0", "2s resume 1", "2s resume 2"} {
			expect.That(t, slices.Contains(j.sortedLines(), want), "%q is missing in %q", want, j.sortedLines())
		}
	})
}

func TestFaultWhoseNodeDoesNotStartAgainIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{startTakes: time.Hour}
		i := injectorOf(j, scenarioOf(t, "faults: [{at: 1s, for: 1s, kind: kill, nodes: node1}]"), 10*time.Second)
		err := i.run(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "not ready after 3m0s"), "run() = %v, want that node1 was not ready", err)
		expect.Equal(t, i.faults[0].Ready, 0, "ready at")
	})
}

func TestFaultInjectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		i := injectorOf(j, scenarioOf(t, "faults: [{at: 1s, for: 5s, kind: pause, nodes: node1}, {at: 7s, kind: die, instances: 1}]\nstorms: [{at: 2s, for: 5s, load: {reads: 0}}]"), 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := i.run(ctx)
		expect.That(t, err == nil, "run() = %v, want nil: it is for others to say that ctx ended", err)
		expect.Equal(t, time.Since(j.began), 3*time.Second, "ended after")
		want := []string{"1s pause 0", "2s rates map[reads:0]", "3s rates map[]"}
		expect.That(t, slices.Equal(j.sortedLines(), want), "done %q, want %q", j.sortedLines(), want)
	})
}

// journal is a fake of the cluster, its clients and their links. It records what is done to them as lines: "2s kill 1"
// means that node 1 was killed after two seconds. Nodes are numbered from 0 in the lines and in trial.Fault.Nodes, and
// named from node1.
type journal struct {
	began      time.Time
	nodes      []Node
	startTakes time.Duration
	failures   map[string]error // errors by action, as in "kill 1"
	writes     time.Duration    // how long an awaited write takes to begin

	mu    sync.Mutex
	lines []string
}

func (j *journal) record(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s %s", time.Since(j.began), what))
	return j.failures[what]
}

// sortedLines returns the lines by time; those of one moment in alphabetical order, because simultaneous actions have
// no order.
func (j *journal) sortedLines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := func(line string) time.Duration {
		var moment, rest string
		fmt.Sscan(line, &moment, &rest)
		d, _ := time.ParseDuration(moment)
		return d
	}
	lines := slices.Clone(j.lines)
	slices.SortStableFunc(lines, func(a, b string) int {
		if d := at(a) - at(b); d != 0 {
			return int(d)
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	return lines
}

func (j *journal) Nodes() []Node                          { return j.nodes }
func (j *journal) Kill(node int) error                    { return j.record("kill %d", node) }
func (j *journal) Lose(node int) error                    { return j.record("lose %d", node) }
func (j *journal) drop(node int)                          { j.record("drop %d", node) }
func (j *journal) Stop(_ context.Context, node int) error { return j.record("stop %d", node) }

// AwaitWrite finds seven writes on their way.
func (j *journal) AwaitWrite(ctx context.Context, node int) int {
	if !until(ctx, time.Now().Add(j.writes)) {
		return 0
	}
	j.record("write %d", node)
	return 7
}

func (j *journal) Start(ctx context.Context, node int) error {
	err := j.record("start %d", node)
	if !until(ctx, time.Now().Add(j.startTakes)) {
		return context.Cause(ctx)
	}
	return err
}

func (j *journal) Pause(node int) error  { return j.record("pause %d", node) }
func (j *journal) Resume(node int) error { return j.record("resume %d", node) }
func (j *journal) Cut(a, b int)          { j.record("cut %d %d", min(a, b), max(a, b)) }
func (j *journal) Heal()                 { j.record("heal") }

func (j *journal) SlowDisk(node int, delay time.Duration) error {
	return j.record("slow %d %s", node, delay)
}

func (j *journal) Usage(int) (trial.Usage, error) { return trial.Usage{}, errors.New("not asked for") }
func (j *journal) Close() error                   { return j.record("close") }

func (j *journal) SetRates(rates map[string]float64) { j.record("rates %v", rates) }

// Die strikes 30 instances, whichever are meant.
func (j *journal) Die(which string) (int, error) { return 30, j.record("die %s", which) }

func (j *journal) Silence(which string) (int, func(), error) {
	return 300, func() { j.record("restart clients") }, j.record("silence %s", which)
}

func (j *journal) Flap(which string) (int, func(), error) {
	return 30, func() { j.record("end flapping") }, j.record("flap %s", which)
}

func (j *journal) Split(nodes []int) { j.record("split %v", nodes) }
func (j *journal) Join()             { j.record("join") }
func (j *journal) mark()             { j.record("mark") }

func scenarioOf(t *testing.T, text string) scenario.Scenario {
	t.Helper()
	return need.Got(scenario.Parse("test.yaml", []byte("name: test\n"+text)))(t)
}

// injectorOf returns the injector of a scenario into a journal. Node 1 (node2) leads, unless the test replaces leader.
func injectorOf(j *journal, s scenario.Scenario, length time.Duration) *injector {
	places := scenario.Places(s.Datacenters)
	for _, p := range places {
		j.nodes = append(j.nodes, Node{Name: p.Name, Datacenter: p.Datacenter})
	}
	j.began = time.Now()
	return &injector{
		scenario: s, cluster: j, clients: j, links: j, nodes: places, mark: func() { j.mark() }, drop: j.drop,
		leader: func(context.Context) (int, error) { return 1, nil },
		began:  j.began, length: length,
	}
}
