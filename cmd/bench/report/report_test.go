package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
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

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sampleFiles are the sample's files, by name, made once.
var sampleFiles = sync.OnceValue(func() map[string]string {
	r := judgedSample()
	files := map[string]string{}
	for name, write := range map[string]func(io.Writer) error{HTMLFile: r.writeHTML, MarkdownFile: r.writeMarkdown, JSONFile: r.writeJSON, BenchmarkFile: r.writeBenchmarks} {
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
	for _, name := range []string{HTMLFile, MarkdownFile, JSONFile, BenchmarkFile} {
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

func TestPageRefersToNothingOutside(t *testing.T) {
	files := sampleFiles()
	page := files[HTMLFile]
	// Whatever fetches: attributes with an address, style sheets' urls, imports. Clickable links may only name the
	// other files.
	for _, found := range regexp.MustCompile(`(?i)(src|action|data|poster)\s*=\s*["']?[a-z]+:|url\(|@import|<(img|iframe|object|embed)\b|import\(`).FindAllString(withoutCharts(page), -1) {
		t.Errorf("the page contains %q", found)
	}
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(withoutCharts(page), -1) {
		if target := link[1]; !strings.HasPrefix(target, "#") && target != "data:," && target != JSONFile && target != BenchmarkFile && target != MarkdownFile {
			t.Errorf("the page links to %q", target)
		}
	}
	allowed := []string{"http://www.w3.org/", "http://www.apache.org/licenses/", "https://github.com/ecomfe/zrender/blob/master/LICENSE"}
	for _, address := range regexp.MustCompile(`https?://[^"' )]*`).FindAllString(page, -1) {
		expect.That(t, slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(address, prefix) }),
			"the page contains the address %s", address)
	}
}

// withoutCharts returns the page without the library, whose code contains all kinds of strings.
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

// oddlyNamed returns a report whose names could end code spans, lines and scripts, or equal those of the page's parts.
func oddlyNamed() *Report {
	c := small()
	c.Plan.Columns = []scenario.Column{{Name: "line\n\n# forged\r\r# heading`", System: scenario.Rollcall, Mode: scenario.AP}, {Name: "constructor", System: scenario.Rollcall, Mode: scenario.CP}}
	c.Scenarios, c.Trials = c.Scenarios[:1], c.Trials[:1] // a plot that lacks the column constructor
	c.Scenarios[0].Name, c.Trials[0].Scenario, c.Trials[0].Column = "plots", "plots", c.Plan.Columns[0].Name
	c.Machine.CPU = "a\rb\x1b[2J\u202ec"
	return New(c)
}

// Every trial that counts is a line that benchstat reads: a name, a number of iterations, and pairs of a value and a
// unit.
func TestBenchmarksHaveALineForEachTrialThatCounts(t *testing.T) {
	r, got := judgedSample(), 0
	for line := range strings.Lines(sampleFiles()[BenchmarkFile]) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "Benchmark") {
			continue
		}
		got++
		fields := strings.Fields(rest)
		need.That(t, found && len(fields)%2 == 1 && fields[0] == "1" && strings.Contains(name, "/column="), "the line begins with %s, and has %d fields", name, len(fields))
		for i := 1; i < len(fields); i += 2 {
			_, err := strconv.ParseFloat(fields[i], 64)
			expect.That(t, err == nil && strings.ContainsRune(fields[i+1], '-'), "%s: the value %s of the unit %s", name, fields[i], fields[i+1])
		}
	}
	expect.Equal(t, got, r.counting(), "lines:")
	expect.That(t, strings.Contains(sampleFiles()[BenchmarkFile], "BenchmarkLeader_killed/column=ap 1 0."), "no line of leader-killed and ap begins with the writes that were answered")
}

// Names end no line or script, and replace no other part of the page.
func TestNamesStayInTheirPlace(t *testing.T) {
	r := oddlyNamed()
	var md, page bytes.Buffer
	need.OK(t, errors.Join(r.writeMarkdown(&md), r.writeHTML(&page)))
	expect.That(t, !strings.ContainsAny(md.String(), "\r\x1b\u202e") && !strings.Contains(md.String(), "\n# forged"), "names end lines in Markdown:\n%s", md.String())
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

func TestSummarySaysWhatMattersAndWhereTheFilesAre(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts, dir: "out"}
	var b strings.Builder
	need.OK(t, r.Summary(&b))
	for _, want := range []string{"Leader killed: writes stop for", "STEADY STATE", "PARTITION, MINORITY", "Limits broken: 3.", "leader-killed, cp", "One machine", filepath.Join(r.dir, HTMLFile)} {
		expect.That(t, strings.Contains(b.String(), want), "the summary lacks %q:\n%s", want, b.String())
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
		{showBytes(38_200_000), "38.2 MB"}, {showBytes(12), "12 B"}, {showSum(1500), "1,500"}, {showSum(0.25), "0.25"},
		{glued("within 28.2 ms (9 % of 3 s)"), "within 28.2\u00a0ms (9\u00a0% of 3\u00a0s)"},
	}
	for _, c := range cases {
		expect.Equal(t, c.got, c.want, "got")
	}
}

