package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// title is that of all forms of the report.
const title = "CP against AP: what each mode does with the same faults"

// countedAtTheEnd says what two rows of the trade-offs count, and what they leave out.
const countedAtTheEnd = `"Lost" and "revived" are counted after the load, when heartbeats have gone on until everything acknowledged is listed, or time is up: a client whose heartbeat is answered 404 registers again, and what it restores is not lost in the end. A loss on the way is therefore not in that row; watched keys show it. In mode ap with data.sync: interval, the default, a kill of all nodes at once loses up to data.sync-interval of changes, a kill of some nodes nothing that another has heard of; with data.sync: always a change is on the disk of the node that answered before the answer. Mode cp answers when a majority has it on disk, and loses nothing.`

func (r *Report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n\n", title, inMarkdown(r.machineText()), inMarkdown(r.planText()))
	b.WriteString("## Limits\n\n" + r.limitsText() + "\n")
	for i, broken := range r.Broken() {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s\n", inMarkdown(broken))
	}
	b.WriteString("\n## Trade-offs\n\n| | CP | AP |\n| --- | --- | --- |\n")
	for _, t := range r.tradeOffs() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", inMarkdown(t.Question), marked(t.CP, t.Better == string(scenario.CP)), marked(t.AP, t.Better == string(scenario.AP)))
	}
	fmt.Fprintf(&b, "\nThe better one is in bold, where one is better.\n\n**What is looked for, and when.** %s\n", inMarkdown(countedAtTheEnd))
	for _, s := range r.ran() {
		r.scenarioMarkdown(&b, s)
	}
	fmt.Fprintf(&b, "\nAll raw observations are in %s, calls per 100 ms in %s, the plots in %s.\n", JSONFile, CSVFile, HTMLFile)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) scenarioMarkdown(b *strings.Builder, s scenario.Scenario) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", inMarkdown(s.Title), inMarkdown(s.About))
	for _, sentence := range r.sentences(s.Name) {
		fmt.Fprintf(b, "- %s\n", inMarkdown(sentence))
	}
	for _, e := range r.examples(s.Name) {
		exampleMarkdown(b, e)
	}
	b.WriteString("\n| " + inMarkdown(s.Name) + " | CP | AP |\n| --- | --- | --- |\n")
	for _, row := range r.figures(s.Name) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", inMarkdown(row.Name), inMarkdown(row.CP), inMarkdown(row.AP))
	}
	if rounds := r.rounds(s.Name); rounds > 1 {
		fmt.Fprintf(b, "\nMedians of %d rounds, in brackets the range.\n", rounds)
	}
}

// marked is a cell, in bold if it is the better one.
func marked(text string, better bool) string {
	if better && text != "" {
		return "**" + inMarkdown(text) + "**"
	}
	return inMarkdown(text)
}

// inMarkdown keeps names out of files of scenarios from being markup.
func inMarkdown(text string) string {
	return strings.NewReplacer("\n", " ", "\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[").Replace(text)
}

func (r *Report) machineText() string {
	return fmt.Sprintf("rollcall %s, %s. %s.", r.Version, r.Date, r.Machine)
}

// planText says how the comparison was run.
func (r *Report) planText() string {
	p := r.Plan
	kind := "full"
	if p.Quick {
		kind = "quick"
	}
	text := fmt.Sprintf("%s, %s of %s each with the same load and faults in both modes (%s, seed %d), on clusters of real processes; it took %s.",
		counted(len(r.ran()), "scenario"), counted(len(r.Trials), "trial"), showSeconds(p.Length.Seconds()), kind, p.Seed, p.Took.Duration().Round(1e9))
	for _, sentence := range p.LeftOut {
		text += " " + sentence
	}
	return text
}

// limitsText is the verdict over all limits.
func (r *Report) limitsText() string {
	switch broken := len(r.Broken()); broken {
	case 0:
		return "All limits were kept."
	case 1:
		return "One limit was broken."
	default:
		return fmt.Sprintf("%d limits were broken.", broken)
	}
}

