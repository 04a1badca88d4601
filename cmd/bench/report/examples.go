package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// example is the shortest prefix of a key's history that no single copy explains, for people to read.
type example struct {
	Title string
	Calls []exampleCall
}

// exampleCall is one call of it.
type exampleCall struct {
	Called, Returned string // seconds since the load's begin
	Client           int
	Node             string
	Text             string
	Wrong            bool // it is the one that cannot be explained
}

// examples are those of all trials of a scenario.
func (r *Report) examples(name string) []example {
	var all []example
	for i, t := range r.Trials {
		found := r.Verdicts[i].History.Example
		if t.Scenario != name || found == nil {
			continue
		}
		e := example{Title: fmt.Sprintf("%s, round %d: the shortest prefix of the history of %s that no single copy explains", r.Column(t.Column).Heading(), t.Round, found.Key)}
		for place, c := range found.Calls {
			e.Calls = append(e.Calls, exampleCall{
				Called: instant(c.Called), Returned: instant(c.Returned), Client: c.Client, Node: t.NodeName(c.Node), Text: callText(c), Wrong: place == found.Last,
			})
		}
		all = append(all, e)
	}
	return all
}

// instant is a moment to a millisecond; empty: it did not come.
func instant(m trial.Micros) string {
	if m == math.MaxInt64 {
		return ""
	}
	return fmt.Sprintf("%.3f s", m.Seconds())
}

// callText is what was asked, and what was answered.
func callText(c trial.Call) string {
	switch {
	case c.Action == trial.Look && (c.Outcome == trial.NotFound || c.Version == 0):
		return "read: not registered"
	case c.Action == trial.Look:
		return fmt.Sprintf("read: version %d", c.Version)
	case c.Action == trial.Remove:
		return fmt.Sprintf("cancel, version %d: %s", c.Version, c.Outcome)
	default:
		return fmt.Sprintf("register version %d: %s", c.Version, c.Outcome)
	}
}

// exampleMarkdown writes the last calls of an example: what came long before explains nothing.
func exampleMarkdown(b *strings.Builder, e example) {
	const shown = 12
	calls := e.Calls[max(0, len(e.Calls)-shown):]
	fmt.Fprintf(b, "\n%s (%s; the last %d are shown, all are in %s):\n\n| asked | answered | client | node | call |\n| --- | --- | --- | --- | --- |\n",
		inMarkdown(e.Title), counted(len(e.Calls), "call"), len(calls), JSONFile)
	for _, c := range calls {
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s |\n", c.Called, c.Returned, c.Client, inMarkdown(c.Node), marked(c.Text, c.Wrong))
	}
}
