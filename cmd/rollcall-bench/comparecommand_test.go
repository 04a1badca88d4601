package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
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
		{name: "numbers", args: "--dcs 3 --repeat 0 --length 1s", says: []string{"--dcs: 3 is not between 1 and 2", "--repeat: 0", "--length: 1s"}},
		{name: "modes", args: "--modes cp,ca", says: []string{`--modes: "ca" is none of`}},
		{name: "no mode", args: "--modes=", says: []string{"--modes: is empty"}},
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

// compared is a plan for flags that are mostly at their defaults.
func compared(t *testing.T, change func(*compareOptions)) *comparePlan {
	t.Helper()
	o := compareOptions{dir: "d", dcs: 1, repeat: 1, modes: []string{localcluster.CP, localcluster.AP}, form: cli.Table}
	change(&o)
	p := need.Got(o.plan())(t)
	return p
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
		expect.That(t, s.Quick && s.Rounds == 1, "%s runs %d times, quick is %t, want once and true", s.Name, s.Rounds, s.Quick)
	}
}

func TestBenchCompareRunsTheScenariosThatAreNamed(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own.yaml")
	text := "name: mine\ntitle: Mine\nfaults:\n  - {at: 1s, for: 1s, kind: kill, nodes: leader}\n"
	need.OK(t, os.WriteFile(own, []byte(text), 0o600))
	p := compared(t, func(o *compareOptions) {
		o.scenarios, o.length, o.modes = []string{own, "steady"}, 4*time.Second, []string{localcluster.AP, localcluster.AP}
	})
	if got := scenarioNames(p.scenarios); !slices.Equal(got, []string{"mine", "steady"}) || p.Length.Duration() != 4*time.Second {
		t.Errorf("%q in %v, want mine and steady in 4s", got, p.Length.Duration())
	}
	expect.That(t, slices.Equal(p.Modes, []scenario.Mode{scenario.AP}), "modes %q, want ap once", p.Modes)
}

func TestBenchCompareRefusesAScenarioThatDoesNotFitIntoTheLength(t *testing.T) {
	late := filepath.Join(t.TempDir(), "late.yaml")
	text := "name: late\ntitle: Late\nfaults:\n  - {at: 8s, for: 4s, kind: kill, nodes: leader}\n"
	need.OK(t, os.WriteFile(late, []byte(text), 0o600))
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

func TestBenchCompareMakesAReportAnewFromItsRawFile(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	steady := scenario.Scenario{Name: "steady", Title: "Steady state", Rounds: 1, Datacenters: 1}
	r := reports.New(&trial.Comparison{
		Version: "of then", Date: "2026-01-02", Plan: trial.Plan{Modes: []scenario.Mode{scenario.CP}}, Scenarios: []scenario.Scenario{steady},
		Trials: []trial.Trial{{Scenario: "steady", Mode: scenario.CP, Round: 1, Length: 1e6, Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}},
			Series: []trial.Series{{Operation: trial.Read, Bins: []trial.Bin{{Done: 3, Latencies: []int64{1000, 3}}}}}}},
	})
	need.OK(t, r.Write(dir))
	stdout, stderr, code := bench(t, "compare", "--from", filepath.Join(dir, reports.JSONFile), "--out", other)
	need.That(t, code == 0 && strings.Contains(stdout, "Steady state"), "exit %d: %s%s", code, stdout, stderr)
	for _, name := range []string{reports.JSONFile, reports.CSVFile, reports.MarkdownFile, reports.HTMLFile} {
		before := need.Got(os.ReadFile(filepath.Join(dir, name)))(t)
		anew, err := os.ReadFile(filepath.Join(other, name))
		expect.That(t, err == nil && bytes.Equal(anew, before), "%s is not what it was: %v", name, err)
	}
	for file, says := range map[string]string{
		filepath.Join(dir, "absent.json"):   "--from: open ",
		filepath.Join(dir, reports.CSVFile): "--from: " + filepath.Join(dir, reports.CSVFile) + ": ",
	} {
		_, stderr, code := bench(t, "compare", "--from", file, "--out", other)
		expect.That(t, code == 1 && strings.Contains(stderr, says), "from %s: exit %d and %q, want 1 and %q", file, code, stderr, says)
	}
}