// Summary writes what a terminal shows: the sentences of each scenario, the trade-off table, what was broken. Lines
// fit the terminal's width.
func (r *Report) Summary(w io.Writer) error {
	s := summary{width: terminalWidth(w)}
	for _, scenario := range r.ran() {
		s.line(scenario.Title)
		for _, sentence := range r.sentences(scenario.Name) {
			s.wrapped("  - ", sentence)
		}
		s.line("")
	}
	s.table(r.tradeOffs())
	s.wrapped("", r.limitsText())
	for _, broken := range r.Broken() {
		s.wrapped("  - ", broken)
	}
	if r.dir != "" {
		s.line("")
		for _, file := range []string{HTMLFile, MarkdownFile, JSONFile, CSVFile} {
			s.line(filepath.Join(r.dir, file))
		}
	}
	_, err := io.WriteString(w, s.text.String())
	return err
}

// summary collects lines of a width in characters.
type summary struct {
	width int
	text  strings.Builder
}

func (s *summary) line(text string) {
	s.text.WriteString(strings.TrimRight(printable(text), " ") + "\n")
}

// wrapped writes a text behind a bullet, further lines indented by as much.
func (s *summary) wrapped(bullet, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(bullet))
	for i, line := range wrap(text, s.width-len(indent)) {
		if i > 0 {
			bullet = indent
		}
		s.line(bullet + line)
	}
}

// table writes the trade-offs in three columns. A cell takes as many lines as it needs; * is the better one.
func (s *summary) table(rows []tradeOff) {
	if len(rows) == 0 {
		return
	}
	question := min(40, s.width*2/5)
	cell := (s.width - question - 4) / 2
	s.columns(question, cell, "TRADE-OFF (* better)", "CP", "AP")
	for _, row := range rows {
		s.columns(question, cell, row.Question, starred(row.CP, row.Better == "cp"), starred(row.AP, row.Better == "ap"))
	}
	s.line("")
}

func starred(text string, better bool) string {
	if better {
		return "* " + text
	}
	return text
}

func (s *summary) columns(first, other int, cells ...string) {
	var wrapped [3][]string
	lines := 0
	for i, cell := range cells {
		wrapped[i] = wrap(cell, [3]int{first, other, other}[i])
		lines = max(lines, len(wrapped[i]))
	}
	for n := range lines {
		s.line(padded(wrapped[0], n, first) + "  " + padded(wrapped[1], n, other) + "  " + padded(wrapped[2], n, other))
	}
}

// padded is the n-th line, or nothing, in so many characters.
func padded(lines []string, n, width int) string {
	text := ""
	if n < len(lines) {
		text = lines[n]
	}
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// wrap breaks a text between words into lines of at most so many characters. A word that is longer has a line
// of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// printable keeps what servers and files said from driving the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// showSeconds shows a span of seconds with three digits and the unit that suits it.
func showSeconds(s float64) string {
	switch {
	case s < 0:
		return "never"
	case s == 0:
		return "0 s"
	case s < 1e-3:
		return threeDigits(s*1e6) + " µs"
	case s < 1:
		return threeDigits(s*1e3) + " ms"
	}
	return threeDigits(s) + " s"
}

// showShare shows a share as a percentage. Only all is 100 %, and only none is 0 %.
func showShare(share float64) string {
	percent := share * 100
	switch {
	case percent == 0 || percent == 100:
		return fmt.Sprintf("%.0f %%", percent)
	case percent < 0.01:
		return "< 0.01 %"
	case percent > 99.99:
		return "> 99.99 %"
	case percent < 1 || percent > 99:
		return fmt.Sprintf("%.2f %%", percent)
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// showCount shows a number without decimals, in groups of three digits.
func showCount(n float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(n)), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "−" + digits
	}
	return digits
}

// showBytes shows an amount of bytes with three digits and a decimal unit.
func showBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB"}
	for ; n >= 1000 && len(units) > 1; units = units[1:] {
		n /= 1000
	}
	return threeDigits(n) + " " + units[0]
}

func showBytesPerSecond(n float64) string { return showBytes(n) + "/s" }

// showSum shows a sum of instance-seconds, or another number that may be a fraction.
func showSum(n float64) string {
	if n >= 1000 {
		return showCount(n)
	}
	return threeDigits(n)
}

// threeDigits rounds to three significant digits and leaves no zeros behind a decimal point.
func threeDigits(n float64) string {
	if n == 0 {
		return "0"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(n)))))
	text := strconv.FormatFloat(n, 'f', min(decimals, 6), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// significant rounds to four significant digits: what a plot can show.
func significant(n float64) float64 {
	if n == 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return n
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(n))))
	return math.Round(n*scale) / scale
}

// median is that of the values, which it sorts; of an even number the lower one, so that it is one that was measured.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
