package integration

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The scenarios state no time limits, which a busy machine would break. Their leases outlast any stall. Each writes
// to nine keys (own-keys and shared-keys), whose histories are checked.
const (
	cutOffScenario = `name: cut-off
title: Cut off
about: A node that does not lead is cut off together with its clients.
faults:
  - {at: 1500ms, for: 3s, kind: isolate, nodes: follower}
load: {instances: 100, heartbeat: 2s, lease: 30s, registers: 2, writes: 30, reads: 60, fetches: 1, deltas: 2, watchers: 2, sightings: 1, own-keys: 6, shared-keys: 3}
`
	// Without consensus the nodes compare digests every second, and a restarted one copies the state.
	restartedScenario = `name: restarted
title: Restarted
about: A node is stopped and started again.
settings: {replication.digest-interval: 1s}
faults:
  - {at: 1500ms, for: 1s, kind: restart, nodes: node2}
load: {instances: 100, heartbeat: 2s, lease: 30s, registers: 2, writes: 30, reads: 60, fetches: 1, deltas: 2, watchers: 2, sightings: 1, own-keys: 6, shared-keys: 3}
`
	calmScenario = `name: calm
title: Calm
about: Nothing happens.
load: {instances: 100, heartbeat: 2s, lease: 30s, registers: 2, writes: 30, reads: 60, fetches: 1, deltas: 2, watchers: 2, sightings: 1, own-keys: 6, shared-keys: 3}
`
	powerScenario = `name: power
title: The power fails
about: All nodes are killed at once.
faults:
  - {at: 1500ms, for: 1s, kind: kill, nodes: all}
load: {instances: 100, heartbeat: 2s, lease: 30s, registers: 2, writes: 30, reads: 60, fetches: 1, deltas: 2, watchers: 2, sightings: 1, own-keys: 6, shared-keys: 3}
`
)

// compareLimit is how long one comparison may take: ten times what it takes on an idle machine.
const compareLimit = 10 * time.Minute

// comparedReport is the part of report.json that these tests read.
type comparedReport struct {
	Comparison struct {
		Trials []struct {
			Scenario, Column, Failed string
			Faults                   []struct{ Kind string }
		}
	}
	Verdicts []comparedVerdict
}

// comparedVerdict is the verdict on one trial, at the same position as the trial.
type comparedVerdict struct {
	History struct {
		Result   string
		Keys     int
		Violated []string
	}
	Converged struct {
		Result string
		Differ []string
		Text   string
	}
	Broken []struct{ Limit, Got string }
}

// brokenLimits returns, for the broken limits whose texts have a prefix, what was got instead.
func (v comparedVerdict) brokenLimits(prefix string) (got []string) {
	for _, b := range v.Broken {
		if strings.HasPrefix(b.Limit, prefix) {
			got = append(got, b.Got)
		}
	}
	return got
}

// comparison is a run of `rollcall-bench compare`.
type comparison struct {
	code   int
	stderr string
	report comparedReport
	raw    string // report.json
}

// compareColumns runs `rollcall-bench compare` on a server's program with scenarios (texts of YAML), with a fault
// planted in the program ("" for none); columns are as in "cp,ap".
func compareColumns(t *testing.T, program, planted, columns string, scenarios ...string) comparison {
	t.Helper()
	dir := t.TempDir()
	args := []string{benchProgram(t), "compare", "--server", program, "--columns", columns, "--quick", "--length", "6s", "--out", filepath.Join(dir, "report"), "--data", filepath.Join(dir, "data")}
	for i, text := range scenarios {
		path := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		need.OK(t, os.WriteFile(path, []byte(text), 0o600))
		args = append(args, "--scenario", path)
	}
	p := need.Got(launch(t, filepath.Join(dir, "log"), []string{"ROLLCALL_PLANTED=" + planted}, args))(t)
	c := comparison{code: p.ExitCode(t, compareLimit), stderr: p.Output(t)}
	c.raw = filepath.Join(dir, "report", "report.json")
	text, err := os.ReadFile(c.raw)
	need.That(t, err == nil, "%v; it said:\n%s", err, c.stderr)
	decode(t, text, &c.report)
	left, err := os.ReadDir(filepath.Join(dir, "data"))
	expect.That(t, err != nil, "it left %v in its directory of data, want nothing", left)
	return c
}

