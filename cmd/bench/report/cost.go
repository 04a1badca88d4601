package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// rateOf is how many renewals a second a load makes.
func rateOf(s scenario.Scenario) float64 {
	if s.Load.Heartbeat <= 0 {
		return 0
	}
	return float64(s.Load.Instances) / s.Load.Heartbeat.Duration().Seconds()
}

// idle reports whether a load is that of a cluster with nothing to do: what it costs is the price of being there.
func idle(s scenario.Scenario) bool { return s.HeartbeatsOnly() && s.Load.Instances == 1 }

// loads are the scenarios of heartbeats alone that ran, by their rates.
func (r *Report) loads() []scenario.Scenario {
	found := slices.DeleteFunc(r.ran(), func(s scenario.Scenario) bool { return !s.HeartbeatsOnly() || rateOf(s) == 0 })
	slices.SortStableFunc(found, func(a, b scenario.Scenario) int { return less.compare(rateOf(a), rateOf(b)) })
	return found
}

// priced is the load of heartbeats of which costs per renewal are told: that nearest to 1,000 a second.
func (r *Report) priced() scenario.Scenario {
	loads := slices.DeleteFunc(r.loads(), idle)
	if len(loads) == 0 {
		return scenario.Scenario{}
	}
	far := func(s scenario.Scenario) float64 { return math.Abs(math.Log(rateOf(s) / 1000)) }
	return slices.MinFunc(loads, func(a, b scenario.Scenario) int { return less.compare(far(a), far(b)) })
}

// perRenewals is what 1,000 renewals add to the cost of an idle cluster, at the rate of the load that is priced: while few
// come, one may cost more.
func (r *Report) perRenewals(name string, show func(float64) string, get func(verdict.Cost) float64) figure {
	name += fmt.Sprintf(" for 1,000 renewals, at %s a second", showCount(rateOf(r.priced())))
	atRest := make(map[string]float64) // by column
	for _, s := range r.loads() {
		if !idle(s) {
			continue
		}
		for _, of := range r.each(s, r.columns()) {
			if costs := of.known(func(o run) (float64, bool) { return get(o.verdict.Cost), o.verdict.Cost.Memory > 0 }); len(costs) > 0 {
				atRest[of.Name] = costs.median()
			}
		}
	}
	return figure{name: name, show: show, better: less, get: func(o run) (float64, bool) {
		rest, ok := atRest[o.Column]
		cost := o.verdict.Cost
		if !ok || cost.Renewals == 0 {
			return 0, false
		}
		return max(get(cost)-rest, 0) / cost.Renewals * 1000, true
	}}
}

// curve is what renewals cost in a column.
type curve struct {
	Column string  `json:"column"`
	Points []point `json:"points"` // by rate
}

// point is a load of heartbeats: the medians of the rounds.
type point struct {
	Scenario string  `json:"scenario"`
	Rate     float64 `json:"rate"`    // renewals answered, per second
	CPU      float64 `json:"cpu"`     // of all nodes, in processors
	Written  float64 `json:"written"` // to the disk of a node, in bytes per second
	Memory   float64 `json:"memory"`  // of a node, in bytes
	Carried  bool    `json:"carried"` // false: the machine did not carry the load, and the costs are not those of servers alone
}

// curves are those of the columns that ran any load of heartbeats.
func (r *Report) curves() []curve {
	found := []curve{}
	for _, c := range r.columns() {
		line := curve{Column: c.Name}
		for _, s := range r.loads() {
			if p, ok := r.point(s, c); ok {
				line.Points = append(line.Points, p)
			}
		}
		if len(line.Points) > 0 {
			found = append(found, line)
		}
	}
	return found
}

// point is that of a load in a column: of the rounds that count, or if there are none, of those that were not carried.
func (r *Report) point(s scenario.Scenario, c column) (point, bool) {
	of := r.runs(s, c)
	carried := len(of.of) > 0
	if !carried {
		for i := range r.Trials {
			if t := &r.Trials[i]; t.Scenario == s.Name && t.Column == c.Name && t.Failed == "" {
				of.of = append(of.of, run{t, &r.Verdicts[i]})
			}
		}
	}
	of.of = slices.DeleteFunc(of.of, func(o run) bool { return o.verdict.Cost.Memory == 0 })
	if len(of.of) == 0 {
		return point{}, false
	}
	middle := func(get func(verdict.Cost) float64) float64 {
		return of.each(func(o run) float64 { return get(o.verdict.Cost) }).median()
	}
	return point{
		Scenario: s.Name, Carried: carried,
		Rate:    middle(func(c verdict.Cost) float64 { return c.Renewals }),
		CPU:     middle(func(c verdict.Cost) float64 { return c.CPU }),
		Written: middle(func(c verdict.Cost) float64 { return c.Written }),
		Memory:  middle(func(c verdict.Cost) float64 { return c.Memory }),
	}, true
}

