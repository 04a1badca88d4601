package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// reported returns a report where everything is 1, which misses most floors.
func reported(t *testing.T, cores int) *report {
	t.Helper()
	r := &report{runSetting: runSetting{Version: "v1", Date: "2026-01-02", Machine: trial.Machine{CPU: "Some CPU", Cores: cores}}, Plan: ratiosPlan{rounds: 2, many: 100_000}, figures: measured()}
	var err error
	r.Rows, err = r.evaluate(ratioRows)
	need.OK(t, err)
	return r
}

func TestRatiosMissedFloorIsAnErrorWhereItCounts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*report)
		want   string // in the error; empty for none
	}{
		{name: "four cores", change: func(*report) {}, want: "floors were missed: renew over one entry per write; "},
		{name: "three cores", change: func(r *report) { r.Machine.Cores = 3 }},
		{name: "quick", change: func(r *report) { r.Plan.quick = true }},
		{name: "wrong answers anywhere", change: func(r *report) {
			r.Plan.quick = true
			r.countWrong(renew64, load.WrongResponses{"status 500 instead of 200": 1})
		}, want: "wrong answers: 1 × status 500 instead of 200"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reported(t, 4)
			tc.change(r)
			err := ratiosOptions{form: cli.Table}.publish(r, &bytes.Buffer{})
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)), "got %v, want %q", err, tc.want)
		})
	}
}

func TestRatiosTableShowsRowsFiguresAndRemarks(t *testing.T) {
	r := reported(t, 2)
	r.addNote("Leadership moved.")
	r.countWrong(renew64, load.WrongResponses{"EOF": 3})
	var out bytes.Buffer
	expect.That(t, (ratiosOptions{form: cli.Table}).publish(r, &out) != nil, "wrong answers are no error")
	for _, want := range []string{"≥ 0.33  ≥ 0.45  1.00 ×", "≤ 15    ≤ 5     1.50 (1.00–2.00) /s", "missed", "goal", "Leadership moved.", "3 × EOF", "Floors do not count here: they are for 4 cores or more, and this machine has 2."} {
		expect.That(t, strings.Contains(out.String(), want), "lacks %q in\n%s", want, &out)
	}
}

func TestRatiosReportsAreWrittenByExtension(t *testing.T) {
	r := reported(t, 2)
	dir := t.TempDir()
	page, data := filepath.Join(dir, "a.md"), filepath.Join(dir, "a.json")
	need.OK(t, (ratiosOptions{form: cli.Table, out: []string{page, data}}).publish(r, &bytes.Buffer{}))
	text, err := os.ReadFile(page)
	need.OK(t, err)
	got := string(text)
	begin, end := reportMarks("ratios")
	expect.That(t, strings.HasPrefix(got, string(begin)) && strings.HasSuffix(got, string(end)) && strings.Contains(got, "| renew over bare, 256 connections | ≥ 0.33 | ≥ 0.45 | 1.00 × | goal |\n") && strings.Contains(got, "Machine: Some CPU, 2 cores"),
		"got %s", got)
	text, err = os.ReadFile(data)
	need.OK(t, err)
	var decoded struct {
		Machine trial.Machine
		Rows    []struct {
			Of      figureName
			Verdict verdict
			Values  []float64
		}
		Figures []figure
	}
	need.OK(t, json.Unmarshal(text, &decoded))
	expect.That(t, len(decoded.Rows) == len(ratioRows) && decoded.Rows[0].Of == renew256 && decoded.Rows[0].Verdict == goalMet && len(decoded.Rows[0].Values) == 2 && len(decoded.Figures) == len(r.list) && decoded.Machine.Cores == 2,
		"got %s", text)
}

