package report

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Of the run that is kept, README shows the decision, and report.md is what today's code makes of its raw file.
func TestKeptRunIsShownAsItsRawFileSays(t *testing.T) {
	const kept, from, to = "../../../docs/benchmarks/", "<!-- decision: made by go test ./cmd/bench/report -run Kept -update -->\n", "<!-- end of decision -->\n"
	raw := need.Got(os.Open(kept + JSONFile + ".gz"))(t)
	defer raw.Close()
	r := need.Got(Read(raw))(t)
	golden.Part(t, "../../../README.md", from, to, r.Decision())
	var page strings.Builder
	need.OK(t, r.writeMarkdown(&page))
	golden.Page(t, kept+MarkdownFile, page.String())
}
