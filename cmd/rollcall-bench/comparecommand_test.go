package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestBenchCompareNamesEveryMistakeAtOnce(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	need.OK(t, os.WriteFile(broken, []byte("name: broken\nfault: []\n"), 0o600))
	for _, tc := range []struct {
		name string
		args string
		says []string
	}{
		{name: "numbers", args: "--dcs 3 --rounds -1 --length 1s", says: []string{"--dcs: 3 is not between 1 and 2", "--rounds: -1", "--length: 1s"}},
		{name: "columns", args: "--columns cp,ca --column slow --column x=cq --column cp=ap", says: []string{
			`--columns: there is no column "ca"; name one of cp, ap, eureka,`, `--column: there is no column "slow"`, `"cq" is no mode; want cp or ap`, `"cp" is the name of a column that comes with the program`}},
		{name: "columns twice", args: "--columns cp,cp", says: []string{"--columns: cp is named twice"}},
		{name: "no such trial", args: "--only steady/cp,nowhere", says: []string{`--only: "nowhere" names none of the trials`}},
		{name: "no directory", args: "--out=", says: []string{"--out: is empty"}},
		{name: "unknown scenarios", args: "--scenario x --scenario steady --scenario y", says: []string{`--scenario: there is no scenario "x"; name one of steady, `, `there is no scenario "y"`}},
		{name: "twice", args: "--scenario steady --scenario steady", says: []string{"--scenario: steady names \"steady\", which is named already"}},
		{name: "another datacenter", args: "--scenario dc-link-cut", says: []string{"--scenario: dc-link-cut needs 2 datacenters; give --dcs 2"}},
		{name: "no file", args: "--scenario missing.yaml", says: []string{"missing.yaml"}},
		{name: "broken file", args: "--scenario " + broken, says: []string{"broken.yaml", "fault"}},
		{name: "form", args: "-o csv", says: []string{"--output"}},
		{name: "argument", args: "now", says: []string{"unknown command"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := bench(t, append([]string{"compare"}, strings.Fields(tc.args)...)...)
			expect.That(t, code == cli.ExitUsage && stdout == "", "exit %d and %q, want %d and nothing: %s", code, stdout, cli.ExitUsage, stderr)
			for _, want := range tc.says {
				expect.That(t, strings.Contains(stderr, want), "it said %q, want %q", stderr, want)
			}
		})
	}
}

// compared returns a plan for flags that are mostly at their defaults.
func compared(t *testing.T, change func(*compareOptions)) *comparePlan {
	t.Helper()
	o := compareOptions{dir: "d", dcs: 1, form: cli.Table}
	change(&o)
	return need.Got(o.plan())(t)
}

func columnNames(p *comparePlan) []string {
	var names []string
	for _, c := range p.Columns {
		names = append(names, c.Name)
	}
	return names
}

