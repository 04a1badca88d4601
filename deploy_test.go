package rollcall_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// alert is a rule of Prometheus.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns the deployed rules, which must have no other fields.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	f := need.Got(os.Open("deploy/prometheus/rollcall.rules.yaml"))(t)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	need.OK(t, d.Decode(&file))
	need.That(t, len(file.Groups) == 1 && len(file.Groups[0].Rules) > 0, "the rules are no group with rules: %+v", file)
	return file.Groups[0].Rules
}

const runbooks = "docs/runbooks"

func TestNotesOfTheChartNameThePlainPortOfTheNodes(t *testing.T) {
	notes := string(need.Got(os.ReadFile("deploy/helm/rollcall/templates/NOTES.txt"))(t))
	_, plain, _ := strings.Cut(notes, `{{- if eq .Values.tls.source "none" }}`)
	plain, _, _ = strings.Cut(plain, "{{- end }}")
	expect.That(t, strings.Contains(plain, "Port 7761 between the nodes (Raft) is plain"), "without TLS the notes say %q", plain)
}

func TestAlertsHaveWordsASeverityAndPlainDurations(t *testing.T) {
	duration := regexp.MustCompile(`^\d+[smhd]$`)
	windows := regexp.MustCompile(`\[([^]]*)\]|\boffset (\S+?)\)?(?:\s|$)`)
	severities := map[string]string{} // of the same alert each must differ
	for _, a := range alerts(t) {
		for _, name := range []string{"summary", "description", "runbook_url"} {
			expect.That(t, a.Annotations[name] != "", "%s has no %s", a.Alert, name)
		}
		expect.Equal(t, a.Annotations["runbook_url"], "https://"+module+"/blob/main/"+runbooks+"/"+a.Alert+".md", "%s leads to", a.Alert)
		severity := a.Labels["severity"]
		expect.That(t, slices.Contains([]string{"info", "warning", "critical"}, severity), "%s has the severity %q", a.Alert, severity)
		expect.That(t, !strings.Contains(severities[a.Alert], severity), "%s is there twice with %s", a.Alert, severity)
		severities[a.Alert] += severity + " "
		expect.That(t, a.For == "" || duration.MatchString(a.For), "%s waits for %q, want one unit", a.Alert, a.For)
		for _, m := range windows.FindAllStringSubmatch(a.Expr, -1) {
			expect.That(t, duration.MatchString(m[1]+m[2]), "%s has the window %q, want one unit", a.Alert, m[1]+m[2])
		}
	}
}

func TestEachAlertHasARunbookAndEachRunbookAnAlert(t *testing.T) {
	names := map[string]bool{}
	for _, a := range alerts(t) {
		names[a.Alert] = true
	}
	index := string(need.Got(os.ReadFile(filepath.Join(runbooks, "README.md")))(t))
	for name := range names {
		text, err := os.ReadFile(filepath.Join(runbooks, name+".md"))
		if !expect.OKf(t, err, "the runbook of %s", name) {
			continue
		}
		var headlines []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				headlines = append(headlines, strings.TrimSpace(line))
			}
		}
		expect.Slice(t, headlines, []string{"# " + name, "## Why", "## Look at", "## Do", "## Verify"}, "the runbook of %s has the headlines", name)
		expect.That(t, strings.Contains(index, "["+name+"]("+name+".md)"), "the index of the runbooks lacks %s", name)
	}
	for _, path := range need.Got(filepath.Glob(runbooks + "/*.md"))(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		expect.That(t, name == "README" || names[name], "%s is about no alert", path)
	}
}

