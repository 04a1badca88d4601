package compare

import (
	"cmp"
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

// seconds is a moment or a span of a trial.
func seconds(n float64) trial.Micros { return trial.Micros(n * 1e6) }

// fault is a fault from one second to another.
func fault(kind scenario.Kind, text string, from, to float64, nodes ...int) trial.Fault {
	return trial.Fault{Kind: kind, Text: text, Nodes: append([]int{}, nodes...), From: seconds(from), To: seconds(to)}
}

// ends adds the ends of processes, and when all of them could serve again, to a fault.
func ends(f trial.Fault, ready float64, kills ...trial.Kill) trial.Fault {
	f.Ready, f.Kills = seconds(ready), kills
	return f
}

func killed(at float64, node, writing int) trial.Kill {
	return trial.Kill{At: seconds(at), Node: node, Writing: writing}
}

func of(count int, f trial.Fault) trial.Fault {
	f.Count = count
	return f
}

// amid are kills amid writes, of a load of a minute.
func amid(nodes string, times int) string {
	return fmt.Sprintf("length: 60s\nfaults: [{at: 10s, for: 40s, kind: kill, nodes: %s, times: %d}]", nodes, times)
}

func TestFaultsAreInjectedAndUndoneAtTheirTimes(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name, text, lines  string
		want               []trial.Fault
		startTakes, writes time.Duration // as in journal
		leaders            []int         // at each fault or kill; nil means that node 1 leads, empty that no node does
	}{
		{name: "a killed leader is started again", text: "faults: [{at: 20%, for: 30%, kind: kill, nodes: leader}]", startTakes: second,
			lines: "2s kill 1, 5s mark, 5s start 1",
			want:  []trial.Fault{ends(fault(scenario.Kill, "leader node2 killed (-9)", 2, 5, 1), 6, killed(2, 1, 0))}},
		{name: "a lost node is asked no more, and never comes back", text: "faults: [{at: 20%, kind: lose, nodes: follower}]",
			lines: "2s drop 2, 2s lose 2",
			want:  []trial.Fault{ends(fault(scenario.Lose, "follower node3 lost with its disk", 2, 2, 2), 0, killed(2, 2, 0))}},
		{name: "all nodes are stopped at once, and started at once", text: "faults: [{at: 3s, for: 1s, kind: restart, nodes: all}]", startTakes: second,
			lines: "3s stop 0, 3s stop 1, 3s stop 2, 4s mark, 4s start 0, 4s start 1, 4s start 2",
			want:  []trial.Fault{ends(fault(scenario.Restart, "all nodes stopped (SIGTERM)", 3, 4, 0, 1, 2), 5, killed(3, 0, 0), killed(3, 1, 0), killed(3, 2, 0))}},
		{name: "a paused follower goes on", text: "faults: [{at: 1s, for: 4s, kind: pause, nodes: follower}]",
			lines: "1s pause 2, 5s mark, 5s resume 2",
			want:  []trial.Fault{fault(scenario.Pause, "follower node3 paused (SIGSTOP)", 1, 5, 2)}},
		{name: "an isolated node loses its links to both others, and its clients theirs", text: "faults: [{at: 1s, for: 4s, kind: isolate, nodes: node1}]",
			lines: "1s cut 0 1, 1s cut 0 2, 1s split [0], 5s heal, 5s join, 5s mark",
			want:  []trial.Fault{fault(scenario.Isolate, "node1 isolated, clients included", 1, 5, 0)}},
		{name: "where a majority is isolated, the others count as struck", text: "faults: [{at: 1s, for: 4s, kind: isolate, nodes: followers}]",
			lines: "1s cut 0 1, 1s cut 1 2, 1s split [0 2], 5s heal, 5s join, 5s mark",
			want:  []trial.Fault{fault(scenario.Isolate, "followers node1 and node3 isolated, clients included", 1, 5, 1)}},
		{name: "every link between datacenters is cut", text: "datacenters: 2\nfaults: [{at: 1s, for: 1s, kind: cut-link}]",
			lines: "1s cut 0 3, 1s cut 0 4, 1s cut 0 5, 1s cut 1 3, 1s cut 1 4, 1s cut 1 5, 1s cut 2 3, 1s cut 2 4, 1s cut 2 5, 1s split [0 1 2], 1s split [3 4 5], 2s heal, 2s join, 2s mark",
			want:  []trial.Fault{fault(scenario.CutLink, "links between the datacenters cut", 1, 2)}},
		{name: "slow disks are fast again", text: "faults: [{at: 1s, for: 4s, kind: slow-disk, nodes: 'node1, node2', delay: 5ms}]",
			lines: "1s slow 0 5ms, 1s slow 1 5ms, 5s mark, 5s slow 0 0s, 5s slow 1 0s",
			want:  []trial.Fault{fault(scenario.SlowDisk, "disks of node1 and node2 slower by 5ms", 1, 5, 0, 1)}},
		{name: "the dead stay dead", text: "faults: [{at: 1s, kind: die, instances: 10%}]",
			lines: "1s die 10%",
			want:  []trial.Fault{of(30, fault(scenario.Die, "30 instances dead", 1, 1))}},
		{name: "clients of silent instances restart", text: "faults: [{at: 1s, for: 2s, kind: silence, instances: 100%}]",
			lines: "1s silence 100%, 3s mark, 3s restart clients",
			want:  []trial.Fault{of(300, fault(scenario.Silence, "300 instances silent until their clients have restarted", 1, 3))}},
		{name: "flapping ends", text: "faults: [{at: 1s, for: 2s, kind: flap, instances: 30}]",
			lines: "1s flap 30, 3s end flapping, 3s mark",
			want:  []trial.Fault{of(30, fault(scenario.Flap, "30 instances flapping", 1, 3))}},
		{name: "storms come and go", text: "storms: [{at: 10%, for: 2s, load: {reads: 9}}, {at: 50%, for: 10%, load: {writes: 0}}]",
			lines: "1s rates map[reads:9], 3s rates map[], 5s rates map[writes:0], 6s rates map[]",
			want:  []trial.Fault{}},
		{name: "faults are recorded in the scenario's order", text: "faults:\n- {at: 6s, kind: die, instances: 1}\n- {at: 2s, for: 1s, kind: pause, nodes: node1}",
			lines: "2s pause 0, 3s mark, 3s resume 0, 6s die 1",
			want:  []trial.Fault{of(30, fault(scenario.Die, "30 instances dead", 6, 6)), fault(scenario.Pause, "node1 paused (SIGSTOP)", 2, 3, 0)}},

		{name: "kills amid writes come one after the other, each with a write on its way", text: amid("leader", 4), startTakes: second / 2, writes: second / 10, leaders: []int{1, 2, 2, 0},
			lines: "10.1s kill 1, 10.1s write 1, 15s start 1, 20.1s kill 2, 20.1s write 2, 25s start 2, 30.1s kill 2, 30.1s write 2, 35s start 2, 40.1s kill 0, 40.1s write 0, 45s start 0, 50s mark",
			want:  []trial.Fault{ends(fault(scenario.Kill, "4 kills (-9) amid writes", 10, 50, 0, 1, 2), 50, killed(10.1, 1, 7), killed(20.1, 2, 7), killed(30.1, 2, 7), killed(40.1, 0, 7))}},
		{name: "they move on over the nodes where none leads", text: amid("leader", 4), leaders: []int{},
			lines: "10s kill 0, 10s write 0, 15s start 0, 20s kill 1, 20s write 1, 25s start 1, 30s kill 2, 30s write 2, 35s start 2, 40s kill 0, 40s write 0, 45s start 0, 50s mark",
			want:  []trial.Fault{ends(fault(scenario.Kill, "4 kills (-9) amid writes", 10, 50, 0, 1, 2), 50, killed(10, 0, 7), killed(20, 1, 7), killed(30, 2, 7), killed(40, 0, 7))}},
		{name: "a kill comes soon if no write does", text: amid("node1", 2), writes: time.Hour,
			lines: "15s kill 0, 20s start 0, 35s kill 0, 40s start 0, 50s mark",
			want:  []trial.Fault{ends(fault(scenario.Kill, "2 kills (-9) amid writes", 10, 50, 0), 50, killed(15, 0, 0), killed(35, 0, 0))}},
		// The first start, from 20 s on, would end at 32 s. The second one is awaited.
		{name: "a start under way is canceled by the next kill", text: amid("node1", 2), startTakes: 12 * second,
			lines: "10s kill 0, 10s write 0, 20s start 0, 30s kill 0, 30s write 0, 40s start 0, 50s mark",
			want:  []trial.Fault{ends(fault(scenario.Kill, "2 kills (-9) amid writes", 10, 50, 0), 52, killed(10, 0, 7), killed(30, 0, 7))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{startTakes: tt.startTakes, writes: tt.writes}
				i := injectorOf(t, j, tt.text)
				if i.leader = nil; tt.leaders == nil || len(tt.leaders) > 0 {
					i.leader = func(context.Context) (int, error) {
						if tt.leaders == nil {
							return 1, nil
						}
						next := tt.leaders[0]
						tt.leaders = tt.leaders[1:]
						return next, nil
					}
				}
				need.OK(t, i.run(t.Context()))
				// Both datacenters are cut off from each other.
				expect.Equal(t, strings.Join(slices.Compact(j.sortedLines()), ", "), tt.lines, "what was done:")
				expect.Deep(t, i.faults, tt.want, "recorded")
			})
		})
	}
}

