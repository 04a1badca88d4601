package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// sentences say in words what happened in a scenario, from its verdicts: the faults, what each mode did with
// them, how long it took, what was lost. One sentence each, the most important first. What was not measured is not mentioned.
func (r *Report) sentences(name string) []string {
	s := r.scenario(name)
	cp, ap := r.runs(name, scenario.CP), r.runs(name, scenario.AP)
	modes := []runs{cp, ap}
	var all []string
	for number := range s.Faults {
		all = append(all, faultSentence(s, number, modes))
	}
	for number := range s.Storms {
		all = append(all, stormSentence(s, number, modes))
	}
	if len(s.Faults)+len(s.Storms) == 0 {
		all = append(all, calmSentences(modes)...)
	}
	all = append(all, costSentences(modes)...)
	all = append(all, judgements(modes)...)
	all = append(all, r.failures(name)...)
	return given(all)
}

// failures name the trials that could not be completed.
func (r *Report) failures(name string) []string {
	var all []string
	for _, t := range r.Trials {
		if t.Scenario == name && t.Failed != "" {
			all = append(all, fmt.Sprintf("Round %d in mode %s could not be completed: %s.", t.Round, modeName(t.Mode), strings.TrimSuffix(t.Failed, ".")))
		}
	}
	return all
}

// modeName is a mode as people write it.
func modeName(m scenario.Mode) string { return strings.ToUpper(string(m)) }

// given leaves out what is empty.
func given(texts []string) []string {
	var found []string
	for _, text := range texts {
		if text != "" {
			found = append(found, text)
		}
	}
	return found
}

