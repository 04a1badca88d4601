package report

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func tiny() *trial.Trial {
	return &trial.Trial{
		Column: "cp", Round: 1, Length: second / 5, Ended: 3 * second / 10, Cores: 1, Machine: []trial.Health{{At: second / 10}, {At: second / 5}},
		Nodes: []trial.Node{{Name: "node1", Datacenter: "dc1"}, {Name: "node2", Datacenter: "dc1"}},
	}
}

// encoded shows samples with their gaps.
func encoded(t *testing.T, s samples) string {
	t.Helper()
	text := need.Got(json.Marshal(s))(t)
	return string(text)
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
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}
	need.OK(t, r.Write(dir))
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
