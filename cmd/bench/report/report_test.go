package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
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
	for _, text := range []string{"", "{}", `{"comparison":{"trials":[{"history":[[1]]}]}}`} {
		expect.That(t, expect.Err(Read(strings.NewReader(text))) != nil, "%q was read as a report", text)
	}
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
		expect.That(t, !strings.Contains(page, markup), "the page contains %s", markup)
	}
	want, got := 4, strings.Count(page, "</script>")
	expect.That(t, got == want, "%d scripts end in the page, want %d", got, want)
	for line := range strings.Lines(files[MarkdownFile]) {
		expect.That(t, !strings.Contains(line, "<script") && !strings.Contains(line, "<img"), "Markdown contains markup: %s", line)
	}
}

func TestBrokenNamesLimitsAndTrialsThatFailed(t *testing.T) {
	c := sample()
	c.Trials = slices.DeleteFunc(c.Trials, func(tr trial.Trial) bool { return tr.Scenario == "steady" && tr.Mode == scenario.CP })
	c.Trials[0].Failed = "node2 did not start"
	got := strings.Join(New(c).Broken(), "\n")
	for _, want := range []string{"steady, ap, round 1: the trial could not be completed: node2 did not start", "leader-killed, cp: write-gap at most 1s, but got "} {
		expect.That(t, strings.Contains(got, want), "%q lacks %q", got, want)
	}
}

func TestFiguresLeaveOutAFailedTrial(t *testing.T) {
	c := sample()
	want := judgedSample().figures("leader-killed")
	c.Trials = slices.DeleteFunc(c.Trials, func(tr trial.Trial) bool { return tr.Scenario != "leader-killed" })
	for i := range c.Trials {
		if c.Trials[i].Scenario == "leader-killed" && c.Trials[i].Mode == scenario.AP {
			c.Trials[i].Failed = "no"
		}
	}
	for _, row := range New(c).figures("leader-killed") {
		expect.Equal(t, row.AP, none, "%s:", row.Name)
	}
	expect.That(t, want[0].AP != none, "the trial had no figures even before it failed")
}

func TestSummaryFitsTheTerminalAndSaysWhereTheFilesAre(t *testing.T) {
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts, dir: "out"}
	var b bytes.Buffer
	need.OK(t, r.Summary(&b))
	for line := range strings.Lines(b.String()) {
		width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		expect.That(t, width <= 100, "%d characters: %s", width, line)
	}
	for _, want := range []string{"Steady state", "Partition, minority", "One limit was broken.", "leader-killed, cp", filepath.Join(r.dir, HTMLFile)} {
		expect.That(t, strings.Contains(b.String(), want), "the summary lacks %q", want)
	}
}

func TestWriteNeedsNeitherBothModesNorTrials(t *testing.T) {
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
		{strconv.FormatFloat(significant(123456), 'f', -1, 64), "123500"}, {strconv.FormatFloat(significant(0.00123456), 'f', -1, 64), "0.001235"},
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
	Scenario, Mode string
	Series         []struct {
		Operation string `json:"operation"`
		Bins      []struct {
			Latencies []int64 `json:"l"`
		} `json:"bins"`
	} `json:"series"`
	History [][]any `json:"history"`
}

// number finds a trial, of a scenario that ran once.
func (f rawFile) number(scenario, mode string) int {
	return slices.IndexFunc(f.Comparison.Trials, func(t rawTrial) bool { return t.Scenario == scenario && t.Mode == mode })
}

