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

	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The pages of the kept run show what today's code makes of its raw file, and README's table has the same figures.
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

// checkReadme compares README's table, whose rows are among the chosen ones, and the sentences around it, with a
// report.
func checkReadme(t *testing.T, r *Report, readme string) {
	t.Helper()
	table := regexp.MustCompile(`(?m)^\| Three servers, same load, same fault \| CP \| AP \| Eureka \|\n\|[-|]+\n((?:\|.*\n)+)\| APIs \|`).FindStringSubmatch(readme)
	need.That(t, table != nil, "README has no table of three servers")
	lines := strings.Split(strings.TrimSpace(table[1]), "\n")
	expect.That(t, len(lines) >= 4, "README's table has %d rows of figures, want four at least", len(lines))
	least, most := math.MaxInt, 0
	for _, line := range lines {
		name := strings.TrimSpace(strings.Split(line, "|")[1])
		all := r.chosen()
		at := slices.IndexFunc(all, func(c row) bool { return strings.HasPrefix(name, c.Name) })
		need.That(t, at >= 0, "README's row %q is none of the chosen ones", name)
		want := "| " + name + " |"
		for _, c := range all[at].Cells[:len(ownHues)] {
			want += " " + c.Text + " |"
			least, most = min(least, len(c.values)), max(most, len(c.values))
		}
		expect.Equal(t, line, want, "README's row:")
	}
	for _, c := range r.columns()[:len(ownHues)] {
		count := r.runs(r.scenario("leader-killed"), c).values(func(v *verdict.Verdict) float64 {
			l := v.Losses
			return float64(l.Registrations.Of + l.Updates.Of + l.Cancels.Of)
		}).median()
		expect.That(t, math.Abs(count-300) < 25, "%s could lose %v changes, which is not about 300", c.Name, count)
	}
	for _, sentence := range []string{fmt.Sprintf("Medians of %d to %d rounds on one %d-core machine, without network latency", least, most, r.Machine.Cores), Advice} {
		expect.That(t, strings.Contains(strings.ReplaceAll(readme, "**", ""), sentence), "README does not say %q", sentence)
	}
}
