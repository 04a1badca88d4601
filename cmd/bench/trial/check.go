package trial

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// longest bounds every moment and every span of a trial: no scenario lasts as long.
const longest = Micros(24 * time.Hour / time.Microsecond)

// Check reports everything that cannot be in a comparison, a trial each: what Trial.Check finds, trials of columns and scenarios
// that the comparison does not describe, and two of the same round. Files are checked before anything is computed from them.
func (c *Comparison) Check() error {
	var errs []error
	scenarios, columns := make(map[string]bool), make(map[string]bool)
	for _, s := range c.Scenarios {
		if s.Load.Instances > 0 && s.Load.Lease <= 0 {
			errs = append(errs, fmt.Errorf("scenario %s: load.lease: %d instances with a lease of %s", s.Name, s.Load.Instances, s.Load.Lease))
		}
		scenarios[s.Name] = true
	}
	for _, column := range c.Plan.Columns {
		columns[column.Name] = true
	}
	type turn struct {
		scenario, column string
		round            int
	}
	known := make(map[turn]bool)
	for i := range c.Trials {
		t := &c.Trials[i]
		of := turn{t.Scenario, t.Column, t.Round}
		switch {
		case !scenarios[t.Scenario]:
			errs = append(errs, t.wrong("scenario", "the comparison does not describe it"))
		case !columns[t.Column]:
			errs = append(errs, t.wrong("column", "the comparison does not describe it"))
		case known[of]:
			errs = append(errs, t.wrong("round", "there are two trials of it"))
		}
		known[of] = true
		errs = append(errs, t.Check())
	}
	return errors.Join(errs...)
}

// Check reports the first thing that cannot be in a trial: a node that it does not have, a time before the trial's or days
// after it, a count below 0, an unknown word. What is merely suspicious is left to verdicts.
func (t *Trial) Check() error {
	c := checks{trial: t}
	c.that(t.Round >= 1, "round", "%d; want 1 or more", t.Round)
	c.that(t.Length > 0 && t.Length <= longest, "length_us", "%d; want more than 0 and at most %d", t.Length, longest)
	c.that(t.Cores >= 0, "cores", "%d; want 0 or more", t.Cores)
	c.moment(t.Agreed, "agreed_us")
	c.moment(t.Ended, "settled_us")
	c.moment(t.Took, "took_us")
	for _, section := range []func(){c.faults, c.series, c.clients, c.sealed, c.machine, c.history, c.lists, c.sights, c.samples, c.ending} {
		section()
	}
	return c.first
}

// wrong is a mistake in a field of a trial.
func (t *Trial) wrong(field, format string, args ...any) error {
	return fmt.Errorf("the trial of %s in the column %s, round %d: %s: %s", t.Scenario, t.Column, t.Round, field, fmt.Sprintf(format, args...))
}

// checks keep the first mistake of a trial. A field is named as in JSON; at are the numbers of the list items that it is in.
type checks struct {
	trial *Trial
	first error
}

func (c *checks) that(ok bool, field, format string, args ...any) {
	if !ok && c.first == nil {
		c.first = c.trial.wrong(field, format, args...)
	}
}

func (c *checks) item(ok bool, field string, at int, format string, value any) {
	if !ok && c.first == nil {
		c.that(false, fmt.Sprintf("%s[%d]", field, at), format, value)
	}
}

func (c *checks) node(n int, field string, at int) {
	c.item(n >= 0 && n < len(c.trial.Nodes), field, at, "there is no node number %d", n)
}

func (c *checks) moment(m Micros, field string) {
	c.that(m >= -longest && m <= longest, field, "%d µs; want at most a day", m)
}

func (c *checks) moments(field string, at int, all ...Micros) {
	for _, m := range all {
		c.item(m >= -longest && m <= longest, field, at, "%d µs; want at most a day", m)
	}
}

func (c *checks) spans(field string, at int, all ...Micros) {
	for _, m := range all {
		c.item(m >= 0 && m <= longest, field, at, "it took %d µs; want 0 or more, and at most a day", m)
	}
}

func (c *checks) counts(field string, at int, all ...int) {
	for _, n := range all {
		c.item(n >= 0, field, at, "it counts %d; want 0 or more", n)
	}
}

// call checks how a call ended: only one of unknown outcome may never have been answered.
func (c *checks) call(o Outcome, called, returned Micros, field string, at int) {
	c.item(slices.Contains(Outcomes, o), field, at, "there is no outcome %q", o)
	c.moments(field, at, called)
	if returned == math.MaxInt64 {
		c.item(o == Unknown, field, at, "it was never answered, but its outcome is %q", o)
		return
	}
	c.spans(field, at, returned-called)
}

