package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
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

// lacking is a run whose columns lacked living instances for so many instance-seconds, round by round. Each run takes another time.
func lacking(took trial.Micros, cp, ap []float64) *Report {
	verdicts := func(sums []float64) (all []verdict.Verdict) {
		for _, sum := range sums {
			all = append(all, verdict.Verdict{Listed: true, Missing: sum})
		}
		return all
	}
	r := story{scenario: scenario.Scenario{Load: scenario.Load{Reads: 1}}, cp: verdicts(cp), ap: verdicts(ap)}.report()
	r.Plan.Rounds = len(cp)
	r.Plan.Columns = r.Plan.Columns[:2]
	r.Machine = trial.Machine{CPU: "one", Cores: 2, Memory: "24 GiB", Disk: "ext4"}
	for i := range r.Trials {
		r.Trials[i].Took = took
	}
	return r
}

func TestSecondRunIsHeldAgainstTheFirst(t *testing.T) {
	first := lacking(1, []float64{10, 11, 12}, []float64{40, 42, 44})
	first.Scenarios = append(first.Scenarios, scenario.Scenario{Name: "first alone", Load: scenario.Load{Reads: 1}})
	first.Plan.Only = []string{"story"}
	const missing = "story: living instances absent from lists, in instance-seconds a node, ap over cp"
	for _, c := range []struct {
		name        string
		second      *Report
		change      func(second *Report)
		apart, once int
		opposite    bool
		ratios      int
		outside     string // the end of the line of the pair
		alone       int
		differ      []string
		reasons     []string // how they begin
	}{
		{name: "it says the same", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1},
		{
			name: "it names the columns in another order", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) { slices.Reverse(second.Plan.Columns) },
		},
		{
			name: "it has other scenarios besides", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Scenarios = append(second.Scenarios, scenario.Scenario{Name: "other"})
				second.Plan.Only = []string{"story"}
			},
		},
		{name: "it cannot tell them apart", second: lacking(2, []float64{11, 44}, []float64{44, 46}), once: 1, ratios: 1, reasons: []string{"no two columns are apart in both runs; "}},
		{
			name: "it says the opposite", second: lacking(2, []float64{40, 42}, []float64{10, 11}), apart: 1, opposite: true, ratios: 1, outside: ": 0.25, not 3.33 to 4.4",
			reasons: []string{"the columns of 1 pair are the other way round", "1 of 1 ratio lie outside"},
		},
		{name: "it has another ratio", second: lacking(2, []float64{1, 2}, []float64{40, 42}), apart: 1, ratios: 1, outside: ": 40, not 3.33 to 4.4", reasons: []string{"1 of 1 ratio lie outside"}},
		{name: "its ratio reads as the end of the range does", second: lacking(2, []float64{10, 10}, []float64{44.04, 44.04}), apart: 1, ratios: 1},
		{name: "its ratio is beyond the end of the range", second: lacking(2, []float64{10, 10}, []float64{44.06, 44.06}), apart: 1, ratios: 1, outside: ": 4.41, not 3.33 to 4.4", reasons: []string{"1 of 1 ratio lie outside"}},
		{
			name: "it is another machine's", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Machine = trial.Machine{CPU: "other", Cores: 4, Memory: "8 GiB", Disk: "xfs", Sync: "measured"}
				second.Plan.Seed = 2
			},
			differ: []string{"the machine: one, 2 cores, 24 GiB of memory, ext4, and other, 4 cores, 8 GiB of memory, xfs in the second run", "the seed: 0, and 2 in the second run"},
		},
		{name: "it had one round", second: lacking(2, []float64{10}, []float64{40}), alone: 3, reasons: []string{"no two columns", "no ratio"}},
		{name: "it has a ratio with 0", second: lacking(2, []float64{0, 0}, []float64{40, 42}), apart: 1, reasons: []string{"no ratio"}},
		{name: "it is the same file", second: first, apart: 1, ratios: 1, reasons: []string{"both files hold the same run"}},
		{
			name: "it is not valid, of another length, with another load and other settings", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Plan.Rounds++
				second.Plan.Length += 10_000_000
				second.Scenarios[0].Load.Reads = 2
				second.Plan.Columns[1].Settings = map[string]string{"data.sync": "always"}
			},
			reasons: []string{"the second run is not valid", "the load lasts ", "the scenario story does not do the same", "the column ap is not the same"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.second)
			}
			a := first.Hold(c.second)
			expect.That(t, a.Apart == c.apart && a.ApartOnce == c.once && a.Ratios == c.ratios && a.Alone == c.alone && (len(a.Opposite) == 1) == c.opposite && (len(a.Outside) == 1) == (c.outside != ""),
				"%+v; want %d apart in both, %d in one, %d ratios, %d alone, opposite %t, outside %q", a, c.apart, c.once, c.ratios, c.alone, c.opposite, c.outside)
			var text strings.Builder
			need.OK(t, a.Write(&text))
			for _, line := range slices.Concat(a.Opposite, a.Outside) {
				expect.That(t, strings.HasPrefix(line, missing) && strings.HasSuffix(line, c.outside) || line == missing, "it names %q, want %q%s", line, missing, c.outside)
				expect.That(t, strings.Contains(text.String(), "  "+line+"\n"), "it says %q, want %q in it", text.String(), line)
			}
			expect.That(t, slices.Equal(a.Differ, c.differ), "the runs differ in %q, want %q", a.Differ, c.differ)
			for _, what := range c.differ {
				expect.That(t, strings.Contains(text.String(), "The runs differ in "+what+".\n"), "it says %q, want %q in it", text.String(), what)
			}
			expect.That(t, slices.EqualFunc(a.Reasons, c.reasons, strings.HasPrefix), "it does not agree because of %q, want %q", a.Reasons, c.reasons)
		})
	}
}