// The mark separates what was acknowledged before the healing from what comes after it (trial.Book).
func TestFaultIsUndoneAfterTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		need.OK(t, injectorOf(t, j, "faults: [{at: 1s, for: 1s, kind: pause, nodes: node1}]").run(t.Context()))
		expect.Slice(t, j.lines, []string{"1s pause 0", "2s mark", "2s resume 0"}, "in order:")
	})
}

func TestFaultsThatFailAreReportedAndUndone(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		name, text string
		failures   map[string]error // errors by action
		startTakes time.Duration
		unled      int // the number of the search for a leader that finds none, from 1; 0 for none
		errs       []string
		lines      string
	}{
		{name: "a pause and a resume", text: "faults: [{at: 1s, for: 1s, kind: pause, nodes: all}]",
			failures: map[string]error{"pause 2": errors.New("no such process"), "resume 1": gone},
			errs:     []string{"all nodes paused (SIGSTOP): no such process", `undo "all nodes paused (SIGSTOP)": gone`},
			lines:    "1s pause 0, 1s pause 1, 1s pause 2, 2s mark, 2s resume 0, 2s resume 1, 2s resume 2"},
		{name: "no leader to strike; the others are injected", text: "faults:\n- {at: 1s, for: 1s, kind: kill, nodes: leader}\n- {at: 3s, kind: die, instances: 1}",
			unled: 1, errs: []string{"kill at 1s: no leader within 5s"}, lines: "3s die 1"},
		{name: "a node that does not start again is given up", text: "faults: [{at: 1s, for: 1s, kind: kill, nodes: node1}]",
			startTakes: time.Hour, errs: []string{"not ready after 3m0s"}, lines: "1s kill 0, 2s mark, 2s start 0"},
		{name: "a kill amid writes", text: amid("leader", 2), failures: map[string]error{"kill 1": gone}, errs: []string{"kills (-9) amid writes: gone"},
			lines: "10s kill 1, 10s write 1, 20s start 1, 30s kill 1, 30s write 1, 40s start 1, 50s mark"},
		{name: "a start after one", text: amid("leader", 2), failures: map[string]error{"start 1": gone}, errs: []string{`undo "2 kills (-9) amid writes": gone`},
			lines: "10s kill 1, 10s write 1, 20s start 1, 30s kill 1, 30s write 1, 40s start 1, 50s mark"},
		{name: "a leader that is not found", text: amid("leader", 2), unled: 2, errs: []string{"no leader within 5s"},
			lines: "10s kill 1, 10s write 1, 20s start 1, 50s mark"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{failures: tt.failures, startTakes: tt.startTakes}
				i := injectorOf(t, j, tt.text)
				asked := 0
				i.leader = func(context.Context) (int, error) {
					if asked++; asked == tt.unled {
						return 0, errors.New("no leader within 5s")
					}
					return 1, nil
				}
				err := i.run(t.Context())
				for _, want := range tt.errs {
					expect.ErrorSays(t, err, want, "run() =")
				}
				expect.Equal(t, strings.Join(j.sortedLines(), ", "), tt.lines, "what was done:")
				failed := tt.startTakes > 0 || tt.failures["start 1"] != nil || tt.failures["resume 1"] != nil
				expect.That(t, !failed || i.faults[0].Ready == 0, "ready at %d, want never", i.faults[0].Ready)
			})
		})
	}
}

func TestFaultInjectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		i := injectorOf(t, j, "faults: [{at: 1s, for: 5s, kind: pause, nodes: node1}, {at: 7s, kind: die, instances: 1}]\nstorms: [{at: 2s, for: 5s, load: {reads: 0}}]")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		expect.OKf(t, i.run(ctx), "it is for others to say that ctx ended")
		expect.Equal(t, time.Since(j.began), 3*time.Second, "ended after")
		expect.Slice(t, j.sortedLines(), []string{"1s pause 0", "2s rates map[reads:0]", "3s rates map[]"}, "done")
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

// injectorOf returns the injector of a scenario into a journal. Node 1 (node2) leads, unless the test replaces leader.
// A load without a length takes 10 s.
func injectorOf(t *testing.T, j *journal, text string) *injector {
	t.Helper()
	s := need.Got(scenario.Parse("test.yaml", []byte("name: test\n"+text)))(t)
	places := scenario.Places(s.Datacenters)
	for _, p := range places {
		j.nodes = append(j.nodes, Node{Name: p.Name, Datacenter: p.Datacenter})
	}
	j.began = time.Now()
	return &injector{
		scenario: s, cluster: j, clients: j, links: j, nodes: places, mark: func() { j.mark() }, drop: j.drop,
		leader: func(context.Context) (int, error) { return 1, nil },
		began:  j.began, length: cmp.Or(s.Length.Duration(), 10*time.Second),
	}
}
