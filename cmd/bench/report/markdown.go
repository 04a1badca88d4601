package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// title is that of all forms of the report.
const title = "CP against AP: what each mode does with the same faults"

// lookedFor says what two rows of the trade-offs count, and what they leave out.
const lookedFor = `"Lost" and "revived" are counted after the load, when heartbeats have gone on until everything acknowledged is listed, or time is up: a client whose heartbeat is answered 404 registers again, and what it restores is not lost in the end. A loss on the way is therefore not in that row; watched keys show it. In mode ap with data.sync: interval, the default, a kill of all nodes at once loses up to data.sync-interval of changes, a kill of some nodes nothing that another has heard of; with data.sync: always a change is on the disk of the node that answered before the answer. Mode cp answers when a majority has it on disk, and loses nothing.`

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
	fmt.Fprintf(&b, "\nThe better one is in bold, where one is better.\n\n**What is looked for, and when.** %s\n", inMarkdown(lookedFor))
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
	m := r.Machine
	return fmt.Sprintf("rollcall %s, %s. Machine: %s, %d cores, %s of memory; %s, %s; %s; %s.", r.Version, r.Date, m.CPU, m.Cores, m.Memory, m.Disk, m.Sync, m.Kernel, m.Go)
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