// onlyVerdict returns the verdict on the one trial of a comparison, which must have completed and broken a limit.
func (c comparison) onlyVerdict(t *testing.T) comparedVerdict {
	t.Helper()
	need.That(t, len(c.report.Verdicts) == 1 && len(c.report.Comparison.Trials) == 1 && c.report.Comparison.Trials[0].Failed == "",
		"%+v, want one trial that was completed; it said:\n%s", c.report, c.stderr)
	// The machine may be too busy for its figures to be valid, which has an exit code of its own.
	expect.That(t, (c.code == 1 || c.code == 4) && strings.Contains(c.stderr, "limits were broken:"),
		"exit code %d, want 1 or 4, and what was broken; it said:\n%s", c.code, c.stderr)
	return c.report.Verdicts[0]
}

// broke reports whether a limit was broken whose text has a prefix.
func (v comparedVerdict) broke(prefix string) bool { return len(v.brokenLimits(prefix)) > 0 }

// plantedProgram builds the program with the faults that tests can plant.
func plantedProgram(t *testing.T) string {
	return otherProgram(t, "-overlay=integration/testdata/planted/overlay.json")
}

// otherPrograms has the programs that were built with a flag, by the flag.
var otherPrograms sync.Map

// otherProgram builds the program under test with a flag, once, with the race detector if the program under test has
// it.
func otherProgram(t *testing.T, flag string) string {
	t.Helper()
	build, _ := otherPrograms.LoadOrStore(flag, sync.OnceValues(func() (string, error) {
		path := filepath.Join(built, "rollcall"+strings.NewReplacer("=", "-", "/", "-").Replace(flag))
		args := []string{"-C", "..", "build", flag, "-o", path}
		info, err := buildinfo.ReadFile(os.Getenv("ROLLCALL_BIN"))
		if err != nil {
			return "", err
		}
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
		if out, err := exec.Command("go", append(args, "./cmd/rollcall")...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the program with %s: %w\n%s", flag, err, out)
		}
		return path, nil
	}))
	return need.Got(build.(func() (string, error))())(t)
}

func TestComparisonFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	program := plantedProgram(t)
	t.Run("linearizable reads from the node's own state", func(t *testing.T) {
		t.Parallel()
		c := compareColumns(t, program, "local-reads", "cp", cutOffScenario)
		v := c.onlyVerdict(t)
		got := v.brokenLimits("cp: histories are linearizable")
		need.That(t, v.History.Result == "violated" && len(v.History.Violated) > 0 && len(got) == 1 && strings.Contains(got[0], v.History.Violated[0]),
			"%+v, want a history that is violated, and its key", v)
		drawn := need.Got(os.ReadFile(filepath.Join(filepath.Dir(c.raw), "history-1.html")))(t)
		expect.That(t, bytes.Contains(drawn, []byte("read at node ")), "history-1.html draws no read")
	})
	t.Run("a node that discards what it receives", func(t *testing.T) {
		t.Parallel()
		v := compareColumns(t, program, "discard:node2:own-", "ap", restartedScenario).onlyVerdict(t)
		need.That(t, v.Converged.Result == "violated" && v.broke("ap: nodes converge"), "%+v, want nodes that do not converge", v)
		for _, key := range v.Converged.Differ {
			if !strings.HasPrefix(key, "own-") {
				t.Errorf("the nodes differ in %q, want nothing but keys that begin with own-", v.Converged.Differ)
				break
			}
		}
		expect.That(t, len(v.Converged.Differ) != 0 && strings.Contains(v.Converged.Text, v.Converged.Differ[0]),
			"the keys %q and %q, want those that differ", v.Converged.Differ, v.Converged.Text)
	})
}