func TestFiguresThatArePublishedFollowFromTheRawFiles(t *testing.T) {
	files := sampleFiles()
	var raw rawFile
	need.OK(t, json.Unmarshal([]byte(files[JSONFile]), &raw))
	published := func(n int) (success, p99, share float64) {
		v := raw.Verdicts[n]
		return v.Writes.Success, v.Writes.Latency.P99, v.Staleness.Share
	}
	for _, scenario := range []string{"leader-killed", "partition-minority"} {
		var want [3][2]float64 // of each number, cp and ap
		for m, mode := range []string{"cp", "ap"} {
			n := raw.number(scenario, mode)
			want[0][m] = writeSuccessInCSV(t, files[CSVFile], scenario, mode)
			want[1][m] = writeP99InBins(raw.Comparison.Trials[n])
			want[2][m] = staleShareInHistory(raw.Comparison.Trials[n])
			success, p99, share := published(n)
			for i, got := range []float64{success, p99, share} {
				expect.That(t, math.Abs(got-want[i][m]) <= 1e-9, "%s, %s: number %d is %v in the JSON file, computed %v", scenario, mode, i, got, want[i][m])
			}
		}
		wantRow(t, files, scenario, "writes answered", showShare, want[0])
		wantRow(t, files, scenario, "write latency, p99", showSeconds, want[1])
		wantRow(t, files, scenario, "stale answers", showShare, want[2])
	}
}

// wantRow looks a row of figures up in the scenario's part of the page and of the Markdown file.
func wantRow(t *testing.T, files map[string]string, scenario, name string, show func(float64) string, values [2]float64) {
	t.Helper()
	cp, ap := show(values[0]), show(values[1])
	_, page, _ := strings.Cut(files[HTMLFile], `<section id="`+scenario+`">`)
	page, _, _ = strings.Cut(page, "</section>")
	row := `<th scope="row">` + name + `</th><td>` + glued(cp) + `</td><td>` + glued(ap) + `</td>`
	expect.That(t, strings.Contains(page, strings.ReplaceAll(row, ">>", ">&gt;")), "%s: the page has no row %s", scenario, row)
	_, markdown, _ := strings.Cut(files[MarkdownFile], "| "+scenario+" | CP | AP |")
	markdown, _, _ = strings.Cut(markdown, "\n## ")
	if row := "| " + name + " | " + cp + " | " + ap + " |"; !strings.Contains(markdown, row) {
		t.Errorf("%s: the Markdown file has no row %s", scenario, row)
	}
}

