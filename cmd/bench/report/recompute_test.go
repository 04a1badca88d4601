package report

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

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

func TestPublishedNumbersCanBeComputedFromTheRawFiles(t *testing.T) {
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
				if math.Abs(got-want[i][m]) > 1e-9 {
					t.Errorf("%s, %s: number %d is %v in the JSON file, computed %v", scenario, mode, i, got, want[i][m])
				}
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
	if row := `<th scope="row">` + name + `</th><td>` + glued(cp) + `</td><td>` + glued(ap) + `</td>`; !strings.Contains(page, strings.ReplaceAll(row, ">>", ">&gt;")) {
		t.Errorf("%s: the page has no row %s", scenario, row)
	}
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