// Each fault is found by the checker made for it.
func TestComparisonFindsEveryOtherPlantedFault(t *testing.T) {
	t.Parallel()
	program := plantedProgram(t)
	for _, tc := range []struct {
		name, planted, scenario string
		limit                   string
		says                    string // in what was got instead
	}{
		{name: "a node forgets its last second", planted: "forget", scenario: powerScenario, limit: "cp: no registration is lost", says: "sealed-"},
		{name: "a node hangs after a heal", planted: "hang", scenario: cutOffScenario, limit: "cp: every node answers at the end", says: "did not"},
		{name: "a node diverges", planted: "falsify:node2:sealed-10", scenario: calmScenario, limit: "cp: nodes converge", says: "sealed-10"},
		{name: "cancels are lost", planted: "lose-cancels:sealed-", scenario: calmScenario, limit: "cp: no cancel is undone", says: "sealed-"},
		{name: "reads are answered late from an old view", planted: "late-reads", scenario: calmScenario, limit: "cp: histories are linearizable", says: "no single copy explains the calls on "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := compareColumns(t, program, tc.planted, "cp", tc.scenario).onlyVerdict(t)
			got := v.brokenLimits(tc.limit)
			expect.That(t, len(got) == 1 && strings.Contains(got[0], tc.says), "%+v, want %q broken by %q", v.Broken, tc.limit, tc.says)
		})
	}
}

func TestComparisonFindsNothingWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	// The variable plants the fault, but this program does not read it.
	c := compareColumns(t, Binary(t), "local-reads", "cp,ap", cutOffScenario, restartedScenario)
	need.That(t, (c.code == 0 || c.code == 4) && len(c.report.Verdicts) == 4,
		"exit code %d and %d verdicts, want 0 (or 4 on a busy machine) and 4; it said:\n%s", c.code, len(c.report.Verdicts), c.stderr)
	for i, v := range c.report.Verdicts {
		trial := c.report.Comparison.Trials[i]
		expect.That(t, v.History.Result != "violated" && v.Converged.Result != "violated" && len(v.Broken) == 0,
			"%s in column %s: %+v, want nothing wrong", trial.Scenario, trial.Column, v)
		if trial.Column == "cp" && (v.History.Result != "ok" || v.History.Keys != 9) {
			t.Errorf("%s in mode cp: the histories of %d keys are %s, want 9 and ok", trial.Scenario, v.History.Keys, v.History.Result)
		}
		expect.Equal(t, v.Converged.Result, "ok", "%s in column %s: convergence is", trial.Scenario, trial.Column)
	}
}

// If other programs keep a machine busy, it measures those, and not the servers. No other test runs meanwhile.
func TestComparisonBesideOtherProgramsIsNotValid(t *testing.T) {
	for range runtime.NumCPU() {
		hog := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		need.OK(t, hog.Start())
		t.Cleanup(func() { _ = hog.Wait() }) // the end of the test killed it
	}
	c := compareColumns(t, Binary(t), "", "cp", powerScenario)
	expect.That(t, c.code == 4 && strings.Contains(c.stderr, "the run is not valid:\n  power, cp: "),
		// how it shows depends on the machine
		"exit code %d, want 4, and why the run is not valid; it said:\n%s", c.code, c.stderr)
}

// From the raw observations, the lines of Python in docs/comparison.md compute what the verdicts beside them say.
func TestFiguresCanBeRecomputedByThePageAlone(t *testing.T) {
	t.Parallel()
	c := compareColumns(t, Binary(t), "", "cp,ap", powerScenario)
	var file map[string]any
	decode(t, need.Got(os.ReadFile(c.raw))(t), &file)
	for _, verdict := range file["verdicts"].([]any) {
		verdict.(map[string]any)["invalid"] = []string{} // other tests run beside it
	}
	need.OK(t, os.WriteFile(c.raw, need.Got(json.Marshal(file))(t), 0o600))
	expectRecomputed(t, need.Got(os.Open(c.raw))(t), "power", "cp", "ap")
}

func TestFiguresOfTheKeptRunCanBeRecomputed(t *testing.T) {
	t.Parallel()
	expectRecomputed(t, need.Got(os.Open("../docs/benchmarks/report.json.gz"))(t), "leader-killed", "cp", "ap", "eureka")
}

