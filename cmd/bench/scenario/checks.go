package scenario

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of a scenario.
const (
	mostDatacenters = 3
	shortest        = 2 * time.Second
	longest         = time.Hour
	usual           = 15 * time.Second // scenarios without a length must fit into this
	mostInstances   = 100_000
	mostCalls       = 100_000.0 // per second, for one rate
	mostWatchers    = 10_000
	mostKeys        = 1000
	mostWriters     = 1000 // of a shared key
	mostTimes       = 100
	longestDelay    = time.Second
)

// checks collects invalid values, each with its key, as in faults[0].at.
type checks []error

func (c *checks) unless(ok bool, key, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(key+": "+format, args...))
	}
}

// Fits reports every fault and storm that does not end within a length, or overlaps another one in it.
func (s Scenario) Fits(length time.Duration) error {
	var c checks
	c.times(s, length)
	return asError("scenario "+s.Name, c)
}

func asError(where string, all []error) error {
	errs := make([]error, len(all))
	for i, err := range all {
		errs[i] = fmt.Errorf("%s: %w", where, err)
	}
	return errors.Join(errs...)
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

func mistakes(s Scenario) []error {
	var c checks
	c.unless(nameRule.MatchString(s.Name), "name", "is %q; want up to 64 letters, digits and dashes", s.Name)
	within(&c, "datacenters", s.Datacenters, 1, mostDatacenters)
	length := s.Length.Duration()
	c.unless(length == 0 || length >= shortest && length <= longest, "length", "is %s; want %s to %s, or none for the comparison's", length, shortest, longest)
	c.load(s.Load)
	for i, storm := range s.Storms {
		c.storm(fmt.Sprintf("storms[%d]", i), storm, s.Load)
	}
	for i, f := range s.Faults {
		c.fault(fmt.Sprintf("faults[%d]", i), f, s)
	}
	if length == 0 {
		length = usual
	}
	c.times(s, length)
	for _, column := range slices.Sorted(maps.Keys(s.Limits)) {
		c.unless(nameRule.MatchString(column), "limits."+column, "is no mode and no column's name; want cp, ap or such a name")
		c.limits("limits."+column, s.Limits[column])
	}
	return c
}

// within is also false for NaN.
func within[T int | float64](c *checks, key string, got, least, most T) {
	c.unless(got >= least && got <= most, key, "is %v; want %v to %v", got, least, most)
}

func (c *checks) load(l Load) {
	within(c, "load.instances", l.Instances, 1, mostInstances)
	heartbeat, lease := l.Heartbeat.Duration(), l.Lease.Duration()
	c.unless(heartbeat >= time.Second && heartbeat%time.Second == 0, "load.heartbeat", "is %s; want whole seconds, at least 1s", heartbeat)
	c.unless(lease%time.Second == 0 && lease >= 3*heartbeat && lease >= 3*time.Second, "load.lease",
		"is %s; want whole seconds, at least three heartbeats (%s): fewer end by chance", lease, max(3*heartbeat, 3*time.Second))
	rates := rateFields(&l)
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		within(c, "load."+name, *rates[name], 0, mostCalls)
	}
	within(c, "load.sightings", l.Sightings, 0, mostCalls)
	within(c, "load.watchers", l.Watchers, 0, mostWatchers)
	within(c, "load.own-keys", l.OwnKeys, 0, mostKeys)
	within(c, "load.shared-keys", l.SharedKeys, 0, mostKeys)
	within(c, "load.key-writers", l.KeyWriters, 0, mostWriters)
	keyless := l.OwnKeys+l.SharedKeys == 0
	c.unless(!keyless || l.Writes == 0 && l.Reads == 0, "load.own-keys", "and shared-keys are both 0, so writes and reads have nothing to call on; want keys, or writes: 0 and reads: 0")
}

func (c *checks) storm(key string, storm Storm, l Load) {
	c.unless(storm.For != Moment{}, key+".for", "is missing; want how long the storm lasts")
	c.unless(len(storm.Load) > 0, key+".load", "is missing; want the rates that the storm changes")
	rates := rateFields(&l)
	for _, name := range slices.Sorted(maps.Keys(storm.Load)) {
		_, known := rates[name]
		c.unless(known, key+".load."+name, "is no rate; want one of %s", strings.Join(slices.Sorted(maps.Keys(rates)), ", "))
		within(c, key+".load."+name, storm.Load[name], 0, mostCalls)
	}
	stormy := l.With(storm.Load)
	c.unless(l.OwnKeys+l.SharedKeys > 0 || stormy.Writes == 0 && stormy.Reads == 0, key+".load", "has writes or reads, but load.own-keys and load.shared-keys are 0; want keys")
}

