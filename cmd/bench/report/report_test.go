package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sampleFiles are the sample's files, by their names, made once.
var sampleFiles = sync.OnceValue(func() map[string]string {
	r := judgedSample()
	files := map[string]string{}
	for name, write := range map[string]func(io.Writer) error{HTMLFile: r.writeHTML, MarkdownFile: r.writeMarkdown, JSONFile: r.writeJSON, CSVFile: r.writeCSV} {
		var b strings.Builder
		if err := write(&b); err != nil {
			panic(err)
		}
		files[name] = b.String()
	}
	return files
})

func written(t *testing.T, r *Report) (files map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	need.OK(t, r.Write(dir))
	files = map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(text)
		return err
	})
	need.OK(t, err)
	return files
}

func TestWriteMakesFourFilesThatNameNoPath(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}
	files := written(t, r)
	for _, name := range []string{HTMLFile, MarkdownFile, JSONFile, CSVFile} {
		expect.That(t, files[name] != "", "%s is absent or empty", name)
		expect.That(t, !strings.Contains(files[name], r.dir), "%s contains the path of its directory", name)
	}
	expect.That(t, len(files) == 4, "%d files, want 4", len(files))
}

func TestJSONFileKeepsTheReport(t *testing.T) {
	want, files := judgedSample(), sampleFiles()
	got := need.Got(Read(strings.NewReader(files[JSONFile])))(t)
	for i, field := range reflect.VisibleFields(reflect.TypeOf(*want.Comparison)) {
		w, g := reflect.ValueOf(*want.Comparison).Field(i), reflect.ValueOf(*got.Comparison).Field(i)
		expect.That(t, !w.IsZero(), "the sample has no %s: no test would notice if the file lost it", field.Name)
		expect.That(t, reflect.DeepEqual(w.Interface(), g.Interface()), "%s changed on its way through the file", field.Name)
	}
	expect.That(t, reflect.DeepEqual(want.Verdicts, got.Verdicts), "the verdicts computed from the file are others than those of the comparison")
}

func TestReadRefusesWhatIsNoReport(t *testing.T) {
	for _, text := range []string{"", "{}", `{"comparison":null}`, `{"comparison":{"trials":[{"column":"cp","history":[[1]]}]}}`, "\x1f\x8bno gzip"} {
		expect.That(t, expect.Err(Read(strings.NewReader(text))) != nil, "%q was read as a report", text)
	}
}

func TestReadRefusesFilesInWhichTwoModesWereCompared(t *testing.T) {
	old := `{"comparison":{"version":"1","plan":{"modes":["cp","ap"]},"trials":[{"scenario":"steady","mode":"cp","round":1}]}}`
	expect.ErrorSays(t, expect.Err(Read(strings.NewReader(old))), "older version, which compared two modes", "reading an old file:")
}

func TestCSVHasARowForEachTrialOperationAndTenthOfASecond(t *testing.T) {
	files := sampleFiles()
	rows := need.Got(csv.NewReader(strings.NewReader(files[CSVFile])).ReadAll())(t)
	expect.Slice(t, rows[0], csvHead, "head:")
	seen := map[string]int{}
	for _, row := range rows[1:] {
		seen[strings.Join(row[:5], " ")]++
	}
	for _, operation := range trial.Operations {
		for _, from := range []string{"0.0", "7.5", "14.9"} {
			key := "steady ap 2 " + string(operation) + " " + from
			expect.That(t, (operation != trial.Heartbeat || seen[key] == 1) && seen[key] <= 1, "%d rows of %s", seen[key], key)
		}
	}
}

func TestPageRefersToNothingOutside(t *testing.T) {
	files := sampleFiles()
	page := files[HTMLFile]
	// What fetches: attributes with an address, style sheets' urls, imports. Links to click on may only name the other files.
	for _, found := range regexp.MustCompile(`(?i)(src|action|data|poster)\s*=\s*["']?[a-z]+:|url\(|@import|<(img|iframe|object|embed)\b|import\(`).FindAllString(withoutCharts(page), -1) {
		t.Errorf("the page contains %q", found)
	}
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(withoutCharts(page), -1) {
		if target := link[1]; !strings.HasPrefix(target, "#") && target != "data:," && target != JSONFile && target != CSVFile && target != MarkdownFile {
			t.Errorf("the page links to %q", target)
		}
	}
	allowed := []string{"http://www.w3.org/", "http://www.apache.org/licenses/", "https://github.com/ecomfe/zrender/blob/master/LICENSE"}
	for _, address := range regexp.MustCompile(`https?://[^"' )]*`).FindAllString(page, -1) {
		expect.That(t, slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(address, prefix) }),
			"the page contains the address %s", address)
	}
}

