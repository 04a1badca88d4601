package trial

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// longest bounds every moment and every span of a trial: no scenario lasts that long.
const longest = Micros(24 * time.Hour / time.Microsecond)

// Check reports everything that is invalid in a comparison, one mistake per trial: what Trial.Check finds, trials of
// columns and scenarios that the comparison does not describe, and two of the same round. Files are checked before
// anything is computed from them.
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

// Check reports the first invalid value in a trial: a node that it does not have, a time before the trial's or days
// after it, a negative count, an unknown word. Merely suspicious values are left to verdicts.
func (t *Trial) Check() error {
	switch {
	case t.Round < 1:
		return t.wrong("round", "%d; want 1 or more", t.Round)
	case t.Length <= 0 || t.Length > longest:
		return t.wrong("length_us", "%d; want more than 0 and at most %d", t.Length, longest)
	}
	c := checks{trial: t}
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		records := v.Field(i)
		if records.Kind() != reflect.Slice {
			c.value(records, f.Tag.Get("check"))
			if c.text != "" {
				return t.wrong(name, "%s", c.text)
			}
			continue
		}
		for n := range records.Len() {
			c.record(records.Index(n))
			if c.text != "" {
				return t.wrong(fmt.Sprintf("%s[%d]", name, n), "%s", c.text)
			}
		}
	}
	asked := make(map[int]bool)
	for i, e := range t.Ending {
		if asked[e.Node] {
			return t.wrong(fmt.Sprintf("ending[%d]", i), "it is the second one of node number %d", e.Node)
		}
		asked[e.Node] = true
	}
	return nil
}

// wrong records a mistake in a field of a trial.
func (t *Trial) wrong(field, format string, args ...any) error {
	return fmt.Errorf("the trial of %s in the column %s, round %d: %s: %s", t.Scenario, t.Column, t.Round, field, fmt.Sprintf(format, args...))
}

// checks finds the first mistake in the records of a trial. The tags "check" of their fields say what a number is: a
// node, a count, a total since a machine began, or the end of a call, which method call checks. Other times are within
// a day of the load.
type checks struct {
	trial *Trial
	text  string // of the first mistake; empty if none was found
}

func (c *checks) that(ok bool, format string, args ...any) {
	if !ok && c.text == "" {
		c.text = fmt.Sprintf(format, args...)
	}
}

// record checks a record, and everything in it.
func (c *checks) record(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		c.value(v, "")
		return
	}
	c.rules(v.Interface())
	for i := range v.NumField() {
		c.value(v.Field(i), v.Type().Field(i).Tag.Get("check"))
	}
}

func (c *checks) value(v reflect.Value, is string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			if v.Index(i).Kind() == reflect.Struct {
				c.record(v.Index(i))
			} else {
				c.value(v.Index(i), is)
			}
		}
	case reflect.Int, reflect.Int64:
		n := v.Int()
		_, moment := v.Interface().(Micros)
		switch is {
		case "node":
			c.that(n >= 0 && n < int64(len(c.trial.Nodes)), "there is no node number %d", n)
		case "count", "total":
			c.that(n >= 0, "it counts %d; want 0 or more", n)
		}
		if moment && is != "total" && is != "end" {
			c.that(Micros(n) >= -longest && Micros(n) <= longest, "%d µs; want at most a day", n)
		}
	}
}

// rules checks the rules of a record that no field's type expresses.
func (c *checks) rules(record any) {
	switch r := record.(type) {
	case Fault:
		c.span(r.To - r.From)
	case Series:
		c.that(slices.Contains(Operations, r.Operation), "there is no operation %q", r.Operation)
	case Bin:
		c.bin(r)
	case Client:
		c.that(r.Calls >= r.Answered, "it counts %d; want 0 or more", r.Calls-r.Answered)
	case Sealed:
		c.that(len(r.Writes) >= 1 && len(r.Writes) <= 2, "it was written %d times; want once or twice", len(r.Writes))
	case SealWrite:
		c.call(r.Outcome, r.Called, r.Returned)
	case Call:
		c.that(slices.Contains([]Action{Write, Remove, Look}, r.Action), "there is no action %q", r.Action)
		c.call(r.Outcome, r.Called, r.Returned)
	case List:
		c.span(r.Answered - r.Asked)
	case Sighting:
		c.that(slices.Contains(Ways, r.Way), "there is no way %q", r.Way)
		c.span(r.Delay + 1) // -1 if not within the trial
	case Leader:
		c.that(r.Leader >= -1 && r.Leader < len(c.trial.Nodes), "there is no node number %d", r.Leader) // -1 for none
	}
}

func (c *checks) span(took Micros) {
	c.that(took >= 0 && took <= longest, "it took %d µs; want 0 or more, and at most a day", took)
}

// call checks how a call ended: only one of unknown outcome may never have been answered.
func (c *checks) call(o Outcome, called, returned Micros) {
	c.that(slices.Contains(Outcomes, o), "there is no outcome %q", o)
	if returned == math.MaxInt64 {
		c.that(o == Unknown, "it was never answered, but its outcome is %q", o)
		return
	}
	c.span(returned - called)
}

func (c *checks) bin(b Bin) {
	c.that(b.Number >= 0 && b.Number <= int(longest/Of(BinLength)), "bin %d; want one from 0 on, within a day", b.Number)
	answers := 0
	for latency, count := range b.Pairs() {
		c.span(Micros(latency))
		c.that(count >= 0, "it counts %d; want 0 or more", count)
		answers += count
	}
	c.that(answers == b.Answered() && len(b.Latencies)%2 == 0, "bin %d has %d answers, and the latencies of %d", b.Number, b.Answered(), answers)
}