func scenarioNames(all []scenario.Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

func TestBenchCompareLeavesOutWhatNeedsMoreDatacenters(t *testing.T) {
	one := compared(t, func(*compareOptions) {})
	two := compared(t, func(o *compareOptions) { o.dcs = 2 })
	var left []string
	for _, name := range scenarioNames(two.scenarios) {
		if !slices.Contains(scenarioNames(one.scenarios), name) {
			left = append(left, name)
		}
	}
	expect.That(t, slices.Equal(left, []string{"dc-link-cut"}) && len(two.LeftOut) == 0,
		"with two datacenters there are also %q, and %q is left out, want dc-link-cut and nothing", left, two.LeftOut)
	expect.Slice(t, one.LeftOut, []string{"Datacenter link cut was left out: it needs 2 datacenters (--dcs 2)."}, "it says")
}

func TestBenchCompareQuickRunsWhatMattersMostOnce(t *testing.T) {
	p := compared(t, func(o *compareOptions) { o.quick = true })
	expect.That(t, len(p.scenarios) == 3 && p.Length.Duration() == 10*time.Second && len(p.LeftOut) == 0,
		"%d scenarios of %v, %q left out, want 3 of 10 s and no words about the others", len(p.scenarios), p.Length.Duration(), p.LeftOut)
	for _, s := range p.scenarios {
		expect.That(t, s.Quick, "%s is not part of a quick comparison", s.Name)
	}
	expect.That(t, p.Rounds == 1 && slices.Equal(columnNames(p), []string{"cp", "ap"}), "%d rounds of %q, want one of cp and ap", p.Rounds, columnNames(p))
	full := compared(t, func(*compareOptions) {})
	expect.That(t, full.Rounds == 5 && slices.Equal(columnNames(full), []string{"cp", "ap", "eureka", "cp-stale", "ap-always"}), "of a full one %d rounds of %q, want five of all", full.Rounds, columnNames(full))
}

func TestBenchCompareRunsTheScenariosThatAreNamed(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own.yaml")
	need.OK(t, os.WriteFile(own, []byte("name: mine\ntitle: Mine\nfaults:\n  - {at: 1s, for: 1s, kind: kill, nodes: leader}\n"), 0o600))
	p := compared(t, func(o *compareOptions) {
		o.scenarios, o.length, o.columns, o.described = []string{own, "steady"}, 4*time.Second, []string{"ap"}, []string{"slow=cp,test.sync-delay=20ms"}
		o.only = []string{"mine", "steady/slow"}
	})
	if got := scenarioNames(p.scenarios); !slices.Equal(got, []string{"mine", "steady"}) || p.Length.Duration() != 4*time.Second {
		t.Errorf("%q in %v, want mine and steady in 4s", got, p.Length.Duration())
	}
	expect.That(t, slices.Equal(columnNames(p), []string{"ap", "slow"}) && p.Columns[1].Settings["test.sync-delay"] == "20ms", "columns %+v, want ap, and slow with its setting", p.Columns)
	expect.That(t, p.Wants("mine", "ap") && p.Wants("mine", "slow") && p.Wants("steady", "slow") && !p.Wants("steady", "ap"), "it does not run mine in all columns and steady in slow alone")
}

func TestBenchCompareRefusesAScenarioThatDoesNotFitIntoTheLength(t *testing.T) {
	late := filepath.Join(t.TempDir(), "late.yaml")
	need.OK(t, os.WriteFile(late, []byte("name: late\ntitle: Late\nfaults:\n  - {at: 8s, for: 4s, kind: kill, nodes: leader}\n"), 0o600))
	if _, stderr, code := bench(t, "compare", "--list", "--scenario", late); code != cli.ExitOK {
		t.Errorf("exit %d in 15 s: %s", code, stderr)
	}
	_, stderr, code := bench(t, "compare", "--list", "--scenario", late, "--length", "10s")
	expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, "late in 10s: "),
		"exit %d, said %q, want %d and that it does not fit", code, stderr, cli.ExitUsage)
}

func TestBenchCompareListsTheScenariosThatWouldRun(t *testing.T) {
	stdout, stderr, code := bench(t, "compare", "--list", "--quick")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	expect.That(t, code == cli.ExitOK && len(lines) == 4 && strings.HasPrefix(lines[1], "steady ") && strings.HasSuffix(lines[1], "Steady state"),
		"exit %d, %s, printed\n%s\nwant a head and three scenarios, steady state first", code, stderr, stdout)
	expect.That(t, expect.Err(os.Stat("rollcall-comparison")) != nil, "there is a report, want nothing but the list")
}