// The sample's summary has every row that its scenarios can produce.
func TestSummaryOfTheSampleIsAsItWas(t *testing.T) {
	golden.Page(t, "testdata/sample.md", sampleFiles()[MarkdownFile])
}

func tiny() *trial.Trial {
	return &trial.Trial{
		Column: "cp", Round: 1, Length: second / 5, Ended: 3 * second / 10, Cores: 1, Machine: []trial.Health{{At: second / 10}, {At: second / 5}},
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}},
	}
}

// encoded returns samples with their gaps.
func encoded(t *testing.T, s samples) string {
	t.Helper()
	return string(need.Got(json.Marshal(s))(t))
}

func TestTimeLineShowsTheTrialPerTenthOfASecond(t *testing.T) {
	tr := tiny()
	tr.Series = []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{{Number: 0, Done: 2}, {Number: 1, Refused: 4}, {Number: 2, Refused: 9}}},
		{Operation: trial.Fetch, Node: 1, Bins: []trial.Bin{{Number: 0, Done: 1, Refused: 1}}},
		{Operation: trial.ProbeRead, Node: 1, Bins: []trial.Bin{{Number: 0, Refused: 1}}},
	}
	tr.History = []trial.Call{
		{Key: "k", Action: trial.Write, Version: 1, Outcome: trial.Done, Called: 0, Returned: 10_000},
		{Key: "k", Action: trial.Look, Version: 0, Outcome: trial.NotFound, Called: 60_000, Returned: 61_000},
		{Key: "k", Action: trial.Look, Version: 1, Outcome: trial.Done, Called: 250_000, Returned: 251_000},
	}
	m := momentsOf(tr, scenario.Scenario{})
	expect.Equal(t, encoded(t, m.Others), "[75,0]", "answered:")
	expect.Equal(t, encoded(t, m.Struck), "[]", "struck clients of no fault:")
	expect.Equal(t, encoded(t, m.Age), "[0.05,null]", "age:")
	tr.Faults = []trial.Fault{{Kind: scenario.Isolate, Text: "node2 isolated", Nodes: []int{1}, From: 50_000, To: 90_000}}
	m = momentsOf(tr, scenario.Scenario{})
	expect.Equal(t, encoded(t, m.Struck), "[50,null]", "struck:")
	expect.Equal(t, encoded(t, m.Others), "[100,0]", "others:")
	expect.Deep(t, m.Bands, []band{{0.05, 0.09, "node2 isolated"}}, "bands:")
}

// TestPageDrawsEverythingInChromium opens the page in a browser that cannot resolve any name.
func TestPageDrawsEverythingInChromium(t *testing.T) {
	chromium := findChromium(t)
	dir := t.TempDir()
	need.OK(t, (&Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}).Write(dir))
	dom, log, requested := open(t, chromium, filepath.Join(dir, HTMLFile))
	// A plot for each of four scenarios where something happens, and one of the costs.
	for name, value := range map[string]string{"charts": "5", "errors": "0"} {
		expect.That(t, strings.Contains(dom, `data-`+name+`="`+value+`"`),
			"the page does not say data-%s=%q: %s", name, value, regexp.MustCompile(`<html[^>]*>`).FindString(dom))
	}
	for _, line := range regexp.MustCompile(`.*CONSOLE.*`).FindAllString(log, -1) {
		t.Errorf("on the console: %s", line)
	}
	for _, request := range requested {
		t.Errorf("the page asked for %s", request)
	}
}

// TestPageFitsATelephone opens the page at one and a quarter of its size in a window of 500 pixels, because Chromium's
// windows cannot be narrower: a page wider than 400 pixels would have to be scrolled sideways.
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

// open returns the document after the scripts ran, and what the page wrote to the console and requested from the
// network.
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
	// The browser's own requests, such as for updates, come from no page and have no origin.
	for _, request := range regexp.MustCompile(`"initiator":"([^"]*)".*?"url":"([^"]*)"`).FindAllStringSubmatch(string(requests), -1) {
		if request[1] != "not an origin" {
			requested = append(requested, request[2])
		}
	}
	return stdout.String(), stderr.String(), requested
}