func TestRatiosPageKeepsItsProse(t *testing.T) {
	r := reported(t, 2)
	path := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) {
		t.Helper()
		need.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	begin, end := reportMarks("ratios")
	write("before\n" + string(begin) + "an older run\n" + string(end) + "after\n")
	need.OK(t, writeReport(path, "ratios", r, r.markdown()))
	text := need.Got(os.ReadFile(path))(t)
	got := string(text)
	expect.That(t, strings.HasPrefix(got, "before\n"+string(begin)+"rollcall v1") && strings.HasSuffix(got, "\n"+string(end)+"after\n") && !strings.Contains(got, "an older run"),
		"got %s", got)
	write("a page of another kind\n")
	err := writeReport(path, "ratios", r, r.markdown())
	expect.That(t, err != nil && strings.Contains(err.Error(), "page.md has no lines"), "a page without marks: got %v, want an error", err)
}

func TestRatiosRefuseWhatTheyCannotMeasure(t *testing.T) {
	for flag, values := range map[string][]string{
		"--rounds": {"0"}, "--window": {"1ms"}, "--cut": {"1ms"}, "--out": {"result.txt", "page.md --only=scale"}, "--only": {"speed"}, "--output": {"xml"},
	} {
		for _, value := range values {
			args := append([]string{"ratios", flag}, strings.Fields(value)...)
			_, stderr, code := bench(t, args...)
			expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, flag), "%s %s: exit %d, said %q", flag, value, code, stderr)
		}
	}
}

func TestRatiosOfAPartHaveItsRowsOnly(t *testing.T) {
	plan := ratiosOptions{only: []string{"leases", "scale", "leases"}}.plan()
	expect.Slice(t, plan.parts, []benchPart{scalePart, leasesPart}, "parts")
	for _, r := range ratioRows {
		kept := slices.ContainsFunc(plan.rows(), func(k ratioRow) bool { return k.Name == r.Name })
		expect.Equal(t, kept, r.In == scalePart || r.In == leasesPart, "%s of part %s: kept", r.Name, r.In)
	}
}

func TestRatiosNodesIgnoreSettingsOfTheEnvironment(t *testing.T) {
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "ROLLCALL_") {
			t.Setenv(name, value) // restores it after this test
		}
	}
	t.Setenv("ROLLCALL_COMMIT_BATCHING", "false")
	t.Setenv("OTHER", "1")
	need.OK(t, clearSettings())
	v, set := os.LookupEnv("ROLLCALL_COMMIT_BATCHING")
	expect.That(t, !set, "it is still %q", v)
	expect.That(t, os.Getenv("OTHER") == "1", "another variable is gone")
}

func TestRatiosSpreadIsMedianAndEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		want   spread
		text   string
	}{
		{name: "one", values: []float64{0.456}, want: spread{0.456, 0.456, 0.456}, text: "0.46 ×"},
		{name: "odd", values: []float64{3, 100.4, 20}, want: spread{20, 3, 100.4}, text: "20.0 (3.00–100) ×"},
		{name: "even", values: []float64{4000, 1000, 2000, 1234567}, want: spread{3000, 1000, 1234567}, text: "3,000 (1,000–1,234,567) ×"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			given := slices.Clone(tc.values)
			got := spreadOf(tc.values)
			expect.That(t, got == tc.want && got.text("×") == tc.text, "got %v, shown as %q, want %v as %q", got, got.text("×"), tc.want, tc.text)
			expect.That(t, slices.Equal(given, tc.values), "the rounds' order was changed to %v", tc.values)
		})
	}
}

func TestRatiosVerdictsFollowFloorAndGoal(t *testing.T) {
	higher := ratioRow{Floor: 0.33, Goal: 0.45}
	lower := ratioRow{Floor: 8, Goal: 5, Lower: true}
	for _, tc := range []struct {
		name  string
		row   ratioRow
		value float64
		want  verdict
	}{
		{name: "below", row: higher, value: 0.329, want: missed},
		{name: "floor", row: higher, value: 0.33, want: met},
		{name: "goal", row: higher, value: 0.45, want: goalMet},
		{name: "too slow", row: lower, value: 8.1, want: missed},
		{name: "fast enough", row: lower, value: 8, want: met},
		{name: "fast", row: lower, value: 5, want: goalMet},
		{name: "nothing asked", row: ratioRow{}, value: 1, want: noVerdict},
	} {
		expect.Equal(t, tc.row.verdictOf(tc.value), tc.want, "%s: got", tc.name)
	}
}