// withoutCharts is the page without the library, whose code has all kinds of strings.
func withoutCharts(page string) string { return strings.Replace(page, chartsScript, "", 1) }

func TestPageShowsHostileNamesAsText(t *testing.T) {
	hostile := `</script><script>alert("x")</script><img src=x onerror=alert(1)>|*_` + "`"
	c := small()
	c.Scenarios[2].Title, c.Scenarios[2].About = hostile, hostile
	c.Plan.LeftOut, c.Plan.Columns[0].Title, c.Machine.CPU = []string{hostile}, hostile, hostile
	c.Plan.Columns[1].Settings = map[string]string{hostile: hostile}
	c.Trials[0].Failed = hostile
	for i := range c.Trials {
		for j := range c.Trials[i].Faults {
			c.Trials[i].Faults[j].Text = hostile
		}
	}
	files := written(t, New(c))
	page := withoutCharts(files[HTMLFile])
	for _, markup := range []string{"<script>alert", "<img", "</script><script>alert"} {
		expect.That(t, !strings.Contains(page, markup), "the page contains %s", markup)
	}
	want, got := 4, strings.Count(page, "</script>")
	expect.That(t, got == want, "%d scripts end in the page, want %d", got, want)
	for line := range strings.Lines(files[MarkdownFile]) {
		expect.That(t, !strings.Contains(line, "<script") && !strings.Contains(line, "<img"), "Markdown contains markup: %s", line)
	}
}

// oddlyNamed is a report whose names end code spans, lines and scripts, and are those of parts of the page.
func oddlyNamed() *Report {
	c := made([]scenario.Column{{Name: "line\n\n# forged\r\r# heading`", System: scenario.Rollcall, Mode: scenario.AP}, {Name: "constructor", System: scenario.Rollcall, Mode: scenario.CP}}, 1, "steady")
	c.Trials = c.Trials[:1] // a plot that lacks the column constructor
	c.Scenarios[0].Name, c.Trials[0].Scenario = "plots", "plots"
	c.Machine.CPU = "a\rb\x1b[2J\u202ec"
	return New(c)
}

// Names end no code span, line or script, and take the place of no other part of the page.
func TestNamesStayInTheirPlace(t *testing.T) {
	r := oddlyNamed()
	var md, page bytes.Buffer
	need.OK(t, errors.Join(r.writeMarkdown(&md), r.writeHTML(&page)))
	expect.That(t, !strings.ContainsAny(md.String(), "\r\x1b\u202e") && !strings.Contains(md.String(), "\n# forged"), "names end lines in Markdown:\n%s", md.String())
	expect.That(t, strings.Contains(md.String(), "(`line  # forged  # heading'`)"), "the code span ends within the name:\n%s", md.String())
	ids := map[string]int{}
	for _, found := range regexp.MustCompile(`\sid="([^"]*)"`).FindAllStringSubmatch(withoutCharts(page.String()), -1) {
		ids[found[1]]++
	}
	for id, count := range ids {
		expect.That(t, count == 1, "%d parts of the page have the id %s", count, id)
	}
	expect.That(t, ids["scenario-plots"] == 1, "the scenario has no part of its own: %v", ids)
}

func TestNamesStayInTheirPlaceInChromium(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, oddlyNamed().Write(dir))
	dom, _, _ := open(t, findChromium(t), filepath.Join(dir, HTMLFile))
	expect.That(t, strings.Contains(dom, `data-errors="0"`), "errors in the browser: %s", regexp.MustCompile(`<html[^>]*>`).FindString(dom))
}

func TestFileThatCannotBeWrittenLeavesTheOneThatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), JSONFile)
	need.OK(t, os.WriteFile(path, []byte("hours of work"), 0o644))
	err := writeFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		return errors.Join(err, errors.New("the disk is full"))
	})
	expect.ErrorSays(t, err, "the disk is full", "write:")
	expect.Equal(t, string(need.Got(os.ReadFile(path))(t)), "hours of work", "the file holds")
	expect.Equal(t, len(need.Got(os.ReadDir(filepath.Dir(path)))(t)), 1, "files:")
}

func TestSummaryFitsTheTerminalAndSaysWhereTheFilesAre(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts, dir: "out"}
	var b bytes.Buffer
	need.OK(t, r.Summary(&b))
	for line := range strings.Lines(b.String()) {
		width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		expect.That(t, width <= 100, "%d characters: %s", width, line)
	}
	for _, want := range []string{"Steady state", "Partition, minority", "3 limits were broken.", "leader-killed, cp", "Evidence: one machine", filepath.Join(r.dir, HTMLFile)} {
		expect.That(t, strings.Contains(strings.Join(strings.Fields(b.String()), " "), want), "the summary lacks %q", want)
	}
}

