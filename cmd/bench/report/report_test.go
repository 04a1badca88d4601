package report

import (
	"bytes"
	"encoding/csv"
	"io"
	"io/fs"
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
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestWriteMakesFourFilesThatNameNoPath(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}
	files := written(t, r)
	for _, name := range []string{HTMLFile, MarkdownFile, JSONFile, CSVFile} {
		if files[name] == "" {
			t.Errorf("%s is absent or empty", name)
		}
		if strings.Contains(files[name], r.dir) {
			t.Errorf("%s contains the path of its directory", name)
		}
	}
	if len(files) != 4 {
		t.Errorf("%d files, want 4", len(files))
	}
}

func TestReportSurvivesItsJSONFile(t *testing.T) {
	want, files := judgedSample(), sampleFiles()
	got := need.Got(Read(strings.NewReader(files[JSONFile])))(t)
	for i, field := range reflect.VisibleFields(reflect.TypeOf(*want.Comparison)) {
		w, g := reflect.ValueOf(*want.Comparison).Field(i), reflect.ValueOf(*got.Comparison).Field(i)
		if w.IsZero() {
			t.Errorf("the sample has no %s: nobody would notice if the file lost it", field.Name)
		}
		if !reflect.DeepEqual(w.Interface(), g.Interface()) {
			t.Errorf("%s changed on its way through the file", field.Name)
		}
	}
	if !reflect.DeepEqual(want.Verdicts, got.Verdicts) {
		t.Error("the verdicts computed from the file are others than those of the comparison")
	}
}

func TestReadRefusesWhatIsNoReport(t *testing.T) {
	for _, text := range []string{"", "{}", `{"comparison":{"trials":[{"history":[[1]]}]}}`} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as a report", text)
		}
	}
}

func TestTrialsStaySmallInTheJSONFile(t *testing.T) {
	r, files := judgedSample(), sampleFiles()
	const most = 350_000
	if size := len(files[JSONFile]) / len(r.Trials); size > most {
		t.Errorf("%d bytes for each trial, want at most %d", size, most)
	}
}

func TestCSVHasARowForEachTrialOperationAndTenthOfASecond(t *testing.T) {
	files := sampleFiles()
	rows := need.Got(csv.NewReader(strings.NewReader(files[CSVFile])).ReadAll())(t)
	if !slices.Equal(rows[0], csvHead) {
		t.Errorf("head: %q", rows[0])
	}
	seen := map[string]int{}
	for _, row := range rows[1:] {
		seen[strings.Join(row[:5], " ")]++
	}
	for _, operation := range trial.Operations {
		for _, from := range []string{"0.0", "7.5", "14.9"} {
			if key := "steady ap 2 " + string(operation) + " " + from; operation == trial.Heartbeat && seen[key] != 1 || seen[key] > 1 {
				t.Errorf("%d rows of %s", seen[key], key)
			}
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
		if !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(address, prefix) }) {
			t.Errorf("the page contains the address %s", address)
		}
	}
}

// withoutCharts is the page without the library, whose code has all kinds of strings.
func withoutCharts(page string) string { return strings.Replace(page, chartsScript, "", 1) }

func TestHostileNamesStayText(t *testing.T) {
	hostile := `</script><script>alert("x")</script><img src=x onerror=alert(1)>|*_` + "`"
	c := sample()
	c.Scenarios[2].Title, c.Scenarios[2].About = hostile, hostile
	c.Plan.LeftOut = []string{hostile}
	c.Trials[0].Failed = hostile
	for i := range c.Trials {
		for j := range c.Trials[i].Faults {
			c.Trials[i].Faults[j].Text = hostile
		}
	}
	files := written(t, New(c))
	page := withoutCharts(files[HTMLFile])
	for _, markup := range []string{"<script>alert", "<img", "</script><script>alert"} {
		if strings.Contains(page, markup) {
			t.Errorf("the page contains %s", markup)
		}
	}
	if want, got := 4, strings.Count(page, "</script>"); got != want {
		t.Errorf("%d scripts end in the page, want %d", got, want)
	}
	for line := range strings.Lines(files[MarkdownFile]) {
		if strings.Contains(line, "<script") || strings.Contains(line, "<img") {
			t.Errorf("Markdown contains markup: %s", line)
		}
	}
}