// at is a cost at a rate: that of a carried load which is within a twentieth of it, else on the straight line between those
// around it, and below the least of them what that one costs; not ok: none is as great.
func (c curve) at(rate float64, cost func(point) float64) (float64, bool) {
	var below *point
	for i := range c.Points {
		p := &c.Points[i]
		switch {
		case !p.Carried:
			continue
		case math.Abs(p.Rate-rate) <= rate/20:
			return cost(*p), true
		case p.Rate < rate:
			below = p
			continue
		case below == nil:
			return cost(*p), true
		}
		share := (rate - below.Rate) / (p.Rate - below.Rate)
		return cost(*below) + share*(cost(*p)-cost(*below)), true
	}
	return 0, false
}

// greatest is the greatest rate that was carried.
func (c curve) greatest() float64 {
	greatest := 0.0
	for _, p := range c.Points {
		if p.Carried {
			greatest = max(greatest, p.Rate)
		}
	}
	return greatest
}

// fleet is so many instances that renew their leases every so many seconds.
type fleet struct{ instances, every float64 }

// fleets are examples: those of the loads that were measured. 30 s is the interval of stock clients.
var fleets = []fleet{{300, 30}, {5_000, 30}, {30_000, 30}, {150_000, 30}, {600_000, 30}}

// fleetRows are what the renewals of the examples cost in each column that ran a load of heartbeats; none if no column did.
func (r *Report) fleetRows() []row {
	curves := r.curves()
	if len(curves) == 0 {
		return nil
	}
	var rows []row
	for _, f := range fleets {
		row := row{Name: fmt.Sprintf("%s instances every %s", showCount(f.instances), showSeconds(f.every))}
		for i, c := range r.pricedColumns() {
			shown := cell{Column: c}
			shown.Text, shown.Absent = curves[i].price(f)
			row.Cells = append(row.Cells, shown)
		}
		rows = append(rows, row)
	}
	return rows
}

// fleetTitle is that of the table of fleets.
const fleetTitle = "What the renewals of your fleet cost"

// fleetAbout says what the costs of a fleet are, and what is not in them.
func (r *Report) fleetAbout() string {
	about := "What the nodes cost while nothing but renewals comes, with what they cost when idle; clients also fetch the registry, which is not in it. It is taken from loads of nothing but heartbeats, while nobody observed the nodes: processors of all nodes together, and what is written to the disk of each, as the kernel counts it. The examples are the loads that were measured; between two of them a straight line is drawn, though in mode cp one renewal costs more or less by how long it waits for others, which their number decides (commit.renewal-wait)."
	if names := r.compiling(); len(names) > 0 {
		about += fmt.Sprintf(" Processor times of %s are those of servers that have just started, with the first of Java's two compilers alone.", list(names))
	}
	return about
}

// compiling are the columns whose processor times are compared with nothing.
func (r *Report) compiling() []string {
	var names []string
	for _, c := range r.pricedColumns() {
		if compiled(figure{}).apart(c) != "" {
			names = append(names, c.Heading())
		}
	}
	return names
}

// pricedColumns are those of the curves, in the same order.
func (r *Report) pricedColumns() []column {
	curves := r.curves()
	return slices.DeleteFunc(r.columns(), func(c column) bool {
		return !slices.ContainsFunc(curves, func(l curve) bool { return l.Column == c.Name })
	})
}

// price says what a fleet costs: as many processors, and as much to each disk a day.
func (c curve) price(f fleet) (text string, absent bool) {
	rate := f.instances / f.every
	cpu, ok := c.at(rate, func(p point) float64 { return p.CPU })
	if !ok {
		return fmt.Sprintf("not measured: the most here was %s a second", showSum(c.greatest())), true
	}
	written, _ := c.at(rate, func(p point) float64 { return p.Written })
	const day = 24 * 60 * 60
	return fmt.Sprintf("%s, %s to each disk a day", showCores(cpu), showBytes(written*day)), false
}

// uncarried names the loads that the machine did not carry, a sentence each.
func (r *Report) uncarried() []string {
	var sentences []string
	for _, s := range r.loads() {
		var names []string
		for _, c := range r.columns() {
			if p, ok := r.point(s, c); ok && !p.Carried {
				names = append(names, c.Heading())
			}
		}
		if len(names) > 0 {
			sentences = append(sentences, fmt.Sprintf("This machine did not carry %s in %s.", s.Title, list(names)))
		}
	}
	return sentences
}