func writeSuccessInCSV(t *testing.T, text, scenario, mode string) float64 {
	t.Helper()
	rows := need.Got(csv.NewReader(strings.NewReader(text)).ReadAll())(t)
	sum := map[string]int{}
	for _, row := range rows[1:] {
		if row[0] != scenario || row[1] != mode || !slices.Contains([]string{"heartbeat", "register", "cancel"}, row[3]) {
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

// second is a second of a trial.
const second = trial.Micros(1_000_000)

// sampleLength is that of the trials of the sample.
const sampleLength = 15 * second

// sample is a comparison as a real one looks, made up from a seed: steady state three times, the leader killed and
// instances dead with it, a partition; in both modes.
func sample() *trial.Comparison {
	load := scenario.Load{
		Instances: 300, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second), Registers: 5, Writes: 60, Reads: 150,
		Fetches: 5, Deltas: 20, Watchers: 6, Sightings: 4, OwnKeys: 12,
	}
	gap := scenario.Span(time.Second)
	c := &trial.Comparison{
		Version: "0.9.0", Date: "2026-01-02",
		Machine: trial.Machine{CPU: "Sample CPU @ 2.5 GHz", Cores: 4, Memory: "16 GB", Disk: "ext4 on an SSD", Sync: "1.2 ms for a durable write", Kernel: "Linux 6.1", Go: "go1.26.0"},
		Plan: trial.Plan{
			Seed: 7, Quick: true, Repeat: 1, Datacenters: 1, Length: sampleLength, Modes: []scenario.Mode{scenario.CP, scenario.AP},
			LeftOut: []string{"dc-link-cut did not run: it needs two datacenters."}, Timeout: 2 * second, Took: 112 * second,
		},
		Scenarios: []scenario.Scenario{
			{Name: "steady", Title: "Steady state", About: "Nothing fails. What each mode costs and how fresh its answers are when all is well.", Quick: true, Datacenters: 1, Rounds: 3, Load: load},
			{
				Name: "leader-killed", Title: "Leader killed", About: "The leader ends by SIGKILL under load, and a tenth of the instances die with it.", Datacenters: 1, Rounds: 1, Load: load,
				Faults: []scenario.Fault{{Kind: scenario.Kill, Nodes: "leader"}, {Kind: scenario.Die, Instances: "10%"}},
				Limits: map[scenario.Mode]scenario.Limits{scenario.CP: {WriteGap: &gap}},
			},
			{
				Name: "partition-minority", Title: "Partition, minority", About: "One node, together with its clients, loses every link to the other two and gets them back.", Datacenters: 1, Rounds: 1, Load: load,
				Faults: []scenario.Fault{{Kind: scenario.Isolate, Nodes: "follower"}},
			},
		},
	}
	for round := 1; round <= 3; round++ {
		for _, s := range c.Scenarios {
			for _, mode := range []scenario.Mode{scenario.CP, scenario.AP} {
				if round <= s.Rounds {
					c.Trials = append(c.Trials, newSketch(s.Name, mode, round).trial())
				}
			}
		}
	}
	return c
}

// judgedSample is the sample's report, made once. No test changes it.
var judgedSample = sync.OnceValue(func() *Report { return New(sample()) })

// sketch makes one trial up.
type sketch struct {
	*rand.Rand
	t        *trial.Trial
	from, to trial.Micros // of the fault; both 0: none
	quiet    trial.Micros // until when no node responds in mode cp, from the fault's begin on
	healed   trial.Micros
}

func newSketch(name string, mode scenario.Mode, round int) *sketch {
	s := &sketch{Rand: rand.New(rand.NewPCG(uint64(len(name))<<8|uint64(len(mode)+int(mode[0])), uint64(round)))}
	s.t = &trial.Trial{
		Scenario: name, Mode: mode, Round: round, Seed: 7, Length: sampleLength, Ended: 19 * second,
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}, {Name: "node3", Datacenter: "dc1"}},
	}
	switch name {
	case "leader-killed":
		s.from, s.to, s.quiet, s.healed = 3_750_000, 9_750_000, 6_100_000, 10_600_000
		s.t.Faults = []trial.Fault{
			{Kind: scenario.Kill, Text: "leader node1 killed", Nodes: []int{0}, From: s.from, To: s.to, Ready: 10_100_000},
			{Kind: scenario.Die, Text: "30 instances died", From: 4 * second, To: 4 * second, Count: 30},
		}
	case "partition-minority":
		s.from, s.to, s.healed = 3_750_000, 10_500_000, 11_900_000
		s.t.Faults = []trial.Fault{{Kind: scenario.Isolate, Text: "node3 isolated", Nodes: []int{2}, From: s.from, To: s.to}}
	}
	return s
}

func (s *sketch) trial() trial.Trial {
	s.series()
	s.history()
	s.lists()
	s.sightings()
	s.departures()
	s.servers()
	s.ending()
	return *s.t
}

func (s *sketch) cp() bool { return s.t.Mode == scenario.CP }

func (s *sketch) during(at trial.Micros) bool { return at >= s.from && at < s.to }

// cut reports whether a node is on the smaller side of a partition at that time.
func (s *sketch) cut(node int, at trial.Micros) bool {
	return s.t.Scenario == "partition-minority" && node == 2 && s.during(at)
}

// outcome is what clients of a node get.
func (s *sketch) outcome(node int, at trial.Micros) trial.Outcome {
	switch {
	case s.cp() && s.cut(node, at):
		return trial.Refused
	case s.cp() && at >= s.from && at < s.quiet:
		return [...]trial.Outcome{trial.Refused, trial.Unreached, trial.Unknown}[s.IntN(3)]
	case !s.cp() && s.t.Scenario == "leader-killed" && node == 0 && at >= s.from && at < s.from+second/4:
		return trial.Unreached
	}
	return trial.Done
}

