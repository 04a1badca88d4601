package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// besidePeers is a report of two rounds of two rows.
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

// All peers are chosen, and none of them is built: Rollcall is measured in both modes, and they are said to be missing.
func TestPeersMeasureRealClustersAndNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	run := shortRun(t)
	run.instances = 20
	r := &peersRun{ratiosRun: run, found: peerPrograms{dir: t.TempDir(), jar: "none.jar"}}
	need.OK(t, r.all(t.Context(), allPeers))
	measured := map[string]int{}
	for _, row := range r.rows {
		if r.lacks[row.System] != "" {
			expect.That(t, len(row.Samples) == 0, "%s was measured, and was not: %s", row.System, r.lacks[row.System])
			continue
		}
		run.countWrong("", row.Wrong)
		if fault := row.fault(1); fault != "" && len(row.Wrong) == 0 {
			t.Errorf("%s, %s, %s: %s", row.Operation, row.System, row.Call, fault)
		}
		measured[row.System]++
	}
	wantNothingWrong(t, run)
	expect.That(t, measured["Rollcall CP"] == 14 && measured["Rollcall AP"] == 4 && len(measured) == 2, "rows: %v", measured)
	for name, want := range map[string]string{"etcd": "make peers builds it", "Consul": "make peers builds it", "stock Eureka": "Stock Eureka was left out"} {
		expect.That(t, strings.Contains(r.lacks[name], want), "%s lacks %q, want %q", name, r.lacks[name], want)
	}
	err := peersOptions{form: cli.JSON}.publish(&peersReport{peersRun: r}, &bytes.Buffer{})
	expect.That(t, err != nil, "a run without its peers is no error")
}
