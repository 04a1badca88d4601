package report

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

func (r *Report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", inMarkdown(r.title()))
	for _, listed := range []struct {
		head string
		of   []string
	}{{"Not valid", r.Invalid()}, {"Limits that were not kept", r.Broken()}} {
		if len(listed.of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n", listed.head)
		for _, sentence := range listed.of {
			fmt.Fprintf(&b, "- %s\n", inMarkdown(sentence))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n\n## The columns\n\n", inMarkdown(r.evidence()))
	for _, c := range r.columns() {
		fmt.Fprintf(&b, "- **%s** (`%s`): %s\n", inMarkdown(c.Heading()), inCode(c.Name), inMarkdown(c.About()))
	}
	for _, g := range r.groups() {
		r.tableMarkdown(&b, g.Name, g.Rows)
	}
	b.WriteString("\nOf each cell: the median of the rounds, and in brackets their range and number. Bold: better, " + markText + ".\n")
	for _, sentence := range r.lacking() {
		fmt.Fprintf(&b, "%s\n", inMarkdown(sentence))
	}
	r.matrixMarkdown(&b)
	r.fleetsMarkdown(&b)
	for _, s := range r.ran() {
		r.scenarioMarkdown(&b, s)
	}
	fmt.Fprintf(&b, "\n%s\n\n%s\n\nAll raw observations are in %s, calls per 100 ms in %s, the plots in %s.\n", inMarkdown(r.planText()), inMarkdown(r.machineText()), JSONFile, CSVFile, HTMLFile)
	_, err := io.WriteString(w, b.String())
	return err
}

// headMarkdown begins a table that has some columns.
func headMarkdown(b *strings.Builder, first string, columns []column) {
	fmt.Fprintf(b, "| %s |", inMarkdown(first))
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", inMarkdown(c.Heading()))
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
}

func (r *Report) tableMarkdown(b *strings.Builder, name string, rows []row) {
	fmt.Fprintf(b, "\n## %s\n\n", inMarkdown(name))
	headMarkdown(b, "", r.columns())
	rowsMarkdown(b, rows)
}

func rowsMarkdown(b *strings.Builder, rows []row) {
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |", inMarkdown(row.label()))
		for _, c := range row.Cells {
			fmt.Fprintf(b, " %s |", c.markdown())
		}
		b.WriteByte('\n')
	}
}

// markdown is a cell, its figure in bold if it is better.
func (c cell) markdown() string {
	return marked(c.Text, c.Better) + inMarkdown(strings.TrimPrefix(c.Words(), c.Text))
}

func (r *Report) matrixMarkdown(b *strings.Builder) {
	rows := r.matrix()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Every scenario\n\nLongest time for which one client got no answer to its heartbeats / stale answers to probes / acknowledged changes lost / time until everything was in every list.\n\n")
	headMarkdown(b, "scenario", r.columns())
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |", inMarkdown(row.Title))
		for _, c := range r.columns() {
			fmt.Fprintf(b, " %s |", row.markdown(c))
		}
		b.WriteByte('\n')
	}
}

// markdown are the figures of a column in a scenario of the matrix.
func (m matrixRow) markdown(c column) string {
	at := slices.IndexFunc(m.Lines, func(l matrixLine) bool { return l.Column.Name == c.Name })
	if at < 0 {
		return none
	}
	var cells []string
	for _, c := range m.Lines[at].Cells {
		cells = append(cells, marked(c.Text, c.Better))
	}
	return strings.Join(cells, " / ")
}

func (r *Report) fleetsMarkdown(b *strings.Builder) {
	rows := r.fleetRows()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", fleetTitle, inMarkdown(r.fleetAbout()))
	headMarkdown(b, "fleet", r.pricedColumns())
	rowsMarkdown(b, rows)
	for _, sentence := range r.uncarried() {
		fmt.Fprintf(b, "\n%s\n", inMarkdown(sentence))
	}
}

func (r *Report) scenarioMarkdown(b *strings.Builder, s scenario.Scenario) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", inMarkdown(s.Title), inMarkdown(s.About))
	for _, sentence := range r.sentences(s.Name) {
		fmt.Fprintf(b, "- %s\n", inMarkdown(sentence))
	}
	for _, e := range r.examples(s.Name) {
		exampleMarkdown(b, e)
	}
	b.WriteByte('\n')
	headMarkdown(b, s.Name, r.columns())
	rowsMarkdown(b, r.figures(s))
}

// marked is a text, in bold if it is the better one.
func marked(text string, better bool) string {
	if better && text != "" {
		return "**" + inMarkdown(text) + "**"
	}
	return inMarkdown(text)
}

// Summary writes what a terminal shows: the sentences of each scenario, the rows that help to choose, how far they reach, what is
// not valid and what was broken. Lines fit the terminal's width.
func (r *Report) Summary(w io.Writer) error {
	s := summary{width: terminalWidth(w)}
	for _, scenario := range r.ran() {
		s.line(scenario.Title)
		for _, sentence := range r.sentences(scenario.Name) {
			s.wrapped("  - ", sentence)
		}
		s.line("")
	}
	for _, g := range r.groups() {
		s.rows(g)
	}
	s.wrapped("", r.evidence())
	for _, invalid := range r.Invalid() {
		s.wrapped("  - not valid: ", invalid)
	}
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
	s.text.WriteString(strings.TrimRight(Printable(text), " ") + "\n")
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

// rows writes a group, the columns of each row below each other; * is the better one.
func (s *summary) rows(g group) {
	s.line(strings.ToUpper(g.Name) + " (* better)")
	for _, row := range g.Rows {
		s.wrapped("  ", row.label())
		for _, c := range row.Cells {
			sign := "  "
			if c.Better {
				sign = "* "
			}
			s.wrapped("    "+sign, c.Column.Heading()+": "+c.Words())
		}
	}
	s.line("")
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