// latency is about as long as real ones are, in µs, with a tail.
func (s *sketch) latency(o trial.Operation, at trial.Micros) int64 {
	typical := 600.0
	if s.cp() {
		typical = 1800
	}
	if o.Writes() && s.cp() {
		typical = 3200
	}
	if s.cp() && at >= s.quiet && at < s.quiet+second/2 && s.quiet > 0 {
		typical = 400_000
	}
	long := typical * (0.7 + s.ExpFloat64()*0.5)
	step := int64(1)
	for ; long/float64(step) >= 100; step *= 2 {
	}
	return int64(long) / step * step
}

func (s *sketch) series() {
	perBin := map[trial.Operation]float64{trial.Heartbeat: 10, trial.Register: 1.2, trial.Cancel: 0.8, trial.Read: 5, trial.Fetch: 0.17, trial.Delta: 0.7}
	for _, o := range trial.Operations {
		for node := range s.t.Nodes {
			series := trial.Series{Operation: o, Node: node}
			for n := range int(sampleLength / (second / 10)) {
				count := int(perBin[o] + s.Float64())
				if b := s.bin(o, node, n, count); count > 0 {
					series.Bins = append(series.Bins, b)
				}
			}
			s.t.Series = append(s.t.Series, series)
		}
	}
}

func (s *sketch) bin(o trial.Operation, node, number, count int) trial.Bin {
	b := trial.Bin{Number: number}
	latencies := map[int64]int64{}
	at := trial.Micros(number) * second / 10
	for range count {
		switch s.outcome(node, at) {
		case trial.Done:
			b.Done++
			latencies[s.latency(o, at)]++
		case trial.Refused:
			b.Refused++
		case trial.Unreached:
			b.Unreached++
		case trial.Unknown:
			b.Unknown++
		}
	}
	var values []int64
	for latency := range latencies {
		values = append(values, latency)
	}
	slices.Sort(values)
	for _, latency := range values {
		b.Latencies = append(b.Latencies, latency, latencies[latency])
	}
	return b
}

// update is one write that took effect.
type update struct {
	version int64
	at      trial.Micros
	home    int
}

// history has one writer for each key, and readers at all nodes that see, in mode cp, what is newest, and in mode ap
// what has come to their node.
func (s *sketch) history() {
	for key := range 12 {
		var writes []update
		name := fmt.Sprintf("own-%d", key)
		version := int64(0)
		for at := trial.Micros(key) * 10_000; at < sampleLength; at += 200_000 + trial.Micros(s.IntN(8000)) {
			version++
			c := trial.Call{Key: name, Client: key, Node: key % 3, Action: trial.Write, Version: version, Outcome: s.outcome(key%3, at), Called: at, Returned: at + 2000}
			if c.Outcome == trial.Unknown {
				c.Outcome = trial.Refused
			}
			if c.Outcome == trial.Done {
				writes = append(writes, update{version, at + 1000, key % 3})
			}
			s.t.History = append(s.t.History, c)
		}
		s.looks(name, key, writes)
	}
	slices.SortStableFunc(s.t.History, func(a, b trial.Call) int { return int(a.Called - b.Called) })
}

func (s *sketch) looks(name string, key int, writes []update) {
	for at := 300_000 + trial.Micros(key)*1000; at < sampleLength; at += 75_000 + trial.Micros(s.IntN(10_000)) {
		node := s.IntN(3)
		c := trial.Call{Key: name, Client: 100 + node*20 + key, Node: node, Action: trial.Look, Outcome: s.outcome(node, at), Called: at, Returned: at + 1500}
		if c.Outcome == trial.Done {
			for _, w := range writes {
				if s.arrival(w, node) <= at+700 {
					c.Version = w.version
				}
			}
		}
		s.t.History = append(s.t.History, c)
	}
}

// arrival is when a node knows of a write.
func (s *sketch) arrival(w update, node int) trial.Micros {
	if s.cp() || node == w.home {
		return w.at
	}
	if s.cut(node, w.at) || s.cut(w.home, w.at) {
		return s.healed - second/2
	}
	return w.at + 30_000
}