// measured returns two rounds of everything that the rows need.
func measured() *figures {
	f := newFigures()
	for round := range 2 {
		for _, r := range ratioRows {
			for _, name := range []figureName{r.Of, r.Over} {
				if known := f.find(name); name != "" && (known == nil || len(known.Values) == round) {
					f.add(name, "/s", float64(round+1))
				}
			}
		}
	}
	return f
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	f := measured()
	f.find(renew256).Values = []float64{50, 10}
	f.find(bare256).Values = []float64{100, 40}
	rows := need.Got(f.evaluate(ratioRows))(t)
	got := rows[0]
	expect.That(t, got.Of == renew256 && slices.Equal(got.Values, []float64{0.5, 0.25}) && got.Spread == (spread{0.375, 0.25, 0.5}) && got.Verdict == met,
		"got %+v", got)
}

func TestRatiosThatWereNotMeasuredAreErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		forget func(*figures)
	}{
		{name: "never", forget: func(f *figures) {
			f.list = slices.DeleteFunc(f.list, func(f *figure) bool { return f.Name == rebuild })
		}},
		{name: "baseline never", forget: func(f *figures) {
			f.list = slices.DeleteFunc(f.list, func(f *figure) bool { return f.Name == bare64 })
		}},
		{name: "a round less", forget: func(f *figures) { f.find(bare64).Values = []float64{1} }},
		{name: "nothing came of it", forget: func(f *figures) { f.find(bare64).Values = []float64{1, 0} }},
	} {
		f := measured()
		tc.forget(f)
		expect.That(t, expect.Err(f.evaluate(ratioRows)) != nil, "%s: that is no error", tc.name)
	}
}

func TestRatiosListWrongResponsesWithTheirFigure(t *testing.T) {
	f := newFigures()
	f.countWrong(renew64, load.WrongResponses{"status 504 instead of 200": 2})
	f.countWrong(renew64, load.WrongResponses{"status 504 instead of 200": 1, "EOF": 1})
	want := "1 × EOF (renew, 64 connections to the leader), 3 × status 504 instead of 200 (renew, 64 connections to the leader)"
	expect.Equal(t, f.wrong.String(), want, "got")
}

// shortRun measures as little as possible, on clusters that keep their leaders however busy the machine is.
func shortRun(t *testing.T) *ratiosRun {
	return &ratiosRun{
		ratiosPlan: ratiosPlan{rounds: 1, window: 250 * time.Millisecond, instances: 200, few: 50, many: 200, crashed: 3, watchers: 6, changes: 3, keys: 200, contenders: 5, handovers: 20, sessions: 20, cut: 500 * time.Millisecond, quick: true},
		figures:    newFigures(),
		server:     testServer,
		dir:        t.TempDir(),
		progress:   t.Output(),
		began:      time.Now(),
		settings:   []string{"--raft-heartbeat-timeout=4s", "--raft-election-timeout=4s", "--raft-lease-timeout=4s"},
	}
}

// wantNothingWrong accepts only the wrong responses of a cluster that gets too little of the machine.
func wantNothingWrong(t *testing.T, run *ratiosRun) {
	t.Helper()
	for how, n := range run.wrong {
		expect.That(t, strings.HasPrefix(how, "status 503 ") || strings.HasPrefix(how, "status 504 "), "wrong answers: %d × %s", n, how)
	}
}

// The rest of a run differs from this part only in the loads it sends.
func TestRatiosRunMeasuresRealClusters(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	run.window = 2 * time.Second // long enough for a busy machine to get something done
	need.OK(t, run.scale(t.Context()))
	for name, values := range map[figureName]int{renewFew: 1, renewMany: 1, heapEach: 3, restartReady: 3} {
		f := run.find(name)
		if f == nil || len(f.Values) != values {
			t.Errorf("%s: got %+v, want %d values", name, f, values)
			continue
		}
		s := spreadOf(f.Values)
		expect.That(t, s.Min > 0, "%s: got %v", name, s)
	}
	wantNothingWrong(t, run)
}