// expectRecomputed closes the raw file.
func expectRecomputed(t *testing.T, raw *os.File, scenario string, columns ...string) {
	t.Helper()
	defer raw.Close()
	var text io.Reader = raw
	if strings.HasSuffix(raw.Name(), ".gz") {
		text = need.Got(gzip.NewReader(raw))(t)
	}
	type verdict struct {
		Operations          map[string]struct{ Success float64 }
		Worst               map[string]struct{ Gap float64 }
		Missing, Unanswered float64
		Losses              struct{ Registrations, Updates, Cancels struct{ Count float64 } }
		Invalid             []string
	}
	var file struct {
		Comparison struct {
			Trials []struct{ Scenario, Column, Failed string }
		}
		Verdicts []verdict
	}
	need.OK(t, json.NewDecoder(text).Decode(&file))
	for _, column := range columns {
		want := map[string][]float64{}
		for i, of := range file.Comparison.Trials {
			v := file.Verdicts[i]
			if of.Scenario != scenario || of.Column != column || of.Failed != "" || len(v.Invalid) > 0 {
				continue
			}
			for name, value := range map[string]float64{
				"heartbeats answered":                v.Operations["heartbeat"].Success,
				"registrations answered":             v.Operations["register"].Success,
				"full fetches answered":              v.Operations["fetch"].Success,
				"worst gap of a client's heartbeats": v.Worst["heartbeat"].Gap,
				"worst gap of a client's fetches":    v.Worst["fetch"].Gap,
				"registrations lost":                 v.Losses.Registrations.Count,
				"updates lost":                       v.Losses.Updates.Count,
				"cancels undone":                     v.Losses.Cancels.Count,
				"missing":                            v.Missing,
				"unanswered":                         v.Unanswered,
			} {
				want[name] = append(want[name], value)
			}
		}
		for name, got := range recomputed(t, raw.Name(), scenario, column) {
			rounds := slices.Sorted(slices.Values(want[name]))
			need.That(t, len(rounds) > 0 && got[3] == float64(len(rounds)), "column %s, %s: recomputed of %v rounds, want %d", column, name, got[3], len(rounds))
			for i, wanted := range []float64{rounds[(len(rounds)-1)/2], rounds[0], rounds[len(rounds)-1]} {
				expect.That(t, math.Abs(got[i]-wanted) < 1e-5, "column %s, %s: recomputed %v, want %v at %d", column, name, got, wanted, i)
			}
			delete(want, name)
		}
		expect.That(t, len(want) == 0, "column %s: %v were not recomputed", column, want)
	}
}

// recomputed runs the Python of docs/comparison.md on a raw file, and returns for each figure the median, the
// smallest, the largest and the number of rounds.
func recomputed(t *testing.T, raw, scenario, column string) map[string][4]float64 {
	t.Helper()
	page := string(need.Got(os.ReadFile("../docs/comparison.md"))(t))
	_, program, found := strings.Cut(page, "```python\n")
	program, _, _ = strings.Cut(program, "```\n")
	need.That(t, found, "docs/comparison.md has no Python")
	out, err := exec.Command("python3", "-c", program, raw, scenario, column).CombinedOutput()
	need.That(t, err == nil, "%v: %s", err, out)
	cells := make(map[string][4]float64)
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		need.That(t, len(fields) == 5, "it printed %q, want a name and four figures", line)
		var cell [4]float64
		for i, text := range fields[1:] {
			cell[i] = need.Got(strconv.ParseFloat(text, 64))(t)
		}
		cells[fields[0]] = cell
	}
	return cells
}