func TestBenchCompareRemovesWhatItMadeForItsData(t *testing.T) {
	parent := t.TempDir()
	dir, remove, err := temporaryData(filepath.Join(parent, "a", "b"))
	need.OK(t, err)
	need.OK(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	remove()
	left, err := os.ReadDir(parent)
	expect.That(t, err == nil && len(left) == 0, "%v are left, %v, want nothing", left, err)
}

// keptRun returns the report of a run of one sound trial, altered.
func keptRun(alter func(*trial.Trial)) *reports.Report {
	steady := scenario.Scenario{Name: "steady", Title: "Steady state", Datacenters: 1, Load: scenario.Load{Fetches: 3}}
	calm := trial.Trial{
		Scenario: "steady", Column: "cp", Round: 1, Length: 1e6, Cores: 2,
		Series:  []trial.Series{{Operation: trial.Fetch, Bins: []trial.Bin{{Done: 3, Latencies: []int64{1000, 3}}}}},
		Machine: []trial.Health{{At: 4e5, Due: 1}, {At: 9e5, Busy: 1e5, Due: 2}},
	}
	for n := range benchNodes {
		calm.Nodes = append(calm.Nodes, trial.Node{Name: fmt.Sprint("node", n+1), Datacenter: "dc1"})
		calm.Lists = append(calm.Lists, trial.List{Node: n, Asked: 1000, Answered: 2000})
		calm.Ending = append(calm.Ending, trial.Ending{Node: n, Watched: 1e6})
	}
	alter(&calm)
	return reports.New(&trial.Comparison{
		Version: "of then", Date: "2026-01-02", Plan: trial.Plan{Columns: []scenario.Column{cpColumn}}, Scenarios: []scenario.Scenario{steady},
		Trials: []trial.Trial{calm},
	})
}

// Whatever was altered in the raw file of a sound run, its exit code reports it: a broken limit, or an overloaded
// machine.
func TestBenchCompareEndsWithTheCodeOfWhatARawFileHolds(t *testing.T) {
	silent := func(t *trial.Trial) { t.Ending[2] = trial.Ending{Node: 2, Failed: "no answer"} }
	late := func(t *trial.Trial) { t.Machine[1].Late = 2 }
	for name, c := range map[string]struct {
		alter func(*trial.Trial)
		code  int
		says  []string
	}{
		"a sound run":       {func(*trial.Trial) {}, cli.ExitOK, nil},
		"a silent node":     {silent, cli.ExitError, []string{"limits were broken:", "node3 did not"}},
		"nodes that differ": {func(t *trial.Trial) { t.Ending[1].Keys = map[string]int64{"own-1": 1} }, cli.ExitError, []string{"limits were broken:", "nodes converge"}},
		"a history that is undecided": {func(t *trial.Trial) {
			t.History = []trial.Call{{Key: "own-1", Action: trial.Write, Version: 1, Outcome: trial.Done, Returned: 1}}
		}, cli.ExitError, []string{"limits were broken:", "undecided: "}},
		"a load that was late":                     {late, exitInvalid, []string{"the run is not valid:", "the load was late"}},
		"a silent node under a load that was late": {func(t *trial.Trial) { silent(t); late(t) }, exitInvalid, []string{"the load was late", "limits were broken:", "node3 did not"}},
	} {
		dir := t.TempDir()
		need.OK(t, keptRun(c.alter).Write(dir))
		_, stderr, code := bench(t, "compare", "--from", filepath.Join(dir, reports.JSONFile), "--out", t.TempDir())
		expect.That(t, code == c.code, "%s: exit %d, want %d: %s", name, code, c.code, stderr)
		for _, text := range c.says {
			expect.That(t, strings.Contains(stderr, text), "%s: it says %q, want %q in it", name, stderr, text)
		}
	}
}

func TestBenchCompareMakesAReportAnewFromItsRawFile(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	need.OK(t, keptRun(func(*trial.Trial) {}).Write(dir))
	stdout, stderr, code := bench(t, "compare", "--from", filepath.Join(dir, reports.JSONFile), "--out", other)
	need.That(t, code == 0 && strings.Contains(stdout, "STEADY STATE"), "exit %d: %s%s", code, stdout, stderr)
	for _, name := range []string{reports.JSONFile, reports.BenchmarkFile, reports.MarkdownFile, reports.HTMLFile} {
		before := need.Got(os.ReadFile(filepath.Join(dir, name)))(t)
		anew, err := os.ReadFile(filepath.Join(other, name))
		expect.That(t, err == nil && bytes.Equal(anew, before), "%s is not what it was: %v", name, err)
	}
	for file, says := range map[string]string{
		filepath.Join(dir, "absent.json"):         "--from: open ",
		filepath.Join(dir, reports.BenchmarkFile): "--from: " + filepath.Join(dir, reports.BenchmarkFile) + ": ",
	} {
		_, stderr, code := bench(t, "compare", "--from", file, "--out", other)
		expect.That(t, code == 1 && strings.Contains(stderr, says), "from %s: exit %d and %q, want 1 and %q", file, code, stderr, says)
	}
}

// An interrupted comparison resumes with what is on the disk, and with nothing else.
func TestTrialsOfAnInterruptedComparisonAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report")
	change := func(o *compareOptions) { o.quick, o.rounds = true, 3 }
	p := compared(t, change)
	l := need.Got(openTrials(dir, p, false))(t)
	_, err := openTrials(dir, p, true)
	expect.ErrorSays(t, err, "another run is under way", "while a run goes on:")
	sound := func(column string, round int) *trial.Trial {
		return &trial.Trial{Scenario: "steady", Column: column, Round: round, Length: 1e6, Cores: 2, Machine: []trial.Health{{At: 4e5}, {At: 9e5}}}
	}
	failed, late := sound("ap", 1), sound("ap", 2)
	failed.Failed = "it did not start"
	late.Machine[1].Due, late.Machine[1].Late = 2, 2
	for _, one := range []*trial.Trial{sound("cp", 1), sound("cp", 2), failed, late} {
		need.OK(t, l.keep(t.Context(), one, io.Discard))
	}
	need.OK(t, l.close(false))
	path := filepath.Join(dir, trialsFile)
	whole := need.Got(os.ReadFile(path))(t)
	// the fifth was cut off
	need.OK(t, os.WriteFile(path, append(whole, []byte(`{"scenario":"steady","col`)...), 0o600))

	_, err = openTrials(dir, p, false)
	expect.ErrorSays(t, err, "holds another run", "without --resume:")
	_, err = openTrials(t.TempDir(), p, true)
	expect.ErrorSays(t, err, "there is no run to go on with", "where there is none:")

	l = need.Got(openTrials(dir, p, true))(t)
	expect.That(t, len(l.done) == 2 && l.done[1].Round == 2, "%+v, want the two trials that are whole, were completed and are valid", l.done)
	need.OK(t, l.keep(t.Context(), sound("ap", 1), io.Discard))
	need.OK(t, l.close(false))
	l = need.Got(openTrials(dir, p, true))(t)
	expect.That(t, len(l.done) == 3 && l.done[2].Column == "ap", "%+v, want three trials, the last one in the place of what was cut off", l.done)
	need.OK(t, l.close(true))
	expect.That(t, expect.Err(os.Stat(path)) != nil, "the file is there, want it removed: the report has all of it")
}