// What was answered to the last call in all rounds of both runs says nothing of how alike they are.
func TestRatiosThatAreAlwaysOneAreNotCounted(t *testing.T) {
	first, second := lacking(1, []float64{5, 5}, []float64{5, 5}), lacking(2, []float64{5, 5}, []float64{5, 5})
	expect.Equal(t, first.Hold(second).Ratios, 0, "ratios:")
}

func tiny() *trial.Trial {
	return &trial.Trial{
		Column: "cp", Round: 1, Length: second / 5, Ended: 3 * second / 10, Cores: 1, Machine: []trial.Health{{At: second / 10}, {At: second / 5}},
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}},
	}
}

// encoded shows samples with their gaps.
func encoded(t *testing.T, s samples) string {
	t.Helper()
	return string(need.Got(json.Marshal(s))(t))
}

func TestTimeLineShowsTheTrialPerTenthOfASecond(t *testing.T) {
	tr := tiny()
	tr.Series = []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{{Number: 0, Done: 2, Latencies: []int64{1000, 1, 3000, 1}}, {Number: 1, Refused: 4}}},
		{Operation: trial.Register, Node: 1, Bins: []trial.Bin{{Number: 0, Done: 1, Unknown: 1, Latencies: []int64{9000, 1}}}},
		{Operation: trial.ProbeRead, Node: 1, Bins: []trial.Bin{{Number: 0, Refused: 1}}},
		{Operation: trial.Fetch, Node: 1, Bins: []trial.Bin{{Number: 1, NotFound: 1, Latencies: []int64{500, 1}}}},
	}
	tr.History = []trial.Call{
		{Key: "k", Action: trial.Write, Version: 1, Outcome: trial.Done, Called: 0, Returned: 10_000},
		{Key: "k", Action: trial.Look, Version: 0, Outcome: trial.NotFound, Called: 60_000, Returned: 61_000},
		{Key: "k", Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 150_000, Returned: 151_000},
	}
	tr.Lists = []trial.List{
		{Node: 0, Asked: 1000, Behind: 1, Missing: 2}, {Node: 1, Asked: 2000, Behind: 3, Ghosts: 4}, {Node: 0, Asked: 101_000, Failed: true}, {Node: 0, Asked: 201_000, Unhealed: 5},
	}
	tr.Replicator = []trial.Replication{{At: 110_000, Node: 0, Queued: 7, LagSeconds: 1}, {At: 120_000, Node: 1, Queued: 1, LagSeconds: 2}, {At: 210_000, Node: 0, Queued: 0}}
	m := columnLineOf(tr, scenario.Scenario{})
	cases := []struct {
		name string
		got  samples
		want string
	}{
		{"write success", m.WriteSuccess, "[75,0,null]"},
		{"read success", m.ReadSuccess, "[null,100,null]"},
		{"write latency", m.WriteLatency, "[9,null,null]"},
		{"read latency", m.ReadLatency, "[null,0.5,null]"},
		{"age", m.Age, "[0.05,0,null]"},
		{"behind", m.Behind, "[3,null,0]"},
		{"ghosts", m.Ghosts, "[4,null,0]"},
		{"missing", m.Missing, "[2,null,0]"},
		{"unhealed", m.Unhealed, "[0,null,5]"},
		{"queued", m.Queued, "[null,8,1]"},
		{"lag", m.Lag, "[null,2,2]"},
		{"sides of no partition", m.CutOffSuccess, "[]"},
	}
	for _, c := range cases {
		expect.Equal(t, encoded(t, c.got), c.want, "%s:", c.name)
	}
}