// The example of the page on scenarios runs as it is. Its limits do not count here: leases of 3 s and gaps of 5 s
// depend on the machine, too.
func TestScenarioWrittenByThePageAloneRuns(t *testing.T) {
	t.Parallel()
	example := need.Got(os.ReadFile("../docs/scenarios/example.yaml"))(t)
	c := compareColumns(t, Binary(t), "", "cp,ap", string(example))
	need.That(t, len(c.report.Verdicts) == 2, "%d verdicts, want 2; it said:\n%s", len(c.report.Verdicts), c.stderr)
	for i, v := range c.report.Verdicts {
		trial := c.report.Comparison.Trials[i]
		// Without consensus a cancel does not remove a registration that has not reached its node yet (ADR 13).
		cancelOvertaken := trial.Column == "ap" && strings.Contains(v.Converged.Text, "though its cancel")
		wrong := v.Converged.Result != "ok" || v.broke(trial.Column+": nothing is")
		if trial.Failed != "" || v.History.Result == "violated" || wrong && !cancelOvertaken {
			t.Errorf("%s in column %s: %+v, %+v, want it completed, and nothing wrong but limits", trial.Scenario, trial.Column, trial, v)
		}
		expect.That(t, len(trial.Faults) == 2 && trial.Faults[0].Kind == "kill" && trial.Faults[1].Kind == "die",
			"%s in column %s: the faults are %+v, want those of the file", trial.Scenario, trial.Column, trial.Faults)
	}
}

// loadResult is what `rollcall-bench run -o json` prints.
type loadResult struct {
	Mode       string
	Nodes      []string
	Seconds    float64
	Sent       float64
	Answered   float64
	Operations map[string]struct {
		Outcomes map[string]int
		Count    int
		Latency  struct {
			Count         int
			P50, P99, Max float64
		}
	}
	Watchers *struct{ Events int }
}

func TestBenchRunAddsUpAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(smallConfig(ap, 2))) // at least one call of each operation must be done
		for _, loop := range [][]string{{"--connections=0"}, {"--closed", "--connections=3"}} {
			rows := filepath.Join(t.TempDir(), "load.csv")
			var r loadResult
			decode(t, benchmark(t, slices.Concat([]string{"run", "--addr", c.Nodes[0].HTTP, "--all-nodes", "--instances=100", "--heartbeat=1s", "--lease=30s",
				"--watchers=2", "--warm-up=500ms", "--duration=5s", "--progress=false", "-o", "json", "--out", rows}, loop)...), &r)
			expect.That(t, len(r.Nodes) == len(c.Nodes) && r.Mode == map[bool]string{false: "cp", true: "ap"}[ap] && r.Watchers != nil && r.Watchers.Events != 0,
				"%v: it loaded %q in column %s, and the watchers saw %+v, want all nodes, and changes", loop, r.Nodes, r.Mode, r.Watchers)
			r.addsUp(t, fmt.Sprint(loop))
			text, err := os.ReadFile(rows)
			expect.That(t, err == nil && strings.HasPrefix(string(text), "seconds,operation,node,done,"), "%v: the rows are %.50q, %v", loop, text, err)
			c.mustListEverywhere(t)
		}
	})
}

// addsUp checks that the outcomes, latencies and rates of a result cover the same calls.
func (r loadResult) addsUp(t *testing.T, what string) {
	t.Helper()
	count, answered := 0, 0
	for name, o := range r.Operations {
		sum := 0
		for _, n := range o.Outcomes {
			sum += n
		}
		got := o.Outcomes["done"] + o.Outcomes["not found"]
		expect.That(t, sum == o.Count && o.Latency.Count == got && o.Latency.P50 <= o.Latency.P99 && o.Latency.P99 <= o.Latency.Max,
			"%s: %s does not add up: %+v", what, name, o)
		count, answered = count+o.Count, answered+got
	}
	for _, name := range []string{"heartbeat", "register", "probe read", "delta"} {
		expect.That(t, r.Operations[name].Outcomes["done"] != 0, "%s: no %s was done: %+v", what, name, r.Operations)
	}
	const rounding = 0.001
	diff := r.Sent*r.Seconds - float64(count)
	expect.That(t, diff <= rounding && diff >= -rounding,
		"%s: %v calls per second for %v s, want the sum of the operations, %d", what, r.Sent, r.Seconds, count)
	if diff := r.Answered*r.Seconds - float64(answered); diff > rounding || diff < -rounding {
		t.Errorf("%s: %v answers per second for %v s, want the sum of the operations, %d", what, r.Answered, r.Seconds, answered)
	}
}
