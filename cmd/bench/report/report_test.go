package report

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
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

// written writes a report into a directory and reads its files.
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

func TestReadUnzips(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.WriteString(w, sampleFiles()[JSONFile])
	need.OK(t, errors.Join(err, w.Close()))
	got := need.Got(Read(&zipped))(t)
	expect.Equal(t, len(got.Trials), len(judgedSample().Trials), "trials:")
}

func TestJSONFileKeepsTrialsSmall(t *testing.T) {
	r, files := judgedSample(), sampleFiles()
	const most = 350_000
	size := len(files[JSONFile]) / len(r.Trials)
	expect.That(t, size <= most, "%d bytes for each trial, want at most %d", size, most)
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

func TestBrokenNamesLimitsAndTrialsThatFailed(t *testing.T) {
	c := small()
	c.Trials = slices.DeleteFunc(c.Trials, func(tr trial.Trial) bool { return tr.Scenario == "steady" && tr.Column == "cp" })
	c.Trials[0].Failed = "node2 did not start"
	got := strings.Join(New(c).Broken(), "\n")
	for _, want := range []string{"steady, ap: the trial could not be completed: node2 did not start", "leader-killed, cp: write-gap at most 1s, but got "} {
		expect.That(t, strings.Contains(got, want), "%q lacks %q", got, want)
	}
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

// rawFile is as much of the JSON file as that takes, without the types that wrote it.
type rawFile struct {
	Comparison struct {
		Trials []rawTrial `json:"trials"`
	} `json:"comparison"`
	Verdicts []struct {
		Writes struct {
			Success float64 `json:"success"`
			Latency struct {
				P99 float64 `json:"p99"`
			} `json:"latency"`
		} `json:"writes"`
		Staleness struct {
			Share float64 `json:"share"`
		} `json:"staleness"`
	} `json:"verdicts"`
}

type rawTrial struct {
	Scenario, Column string
	Round            int
	Series           []struct {
		Operation string `json:"operation"`
		Bins      []struct {
			Latencies []int64 `json:"l"`
		} `json:"bins"`
	} `json:"series"`
	History [][]any `json:"history"`
}

func TestFiguresThatArePublishedFollowFromTheRawFiles(t *testing.T) {
	files := sampleFiles()
	var raw rawFile
	need.OK(t, json.Unmarshal([]byte(files[JSONFile]), &raw))
	for _, scenario := range []string{"leader-killed", "partition-minority"} {
		var want [3]map[string]perRound // of each number, by column
		for i := range want {
			want[i] = map[string]perRound{}
		}
		for n, tr := range raw.Comparison.Trials {
			if tr.Scenario != scenario {
				continue
			}
			v := raw.Verdicts[n]
			computed := []float64{writeSuccessInCSV(t, files[CSVFile], tr), writeP99InBins(tr), staleShareInHistory(tr)}
			for i, got := range []float64{v.Writes.Success, v.Writes.Latency.P99, v.Staleness.Share} {
				expect.That(t, math.Abs(got-computed[i]) <= 1e-9, "%s, %s: number %d is %v in the JSON file, computed %v", scenario, tr.Column, i, got, computed[i])
				want[i][tr.Column] = append(want[i][tr.Column], computed[i])
			}
		}
		wantRow(t, files, scenario, "writes answered", showShare, want[0])
		wantRow(t, files, scenario, "write latency, p99", showSeconds, want[1])
		wantRow(t, files, scenario, "stale answers to probes", showShare, want[2])
	}
}

// wantRow looks the median and the range of a figure up in the scenario's part of the page and of the Markdown file, in
// every column.
func wantRow(t *testing.T, files map[string]string, scenario, name string, show func(float64) string, values map[string]perRound) {
	t.Helper()
	_, page, _ := strings.Cut(files[HTMLFile], `<section id="scenario-`+scenario+`">`)
	_, page, _ = strings.Cut(page, `<th scope="row">`+name+`</th>`)
	page, _, _ = strings.Cut(page, "</tr>")
	_, markdown, _ := strings.Cut(files[MarkdownFile], "\n| "+scenario+" | CP | AP | Eureka |")
	_, markdown, _ = strings.Cut(markdown, "\n| "+name+" | ")
	markdown, _, _ = strings.Cut(markdown, "\n")
	for column, rounds := range values {
		slices.Sort(rounds)
		middle, between := show(rounds[1]), show(rounds[0])+" to "+show(rounds[2])+", n=3"
		if show(rounds[0]) == show(rounds[2]) {
			between = "n=3"
		}
		for _, want := range []string{middle, between} {
			inPage := strings.ReplaceAll(glued(want), ">", "&gt;")
			expect.That(t, strings.Contains(page, inPage), "%s, %s: the page has not %q for %q:\n%s", scenario, column, want, name, page)
			expect.That(t, strings.Contains(markdown, inMarkdown(want)), "%s, %s: the Markdown file has not %q for %q:\n%s", scenario, column, want, name, markdown)
		}
	}
}

func writeSuccessInCSV(t *testing.T, text string, of rawTrial) float64 {
	t.Helper()
	rows := need.Got(csv.NewReader(strings.NewReader(text)).ReadAll())(t)
	sum := map[string]int{}
	for _, row := range rows[1:] {
		if row[0] != of.Scenario || row[1] != of.Column || row[2] != strconv.Itoa(of.Round) || !slices.Contains([]string{"heartbeat", "register", "cancel"}, row[3]) {
			continue
		}
		for i, name := range rows[0] {
			if n, err := strconv.Atoi(row[i]); err == nil {
				sum[name] += n
			}
		}
	}
	return float64(sum["done"]+sum["not_found"]) / float64(sum["due"])
}

func writeP99InBins(trial rawTrial) float64 {
	var all []int64
	for _, series := range trial.Series {
		if !slices.Contains([]string{"heartbeat", "register", "cancel"}, series.Operation) {
			continue
		}
		for _, bin := range series.Bins {
			for i := 0; i < len(bin.Latencies); i += 2 {
				all = append(all, slices.Repeat([]int64{bin.Latencies[i]}, int(bin.Latencies[i+1]))...)
			}
		}
	}
	slices.Sort(all)
	return float64(all[(len(all)*99+99)/100-1]) / 1e6
}

// staleShareInHistory knows no removals: the sample has none.
func staleShareInHistory(trial rawTrial) float64 {
	reads, stale := 0, 0
	for _, look := range trial.History {
		if look[3] != "l" || look[5] != "d" {
			continue
		}
		reads++
		for _, write := range trial.History {
			answered := write[6].(float64) + write[7].(float64)
			if write[3] == "w" && write[5] == "d" && write[0] == look[0] && write[4].(float64) > look[4].(float64) && answered < look[6].(float64) {
				stale++
				break
			}
		}
	}
	return float64(stale) / float64(reads)
}

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