func TestResumeNamesWhatDiffers(t *testing.T) {
	begun := compared(t, func(o *compareOptions) { o.columns = []string{"cp", "eureka"} })
	for want, change := range map[string]func(*comparePlan){
		"what differs is seed: 0 then, 2 now": func(p *comparePlan) { p.Seed = 2 },
		"what differs is columns (Eureka is missing.)": func(p *comparePlan) {
			p.Columns, p.LeftOut = p.Columns[:1], []string{"Eureka is missing."}
		},
		"cpu:  then, another now":                func(p *comparePlan) { p.machine.CPU = "another" },
		"cores: 0 then, 64 now":                  func(p *comparePlan) { p.machine.Cores = 64 },
		"length_us: 15000000 then, 20000000 now": func(p *comparePlan) { p.Length = trial.Of(20 * time.Second) },
		"what differs is scenarios":              func(p *comparePlan) { p.scenarios[0].Load.Reads++ },
		"what differs is columns":                func(p *comparePlan) { p.Columns[0].Settings = map[string]string{"a": "b"} },
	} {
		dir := t.TempDir()
		need.OK(t, need.Got(openTrials(dir, begun, false))(t).close(false))
		other := compared(t, func(o *compareOptions) { o.columns = []string{"cp", "eureka"} })
		other.LeftOut = nil
		change(other)
		expect.ErrorSays(t, expect.Err(openTrials(dir, other, true)), want, "go on:")
	}
}

