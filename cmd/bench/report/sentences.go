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

// sentences say in words what happened in a scenario, from its verdicts: the faults, what each column did with
// them, how long it took, what was lost. One sentence each, the most important first. What was not measured is not mentioned.
func (r *Report) sentences(name string) []string {
	s := r.scenario(name)
	columns := r.each(s, r.spoken())
	var all []string
	for number := range s.Faults {
		all = append(all, faultSentences(s, number, columns)...)
	}
	for number := range s.Storms {
		all = append(all, stormSentences(s, number, columns)...)
	}
	if len(s.Faults)+len(s.Storms) == 0 {
		all = append(all, calmSentences(columns)...)
	}
	all = append(all, costSentences(columns)...)
	all = append(all, judgements(columns)...)
	all = append(all, r.failures(name)...)
	return given(all)
}

// failures name the trials that could not be completed.
func (r *Report) failures(name string) []string {
	var all []string
	for _, t := range r.Trials {
		if t.Scenario == name && t.Failed != "" {
			all = append(all, fmt.Sprintf("Round %d of %s could not be completed: %s.", t.Round, r.Column(t.Column).Heading(), strings.TrimSuffix(t.Failed, ".")))
		}
	}
	return all
}

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

// told is "Opening, CP did this, and that.", "AP did something else.": a sentence for each column, and one for columns that did
// the same. The clauses of a column follow its name. Without any there is no sentence.
func told(opening string, columns []runs, clauses func(runs) []string) []string {
	var who [][]string
	var what []string
	for _, m := range columns {
		if len(m.of) == 0 {
			continue
		}
		said := list(given(clauses(m)))
		switch same := slices.Index(what, said); {
		case said == "":
		case same >= 0:
			who[same] = append(who[same], m.Heading())
		default:
			who, what = append(who, []string{m.Heading()}), append(what, said)
		}
	}
	var sentences []string
	for i := range what {
		text := list(who[i]) + " " + what[i] + "."
		if i == 0 && opening != "" {
			text = capital(opening + text)
		}
		sentences = append(sentences, text)
	}
	return sentences
}

