package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	verdicts "github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// loadSummary is what came of bench run. Scripts rely on its members' names.
type loadSummary struct {
	Version    string                             `json:"version"`
	Nodes      []string                           `json:"nodes"`
	Mode       string                             `json:"mode"` // of the cluster
	Loop       string                             `json:"loop"` // open or closed
	Seed       uint64                             `json:"seed"`
	Load       scenario.Load                      `json:"load"`
	WarmUp     float64                            `json:"warm_up"`           // seconds
	Seconds    float64                            `json:"seconds"`           // that count
	Offered    float64                            `json:"offered,omitempty"` // calls per second, by the schedule of an open loop, without cancels
	Sent       float64                            `json:"sent"`              // calls per second
	Answered   float64                            `json:"answered"`          // calls per second
	Operations map[trial.Operation]verdicts.Calls `json:"operations"`
	Watchers   *watcherSummary                    `json:"watchers,omitempty"`
	Notes      []string                           `json:"notes"` // sentences

	series []trial.Series
}

// watcherSummary is what the watchers saw, warm-up included.
type watcherSummary struct {
	Watchers int   `json:"watchers"`
	Events   int64 `json:"events"` // changes that came, on all streams
	Resets   int64 `json:"resets"` // times that a node could not tell what had changed
	Breaks   int64 `json:"breaks"` // streams that ended or could not begin
	Bytes    int64 `json:"bytes"`
}

// summary computes what came of the run.
func (r *loadRun) summary(w load.Watched) *loadSummary {
	s := &loadSummary{
		Version: version, Nodes: r.nodes, Mode: r.mode, Loop: "open", Seed: r.seed, Load: r.loadOptions.load(),
		WarmUp: r.warmUp.Seconds(), Seconds: r.length.Seconds(), Offered: r.offered(),
		series: r.counted(r.load.Series()),
	}
	if r.closed {
		s.Loop, s.Offered = "closed", 0
	}
	if r.watchers > 0 {
		s.Watchers = &watcherSummary{r.watchers, w.Events, w.Resets, w.Breaks, w.Bytes}
	}
	s.count(r.length)
	s.Notes = slices.DeleteFunc([]string{r.early(), r.late.sentence(), s.behind()}, func(note string) bool { return note == "" })
	return s
}

// count sums the series up.
func (s *loadSummary) count(length time.Duration) {
	v := verdicts.Judge(&trial.Trial{Length: trial.Of(length), Series: s.series}, scenario.Scenario{})
	s.Operations = v.Operations
	for _, calls := range s.Operations {
		s.Answered += calls.PerSecond
		if length > 0 {
			s.Sent += float64(calls.Count) / length.Seconds()
		}
	}
}

// early says that the run was shorter than it should have been.
func (r *loadRun) early() string {
	if r.ended == "" {
		return ""
	}
	return fmt.Sprintf("%s after %.1f s of %v.", r.ended, r.length.Seconds(), r.duration)
}

// behind says that the clients could not keep to the schedule.
func (s *loadSummary) behind() string {
	if s.Offered == 0 || s.Seconds == 0 {
		return ""
	}
	sent := s.Sent - float64(s.Operations[trial.Cancel].Count)/s.Seconds
	if sent >= 0.95*s.Offered {
		return ""
	}
	return fmt.Sprintf("Of the %s calls per second that were due, %s were sent. More --connections may help.", shortNumber(s.Offered), shortNumber(sent))
}

// unanswered is an error if no call was answered at all.
func (s *loadSummary) unanswered() error {
	if s.Answered > 0 || s.Sent == 0 {
		return nil
	}
	return fmt.Errorf("none of the calls was answered by %s", strings.Join(s.Nodes, ", "))
}

// publish prints and writes the result.
func (o *loadOptions) publish(s *loadSummary, out io.Writer) error {
	errs := []error{s.print(out, o.form)}
	for _, path := range o.out {
		errs = append(errs, s.write(path))
	}
	return errors.Join(append(errs, s.unanswered())...)
}

func (s *loadSummary) print(out io.Writer, form cli.Output) error {
	if form == asCSV {
		return s.rows(out)
	}
	if err := form.Print(out, s); err != nil || form != cli.Table {
		return err
	}
	for _, note := range s.Notes {
		fmt.Fprintln(out, note)
	}
	return nil
}