func TestRatiosMeasureCrashesAndWatchersOnARealCluster(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.leases(t.Context()))
	for _, name := range []figureName{crashP50, crashP99, arrivalP50, arrivalP99} {
		f := run.find(name)
		expect.That(t, f != nil && len(f.Values) == 1 && f.Values[0] > 0, "%s: got %+v, want one value", name, f)
	}
	wantNothingWrong(t, run)
}

func TestRatiosMeasureTwoDatacentersThatEndEqual(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.replication(t.Context()))
	for _, name := range []figureName{crossingP50, crossingP99, cpuPaused, cpuSending, cpuForPeer, beatsReplicated, healing, cutResident, cutHeap, cutGoal} {
		f := run.find(name)
		expect.That(t, f != nil && len(f.Values) == 1, "%s: got %+v, want one value", name, f)
	}
	for _, name := range []figureName{crossingP99, healing} {
		f := run.find(name)
		expect.That(t, f == nil || f.Values[0] > 0, "%s: got %v", name, f.Values)
	}
	wantNothingWrong(t, run)
}

func TestRatiosMeasureKeysLocksAndSessions(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	need.OK(t, run.coordination(t.Context()))
	for _, name := range []figureName{put256, putSolo, handOverP50, handOverP99, watcherAnswers, watcherArrival, cpuSessions, cpuSessionsAll} {
		f := run.find(name)
		expect.That(t, f != nil && len(f.Values) == 1, "%s: got %+v, want one value", name, f)
	}
	if f := run.find(watcherAnswers); f != nil && f.Values[0] != 1 {
		t.Errorf("the watcher of one key was answered %v times, want once", f.Values)
	}
	wantNothingWrong(t, run)
}

func TestBareRaftCommits(t *testing.T) {
	c := need.Got(startBareRaft(t.TempDir(), 5*time.Millisecond))(t)
	defer c.stop()
	ms, err := c.apply(t.Context())
	expect.That(t, err == nil && ms > 0, "an Apply takes %f ms, %v", ms, err)
}

func TestReplicationCounterOfAnIndexFollowsTheLastDash(t *testing.T) {
	for _, tc := range []struct {
		index string
		want  uint64 // 0 for an error
	}{
		{index: "9b2-1-4711", want: 4711},
		{index: "4711", want: 4711},
		{index: "9b2-"},
		{index: ""},
	} {
		got, err := indexNumber(tc.index)
		expect.That(t, got == tc.want && (err == nil) == (tc.want > 0), "%q: got %d, %v, want %d", tc.index, got, err, tc.want)
	}
}

func TestWatcherFindsTheChangeInALine(t *testing.T) {
	f := benchFleet{name: "watched", size: 3}
	c := newCrowd(f)
	for _, tc := range []struct {
		name, line string
		want       int // -1: none
	}{
		{name: "change", line: `{"index":"a-7","action":"ADDED","why":"registered","app":"WATCHED-000","id":"` + f.id(2) + `","status":"UP"`, want: 2},
		{name: "longer than a buffer", line: `{"index":"a-7","id":"` + f.id(1) + `","instance":{"text":"` + strings.Repeat("x", 5000), want: 1},
		{name: "another instance", line: `{"index":"a-7","action":"ADDED","id":"other","status":"UP"}`, want: -1},
		{name: "start", line: `{"index":"a-7"}`, want: -1},
	} {
		i, ok := c.changeOf([]byte(tc.line))
		expect.That(t, ok == (tc.want >= 0) && (!ok || i == tc.want), "%s: got %d, %t, want %d", tc.name, i, ok, tc.want)
	}
}