// stormSentences say how the calls of all clients went during a storm.
func stormSentences(s scenario.Scenario, number int, columns []runs) []string {
	var length float64
	for _, m := range columns {
		for _, one := range m.of {
			length = s.Storms[number].For.In(one.Length.Duration()).Seconds()
		}
	}
	opening := fmt.Sprintf("in the %s of the storm (%s), ", showSeconds(length), stormOf(s.Storms[number]))
	return told(opening, columns, func(m runs) []string {
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
func calmSentences(columns []runs) []string {
	return slices.Concat(
		told("while nothing failed, ", columns, func(m runs) []string { return m.whole().service() }),
		told("", columns, func(m runs) []string { return []string{m.shown("at other nodes", home)} }),
		told("", columns, func(m runs) []string { return []string{m.whole().staleReads()} }),
	)
}

// costSentences say what a load of heartbeats costs.
func costSentences(columns []runs) []string {
	return told("", columns, func(m runs) []string {
		if m.each(func(o run) float64 { return o.verdict.Cost.Memory }).zero() {
			return nil
		}
		cost := func(get func(verdict.Cost) float64) perRound {
			return m.each(func(o run) float64 { return get(o.verdict.Cost) })
		}
		return []string{
			"kept " + cost(func(c verdict.Cost) float64 { return c.CPU }).show(showCores) + " busy on all nodes",
			"wrote " + cost(func(c verdict.Cost) float64 { return c.Written }).show(showBytesPerSecond) + " to each disk",
			"took " + cost(func(c verdict.Cost) float64 { return c.Memory }).show(showBytes) + " of memory on a node",
		}
	})
}

// judgements say what the checkers found, and what was lost, revived or evicted wrongly, in all rounds together.
func judgements(columns []runs) []string {
	var all []string
	for _, m := range columns {
		all = append(all, m.histories(), m.convergence())
	}
	return append(append(all, losses(columns)...), harm(columns)...)
}

// histories says what the checker says of a column that promises linearizable histories.
func (m runs) histories() string {
	var keys, calls int
	doubt := ""
	for _, o := range m.of {
		h := o.verdict.History
		switch h.Result {
		case verdict.Violated:
			return fmt.Sprintf("%s was not linearizable: %s.", m.Heading(), h.Example.Text)
		case verdict.Undecided:
			doubt = h.Doubt()
		case verdict.OK:
			keys, calls = max(keys, h.Keys), calls+h.Calls
		}
	}
	switch {
	case doubt != "":
		return fmt.Sprintf("Whether %s was linearizable is undecided: %s.", m.Heading(), doubt)
	case calls == 0:
		return ""
	}
	where := ""
	if m.scenario.Datacenters > 1 {
		where = " within each datacenter"
	}
	return fmt.Sprintf("%s was linearizable%s: a single copy explains %s on %s.", m.Heading(), where, counted(calls, "call"), counted(keys, "watched key"))
}

// convergence says what the comparison of the nodes' ends says where it is bad or undecided.
func (m runs) convergence() string {
	for _, o := range m.of {
		c := o.verdict.Converged
		switch c.Result {
		case verdict.Violated:
			return fmt.Sprintf("%s did not converge by the rule: %s.", m.Heading(), c.Text)
		case verdict.Undecided:
			return fmt.Sprintf("Whether %s converged is undecided: %s.", m.Heading(), c.Text)
		}
	}
	return ""
}

// losses says in which columns something was lost, of which nothing that clients restored hides anything, or that nothing was.
func losses(columns []runs) []string {
	return told("", columns, func(m runs) []string {
		var said []string
		for _, k := range lossKinds {
			if lost := m.most(func(v *verdict.Verdict) int { return k.of(v.Losses).Count }); lost > 0 {
				said = append(said, k.said(lost, m))
			}
		}
		if revived := m.upTo("canceled instance", func(v *verdict.Verdict) int { return len(v.Revived) }); revived != "" && m.ListAge() == 0 {
			said = append(said, "listed "+revived+" again")
		}
		if absent := m.upTo("living instance", func(v *verdict.Verdict) int { return len(v.Lost) }); absent != "" {
			said = append(said, "lacked "+absent+" at the end")
		}
		if len(said) == 0 && m.judged() {
			said = append(said, "lost nothing that was acknowledged")
		}
		return said
	})
}

// judged reports whether anything was written that nothing but a loss could change.
func (m runs) judged() bool {
	return m.most(func(v *verdict.Verdict) int {
		return v.Losses.Registrations.Of + v.Losses.Updates.Of + v.Losses.Cancels.Of
	}) > 0
}

// said is what was lost of a kind at most in one round.
func (k lossKind) said(lost int, m runs) string {
	text := map[string]string{
		"registration": "lost %s", "update": "rolled back %s", "cancel": "undid %s", "version": "rolled back %s of watched keys", "heartbeat": "answered %s of living instances 404",
	}[k.noun]
	text = fmt.Sprintf(text, m.upTo(k.noun, func(v *verdict.Verdict) int { return k.of(v.Losses).Count }))
	var oldest perRound
	before := lost // those of the worst round that a kill followed
	for _, o := range m.of {
		l := k.of(o.verdict.Losses)
		if l.Age.Count > 0 {
			oldest = append(oldest, l.Age.Max)
		}
		if l.Count == lost {
			before = min(before, l.Age.Count)
		}
	}
	switch {
	case before == 0:
		return text
	case before < lost:
		return text + fmt.Sprintf(", %s of them acknowledged up to %s before the kill and the others later", showCount(float64(before)), showSeconds(slices.Max(oldest)))
	}
	return text + ", acknowledged up to " + showSeconds(slices.Max(oldest)) + " before the kill"
}

// most is the largest count of all rounds.
func (m runs) most(count func(*verdict.Verdict) int) int {
	largest := 0
	for _, o := range m.of {
		largest = max(largest, count(o.verdict))
	}
	return largest
}

// harm says what clients had to bear that is bad for a column: living instances evicted, or absent from lists.
func harm(columns []runs) []string {
	return told("", columns, func(m runs) []string {
		var said []string
		if evicted := m.falseEvictions(); !evicted.zero() {
			said = append(said, "evicted "+evicted.counted("living instance"))
		}
		missing := m.each(func(o run) float64 { return o.verdict.Missing })
		// Less than that is the lists' way to the nodes, a tenth of a second now and then.
		if math.Round(missing.median()) > 0 {
			said = append(said, "lacked living instances in lists for "+missing.show(showSum)+" instance-seconds a node"+m.silent())
		}
		return said
	})
}

// silent says for how long no list came, which counts as lists that lack everything.
func (m runs) silent() string {
	unanswered := m.each(func(o run) float64 { return o.verdict.Unanswered })
	if unanswered.zero() {
		return ""
	}
	return ", with no list at all for " + unanswered.show(showSeconds)
}

// spared says that no living instance was evicted; if some were, that is said elsewhere (harm).
func (m runs) spared() string {
	told := !slices.ContainsFunc(m.of, func(o run) bool { return !o.verdict.Told })
	if told && m.falseEvictions().zero() {
		return "evicted no living instance"
	}
	return ""
}

func (m runs) falseEvictions() perRound {
	return m.each(func(o run) float64 { return float64(o.verdict.FalseEvictions) })
}

// counted is "no write", "1 write" or "412 writes".
func counted(n int, noun string) string { return amount(float64(n), noun) }

// faultSentences say what became of one fault of a scenario in each column.
func faultSentences(s scenario.Scenario, number int, columns []runs) []string {
	struck := injected(columns, number)
	if len(struck) == 0 {
		return nil
	}
	f := faultOf{Fault: s.Faults[number], number: number, alone: len(s.Faults) == 1, instances: s.Load.Instances, injected: struck}
	return told(f.opening(), columns, func(m runs) []string { return f.clauses(m) })
}

// injected are a fault's injections in all rounds of all columns.
func injected(columns []runs, number int) []trial.Fault {
	var found []trial.Fault
	for _, m := range columns {
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
		if f.Times > 1 {
			return fmt.Sprintf("while nodes were killed amid writes %d times and started again, ", f.Times)
		}
		return fmt.Sprintf("when %s killed and started again %s later, ", f.whom(), length)
	case scenario.Lose:
		return fmt.Sprintf("when %s killed and lost with the disk, ", f.whom())
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
		return "the leader (the first node, where none leads) was"
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

// clauses say what a column did, in the order of their weight.
func (f faultOf) clauses(m runs) []string {
	switch f.Kind {
	case scenario.Isolate:
		return f.isolated(m)
	case scenario.Kill, scenario.Lose, scenario.Restart, scenario.Pause:
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
	slowest := m.known(func(o run) (float64, bool) { return o.verdict.Removal.Max, o.verdict.Removal.Count > 0 })
	var clauses []string
	switch {
	case len(removed) == 0 || removed.zero() && never.zero():
		return nil
	case never.zero():
		clauses = append(clauses, fmt.Sprintf("listed %s longer than %s after the last heartbeat", f.none(), slowest.show(showSeconds)))
	case removed.zero():
		clauses = append(clauses, "listed "+f.every()+" until the end"+f.withheld(m))
	default:
		clauses = append(clauses,
			fmt.Sprintf("listed %s of them for up to %s after the last heartbeat", removed.show(showCount), slowest.show(showSeconds)),
			fmt.Sprintf("%s of them until the end%s", never.show(showCount), f.withheld(m)))
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

// withheld names the rule that keeps the dead, where so many died that it does. Ours evicts nothing while so many are
// overdue; Eureka, which expects fewer heartbeats than come, goes on and evicts few at a time.
func (f faultOf) withheld(m runs) string {
	switch {
	case f.instances == 0 || f.count()/float64(f.instances) < 0.15:
		return ""
	case m.System == scenario.Rollcall:
		return ", for self-preservation withholds evictions while so many leases are overdue"
	}
	return ", for at most 15 % of all are evicted in a minute"
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