func (c *checks) limits(key string, l Limits) {
	c.longer(key+".write-gap", l.WriteGap)
	c.longer(key+".read-gap", l.ReadGap)
	c.longer(key+".converged", l.Converged)
	c.longer(key+".removal", l.Removal)
	c.share(key+".write-success", l.WriteSuccess)
	c.share(key+".read-success", l.ReadSuccess)
	c.unless(l.FalseEvictions == nil || *l.FalseEvictions >= 0, key+".false-evictions", "is negative; want a count")
}

func (c *checks) longer(key string, limit *Span) {
	c.unless(limit == nil || *limit > 0, key, "is 0s; want a duration above")
}

func (c *checks) share(key string, limit *float64) {
	if limit != nil {
		within(c, key, *limit, 0, 1)
	}
}

// stretch is when something holds.
type stretch struct {
	key      string
	group    string // two of a group must not overlap
	from, to time.Duration
}

func (c *checks) times(s Scenario, length time.Duration) {
	var all []stretch
	for i, storm := range s.Storms {
		at := storm.At.In(length)
		all = append(all, stretch{fmt.Sprintf("storms[%d]", i), "storms", at, at + storm.For.In(length)})
	}
	for i, f := range s.Faults {
		at := f.At.In(length)
		all = append(all, stretch{fmt.Sprintf("faults[%d]", i), kinds[f.Kind].group, at, at + f.For.In(length)})
	}
	for i, one := range all {
		c.unless(one.to <= length && one.from < length, one.key, "lasts from %s to %s; want it within the %s of the load", one.from, one.to, length)
		for _, other := range all[:i] {
			apart := one.group == "" || one.group != other.group || one.from >= other.to || other.from >= one.to
			c.unless(apart, one.key, "overlaps %s; want one of the %s to end before the next begins", other.key, one.group)
		}
	}
}

func (c *checks) fault(key string, f Fault, s Scenario) {
	n, known := kinds[f.Kind]
	if !known {
		c.unless(false, key+".kind", "is %q; want one of %s", f.Kind, kindNames())
		return
	}
	c.given(key+".nodes", f.Kind, n.nodes, f.Nodes != "", "the nodes that it strikes: leader, follower, followers, all, a datacenter or a node")
	c.given(key+".instances", f.Kind, n.instances, f.Instances != "", "how many of them, such as 1 or 10%")
	c.given(key+".delay", f.Kind, n.delay, f.Delay != 0, "how much longer each durable write takes")
	c.given(key+".for", f.Kind, !n.endless, f.For != Moment{}, "how long the fault lasts")
	c.unless(n.times || f.Times == 0, key+".times", "is given, but %s strikes once; want the key left out", f.Kind)
	within(c, key+".times", f.Times, 0, mostTimes)
	c.unless(f.Delay.Duration() <= longestDelay, key+".delay", "is %s; want at most %s", f.Delay, longestDelay)
	c.unless(f.Kind != CutLink || s.Datacenters > 1, key+".kind", "cuts datacenters off from each other, but there is one; want datacenters: 2")
	if n.nodes && f.Nodes != "" {
		c.nodes(key+".nodes", f, s.Datacenters)
	}
	if n.instances && f.Instances != "" {
		_, err := Share(f.Instances, s.Load.Instances)
		c.unless(err == nil, key+".instances", "%v", err)
	}
}

// given refuses a missing part of a kind, and one that it cannot have.
func (c *checks) given(key string, kind Kind, needed, there bool, what string) {
	c.unless(!needed || there, key, "is missing; want %s", what)
	c.unless(needed || !there, key, "is given, but %s has none; want the key left out", kind)
}

func (c *checks) nodes(key string, f Fault, datacenters int) {
	if datacenters < 1 || datacenters > mostDatacenters {
		return // already reported, and there are no nodes to select from
	}
	places := Places(datacenters)
	struck, err := Select(f.Nodes, places, 0)
	if err != nil {
		c.unless(false, key, "%v", err)
		return
	}
	c.unless(f.Kind != Isolate || len(struck) < len(places), key, "are all nodes, with no node left to isolate them from; want some")
	c.unless(f.Kind != Lose || 2*len(struck) < len(places), key, "are half of the nodes or more, which no mode survives; want fewer")
}