func TestResumeRefusesLinesThatHoldNoTrialOfTheRun(t *testing.T) {
	p := compared(t, func(o *compareOptions) { o.quick = true })
	for _, tc := range []struct{ line, want string }{
		{"{}", "line 2: holds no trial of this run"},
		{"null", "line 2: holds no trial of this run"},
		{"[1]", "line 2: holds no trial: "},
		{`{"scenario":"steady","column":"raft","round":1}`, `column "raft"`},
		{`{"scenario":"unsteady","column":"cp","round":1}`, `scenario "unsteady"`},
		{`{"scenario":"steady","column":"cp","round":2}`, "round 2"},
		{strings.Repeat(`{"scenario":"steady","column":"cp","round":1,"length_us":1000000,"cores":2,"machine":[{"at_us":400000},{"at_us":900000}]}`+"\n", 2), "line 3: holds steady in cp, round 1, a second time"},
	} {
		dir := t.TempDir()
		need.OK(t, need.Got(openTrials(dir, p, false))(t).close(false))
		path := filepath.Join(dir, trialsFile)
		head := need.Got(os.ReadFile(path))(t)
		text := append(head, []byte(tc.line+"\n")...)
		need.OK(t, os.WriteFile(path, text, 0o600))
		expect.ErrorSays(t, expect.Err(openTrials(dir, p, true)), tc.want, "%s:", tc.line)
		expect.That(t, bytes.Equal(need.Got(os.ReadFile(path))(t), text), "%s: the file has changed", tc.line)
	}
}

// An existing report may be all that is left of hours of work.
func TestReportMadeAnewDestroysNoOther(t *testing.T) {
	steady := scenario.Scenario{Name: "steady", Title: "Steady state", Datacenters: 1}
	made := func(version string) (dir, raw string) {
		dir = t.TempDir()
		need.OK(t, reports.New(&trial.Comparison{Version: version, Scenarios: []scenario.Scenario{steady}, Plan: trial.Plan{Columns: []scenario.Column{cpColumn}},
			Trials: []trial.Trial{{Scenario: "steady", Column: "cp", Round: 1, Length: 1e6, Cores: 2, Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}}, Failed: "\x1b[2J\u009bx"}}}).Write(dir))
		return dir, filepath.Join(dir, reports.JSONFile)
	}
	dir, raw := made("one")
	other, theirs := made("two")
	before := need.Got(os.Stat(raw))(t)
	_, stderr, _ := bench(t, "compare", "--from", raw, "--out", dir)
	expect.That(t, !strings.Contains(stderr, "--out") && !strings.ContainsAny(stderr, "\x1b\u009b"), "into its own directory: %q", stderr)
	after := need.Got(os.Stat(raw))(t)
	expect.That(t, os.SameFile(before, after) && before.ModTime().Equal(after.ModTime()), "its raw file was written again")
	_, stderr, code := bench(t, "compare", "--from", raw, "--out", other)
	expect.That(t, code == 1 && strings.Contains(stderr, "holds another run"), "over another run: exit %d, %s", code, stderr)
	expect.That(t, strings.Contains(string(need.Got(os.ReadFile(theirs))(t)), `"version":"two"`), "the other run is lost")
	fresh := filepath.Join(t.TempDir(), "x")
	for range 2 {
		_, stderr, _ = bench(t, "compare", "--from", raw, "--out", fresh)
		expect.That(t, !strings.Contains(stderr, "--out"), "again into a directory of the same run: %s", stderr)
	}
	left := need.Got(os.ReadDir(fresh))(t)
	expect.That(t, len(left) == 4, "%v, want four files and nothing temporary", left)
}

// A full disk loses no trial that was already measured.
func TestTrialThatCannotBeKeptWaitsForRoom(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("the user has gone"))
	told := ""
	err = (&trialLog{file: full, wait: time.Hour}).keep(ended, &trial.Trial{}, writer(func(text string) { told += text }))
	expect.ErrorSays(t, err, "the user has gone", "a run that is interrupted while it waits:")
	expect.That(t, strings.Contains(told, "no space left") && strings.Contains(told, "--resume"), "it says %q, want that there is no space, and --resume", told)

	roomy := need.Got(os.Create(filepath.Join(t.TempDir(), trialsFile)))(t)
	defer roomy.Close()
	need.Got(roomy.WriteString("the plan\nhalf a li"))(t)
	l := &trialLog{file: full, size: int64(len("the plan\n")), wait: time.Millisecond}
	need.OK(t, l.keep(t.Context(), &trial.Trial{}, writer(func(string) { l.file = roomy })))
	text := string(need.Got(os.ReadFile(roomy.Name()))(t))
	expect.That(t, strings.HasPrefix(text, "the plan\n{") && strings.HasSuffix(text, "}\n") && l.size == int64(len(text)),
		"the file holds %q, of which %d bytes count; want the plan and the trial", text, l.size)
}

