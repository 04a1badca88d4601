package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// judgements say what the checkers found, and what was lost, revived or evicted wrongly, in all rounds together.
func judgements(modes []runs) []string {
	var all []string
	for _, m := range modes {
		all = append(all, m.histories(), m.convergence())
	}
	return append(all, losses(modes), harm(modes))
}

// histories says what the checker says of a mode that promises linearizable histories.
func (m runs) histories() string {
	var keys, calls, undecided int
	for _, o := range m.of {
		h := o.verdict.History
		switch h.Result {
		case verdict.Violated:
			return fmt.Sprintf("%s was not linearizable: %s.", modeName(m.mode), h.Example.Text)
		case verdict.Undecided:
			undecided++
		case verdict.OK:
			keys, calls = max(keys, h.Keys), calls+h.Calls
		}
	}
	switch {
	case undecided > 0:
		return fmt.Sprintf("Whether %s was linearizable is undecided: the checker ran out of time.", modeName(m.mode))
	case calls == 0:
		return ""
	}
	return fmt.Sprintf("%s was linearizable: a single copy explains %s on %s.", modeName(m.mode), counted(calls, "call"), counted(keys, "watched key"))
}

// convergence says what the comparison of the nodes' ends says where it is bad or undecided.
func (m runs) convergence() string {
	for _, o := range m.of {
		c := o.verdict.Converged
		switch c.Result {
		case verdict.Violated:
			return fmt.Sprintf("%s did not converge by the rule: %s.", modeName(m.mode), c.Text)
		case verdict.Undecided:
			return fmt.Sprintf("Whether %s converged is undecided: %s.", modeName(m.mode), c.Text)
		}
	}
	return ""
}

// losses says in which mode something was lost or revived, or that nothing was.
func losses(modes []runs) string {
	var parts, clean []string
	for _, m := range modes {
		if len(m.of) == 0 {
			continue
		}
		lost := m.most(func(v *verdict.Verdict) int { return len(v.Lost) })
		updates := m.most(func(v *verdict.Verdict) int { return len(v.Converged.Lost) })
		revived := m.most(func(v *verdict.Verdict) int { return len(v.Revived) })
		if lost+updates+revived == 0 {
			clean = append(clean, modeName(m.mode))
			continue
		}
		said := given([]string{some("lost", lost, "instance"), some("lost", updates, "update"), some("listed", revived, "canceled instance")})
		parts = append(parts, modeName(m.mode)+" "+list(said)+again(revived))
	}
	switch {
	case len(parts) == 0 && len(clean) == 0:
		return ""
	case len(parts) == 0:
		return "Nothing was lost" + in(clean) + ", and nothing came back that had been canceled."
	case len(clean) > 0:
		parts = append(parts, "nothing was lost"+in(clean))
	}
	return strings.Join(parts, "; ") + "."
}

// in names the modes in which something holds.
func in(modes []string) string {
	if len(modes) > 1 {
		return " in either mode"
	}
	return " in " + modes[0]
}

func again(revived int) string {
	if revived == 0 {
		return ""
	}
	return " again"
}

// some is "lost 3 instances", and nothing for none.
func some(verb string, n int, noun string) string {
	if n == 0 {
		return ""
	}
	return verb + " " + counted(n, noun)
}

// most is the largest count of all rounds.
func (m runs) most(count func(*verdict.Verdict) int) int {
	largest := 0
	for _, o := range m.of {
		largest = max(largest, count(o.verdict))
	}
	return largest
}

// harm says what clients had to bear that is bad for a mode: living instances evicted, or absent from lists.
func harm(modes []runs) string {
	return sentence("", slices.DeleteFunc(slices.Clone(modes), func(m runs) bool { return len(m.of) == 0 }), func(m runs) []string {
		var said []string
		if evicted := m.falseEvictions(); !evicted.zero() {
			said = append(said, "evicted "+evicted.counted("living instance"))
		}
		missing := m.each(func(o run) float64 { return o.verdict.Missing })
		// Less than that is the lists' way to the nodes, a tenth of a second now and then.
		if math.Round(missing.median()) > 0 {
			said = append(said, "lacked living instances in its lists for "+missing.show(showSum)+" instance-seconds a node")
		}
		return said
	})
}

// spared says that no living instance was evicted; if some were, that is said elsewhere (harm).
func (m runs) spared() string {
	if m.falseEvictions().zero() {
		return "evicted no living instance"
	}
	return ""
}

func (m runs) falseEvictions() perRound {
	return m.each(func(o run) float64 { return float64(o.verdict.FalseEvictions) })
}

// counted is "no write", "1 write" or "412 writes".
func counted(n int, noun string) string { return amount(float64(n), noun) }