// sentence is "Opening, CP did this, and that; AP did something else." The clauses of a mode follow its name. Without any
// there is no sentence.
func sentence(opening string, modes []runs, clauses func(runs) []string) string {
	var parts []string
	for _, m := range modes {
		if len(m.of) == 0 {
			continue
		}
		if said := given(clauses(m)); len(said) > 0 {
			parts = append(parts, modeName(m.mode)+" "+list(said))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return capital(opening+strings.Join(parts, "; ")) + "."
}

// stormSentence says how the calls of all clients went during a storm.
func stormSentence(s scenario.Scenario, number int, modes []runs) string {
	var length float64
	for _, m := range modes {
		for _, one := range m.of {
			length = s.Storms[number].For.In(one.Length.Duration()).Seconds()
		}
	}
	opening := fmt.Sprintf("in the %s of the storm (%s), ", showSeconds(length), stormOf(s.Storms[number]))
	return sentence(opening, modes, func(m runs) []string {
		during := m.storm(number)
		return append(during.service(), during.staleReads())
	})
}

// rateNouns are what rates count whose names are no nouns.
var rateNouns = map[string]string{"registers": "new instances", "writes": "writes on watched keys"}

// stormOf names the rates of a storm, sorted.
func stormOf(s scenario.Storm) string {
	var parts []string
	for _, name := range sortedNames(s.Load) {
		parts = append(parts, fmt.Sprintf("%s %s per second", showCount(s.Load[name]), cmp.Or(rateNouns[name], name)))
	}
	return list(parts)
}

// calmSentences are for scenarios in which nothing happens: throughput, latency, how soon others see what was
// registered, how old reads are.
func calmSentences(modes []runs) []string {
	return []string{
		sentence("while nothing failed, ", modes, func(m runs) []string { return m.whole().service() }),
		sentence("", modes, func(m runs) []string { return []string{m.shown("at other nodes", home)} }),
		sentence("", modes, func(m runs) []string { return []string{m.whole().staleReads()} }),
	}
}

// costSentences say what heartbeats and instances cost, where the trial can tell.
func costSentences(modes []runs) []string {
	return []string{
		sentence("for 1,000 renewals ", modes, func(m runs) []string {
			if m.each(func(o run) float64 { return o.verdict.Cost.CPUPerRenewals }).zero() {
				return nil
			}
			return []string{
				"needed " + m.each(func(o run) float64 { return o.verdict.Cost.CPUPerRenewals }).show(showSeconds) + " of CPU on all nodes",
				"sent " + m.each(func(o run) float64 { return o.verdict.Cost.BytesPerRenewals }).show(showBytes) + " between them",
				"wrote " + m.each(func(o run) float64 { return o.verdict.Cost.DiskPerRenewals }).show(showBytes) + " to their disks",
			}
		}),
		sentence("for 1,000 instances ", modes, func(m runs) []string {
			memory := m.each(func(o run) float64 { return o.verdict.Cost.MemoryPerInstances })
			if memory.zero() {
				return nil
			}
			return []string{"needed " + memory.show(showBytes) + " of memory on each node"}
		}),
	}
}

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

// faultSentence says what became of one fault of a scenario in each mode.
func faultSentence(s scenario.Scenario, number int, modes []runs) string {
	struck := injected(modes, number)
	if len(struck) == 0 {
		return ""
	}
	f := faultOf{Fault: s.Faults[number], number: number, alone: len(s.Faults) == 1, instances: s.Load.Instances, injected: struck}
	return sentence(f.opening(), modes, func(m runs) []string { return f.clauses(m) })
}

// injected are a fault's injections in all rounds of all modes.
func injected(modes []runs, number int) []trial.Fault {
	var found []trial.Fault
	for _, m := range modes {
		for _, o := range m.of {
			if number < len(o.Faults) {
				found = append(found, o.Faults[number])
			}
		}
	}
	return found
}

// faultOf is a fault of a scenario, as planned and as injected.
type faultOf struct {
	scenario.Fault
	number    int
	alone     bool // the only fault of the scenario
	instances int
	injected  []trial.Fault
}

// opening is "in the 6 s in which the leader was cut off, ".
func (f faultOf) opening() string {
	var lengths perRound
	for _, i := range f.injected {
		lengths = append(lengths, (i.To - i.From).Seconds())
	}
	length := showSeconds(math.Round(lengths.median()*10) / 10)
	switch f.Kind {
	case scenario.Kill:
		return fmt.Sprintf("when %s killed and started again %s later, ", f.whom(), length)
	case scenario.Restart:
		return fmt.Sprintf("when %s stopped and started again %s later, ", f.whom(), length)
	case scenario.Pause:
		return fmt.Sprintf("when %s paused for %s, ", f.whom(), length)
	case scenario.Isolate:
		return fmt.Sprintf("in the %s in which %s cut off, ", length, f.whom())
	case scenario.CutLink:
		return fmt.Sprintf("in the %s in which the datacenters were cut off from each other, ", length)
	case scenario.SlowDisk:
		return fmt.Sprintf("in the %s in which each durable write took %s longer, ", length, showSeconds(f.Delay.Duration().Seconds()))
	case scenario.Die:
		return fmt.Sprintf("when %s died, ", amount(f.count(), "instance"))
	case scenario.Silence:
		return fmt.Sprintf("when the clients of %s restarted, silent for %s, ", amount(f.count(), "instance"), length)
	case scenario.Flap:
		return fmt.Sprintf("in the %s in which %s canceled and registered again every second, ", length, amount(f.count(), "instance"))
	}
	return fmt.Sprintf("in the %s of %s, ", length, f.Kind)
}

func (f faultOf) count() float64 {
	var counts perRound
	for _, i := range f.injected {
		counts = append(counts, float64(i.Count))
	}
	return counts.median()
}

// whom is the struck nodes, with the verb: "node2 was", "both followers were".
func (f faultOf) whom() string {
	same := !slices.ContainsFunc(f.injected, func(i trial.Fault) bool { return !slices.Equal(i.Nodes, f.injected[0].Nodes) })
	nodes := float64(len(f.injected[0].Nodes))
	switch f.Nodes {
	case "leader":
		return "the leader (AP: the first node) was"
	case "followers":
		return "all nodes but the leader were"
	case "all":
		return "all nodes were"
	case "follower":
		if !same {
			return "a node that does not lead was"
		}
	}
	if !same {
		return amount(nodes, "node") + " " + wasWere(nodes)
	}
	var names []string
	for _, n := range f.injected[0].Nodes {
		names = append(names, fmt.Sprintf("node%d", n+1))
	}
	return list(names) + " " + wasWere(nodes)
}

// clauses say what a mode did, in the order of their weight.
func (f faultOf) clauses(m runs) []string {
	switch f.Kind {
	case scenario.Isolate:
		return f.isolated(m)
	case scenario.Kill, scenario.Restart, scenario.Pause:
		return f.stopped(m)
	case scenario.CutLink:
		return f.linkCut(m)
	case scenario.Die:
		return f.died(m)
	case scenario.Silence:
		return f.silenced(m)
	case scenario.Flap:
		return f.flapped(m)
	}
	return f.slowed(m)
}

func (f faultOf) isolated(m runs) []string {
	cut, rest := m.side(f.number, true), m.side(f.number, false)
	clauses := []string{cut.accepted("on the side cut off"), cut.answeredReads("there")}
	if gap := rest.each(func(s verdict.Side) float64 { return s.Writes.LongestGap }); !gap.zero() && slices.Max(gap) > shortGap {
		clauses = append(clauses, "answered no write on the other side for "+gap.show(showSeconds))
	}
	return append(clauses, f.elected(m), m.healed(f.number, "healing"))
}

func (f faultOf) stopped(m runs) []string {
	seen := m.during(f.number)
	if f.alone {
		seen = m.whole() // clients may need longer than the nodes to find back
	}
	clauses := []string{seen.gap(), seen.staleReads()}
	if share, ok := m.side(f.number, true).share(writes); ok && !share.whole() {
		clauses = append(clauses, "answered "+share.show(showShare)+" of the writes of clients connected there")
	}
	return append(clauses, f.elected(m), m.healed(f.number, f.endText()))
}

// endText is what ends a fault of processes.
func (f faultOf) endText() string {
	if f.Kind == scenario.Pause {
		return "the pause"
	}
	return "the restart"
}

// elected says which leaders were elected, if that is of interest: there was an election, or the leader was struck.
func (f faultOf) elected(m runs) string {
	if m.most(func(v *verdict.Verdict) int { return v.Elections }) == 0 && f.Nodes != "leader" {
		return ""
	}
	return m.elected()
}

func (f faultOf) linkCut(m runs) []string {
	during := m.during(f.number)
	return []string{
		during.accepted("on both sides"), during.answeredReads("there"), m.shown("on the other side", abroad), m.healed(f.number, "the links were back"),
	}
}

func (f faultOf) slowed(m runs) []string {
	return append(m.during(f.number).service(), m.healed(f.number, "its end"))
}

func (f faultOf) died(m runs) []string {
	removed := m.each(func(o run) float64 { return float64(o.verdict.Removal.Count) })
	never := m.each(func(o run) float64 { return float64(o.verdict.Removal.Never) })
	slowest := m.each(func(o run) float64 { return o.verdict.Removal.Max })
	var clauses []string
	switch {
	case len(removed) == 0 || removed.zero() && never.zero():
		return nil
	case never.zero():
		clauses = append(clauses, fmt.Sprintf("listed %s longer than %s after the last heartbeat", f.none(), slowest.show(showSeconds)))
	case removed.zero():
		clauses = append(clauses, "listed "+f.every()+" until the end"+f.withheld())
	default:
		clauses = append(clauses,
			fmt.Sprintf("listed %s of them for up to %s after the last heartbeat", removed.show(showCount), slowest.show(showSeconds)),
			fmt.Sprintf("%s of them until the end%s", never.show(showCount), f.withheld()))
	}
	return append(clauses, m.spared())
}

// none and every are the instances that died, as the object of a sentence.
func (f faultOf) none() string {
	if f.count() == 1 {
		return "it no"
	}
	return "none of them"
}

func (f faultOf) every() string {
	if f.count() == 1 {
		return "it"
	}
	return "all of them"
}

// withheld names self-preservation, where so many died that it keeps them (more than 15 %).
func (f faultOf) withheld() string {
	if f.instances > 0 && f.count()/float64(f.instances) >= 0.15 {
		return ", for self-preservation withheld their eviction"
	}
	return ""
}

func (f faultOf) silenced(m runs) []string {
	late := m.each(func(o run) float64 { return o.verdict.Operations[trial.Register].Latency.P99 })
	clauses := []string{m.during(f.number).answeredReads("meanwhile")}
	if !late.zero() {
		clauses = append(clauses, "took 99 % of the registrations within "+late.show(showSeconds))
	}
	if len(given(clauses)) > 0 {
		clauses = append(clauses, m.spared())
	}
	return append(clauses, m.healed(f.number, "they were back"))
}

func (f faultOf) flapped(m runs) []string {
	var clauses []string
	if len(m.during(f.number)) > 0 {
		ghosts := m.each(func(o run) float64 { return o.verdict.Ghosts })
		missing := m.each(func(o run) float64 { return o.verdict.Missing })
		clauses = append(clauses,
			fmt.Sprintf("listed canceled ones for %s instance-seconds a node", ghosts.show(showSum)),
			fmt.Sprintf("lacked registered ones for %s", missing.show(showSum)))
	}
	return append(clauses, m.healed(f.number, "they settled"))
}
