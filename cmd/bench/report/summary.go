package report

import (
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

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
