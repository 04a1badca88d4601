package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// reported is a report in which everything is 1, which misses most floors.
func reported(t *testing.T, cores int) *report {
	t.Helper()
	r := &report{Version: "v1", Date: "2026-01-02", Machine: machine{CPU: "Some CPU", Cores: cores}, Plan: ratiosPlan{rounds: 2, many: 100_000}, figures: measured()}
	var err error
	if r.Rows, err = r.evaluate(ratioRows); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAMissedFloorIsAnErrorWhereItCounts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*report)
		want   string // in the error; empty: none
	}{
		{name: "four cores", change: func(*report) {}, want: "floors were missed: renew over one entry per write; "},
		{name: "three cores", change: func(r *report) { r.Machine.Cores = 3 }},
		{name: "quick", change: func(r *report) { r.Plan.quick = true }},
		{name: "wrong answers anywhere", change: func(r *report) {
			r.Plan.quick = true
			r.wronged(renew64, wrongAnswers{"status 500 instead of 200": 1})
		}, want: "wrong answers: 1 × status 500 instead of 200"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reported(t, 4)
			tc.change(r)
			err := ratiosOptions{form: cli.Table}.publish(r, &bytes.Buffer{})
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheTableShowsRowsFiguresAndRemarks(t *testing.T) {
	r := reported(t, 2)
	r.note("Leadership moved.")
	r.wronged(renew64, wrongAnswers{"EOF": 3})
	var out bytes.Buffer
	if err := (ratiosOptions{form: cli.Table}).publish(r, &out); err == nil {
		t.Error("wrong answers are no error")
	}
	for _, want := range []string{"≥ 0.33  ≥ 0.45  1.00 ×", "≤ 15    ≤ 5     1.50 (1.00–2.00) /s", "missed", "goal", "Leadership moved.", "3 × EOF", "Floors do not count here: they are for 4 cores or more, and this machine has 2."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q in\n%s", want, &out)
		}
	}
}

func TestReportsAreWrittenByExtension(t *testing.T) {
	r := reported(t, 2)
	dir := t.TempDir()
	page, data := filepath.Join(dir, "a.md"), filepath.Join(dir, "a.json")
	need.OK(t, (ratiosOptions{form: cli.Table, out: []string{page, data}}).publish(r, &bytes.Buffer{}))
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); !strings.HasPrefix(got, reportBegin) || !strings.HasSuffix(got, reportEnd) || !strings.Contains(got, "| renew over bare, 256 connections | ≥ 0.33 | ≥ 0.45 | 1.00 × | goal |\n") || !strings.Contains(got, "Machine: Some CPU, 2 cores") {
		t.Errorf("got %s", got)
	}
	text, err = os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Machine machine
		Rows    []struct {
			Of      figureName
			Verdict verdict
			Values  []float64
		}
		Figures []figure
	}
	need.OK(t, json.Unmarshal(text, &decoded))
	if len(decoded.Rows) != len(ratioRows) || decoded.Rows[0].Of != renew256 || decoded.Rows[0].Verdict != goalMet || len(decoded.Rows[0].Values) != 2 || len(decoded.Figures) != len(r.list) || decoded.Machine.Cores != 2 {
		t.Errorf("got %s", text)
	}
}

func TestAPageKeepsItsProse(t *testing.T) {
	r := reported(t, 2)
	path := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) {
		t.Helper()
		need.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("before\n" + reportBegin + "an older run\n" + reportEnd + "after\n")
	need.OK(t, r.write(path))
	text := need.Got(os.ReadFile(path))(t)
	if got := string(text); !strings.HasPrefix(got, "before\n"+reportBegin+"rollcall v1") || !strings.HasSuffix(got, "\n"+reportEnd+"after\n") || strings.Contains(got, "an older run") {
		t.Errorf("got %s", got)
	}
	write("a page of another kind\n")
	if err := r.write(path); err == nil || !strings.Contains(err.Error(), "page.md has no lines") {
		t.Errorf("a page without marks: got %v, want an error", err)
	}
}

func TestBenchRefusesWhatItCannotDo(t *testing.T) {
	for flag, values := range map[string][]string{
		"--rounds": {"0"}, "--window": {"1ms"}, "--cut": {"1ms"}, "--out": {"result.txt", "page.md --only=scale"}, "--only": {"speed"}, "--output": {"xml"},
	} {
		for _, value := range values {
			args := append([]string{"ratios", flag}, strings.Fields(value)...)
			_, stderr, code := bench(t, args...)
			if code != cli.ExitUsage || !strings.Contains(stderr, flag) {
				t.Errorf("%s %s: exit %d, said %q", flag, value, code, stderr)
			}
		}
	}
}

func TestAPartIsMeasuredWithItsRowsOnly(t *testing.T) {
	plan := ratiosOptions{only: []string{"leases", "scale", "leases"}}.plan()
	if want := []benchPart{scalePart, leasesPart}; !slices.Equal(plan.parts, want) {
		t.Errorf("parts %v, want %v", plan.parts, want)
	}
	for _, r := range ratioRows {
		kept := slices.ContainsFunc(plan.rows(), func(k ratioRow) bool { return k.name == r.name })
		if want := r.in == scalePart || r.in == leasesPart; kept != want {
			t.Errorf("%s of part %s: kept %t, want %t", r.name, r.in, kept, want)
		}
	}
}

func TestSettingsOfTheEnvironmentDoNotReachTheNodes(t *testing.T) {
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "ROLLCALL_") {
			t.Setenv(name, value) // so that it is back after this test
		}
	}
	t.Setenv("ROLLCALL_COMMIT_BATCHING", "false")
	t.Setenv("OTHER", "1")
	need.OK(t, clearSettings())
	if v, set := os.LookupEnv("ROLLCALL_COMMIT_BATCHING"); set {
		t.Errorf("it is still %q", v)
	}
	if os.Getenv("OTHER") != "1" {
		t.Error("another variable is gone")
	}
}

func TestTheNodesDataIsRemoved(t *testing.T) {
	data := filepath.Join(t.TempDir(), "a", "b")
	for _, existed := range []bool{false, true} {
		if existed {
			need.OK(t, os.MkdirAll(data, 0o700))
		}
		dir, remove, err := temporaryData(data)
		if err != nil {
			t.Fatal(err)
		}
		need.OK(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o600))
		remove()
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
		if _, err := os.Stat(data); os.IsNotExist(err) == existed {
			t.Errorf("--data existed before: %t, and afterwards: %v", existed, err)
		}
	}
}
