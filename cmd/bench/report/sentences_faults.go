package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

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

// whom is who was struck, with the verb: "node2 was", "both followers were".
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
	return append(clauses, f.elected(m), m.healed(f.number, f.end()))
}

// end is what ends a fault of processes.
func (f faultOf) end() string {
	if f.Kind == scenario.Pause {
		return "the pause"
	}
	return "the restart"
}

// elected says who was elected, if that is of interest: somebody was, or the leader was struck.
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
	gone := m.each(func(o run) float64 { return float64(o.verdict.Removal.Count) })
	never := m.each(func(o run) float64 { return float64(o.verdict.Removal.Never) })
	slowest := m.each(func(o run) float64 { return o.verdict.Removal.Max })
	var clauses []string
	switch {
	case len(gone) == 0 || gone.zero() && never.zero():
		return nil
	case never.zero():
		clauses = append(clauses, fmt.Sprintf("listed %s longer than %s after the last heartbeat", f.none(), slowest.show(showSeconds)))
	case gone.zero():
		clauses = append(clauses, "listed "+f.every()+" until the end"+f.withheld())
	default:
		clauses = append(clauses,
			fmt.Sprintf("listed %s of them for up to %s after the last heartbeat", gone.show(showCount), slowest.show(showSeconds)),
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