func TestCrossingLastsFromTheAcknowledgementToEachWatcher(t *testing.T) {
	c := newCrowd(benchFleet{name: "crossing", size: 3})
	c.begun = time.Now().Add(-time.Minute)
	for range 2 {
		c.add(new(net.TCPConn))
	}
	// the last one is seen before its response
	for i, acked := range []time.Duration{0, 59 * time.Second, time.Hour} {
		c.setStart(i, c.begun.Add(acked))
		for _, m := range c.members {
			for range 2 { // a later change of the same instance
				c.recordArrival(m, []byte(`{"id":"`+c.fleet.id(i)+`"}`))
			}
		}
	}
	c.recordArrival(c.members[0], []byte(`{"id":"another"}`))
	expect.Equal(t, c.arrived.Load(), 6, "arrivals:")
	latencies := need.Got(c.latencies(t.Context(), 1))(t) // without the first
	n, longest, shortest := latencies.TotalCount(), latencies.Max(), latencies.Min()
	expect.That(t, n == 4 && shortest == 0 && longest >= 1e6 && longest <= 20e6,
		"%d latencies from %d to %d µs, want 4: none for what came before its answer, about a second for the other", n, shortest, longest)
}

func TestBareHandlerRespondsToPutsAndPayloads(t *testing.T) {
	h := new(bareHandler)
	for _, tc := range []struct {
		method, path string
		status, body int
	}{
		{http.MethodPut, "/eureka/apps/A/a?status=UP", 200, 0},
		{http.MethodGet, barePath(0), 200, 0},
		{http.MethodGet, barePath(70_000), 200, 70_000},
		{http.MethodGet, barePath(70_000), 200, 70_000},
		{http.MethodGet, "/bytes/-1", 404, 0},
		{http.MethodGet, "/bytes/" + "9999999999999", 404, 0},
		{http.MethodGet, "/", 404, 0},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		expect.That(t, w.Code == tc.status && (tc.status != 200 || w.Body.Len() == tc.body),
			"%s %s: status %d and %d bytes, want %d and %d", tc.method, tc.path, w.Code, w.Body.Len(), tc.status, tc.body)
	}
}

// besidePeers returns a report of two rounds of two rows.
func besidePeers() *peersReport {
	row := func(operation, system string, rates ...float64) *peerRow {
		r := rowOf(operation, "GET /list", stale, nil)
		r.System = system
		for _, rate := range rates {
			r.Samples = append(r.Samples, peerSample{Rate: rate, Bare: 2000, P50: 1, P99: 9, CPU: 50, Bytes: 1e6})
		}
		return r
	}
	return &peersReport{
		runSetting{Version: "v1", Date: "2026-01-02", Machine: trial.Machine{CPU: "Some CPU"}},
		&peersRun{
			ratiosRun: &ratiosRun{ratiosPlan: ratiosPlan{rounds: 2, window: time.Second, instances: 1000}, figures: newFigures()},
			rows:      []*peerRow{row(listing, "ours", 1000, 500), row(renewing256, "theirs", 100, 100)},
			lacks:     map[string]string{}, versions: map[string]string{"theirs": "theirs 1.2.3"}, others: []float64{0.02, 0.04},
		},
	}
}

func TestPeersTableShowsOperationsInTheirOrder(t *testing.T) {
	r := besidePeers()
	var out bytes.Buffer
	need.OK(t, peersOptions{form: cli.Table}.publish(r, &out))
	theirs := strings.Index(out.String(), "renew, 256 connections  theirs  GET /list  100")
	ours := strings.Index(out.String(), "list, 64 connections    ours    GET /list  750 (500–1,000)  2,000    0.38 (0.25–0.50)  1.00    9.00    50.0             750 (500–1,000)  may be stale")
	expect.That(t, theirs > 0 && ours > theirs, "got\n%s", &out)
	for _, want := range []string{"Versions: theirs 1.2.3.", "Other programs and the kernel took 3 % of the processors (median; at most 4 %)."} {
		expect.That(t, strings.Contains(out.String(), want), "lacks %q in\n%s", want, &out)
	}
	expect.That(t, !strings.Contains(out.String(), "was not quiet"), "a quiet machine is called busy in\n%s", &out)
	r.others = []float64{0.3}
	err := peersOptions{form: cli.Table}.publish(r, &out)
	expect.That(t, err != nil && err.Error() == notQuiet && strings.Contains(out.String(), notQuiet), "on a busy machine: %v, and\n%s", err, &out)
}