func (c *checks) faults() {
	for i, f := range c.trial.Faults {
		c.moments("faults", i, f.From, f.To, f.Ready)
		c.spans("faults", i, f.To-f.From)
		c.counts("faults", i, f.Count)
		for _, n := range f.Nodes {
			c.node(n, "faults", i)
		}
		for _, k := range f.Kills {
			c.node(k.Node, "faults", i)
			c.moments("faults", i, k.At)
		}
	}
}

func (c *checks) series() {
	for i, s := range c.trial.Series {
		c.node(s.Node, "series", i)
		c.item(slices.Contains(Operations, s.Operation), "series", i, "there is no operation %q", s.Operation)
		for _, b := range s.Bins {
			c.item(b.Number >= 0 && b.Number <= int(longest/Of(BinLength)), "series", i, "bin %d; want one from 0 on, within a day", b.Number)
			c.counts("series", i, b.Done, b.NotFound, b.Refused, b.Unreached, b.Unknown)
			answers := 0
			for latency, count := range b.Pairs() {
				c.spans("series", i, Micros(latency))
				c.counts("series", i, count)
				answers += count
			}
			if c.first == nil && (answers != b.Answered() || len(b.Latencies)%2 != 0) {
				c.item(false, "series", i, "%s", fmt.Sprintf("bin %d has %d answers, and the latencies of %d", b.Number, b.Answered(), answers))
			}
		}
	}
}

func (c *checks) clients() {
	for i, client := range c.trial.Clients {
		c.node(client.Home, "clients", i)
		c.counts("clients", i, client.Answered, client.Calls-client.Answered)
		c.spans("clients", i, client.Gap)
	}
}

func (c *checks) sealed() {
	for i, s := range c.trial.Sealed {
		c.item(len(s.Writes) >= 1 && len(s.Writes) <= 2, "sealed", i, "it was written %d times; want once or twice", len(s.Writes))
		for _, w := range s.Writes {
			c.node(w.Node, "sealed", i)
			c.call(w.Outcome, w.Called, w.Returned, "sealed", i)
		}
	}
	for i, f := range c.trial.Forgotten {
		c.node(f.Node, "forgotten", i)
		c.moments("forgotten", i, f.At, f.Last)
	}
}

func (c *checks) machine() {
	for i, h := range c.trial.Machine {
		c.moments("machine", i, h.At)
		c.counts("machine", i, h.Due, h.Late)
		c.spans("machine", i, h.Worst, h.Sync)
		c.counts("machine", i, int(h.Busy), int(h.Own)) // of all processors since they began
	}
}

func (c *checks) history() {
	for i, call := range c.trial.History {
		c.node(call.Node, "history", i)
		c.item(slices.Contains([]Action{Write, Remove, Look}, call.Action), "history", i, "there is no action %q", call.Action)
		c.item(call.Version >= 0, "history", i, "version %d; want 0 or more", call.Version)
		c.call(call.Outcome, call.Called, call.Returned, "history", i)
	}
}

func (c *checks) lists() {
	for i, l := range c.trial.Lists {
		c.node(l.Node, "lists", i)
		c.moments("lists", i, l.Asked)
		c.spans("lists", i, l.Answered-l.Asked)
		c.counts("lists", i, l.Listed, l.Ghosts, l.Missing, l.Behind, l.Unhealed)
	}
}

func (c *checks) sights() {
	for i, s := range c.trial.Sightings {
		c.node(s.From, "sightings", i)
		c.node(s.To, "sightings", i)
		c.item(slices.Contains(Ways, s.Way), "sightings", i, "there is no way %q", s.Way)
		c.moments("sightings", i, s.Acked)
		c.spans("sightings", i, s.Delay+1) // -1: not within the trial
	}
	for i, d := range c.trial.Departures {
		c.node(d.Node, "departures", i)
		c.moments("departures", i, d.Last, d.Gone)
	}
	for i, e := range c.trial.Evictions {
		c.node(e.Node, "evictions", i)
		c.moments("evictions", i, e.At)
	}
	for i, l := range c.trial.Leaders {
		c.node(l.Node, "leaders", i)
		c.node(max(l.Leader, 0), "leaders", i) // -1: none
		c.moments("leaders", i, l.At)
	}
}

func (c *checks) samples() {
	for i, r := range c.trial.Replicator {
		c.node(r.Node, "replicator", i)
		c.moments("replicator", i, r.At)
	}
	for i, u := range c.trial.Usage {
		c.node(u.Node, "usage", i)
		c.moments("usage", i, u.At)
		c.counts("usage", i, int(u.CPU), int(u.Memory), int(u.Written), int(u.Stored), int(u.Sent), u.Instances, int(u.Renewals))
	}
}

func (c *checks) ending() {
	asked := make(map[int]bool)
	for i, e := range c.trial.Ending {
		c.node(e.Node, "ending", i)
		c.item(!asked[e.Node], "ending", i, "it is the second one of node number %d", e.Node)
		asked[e.Node] = true
		c.spans("ending", i, e.Watched)
		c.counts("ending", i, e.Sealed...)
	}
}
