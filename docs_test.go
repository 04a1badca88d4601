package rollcall_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestBehavioursNameTestsThatExist keeps docs/behaviours.md honest: whatever it names as a proof must
// be a test, fuzz target or benchmark of the project, and a subtest the name of a row of a table.
func TestBehavioursNameTestsThatExist(t *testing.T) {
	doc := need.Got(os.ReadFile("docs/behaviours.md"))(t)
	sources, err := exec.Command("git", "grep", "-h", "--untracked", "-E", `func |"[A-Z]`, "--", "*.go").Output()
	need.OKf(t, err, "git grep")
	names := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_/]*)`").FindAllStringSubmatch(string(doc), -1)
	need.That(t, len(names) != 0, "docs/behaviours.md names no test")
	for _, m := range names {
		function, row, isRow := strings.Cut(m[1], "/")
		expect.That(t, bytes.Contains(sources, []byte("func "+function+"(")), "docs/behaviours.md names %s, but there is no func %s", m[1], function)
		if isRow && !bytes.Contains(sources, []byte(`"`+row+`"`)) {
			t.Errorf("docs/behaviours.md names %s, but no table has a row %q", m[1], row)
		}
	}
}

// TestReadmeShowsTheTradeOffsOfTheKeptComparison compares the tables word by word.
func TestReadmeShowsTheTradeOffsOfTheKeptComparison(t *testing.T) {
	const head = "| | CP | AP |\n"
	table := func(file string) string {
		text := need.Got(os.ReadFile(file))(t)
		_, rest, ok := strings.Cut(string(text), head)
		need.That(t, ok, "%s has no table that begins with %q", file, head)
		rows, _, _ := strings.Cut(rest, "\n\n")
		return rows
	}
	kept, shown := table("docs/benchmarks/report.md"), table("README.md")
	expect.That(t, shown == kept, "README.md shows\n%s\nwant the table of docs/benchmarks/report.md:\n%s", shown, kept)
}

// TestGoClientCodeOfThePagesCompiles compares the blocks of its page, and of README.md, with the examples.
func TestGoClientCodeOfThePagesCompiles(t *testing.T) {
	read := func(file string) string {
		text := need.Got(os.ReadFile(file))(t)
		return string(text)
	}
	var examples strings.Builder
	for _, file := range []string{"client/example_test.go", "client/grpcresolver/example_test.go"} {
		examples.WriteString(shownCode(read(file)))
	}
	for _, page := range []string{"docs/go-client.md", "README.md"} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(page), -1)
		expect.That(t, len(blocks) != 0, "%s shows no code", page)
		for _, b := range blocks {
			expect.That(t, strings.Contains(examples.String(), shownCode(b[1])), "%s shows what is in no example:\n%s", page, b[1])
		}
	}
}

// shownCode is code as the pages show it: without indentation, blank lines, and what ends an example when
// something fails.
func shownCode(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return strings.ReplaceAll(b.String(), "if err != nil {\nlog.Fatal(err)\n}\n", "")
}