func (s *loadSummary) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return errors.Join(s.print(f, cli.Output(strings.TrimPrefix(filepath.Ext(path), "."))), f.Close())
}

// table shows the operations, and then all of the run.
func (s *loadSummary) Table() [][]string {
	cells := [][]string{{"OPERATION", "CALLS", "ANSWERED/S", "SUCCESS", "P50", "P90", "P99", "P99.9", "MAX", "NOT DONE"}}
	for _, o := range trial.Operations {
		calls, ok := s.Operations[o]
		if !ok {
			continue
		}
		l := calls.Latency
		cells = append(cells, []string{
			string(o), strconv.Itoa(calls.Count), shortNumber(calls.PerSecond), shareText(calls.Success),
			millis(l.P50), millis(l.P90), millis(l.P99), millis(l.P999), millis(l.Max), otherwise(calls.Outcomes),
		})
	}
	cells = append(cells, nil, []string{"LOOP", "MODE", "NODES", "SECONDS", "OFFERED/S", "SENT/S", "ANSWERED/S"},
		[]string{s.Loop, s.Mode, strconv.Itoa(len(s.Nodes)), shortNumber(s.Seconds), s.offeredText(), shortNumber(s.Sent), shortNumber(s.Answered)})
	if w := s.Watchers; w != nil {
		cells = append(cells, nil, []string{"WATCHERS", "CHANGES", "RESETS", "BREAKS", "BYTES"},
			[]string{strconv.Itoa(w.Watchers), fmt.Sprint(w.Events), fmt.Sprint(w.Resets), fmt.Sprint(w.Breaks), fmt.Sprint(w.Bytes)})
	}
	return append(cells, nil)
}

func (s *loadSummary) offeredText() string {
	if s.Loop == "closed" {
		return ""
	}
	return shortNumber(s.Offered)
}

// millis shows seconds.
func millis(seconds float64) string { return shortNumber(seconds*1000) + " ms" }

// shareText shows a share so that only all is 100 %.
func shareText(share float64) string {
	if share == 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", min(share*100, 99.99))
}

// otherwise lists the outcomes other than done, the most important ones first.
func otherwise(outcomes map[trial.Outcome]int) string {
	var parts []string
	for _, o := range []trial.Outcome{trial.Unknown, trial.Refused, trial.Unreached, trial.NotFound} {
		if n := outcomes[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// rows writes a row for each operation, node and 100 ms.
func (s *loadSummary) rows(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"seconds", "operation", "node", "done", "not_found", "refused", "unreached", "unknown", "p50_ms", "p99_ms", "max_ms"}}
	for _, series := range s.series {
		for _, b := range series.Bins {
			rows = append(rows, append([]string{
				strconv.FormatFloat((time.Duration(b.Number) * trial.BinLength).Seconds(), 'f', 1, 64),
				string(series.Operation), s.Nodes[series.Node],
				strconv.Itoa(b.Done), strconv.Itoa(b.NotFound), strconv.Itoa(b.Refused), strconv.Itoa(b.Unreached), strconv.Itoa(b.Unknown),
			}, binLatencies(b)...))
		}
	}
	return w.WriteAll(rows)
}

// binLatencies are the median, the 99th percentile and the greatest of a bin's latencies, in ms; empty
// where none was answered.
func binLatencies(b trial.Bin) []string {
	if len(b.Latencies) == 0 {
		return []string{"", "", ""}
	}
	return []string{binLatency(b, 0.5), binLatency(b, 0.99), binLatency(b, 1)}
}

// binLatency is the latency of the nearest rank, in ms.
func binLatency(b trial.Bin, quantile float64) string {
	var all int64
	for i := 1; i < len(b.Latencies); i += 2 {
		all += b.Latencies[i]
	}
	rank := int64(math.Ceil(quantile * float64(all)))
	at := 0
	for seen := b.Latencies[1]; seen < rank; seen += b.Latencies[at+1] {
		at += 2
	}
	return strconv.FormatFloat(float64(b.Latencies[at])/1000, 'f', 3, 64)
}