func (s *sketch) lists() {
	for at := trial.Micros(0); at < s.t.Ended; at += second / 10 {
		for node := range s.t.Nodes {
			s.t.Lists = append(s.t.Lists, s.list(node, at+trial.Micros(node)*1000))
		}
	}
}

func (s *sketch) list(node int, at trial.Micros) trial.List {
	l := trial.List{Node: node, Asked: at, Answered: at + 4000, Listed: 300}
	apart := s.t.Scenario == "partition-minority" && at >= s.from && at < s.healed
	switch {
	case s.t.Scenario == "leader-killed" && node == 0 && s.during(at), s.cp() && s.cut(node, at):
		return trial.List{Node: node, Asked: at, Answered: at + 4000, Failed: true}
	case apart && !s.cp():
		grown := int(min(at-s.from, s.to-s.from) / (second / 2))
		l.Behind, l.Missing, l.Ghosts = 8+s.IntN(3), grown, grown/2
		if at >= s.to {
			l.Unhealed = grown * int(s.healed-at) / int(s.healed-s.to)
		}
	case apart && node == 2 && at >= s.to:
		l.Unhealed = 12 * int(s.healed-at) / int(s.healed-s.to)
	case !s.cp():
		l.Behind = s.IntN(2)
	}
	if s.t.Scenario == "leader-killed" && at > 4*second && at < 8*second+trial.Micros(node)*second/5 {
		l.Ghosts += 30
	}
	return l
}

func (s *sketch) sightings() {
	slow := map[trial.Way]float64{trial.ByRead: 1, trial.ByStale: 1.5, trial.ByList: 4, trial.ByDelta: 6, trial.ByWatch: 2}
	for at := second / 10; at < sampleLength; at += second / 4 {
		from := s.IntN(3)
		if s.outcome(from, at) != trial.Done {
			continue
		}
		for to := range s.t.Nodes {
			for _, way := range trial.Ways {
				delay := trial.Micros(slow[way] * 1500 * (0.2 + s.ExpFloat64()))
				if !s.cp() {
					delay = trial.Micros(slow[way] * 12_000 * (0.3 + s.ExpFloat64()))
				}
				if s.cp() && way == trial.ByRead {
					delay = 0
				}
				if (s.cut(from, at) || s.cut(to, at)) && from != to {
					delay += s.healed - at
				}
				if from == to {
					delay = 0
				}
				s.t.Sightings = append(s.t.Sightings, trial.Sighting{From: from, To: to, Way: way, Acked: at, Delay: delay})
			}
		}
	}
}

func (s *sketch) departures() {
	for i := range 60 {
		at := second/5 + trial.Micros(i)*second/4
		if s.during(at) || at < s.quiet {
			continue
		}
		for node := range s.t.Nodes {
			delay := trial.Micros(2000 + s.IntN(20_000))
			if !s.cp() {
				delay += trial.Micros(s.IntN(120_000))
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: fmt.Sprintf("passing-%d", i), Canceled: true, Last: at, Node: node, Gone: at + delay})
		}
	}
	if s.t.Scenario != "leader-killed" {
		return
	}
	for i := range 30 {
		last := 3*second + trial.Micros(s.IntN(1_000_000))
		for node := range s.t.Nodes {
			unlisted := last + 3*second + trial.Micros(s.IntN(1_200_000))
			if s.cp() {
				unlisted += 2 * second
			}
			s.t.Departures = append(s.t.Departures, trial.Departure{ID: fmt.Sprintf("instance-%d", i), Last: last, Node: node, Gone: unlisted})
		}
	}
}