// The test of the rules has a series for each alert that makes it fire. It fails if other alerts fire, so each series
// also tests that these stay silent.
func TestEachAlertIsTestedToFireAndToBeSilent(t *testing.T) {
	var file struct {
		Tests []struct {
			InputSeries []struct{ Series, Values string } `yaml:"input_series"`
			Expressions []struct {
				Samples []struct {
					Labels string
					Value  float64
				} `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	need.OK(t, yaml.Unmarshal(need.Got(os.ReadFile("deploy/prometheus/rollcall.rules.test.yaml"))(t), &file))
	fires := map[string]bool{}
	for _, test := range file.Tests {
		silent := false
		for _, s := range test.InputSeries {
			silent = silent || strings.Contains(s.Series, `cluster="silent"`)
		}
		expect.That(t, silent, "a test has no silent series: %+v", test.InputSeries)
		for _, s := range test.Expressions[0].Samples {
			fires[regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(s.Labels)[1]+" "+regexp.MustCompile(`severity="(\w+)"`).FindStringSubmatch(s.Labels)[1]] = true
		}
	}
	for _, a := range alerts(t) {
		expect.That(t, fires[a.Alert+" "+a.Labels["severity"]], "no test has %s fire as %s", a.Alert, a.Labels["severity"])
	}
}

// TestUnitIsRightAndHardened has systemd's own program check the unit, and measure what its process may do.
func TestUnitIsRightAndHardened(t *testing.T) {
	const unit, most = "deploy/systemd/rollcall.service", 2.0
	text := string(need.Got(os.ReadFile(unit))(t))
	const command = "ExecStart=/usr/bin/rollcall "
	need.That(t, strings.Contains(text, "\n"+command), "%s has no line %q", unit, command)
	analyze, err := exec.LookPath("systemd-analyze")
	need.Present(t, err == nil, "systemd-analyze is not on the PATH; get it with: apt-get install systemd")
	here := filepath.Join(t.TempDir(), "rollcall.service") // points to a program that exists
	program := need.Got(os.Executable())(t)
	need.OK(t, os.WriteFile(here, []byte(strings.Replace(text, command, "ExecStart="+program+" ", 1)), 0o644))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", here).CombinedOutput()
	expect.That(t, err == nil && len(out) == 0, "systemd-analyze verify: %v: %s", err, out)
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", here).CombinedOutput()
	need.OKf(t, err, "systemd-analyze security: %s", out)
	level := regexp.MustCompile(`Overall exposure level for rollcall.service: (\d+\.\d+)`).FindSubmatch(out)
	need.That(t, level != nil, "systemd-analyze security says no level: %s", out)
	exposed := need.Got(strconv.ParseFloat(string(level[1]), 64))(t)
	expect.That(t, exposed <= most, "the exposure level is %v, at most %v is wanted: %s", exposed, most, out)
}

// TestPrometheusAcceptsTheRules has Prometheus' own program check the rules and run their tests.
func TestPrometheusAcceptsTheRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	need.Present(t, err == nil, "promtool is not on the PATH; get it with: apt-get install prometheus")
	for _, args := range [][]string{{"check", "rules", "rollcall.rules.yaml"}, {"check", "config", "prometheus.yaml"}, {"test", "rules", "rollcall.rules.test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = "deploy/prometheus"
		out, err := command.CombinedOutput()
		expect.OKf(t, err, "promtool %v: %s", args, out)
	}
}

// dashboard holds the examined parts of Grafana's model.
type dashboard struct {
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
	Templating  struct{ List []struct{ Name string } }
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	need.OK(t, json.Unmarshal(need.Got(os.ReadFile("deploy/grafana/rollcall.json"))(t), &d))
	return d
}

func TestDashboardHasFiveRowsAndFewPanelsWithoutPlugins(t *testing.T) {
	d := readDashboard(t)
	rows := 0
	for _, p := range d.Panels {
		if p.Type == "row" {
			rows++
			continue
		}
		expect.That(t, slices.Contains([]string{"stat", "timeseries"}, p.Type), "%s is a %s, which may need a plugin", p.Title, p.Type)
		expect.That(t, p.Description != "" && len(p.Targets) > 0, "%s has no description or no query", p.Title)
		for _, target := range p.Targets {
			expect.That(t, strings.Contains(target.Expr, `cluster="$cluster"`), "%s asks for more than one cluster: %s", p.Title, target.Expr)
		}
	}
	expect.That(t, rows == 5 && len(d.Panels) <= 24, "%d rows, %d panels with them, want 5 and at most 24", rows, len(d.Panels))
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	expect.Slice(t, variables, []string{"datasource", "cluster", "node"}, "variables")
	expect.Equal(t, len(d.Annotations.List), 3, "annotations (leader changes, evictions, operators' acts):")
}

// emptyDirectories lists where the program speaks of an empty data directory, and why that place cannot be read once
// the majority is lost, or what it says then.
var emptyDirectories = map[string]string{
	"store/disk/boltcheck.go":              "StartEmpty begins with the condition, and says what to do otherwise",
	"store/disk/identity.go":               "of a new node",
	"store/consensus/port/hello.go":        "the cluster goes on without what the directory has; or the node is removed first, which needs a leader",
	"store/consensus/membership/search.go": "a leader has removed the node; or there are two clusters, one of which goes on",
	"store/consensus/verify.go":            "begins with the condition; a leader logs it",
	"cmd/rollcall/recover.go":              "the recovered node is the cluster",
	"httpd/dashboard/acts.go":              "a leader has removed the node",
}

// TestAdviceOfAnEmptyDirectoryNamesItsCondition: the advice would destroy what is left of a cluster without a
// majority.
func TestAdviceOfAnEmptyDirectoryNamesItsCondition(t *testing.T) {
	found := map[string]bool{}
	for _, root := range []string{"client", "cmd", "fsm", "httpd", "internal", "replication", "store"} {
		need.OK(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text := string(need.Got(os.ReadFile(path))(t))
			if path = filepath.ToSlash(path); strings.Contains(text, "empty data director") || strings.Contains(text, "empty directory") {
				found[path] = true
				expect.That(t, emptyDirectories[path] != "", "%s speaks of an empty data directory: use disk.StartEmpty, or say here why a majority is left", path)
			}
			return nil
		}))
	}
	for path := range emptyDirectories {
		expect.That(t, found[path], "%s does not speak of an empty data directory any more", path)
	}
	text := string(need.Got(os.ReadFile("store/disk/boltcheck.go"))(t))
	_, advice, _ := strings.Cut(text, "const StartEmpty = \"")
	condition, _, _ := strings.Cut(advice, "empty data directory")
	expect.That(t, strings.HasPrefix(condition, "if the other nodes serve without this one") && strings.Contains(advice, "if not, keep the directories of all nodes: rollcall recover"),
		"StartEmpty does not begin with its condition, or does not say what to do otherwise")
}
