//go:build kept

package report

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The pages of the kept run show what today's code makes of its raw file, and README's table is of the same figures.
func TestKeptRunIsShownAsItsRawFileSays(t *testing.T) {
	const kept = "../../../docs/benchmarks/"
	raw := need.Got(os.Open(kept + JSONFile + ".gz"))(t)
	defer raw.Close()
	r := need.Got(Read(raw))(t)
	var markdown, page strings.Builder
	need.OK(t, r.writeMarkdown(&markdown))
	golden.Page(t, kept+MarkdownFile, markdown.String())
	need.OK(t, r.writeHTML(&page))
	golden.Page(t, kept+HTMLFile, page.String())
	t.Run("README", func(t *testing.T) {
		checkReadme(t, r, string(need.Got(os.ReadFile("../../../README.md"))(t)))
	})
}

// checkReadme compares the figures of README's table, and what the sentence below it says of them, with a report.
func checkReadme(t *testing.T, r *Report, readme string) {
	t.Helper()
	shown := []struct {
		name string // of the row in README
		row  row    // of the report
	}{
		{"Leader killed: writes stop for", rowOf(t, r, leaderKilled)},
		{"Acknowledged changes lost by that kill, of about 300", lostIn(r, "leader-killed")},
		{"Server cut off with its clients: writes accepted there", rowOf(t, r, "Writes answered on the side cut off, when a node is isolated with its clients")},
		{"New instance in another server's list, p99", rowOf(t, r, "A registration is seen at another node, by list, p99, while nothing fails")},
	}
	var want []string
	least, most := 0, 0
	for _, s := range shown {
		line := "| " + s.name + " |"
		for _, column := range ownHues {
			at := slices.IndexFunc(s.row.Cells, func(c cell) bool { return c.Column.Name == column })
			need.That(t, at >= 0 && !s.row.Cells[at].Absent, "%s: the kept run has no figure of %s", s.name, column)
			line += " " + s.row.Cells[at].Text + " |"
			rounds := len(s.row.Cells[at].values)
			if least == 0 || rounds < least {
				least = rounds
			}
			most = max(most, rounds)
		}
		want = append(want, line)
	}
	for _, of := range r.each(r.scenario("leader-killed"), r.columns()[:len(ownHues)]) {
		count := of.each(changes).median()
		expect.That(t, math.Abs(count-300) < 20, "%s could lose %v changes, which is not about 300", of.Name, count)
	}
	table := regexp.MustCompile(`(?m)^\| Three servers, same load, same fault \| CP \| AP \| Eureka \|\n\|[-|]+\n((?:\|.*\n)+)`).FindStringSubmatch(readme)
	need.That(t, table != nil, "README has no table of three servers")
	got := strings.Split(strings.TrimSpace(table[1]), "\n")
	expect.Slice(t, slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "| APIs |") }), want, "README's table:")
	sentence := fmt.Sprintf("Medians of %d to %d rounds on one %d-core machine, without network latency", least, most, r.Machine.Cores)
	expect.That(t, strings.Contains(readme, sentence), "README does not say %q", sentence)
}

// lostIn returns the row of the acknowledged changes lost in a scenario. The report has it in the matrix of all scenarios.
func lostIn(r *Report, name string) (lost row) {
	at := slices.Index(matrixHeads, "lost")
	for _, of := range r.matrix() {
		for _, line := range of.Lines {
			if of.Name == name {
				lost.Cells = append(lost.Cells, line.Cells[at])
			}
		}
	}
	return lost
}

func changes(o run) float64 {
	l := o.verdict.Losses
	return float64(l.Registrations.Of + l.Updates.Of + l.Cancels.Of + l.Rollbacks.Of)
}
