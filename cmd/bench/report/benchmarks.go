package report

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

var noWord = regexp.MustCompile(`[^a-z0-9]+`)

// writeBenchmarks writes the figures of every trial that counts in Go's benchmark format, a line each, for
// golang.org/x/perf/cmd/benchstat: it compares the columns of a run (-col /column), or two runs.
func (r *Report) writeBenchmarks(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "rollcall: %s\ncpu: %s\n", Printable(r.Version), Printable(r.Machine.CPU))
	for _, s := range r.ran() {
		for _, c := range r.columns() {
			for _, o := range r.runs(s, c).of {
				fmt.Fprintf(&b, "Benchmark%s/column=%s 1", benchmarkName(s.Name), c.Name)
				for _, f := range figures() {
					if values := (runs{of: []run{o}}).values(f.get); len(values) > 0 {
						fmt.Fprintf(&b, " %s %s-%s", strconv.FormatFloat(values[0], 'g', -1, 64), noWord.ReplaceAllString(strings.ToLower(f.name), "-"), f.unit.name)
					}
				}
				b.WriteByte('\n')
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// benchmarkName turns a scenario's name into a benchmark's: it begins with a capital, and has no dash, because go test
// writes the number of processors after one.
func benchmarkName(scenario string) string {
	return strings.ToUpper(scenario[:1]) + strings.ReplaceAll(scenario[1:], "-", "_")
}
