package report

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// csvHead names the columns: counts of calls that were due in the 100 ms from from_s on, over all nodes, and the
// latencies of the answered ones in ms; empty if there were none.
var csvHead = []string{"scenario", "mode", "round", "operation", "from_s", "due", "done", "not_found", "refused", "unreached", "unknown", "p50_ms", "p99_ms", "max_ms"}

func (r *Report) writeCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	if err := w.Write(csvHead); err != nil {
		return err
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		for _, operation := range trial.Operations {
			if err := writeBins(w, t, operation); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

func writeBins(w *csv.Writer, t *trial.Trial, operation trial.Operation) error {
	bins := sumBins(t, func(s trial.Series) bool { return s.Operation == operation })
	for _, number := range slices.Sorted(maps.Keys(bins)) {
		b := bins[number]
		row := []string{t.Scenario, string(t.Mode), strconv.Itoa(t.Round), string(operation), strconv.FormatFloat(binBegin(number), 'f', 1, 64)}
		for _, count := range []int{b.due(), b.Done, b.NotFound, b.Refused, b.Unreached, b.Unknown} {
			row = append(row, strconv.Itoa(count))
		}
		for _, q := range []float64{0.5, 0.99, 1} {
			row = append(row, csvMillis(b.quantile(q)))
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}

func csvMillis(micros int64, ok bool) string {
	if !ok {
		return ""
	}
	return strconv.FormatFloat(float64(micros)/1e3, 'f', -1, 64)
}