// writer is called with what is written.
type writer func(text string)

func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

// testServer is the server's program: the one that ROLLCALL_BIN names, or one built for the tests.
var testServer = server{os.Getenv("ROLLCALL_BIN")}

// TestMain builds the server's program. The benchmarks start this program again as the bare handler (startBare): with
// that command it acts as rollcall-bench, and runs no tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bare" {
		main()
	}
	dir, err := os.MkdirTemp("", "rollcall-bench-*")
	if err == nil && testServer.path == "" {
		testServer.path = filepath.Join(dir, "rollcall")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", testServer.path, "../rollcall").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the server: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// bench runs a command line of rollcall-bench as main does, and returns what it printed and its exit code.
func bench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = cli.ExitCode(&errs, "rollcall-bench", root.ExecuteContext(t.Context()))
	return out.String(), errs.String(), code
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestCommandsAreDocumentedWithTheirExamplesAndFlags(t *testing.T) {
	page := need.Got(os.ReadFile("../../docs/reference/cli.md"))(t)
	shared := &cobra.Command{}
	new(cli.Output).AddFlag(shared)
	for _, lack := range golden.Undocumented(newRootCommand(), string(page), shared.Flags()) {
		t.Errorf("docs/reference/cli.md: %s", lack)
	}
}

func TestCommandsInDocumentsAreThoseOfTheProgram(t *testing.T) {
	faults, commands, err := golden.Misused(os.DirFS("../.."), newRootCommand)
	need.OK(t, err)
	need.That(t, commands > 20, "the documents have %d commands", commands)
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestBareHandlerGetsTheCollectorsSettingFromTheServer(t *testing.T) {
	percent, err := testServer.gcPercent(t.Context())
	expect.That(t, err == nil && percent > 0, "got %d, %v", percent, err)
	_, err = (&server{path: filepath.Join(t.TempDir(), "missing")}).gcPercent(t.Context())
	expect.That(t, err != nil, "a program that does not exist has a setting")
}

func TestMachineFindsTheMountOfAPath(t *testing.T) {
	const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /data rw shared:1 master:2 - tmpfs tmpfs rw
31 27 8:1 / /data rw - xfs /dev/sda1 rw
broken line
`
	for path, want := range map[string]mount{
		"/home/x":   {"/", "254:0", "ext4", "/dev/vda"},
		"/data":     {"/data", "8:1", "xfs", "/dev/sda1"},
		"/data/x":   {"/data", "8:1", "xfs", "/dev/sda1"},
		"/database": {"/", "254:0", "ext4", "/dev/vda"},
	} {
		got, ok := findMount(mountinfo, path)
		expect.That(t, ok && got == want, "%s: got %+v, %t, want %+v", path, got, ok, want)
	}
	got, ok := findMount("", "/")
	expect.That(t, !ok, "without mounts: got %+v", got)
}

func TestMachineIsDescribedWithoutNamingIt(t *testing.T) {
	expect.Equal(t, kernelText("linux", "6.1.2-site-7"), "Linux 6.1.2", "kernel:")
	expect.Equal(t, kernelText("darwin", ""), "Darwin", "kernel of another system:")
	expect.Equal(t, memoryText("24101112 kB"), "23 GiB", "memory:")
	expect.Equal(t, memoryText(unknownPart), unknownPart, "unknown memory:")
	m, err := describeMachine(t.TempDir())
	expect.That(t, err == nil && m.Cores >= 1 && m.Go != "" && m.CPU != "" && m.Disk != "" && m.Sync != "", "got %+v, %v", m, err)
}
