package report

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Advice is README's, and written by people: a report does not invent any.
const Advice = "Take CP, the default, unless clients that are cut off with one server must still register, or you have only two machines."

const title = "The same load and the same faults: what each registry does"

// evidence says in one paragraph how far the figures reach: the machine, the rounds, and whether the run is valid.
func (r *Report) evidence() string {
	m, p := r.Machine, r.Plan
	trials := amount(float64(len(r.Trials)), "trial")
	if counting := r.counting(); counting < len(r.Trials) {
		trials += fmt.Sprintf(" (%d count)", counting)
	}
	text := fmt.Sprintf("One machine (%s, %s, %s) ran clients, nodes and disks, without network latency: ratios between columns tell more than figures. %s of %s, up to %s of %s each.",
		m.CPU, amount(float64(m.Cores), "core"), m.Disk, trials, amount(float64(len(r.ran())), "scenario"), amount(float64(p.Rounds), "round"), showSeconds(p.Length.Seconds()))
	repeats := 0
	for _, t := range r.Trials {
		repeats += len(t.Repeats)
	}
	if repeats > 0 {
		text += " " + amount(float64(repeats), "try") + " did not count because the machine was too busy."
	}
	text += " " + r.validText() + " " + r.limitsText() + " Rollcall's docs/comparison.md says what the words mean."
	return strings.Replace(text, " trys ", " tries ", 1)
}

// validText says whether the run is valid.
func (r *Report) validText() string {
	if invalid := r.Invalid(); len(invalid) > 0 {
		return "The run is not valid."
	}
	if left := len(r.Trials) - r.counting(); left > 0 {
		return fmt.Sprintf("The run is valid: the machine carried all but %d loads of heartbeats alone, which are in no figure.", left)
	}
	return "The run is valid: the machine carried it."
}

// limitsText says whether all limits were kept.
func (r *Report) limitsText() string {
	switch broken := len(r.Broken()); {
	case broken > 0:
		return "Limits broken: " + showCount(float64(broken)) + "."
	case r.counting() == 0:
		return "No limit was checked."
	}
	return "All limits were kept (Eureka has none)."
}

// planText says how the comparison was run, and where.
func (r *Report) planText() string {
	text := fmt.Sprintf("rollcall %s, %s, seed %d, took %s. %s.", r.Version, r.Date, r.Plan.Seed, r.Plan.Took.Duration().Round(1e9), r.Machine)
	return strings.Join(append([]string{text}, r.Plan.LeftOut...), " ")
}

func (r *Report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
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
	b.WriteString("**" + Advice + "**\n\n")
	if rows := r.chosen(); len(rows) > 0 {
		r.headMarkdown(&b)
		for _, row := range rows {
			row.markdown(&b)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n\nOf each cell: the median of the rounds, and in brackets their range and number. Bold: better, %s.\n\n", inMarkdown(r.evidence()), markText)
	for _, c := range r.columns() {
		fmt.Fprintf(&b, "- **%s**: %s\n", inMarkdown(c.Heading()), inMarkdown(c.About()))
	}
	for _, s := range r.ran() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", inMarkdown(s.Title), inMarkdown(s.About))
		r.headMarkdown(&b)
		for _, row := range r.table(s) {
			if !row.detail {
				row.markdown(&b)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n\nAll raw observations are in %s, the figures of each trial in Go's benchmark format in %s, the plots in %s.\n", inMarkdown(r.planText()), JSONFile, BenchmarkFile, HTMLFile)
	_, err := io.WriteString(w, b.String())
	return err
}

// headMarkdown begins a table of all columns.
func (r *Report) headMarkdown(b *strings.Builder) {
	b.WriteString("|  |")
	for _, c := range r.columns() {
		fmt.Fprintf(b, " %s |", inMarkdown(c.Heading()))
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(r.columns())) + "\n")
}

// markdown writes a row; figures that are better are in bold.
func (w row) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "| %s |", inMarkdown(w.Name))
	for _, c := range w.Cells {
		text, rest := inMarkdown(c.Text), inMarkdown(strings.TrimPrefix(c.Words(), c.Text))
		if c.Better {
			text = "**" + text + "**"
		}
		fmt.Fprintf(b, " %s%s |", text, rest)
	}
	b.WriteByte('\n')
}

// Summary writes what a terminal shows: the chosen rows, a few rows of each scenario, how far they reach, what is not
// valid and what was broken.
func (r *Report) Summary(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		for i := range cells {
			cells[i] = Printable(cells[i])
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	table := func(head string, rows []row) {
		cells := []string{strings.ToUpper(head)}
		for _, c := range r.columns() {
			cells = append(cells, c.Heading())
		}
		line(cells...)
		for _, row := range rows {
			cells := []string{"  " + row.Name}
			for _, c := range row.Cells {
				sign := ""
				if c.Better {
					sign = "* "
				}
				cells = append(cells, sign+c.Text)
			}
			line(cells...)
		}
		line()
	}
	table("* better", r.chosen())
	for _, s := range r.ran() {
		table(s.Title, slices.DeleteFunc(r.table(s), func(w row) bool { return !w.brief && (w.detail || !s.HeartbeatsOnly()) }))
	}
	line(r.evidence())
	for _, invalid := range r.Invalid() {
		line("- not valid: " + invalid)
	}
	for _, broken := range r.Broken() {
		line("- " + broken)
	}
	if r.dir != "" {
		for _, file := range r.files() {
			line(filepath.Join(r.dir, file.name))
		}
	}
	return out.Flush()
}
