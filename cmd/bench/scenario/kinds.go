package scenario

import (
	"maps"
	"slices"
	"strings"
)

// needs says what a kind of fault is made of.
type needs struct {
	group     string // of which only one can hold at a time; empty: any number
	nodes     bool
	instances bool
	delay     bool
	endless   bool
}

var kinds = map[Kind]needs{
	Kill:     {group: "faults of processes", nodes: true},
	Restart:  {group: "faults of processes", nodes: true},
	Pause:    {group: "faults of processes", nodes: true},
	Isolate:  {group: "faults of links", nodes: true},
	CutLink:  {group: "faults of links"},
	SlowDisk: {group: "faults of disks", nodes: true, delay: true},
	Die:      {instances: true, endless: true},
	Silence:  {instances: true},
	Flap:     {instances: true},
}

func (c *checks) fault(key string, f Fault, s Scenario) {
	n, known := kinds[f.Kind]
	if !known {
		c.unless(false, key+".kind", "is %q; want one of %s", f.Kind, kindNames())
		return
	}
	c.given(key+".nodes", f.Kind, n.nodes, f.Nodes != "", "whom it strikes: leader, follower, followers, all, a datacenter or a node")
	c.given(key+".instances", f.Kind, n.instances, f.Instances != "", "how many of them, such as 1 or 10%")
	c.given(key+".delay", f.Kind, n.delay, f.Delay != 0, "how much longer each durable write takes")
	c.given(key+".for", f.Kind, !n.endless, f.For != Moment{}, "how long the fault lasts")
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

// given refuses what a kind lacks, and what it cannot have.
func (c *checks) given(key string, kind Kind, needed, there bool, what string) {
	c.unless(!needed || there, key, "is missing; want %s", what)
	c.unless(needed || !there, key, "is given, but %s has none; want the key left out", kind)
}

func (c *checks) nodes(key string, f Fault, datacenters int) {
	if datacenters < 1 || datacenters > mostDatacenters {
		return // reported already, and there are no nodes to select from
	}
	places := Places(datacenters)
	struck, err := Select(f.Nodes, places, 0)
	if err != nil {
		c.unless(false, key, "%v", err)
		return
	}
	c.unless(f.Kind != Isolate || len(struck) < len(places), key, "are all nodes, from whom nobody is left to isolate them; want some")
}

func kindNames() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}