func TestPeersRunThatLeavesSomethingOpenFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*peersReport)
		want   string // in the error and in the row
	}{
		{name: "wrong answers", change: func(r *peersReport) { r.rows[0].countWrong(load.WrongResponses{"status 500 instead of 200": 3}) }, want: "invalid: 3 × status 500 instead of 200"},
		{name: "a round less", change: func(r *peersReport) { r.rows[0].Samples = r.rows[0].Samples[:1] }, want: "not measured: 1 of 2 rounds"},
		{name: "nothing came of it", change: func(r *peersReport) { r.rows[0].Samples[1].Rate = 0 }, want: "invalid: nothing was answered in time"},
		{name: "nothing to compare it with", change: func(r *peersReport) { r.rows[0].Samples[1].Bare = 0 }, want: "invalid: nothing was answered in time"},
		{name: "not built", change: func(r *peersReport) {
			r.rows[0].Samples, r.lacks["ours"] = nil, "there is no ours in bin; make peers builds it."
		}, want: "not measured: "},
	} {
		r := besidePeers()
		tc.change(r)
		var out bytes.Buffer
		err := peersOptions{form: cli.Table}.publish(r, &out)
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.want) && strings.Contains(err.Error(), "ours") && !strings.Contains(err.Error(), "theirs"), "%s: got %v, want %q", tc.name, err, tc.want)
		expect.That(t, strings.Contains(out.String(), "GET /list  "+tc.want) && !strings.Contains(out.String(), "500–1,000"), "%s: got\n%s", tc.name, &out)
		expect.That(t, strings.Contains(out.String(), "ours was not measured: there is no ours in bin; make peers builds it.") == (tc.name == "not built"), "%s: got\n%s", tc.name, &out)
	}
}

func TestPeersRefuseWhatTheyCannotMeasure(t *testing.T) {
	for flag, value := range map[string]string{"--rounds": "0", "--window": "1ms", "--peers": "zookeeper", "--out": "result.txt", "--output": "xml"} {
		_, stderr, code := bench(t, "peers", flag, value)
		expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, flag), "%s %s: exit %d, said %q", flag, value, code, stderr)
	}
}

// All peers are chosen, but none is built: Rollcall is measured in both modes, and the peers are reported as missing.
func TestPeersMeasureRealClustersAndNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	run.instances = 20
	r := &peersRun{ratiosRun: run, found: peerPrograms{dir: t.TempDir(), jar: "none.jar"}}
	need.OK(t, r.all(t.Context(), allPeers))
	measured, unanswered := map[string]int{}, 0
	for _, row := range r.rows {
		if r.lacks[row.System] != "" {
			expect.That(t, len(row.Samples) == 0, "%s was measured, and was not: %s", row.System, r.lacks[row.System])
			continue
		}
		run.countWrong("", row.Wrong)
		switch fault := row.fault(1); {
		// of a cluster that gets too little of the machine
		case strings.HasSuffix(fault, "nothing was answered in time"):
			unanswered++
		case fault != "" && len(row.Wrong) == 0:
			t.Errorf("%s, %s, %s: %s", row.Operation, row.System, row.Call, fault)
		}
		measured[row.System]++
	}
	wantNothingWrong(t, run)
	expect.That(t, unanswered <= 4, "%d rows got no answer", unanswered)
	expect.That(t, measured["Rollcall CP"] == 14 && measured["Rollcall AP"] == 4 && len(measured) == 2, "rows: %v", measured)
	for name, want := range map[string]string{"etcd": "make peers builds it", "Consul": "make peers builds it", "stock Eureka": "Stock Eureka was left out"} {
		expect.That(t, strings.Contains(r.lacks[name], want), "%s lacks %q, want %q", name, r.lacks[name], want)
	}
	expect.That(t, peersOptions{form: cli.JSON}.publish(&peersReport{peersRun: r}, &bytes.Buffer{}) != nil, "a run without its peers is no error")
}