func TestWriteNeedsNeitherAllColumnsNorTrials(t *testing.T) {
	cases := []struct {
		name string
		keep func(trial.Trial) bool
	}{
		{"no trials", func(trial.Trial) bool { return false }},
		{"one column", func(tr trial.Trial) bool { return tr.Column == "ap" }},
		{"one column of one scenario", func(tr trial.Trial) bool { return tr.Scenario != "steady" || tr.Column == "cp" }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			comparison := small()
			comparison.Trials = slices.DeleteFunc(comparison.Trials, func(tr trial.Trial) bool { return !c.keep(tr) })
			expect.That(t, strings.Contains(written(t, New(comparison))[HTMLFile], "</html>"), "the page does not end")
		})
	}
}

func TestFiguresAreShownWithUnitsThatSuitThem(t *testing.T) {
	cases := []struct {
		got, want string
	}{
		{showSeconds(0), "0 s"}, {showSeconds(0.0000034), "3.4 µs"}, {showSeconds(0.01234), "12.3 ms"}, {showSeconds(6.614), "6.61 s"}, {showSeconds(180), "180 s"}, {showSeconds(-1), "never"},
		{showShare(1), "100 %"}, {showShare(0.99999), "> 99.99 %"}, {showShare(0.9987), "99.87 %"}, {showShare(0.314), "31.4 %"}, {showShare(0), "0 %"}, {showShare(0.00001), "< 0.01 %"},
		{showCount(1234567), "1,234,567"}, {showCount(999), "999"}, {showCount(-1000), "−1,000"},
		{showBytes(38_200_000), "38.2 MB"}, {showBytes(12), "12 B"}, {showBytesPerSecond(1500), "1.5 kB/s"},
		{glued("within 28.2 ms (9 % of 3 s)"), "within 28.2\u00a0ms (9\u00a0% of 3\u00a0s)"},
		{strconv.FormatFloat(significant(123456, inPlots), 'f', -1, 64), "123500"}, {strconv.FormatFloat(significant(0.00123456, inPlots), 'f', -1, 64), "0.001235"},
	}
	for _, c := range cases {
		expect.Equal(t, c.got, c.want, "got")
	}
}

// Three numbers of the report are computed here from its raw files alone, by other code than the report's, and looked
// up in everything that was published.

// A node answered an old version after a newer one had been acknowledged, while a cancel was under way.
func TestCounterexampleIsShownCallByCall(t *testing.T) {
	call := func(client int, action trial.Action, version int64, outcome trial.Outcome, called, returned trial.Micros) trial.Call {
		return trial.Call{Key: "own-1", Client: client, Node: client % 2, Action: action, Version: version, Outcome: outcome, Called: called, Returned: returned}
	}
	stale := trial.Trial{
		Scenario: "cut", Column: "cp", Round: 1, Nodes: []trial.Node{{Name: "node1"}, {Name: "node|2"}},
		History: []trial.Call{
			call(0, trial.Write, 1, trial.Done, 1000, 2000), call(0, trial.Write, 2, trial.Done, 3000, 4000),
			call(3, trial.Look, 1, trial.Done, 5000, 6000), call(2, trial.Look, 2, trial.Done, 7000, 8000),
			call(0, trial.Remove, 3, trial.Unknown, 4500, math.MaxInt64),
		},
	}
	r := New(&trial.Comparison{Scenarios: []scenario.Scenario{{Name: "cut", Title: "Cut"}}, Plan: trial.Plan{Columns: scenario.Columns()[:1]}, Trials: []trial.Trial{stale}})
	var md, page bytes.Buffer
	need.OK(t, r.writeMarkdown(&md))
	need.OK(t, r.writeHTML(&page))
	for _, want := range []string{
		"CP, round 1: the shortest prefix of the history of own-1 that no single copy explains (4 calls; the last 4 are shown",
		"| 0.003 s | 0.004 s | 0 | node1 | register version 2: done |\n",
		"| 0.005 s | 0.006 s | 3 | node\\|2 | **read: version 1** |\n",
		"|  | 0 | node1 | cancel, version 3: unknown |\n",
	} {
		expect.That(t, strings.Contains(md.String(), want), "the summary has not %q:\n%s", want, md.String())
	}
	want := "<b>read: version 1 ← cannot be explained</b>"
	expect.That(t, strings.Contains(page.String(), want), "the page has not %q", want)
	later := "read: version 2"
	expect.That(t, !strings.Contains(md.String(), later), "the summary has %q, which came later", later)
}

// The summary of the sample has every row and sentence that its scenarios bring about.
func TestSummaryOfTheSampleIsAsItWas(t *testing.T) {
	golden.Page(t, "testdata/sample.md", sampleFiles()[MarkdownFile])
}
