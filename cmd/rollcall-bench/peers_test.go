package main

import (
	"bytes"
	"encoding/json"
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
	return &peersReport{"v1", "2026-01-02", trial.Machine{CPU: "Some CPU", Cores: 2}, &peersRun{
		rounds: 2, window: time.Second, instances: 1000,
		rows:  []*peerRow{row(listing, "ours", 1000, 500), row(renewing256, "theirs", 100, 100)},
		lacks: map[string]string{}, versions: map[string]string{"theirs": "theirs 1.2.3"}, others: []float64{0.02, 0.04},
	}}
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

func TestPeersReportsAreWrittenByExtension(t *testing.T) {
	r := besidePeers()
	dir := t.TempDir()
	page, data := filepath.Join(dir, "a.md"), filepath.Join(dir, "a.json")
	need.OK(t, peersOptions{form: cli.Table, out: []string{page, data}}.publish(r, &bytes.Buffer{}))
	got := string(need.Got(os.ReadFile(page))(t))
	expect.That(t, strings.HasPrefix(got, reportBegin) && strings.HasSuffix(got, reportEnd) && strings.Contains(got, "| list, 64 connections | ours | GET /list | 750 (500–1,000) | ") && strings.Contains(got, "Machine: Some CPU, 2 cores"),
		"got %s", got)
	text := need.Got(os.ReadFile(data))(t)
	var decoded struct {
		Machine trial.Machine
		Rows    []peerRow
	}
	need.OK(t, json.Unmarshal(text, &decoded))
	expect.That(t, len(decoded.Rows) == 2 && decoded.Rows[0].System == "ours" && len(decoded.Rows[0].Samples) == 2 && decoded.Machine.Cores == 2,
		"got %s", text)
}

func TestPeersPageKeepsItsProse(t *testing.T) {
	r := besidePeers()
	path := filepath.Join(t.TempDir(), "page.md")
	need.OK(t, os.WriteFile(path, []byte("before\n"+reportBegin+"an older run\n"+reportEnd+"after\n"), 0o600))
	need.OK(t, r.write(path))
	got := string(need.Got(os.ReadFile(path))(t))
	expect.That(t, strings.HasPrefix(got, "before\n"+reportBegin+"rollcall v1") && strings.HasSuffix(got, "\n"+reportEnd+"after\n") && !strings.Contains(got, "an older run"),
		"got %s", got)
	need.OK(t, os.WriteFile(path, []byte("a page of another kind\n"), 0o600))
	err := r.write(path)
	expect.That(t, err != nil && strings.Contains(err.Error(), "page.md has no lines"), "a page without marks: got %v, want an error", err)
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

func TestPeersNodesIgnoreSettingsOfTheEnvironment(t *testing.T) {
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

func TestPeersSpreadIsMedianAndEnds(t *testing.T) {
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

// All peers are chosen, but none is built: Rollcall is measured in both modes, and the peers are reported as missing.
func TestPeersMeasureRealClustersAndNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := &peersRun{
		rounds: 1, window: 250 * time.Millisecond, instances: 20, gcPercent: 100,
		server: testServer, dir: t.TempDir(), progress: t.Output(), began: time.Now(),
		settings: []string{"--raft-heartbeat-timeout=4s", "--raft-election-timeout=4s", "--raft-lease-timeout=4s"}, // for a busy machine
		found:    peerPrograms{dir: t.TempDir(), jar: "none.jar"},
	}
	need.OK(t, r.all(t.Context(), allPeers))
	measured, unanswered := map[string]int{}, 0
	for _, row := range r.rows {
		if r.lacks[row.System] != "" {
			expect.That(t, len(row.Samples) == 0, "%s was measured, and was not: %s", row.System, r.lacks[row.System])
			continue
		}
		for how, n := range row.Wrong { // of a cluster that gets too little of the machine
			expect.That(t, strings.HasPrefix(how, "status 503 ") || strings.HasPrefix(how, "status 504 "), "wrong answers: %d × %s", n, how)
		}
		switch fault := row.fault(1); {
		// of a cluster that gets too little of the machine
		case strings.HasSuffix(fault, "nothing was answered in time"):
			unanswered++
		case fault != "" && len(row.Wrong) == 0:
			t.Errorf("%s, %s, %s: %s", row.Operation, row.System, row.Call, fault)
		}
		measured[row.System]++
	}
	expect.That(t, unanswered <= 4, "%d rows got no answer", unanswered)
	expect.That(t, measured["Rollcall CP"] == 14 && measured["Rollcall AP"] == 4 && len(measured) == 2, "rows: %v", measured)
	for name, want := range map[string]string{"etcd": "make peers builds it", "Consul": "make peers builds it", "stock Eureka": "Stock Eureka was left out"} {
		expect.That(t, strings.Contains(r.lacks[name], want), "%s lacks %q, want %q", name, r.lacks[name], want)
	}
	expect.That(t, peersOptions{form: cli.JSON}.publish(&peersReport{peersRun: r}, &bytes.Buffer{}) != nil, "a run without its peers is no error")
}