func TestBrokenNamesLimitsAndTrialsThatFailed(t *testing.T) {
	c := sample()
	c.Trials = slices.DeleteFunc(c.Trials, func(tr trial.Trial) bool { return tr.Scenario == "steady" && tr.Mode == scenario.CP })
	c.Trials[0].Failed = "node2 did not start"
	got := strings.Join(New(c).Broken(), "\n")
	for _, want := range []string{"steady, ap, round 1: the trial could not be completed: node2 did not start", "leader-killed, cp: write-gap at most 1s, but got "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestAFailedTrialIsInNoFigure(t *testing.T) {
	c := sample()
	want := judgedSample().figures("leader-killed")
	c.Trials = slices.DeleteFunc(c.Trials, func(tr trial.Trial) bool { return tr.Scenario != "leader-killed" })
	for i := range c.Trials {
		if c.Trials[i].Scenario == "leader-killed" && c.Trials[i].Mode == scenario.AP {
			c.Trials[i].Failed = "no"
		}
	}
	for _, row := range New(c).figures("leader-killed") {
		if row.AP != none {
			t.Errorf("%s: %s, want %s", row.Name, row.AP, none)
		}
	}
	if want[0].AP == none {
		t.Error("the trial had no figures even before it failed")
	}
}

func TestSummaryFitsTheTerminalAndSaysWhereTheFilesAre(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts, dir: "out"}
	var b bytes.Buffer
	need.OK(t, r.Summary(&b))
	for line := range strings.Lines(b.String()) {
		if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 100 {
			t.Errorf("%d characters: %s", width, line)
		}
	}
	for _, want := range []string{"Steady state", "Partition, minority", "One limit was broken.", "leader-killed, cp", filepath.Join(r.dir, HTMLFile)} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q", want)
		}
	}
}

func TestMissingModesAndTrialsLeaveAReportThatCanBeWritten(t *testing.T) {
	cases := []struct {
		name string
		keep func(trial.Trial) bool
	}{
		{"no trials", func(trial.Trial) bool { return false }},
		{"one mode", func(tr trial.Trial) bool { return tr.Mode == scenario.AP }},
		{"one mode of one scenario", func(tr trial.Trial) bool { return tr.Scenario != "steady" || tr.Mode == scenario.CP }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			comparison := sample()
			comparison.Trials = slices.DeleteFunc(comparison.Trials, func(tr trial.Trial) bool { return !c.keep(tr) })
			files := written(t, New(comparison))
			if !strings.Contains(files[HTMLFile], "</html>") {
				t.Error("the page does not end")
			}
		})
	}
}

func TestNumbersAreShownWithUnitsThatSuitThem(t *testing.T) {
	cases := []struct {
		got, want string
	}{
		{showSeconds(0), "0 s"}, {showSeconds(0.0000034), "3.4 µs"}, {showSeconds(0.01234), "12.3 ms"}, {showSeconds(6.614), "6.61 s"}, {showSeconds(180), "180 s"}, {showSeconds(-1), "never"},
		{showShare(1), "100 %"}, {showShare(0.99999), "> 99.99 %"}, {showShare(0.9987), "99.87 %"}, {showShare(0.314), "31.4 %"}, {showShare(0), "0 %"}, {showShare(0.00001), "< 0.01 %"},
		{showCount(1234567), "1,234,567"}, {showCount(999), "999"}, {showCount(-1000), "−1,000"},
		{showBytes(38_200_000), "38.2 MB"}, {showBytes(12), "12 B"}, {showBytesPerSecond(1500), "1.5 kB/s"},
		{glued("within 28.2 ms (9 % of 3 s)"), "within 28.2\u00a0ms (9\u00a0% of 3\u00a0s)"},
		{strconv.FormatFloat(significant(123456), 'f', -1, 64), "123500"}, {strconv.FormatFloat(significant(0.00123456), 'f', -1, 64), "0.001235"},
	}
	for _, c := range cases {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