func TestTimeLineOfAPartitionTellsItsSidesApart(t *testing.T) {
	tr := tiny()
	tr.Faults = []trial.Fault{{Kind: scenario.Isolate, Text: "node2 isolated", Nodes: []int{1}, From: 50_000, To: 90_000}}
	tr.Series = []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{{Done: 2}}},
		{Operation: trial.Fetch, Node: 1, Bins: []trial.Bin{{Done: 1, Refused: 3}}},
		{Operation: trial.ProbeWrite, Node: 1, Bins: []trial.Bin{{Refused: 9}}},
	}
	m := columnLineOf(tr, scenario.Scenario{})
	expect.Equal(t, encoded(t, m.CutOffSuccess), "[25,null,null]", "cut off:")
	expect.Equal(t, encoded(t, m.OthersSuccess), "[100,null,null]", "others:")
	expect.Deep(t, m.Bands, []band{{0.05, 0.09, "node2 isolated", true}}, "bands:")
}

func TestLeaderStripFollowsTheGreatestTerm(t *testing.T) {
	tr := tiny()
	tr.Leaders = []trial.Leader{
		{At: -100, Node: 0, Leader: 0, Term: 1},
		{At: 0, Node: 1, Leader: 0, Term: 1},
		{At: 50_000, Node: 0, Leader: 1, Term: 2}, // node2 does not know yet that it leads
		{At: 100_000, Node: 1, Leader: 1, Term: 2},
		{At: 150_000, Node: 1, Leader: -1, Term: 2},
		{At: 200_000, Node: 0, Leader: -1, Term: 2},
	}
	want := []leaderStrip{{Datacenter: "dc1", Reigns: []leaderTime{{0, 0.05, "node1", 1}, {0.05, 0.2, "node2", 2}, {0.2, 0.3, "", 0}}}}
	expect.Deep(t, leaderStrips(tr), want, "got")
}

// TestPageDrawsEverythingInChromium opens the page in a browser that can resolve no name.
func TestPageDrawsEverythingInChromium(t *testing.T) {
	chromium := findChromium(t)
	dir := t.TempDir()
	need.OK(t, (&Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}).Write(dir))
	// A plot for the one at the top, one for each of four scenarios in which something happens, five ways and the ages, two
	// removals, two backlogs, three curves.
	want := map[string]string{"charts": "18", "errors": "0"}
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			dom, log, requested := open(t, chromium, filepath.Join(dir, HTMLFile)+"?theme="+theme)
			for name, value := range want {
				expect.That(t, strings.Contains(dom, `data-`+name+`="`+value+`"`),
					"the page does not say data-%s=%q: %s", name, value, regexp.MustCompile(`<html[^>]*>`).FindString(dom))
			}
			for _, line := range regexp.MustCompile(`.*CONSOLE.*`).FindAllString(log, -1) {
				t.Errorf("on the console: %s", line)
			}
			for _, request := range requested {
				t.Errorf("the page asked for %s", request)
			}
		})
	}
}

// TestPageFitsATelephone opens the page at one and a quarter of its size in a window of 500 pixels, for no window of Chromium
// is narrower: a page that is wider than 400 pixels would have to be moved to and fro.
func TestPageFitsATelephone(t *testing.T) {
	chromium := findChromium(t)
	var page strings.Builder
	need.OK(t, judgedSample().writeHTML(&page))
	const open400 = `<html lang="en" style="zoom: 1.25">`
	path := filepath.Join(t.TempDir(), HTMLFile)
	need.OK(t, os.WriteFile(path, []byte(strings.Replace(page.String(), `<html lang="en">`, open400, 1)), 0o644))
	dom, _, _ := open(t, chromium, path, "--window-size=500,900")
	expect.That(t, strings.Contains(dom, `data-overflow="0"`), "the page is too wide: %s", regexp.MustCompile(`<html[^>]*>`).FindString(dom))
}

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	need.Present(t, false, "chromium is not on the PATH; get it with: apt-get install chromium")
	return ""
}

// open returns the document as it is after the scripts ran, and what the page wrote to the console and asked the
// network for.
func open(t *testing.T, chromium, path string, more ...string) (dom, log string, requested []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	netLog := filepath.Join(t.TempDir(), "net.json")
	cmd := exec.CommandContext(ctx, chromium, append(more, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--enable-logging=stderr",
		"--log-net-log="+netLog, "--dump-dom", "file://"+path)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	need.That(t, err == nil, "%v: %s", err, stderr.String())
	requests := need.Got(os.ReadFile(netLog))(t)
	// What the browser asks for itself, such as updates, comes from no page and has no origin.
	for _, request := range regexp.MustCompile(`"initiator":"([^"]*)".*?"url":"([^"]*)"`).FindAllStringSubmatch(string(requests), -1) {
		if request[1] != "not an origin" {
			requested = append(requested, request[2])
		}
	}
	return stdout.String(), stderr.String(), requested
}
