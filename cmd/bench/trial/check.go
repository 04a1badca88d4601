package trial

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// longest bounds every moment and every span of a trial: no scenario lasts that long.
const longest = Micros(24 * time.Hour / time.Microsecond)

// Check reports everything that is invalid in a comparison, one mistake per trial: what Trial.Check finds, trials of
// columns and scenarios that the comparison does not describe, and two of the same round. Files are checked before
// anything is computed from them.
func (c *Comparison) Check() error {
	var errs []error
	for _, s := range c.Scenarios {
		if s.Load.Instances > 0 && s.Load.Lease <= 0 {
			errs = append(errs, fmt.Errorf("scenario %s: load.lease: %d instances with a lease of %s", s.Name, s.Load.Instances, s.Load.Lease))
		}
	}
	known := make(map[string]bool)
	for i := range c.Trials {
		t := &c.Trials[i]
		turn := fmt.Sprint(t.Scenario, "/", t.Column, "/", t.Round)
		switch {
		case !slices.ContainsFunc(c.Scenarios, func(s scenario.Scenario) bool { return s.Name == t.Scenario }):
			errs = append(errs, t.wrong("scenario", "the comparison does not describe it"))
		case !slices.ContainsFunc(c.Plan.Columns, func(c scenario.Column) bool { return c.Name == t.Column }):
			errs = append(errs, t.wrong("column", "the comparison does not describe it"))
		case known[turn]:
			errs = append(errs, t.wrong("round", "there are two trials of it"))
		}
		known[turn] = true
		errs = append(errs, t.Check())
	}
	return errors.Join(errs...)
}

// Check reports the first invalid value in a trial: a node that it does not have, a time before the trial's or days
// after it, a negative count, an unknown word. Merely suspicious values are left to verdicts.
func (t *Trial) Check() error {
	c := checks{trial: t, at: "round"}
	c.that(t.Round >= 1, "%d; want 1 or more", t.Round)
	c.at = "length_us"
	c.that(t.Length > 0 && t.Length <= longest, "%d; want more than 0 and at most %d", t.Length, longest)
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		c.field(v.Type().Field(i), v.Field(i))
	}
	asked := make(map[int]bool)
	for i, e := range t.Ending {
		c.at = fmt.Sprintf("ending[%d]", i)
		c.that(!asked[e.Node], "it is the second one of node number %d", e.Node)
		asked[e.Node] = true
	}
	return c.err
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
	at    string // the field of the trial, and the number of the record
	err   error  // the first mistake
}

func (c *checks) that(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = c.trial.wrong(c.at, format, args...)
	}
}

// field checks a field of the trial, or the records in it.
func (c *checks) field(f reflect.StructField, v reflect.Value) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if c.at = name; v.Kind() != reflect.Slice {
		c.value(v, f.Tag.Get("check"))
		return
	}
	for n := 0; n < v.Len() && c.err == nil; n++ {
		c.at = fmt.Sprintf("%s[%d]", name, n)
		c.value(v.Index(n), "")
	}
}

// value checks a value, and everything in it.
func (c *checks) value(v reflect.Value, is string) {
	switch v.Kind() {
	case reflect.Struct:
		c.rules(v.Interface())
		for i := range v.NumField() {
			c.value(v.Field(i), v.Type().Field(i).Tag.Get("check"))
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.value(v.Index(i), is)
		}
	case reflect.Int, reflect.Int64:
		_, moment := v.Interface().(Micros)
		c.number(v.Int(), is, moment)
	}
}

func (c *checks) number(n int64, is string, moment bool) {
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