// servers are the leaders, the replicators' reports, and what the processes used.
func (s *sketch) servers() {
	if s.cp() {
		s.leaders()
	}
	for at := trial.Micros(-second); at < s.t.Ended; at += second {
		for node := range s.t.Nodes {
			passed := float64(at+second) / float64(second)
			if !s.cp() {
				s.t.Replicator = append(s.t.Replicator, s.replication(node, at, passed))
			}
			rate := map[bool]float64{true: 0.11, false: 0.06}[s.cp()]
			s.t.Usage = append(s.t.Usage, trial.Usage{
				At: at, Node: node, CPU: trial.Micros(passed * rate * 1e6), Memory: 38e6 + int64(passed*2e5), Written: int64(passed * 3e5 * rate * 10), Stored: 1e6 + int64(passed*1e5),
				Sent: int64(passed * 2e5), Instances: 300, Renewals: int64(passed * 300),
			})
		}
	}
}

func (s *sketch) leaders() {
	for node := range s.t.Nodes {
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: trial.Micros(node) * 1000, Node: node, Leader: 0, Term: 2})
	}
	switch s.t.Scenario {
	case "leader-killed":
		for node, at := range []trial.Micros{s.from, s.from + second*3/2, s.from + second*3/2} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: -1, Term: 2})
		}
		for node, at := range []trial.Micros{s.to + second/3, s.quiet, s.quiet + 1000} {
			s.t.Leaders = append(s.t.Leaders, trial.Leader{At: at, Node: node, Leader: 1, Term: 3})
		}
	case "partition-minority":
		s.t.Leaders = append(s.t.Leaders, trial.Leader{At: s.from + second, Node: 2, Leader: -1, Term: 2}, trial.Leader{At: s.healed, Node: 2, Leader: 0, Term: 2})
	}
	slices.SortStableFunc(s.t.Leaders, func(a, b trial.Leader) int { return int(a.At - b.At) })
}

func (s *sketch) replication(node int, at trial.Micros, passed float64) trial.Replication {
	r := trial.Replication{At: at, Node: node, Accepted: passed * 200, Merged: passed * 20, Sent: passed * 180, Batch: float64(20 + s.IntN(30)), Queued: float64(s.IntN(8)), LagChanges: float64(s.IntN(5)), LagSeconds: 0.02}
	if s.during(at) && len(s.t.Faults[0].Nodes) > 0 {
		apart := (at - s.from).Seconds()
		r.Queued, r.LagChanges, r.LagSeconds, r.Errors = 60*apart, 80*apart, apart, 10*apart
	}
	return r
}

func (s *sketch) ending() {
	keys := map[string]int64{}
	for _, c := range s.t.History {
		if c.Action == trial.Write && c.Outcome == trial.Done {
			keys[c.Key] = max(keys[c.Key], c.Version)
		}
	}
	for node := range s.t.Nodes {
		s.t.Ending = append(s.t.Ending, trial.Ending{Node: node, Keys: keys})
	}
}

// A node answered an old version after a newer one had been acknowledged, while a cancel was under way.
func TestCounterexampleIsShownCallByCall(t *testing.T) {
	call := func(client int, action trial.Action, version int64, outcome trial.Outcome, called, returned trial.Micros) trial.Call {
		return trial.Call{Key: "own-1", Client: client, Node: client % 2, Action: action, Version: version, Outcome: outcome, Called: called, Returned: returned}
	}
	stale := trial.Trial{
		Scenario: "cut", Mode: scenario.CP, Round: 1, Nodes: []trial.Node{{Name: "node1"}, {Name: "node|2"}},
		History: []trial.Call{
			call(0, trial.Write, 1, trial.Done, 1000, 2000), call(0, trial.Write, 2, trial.Done, 3000, 4000),
			call(3, trial.Look, 1, trial.Done, 5000, 6000), call(2, trial.Look, 2, trial.Done, 7000, 8000),
			call(0, trial.Remove, 3, trial.Unknown, 4500, math.MaxInt64),
		},
	}
	r := New(&trial.Comparison{Scenarios: []scenario.Scenario{{Name: "cut", Title: "Cut", Rounds: 1}}, Plan: trial.Plan{Modes: []scenario.Mode{scenario.CP}}, Trials: []trial.Trial{stale}})
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
