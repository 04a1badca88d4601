package dashboard

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Bounds of the applications in the overview's document.
const (
	defaultApps = 100
	maxApps     = 10_000
)

// documentNeeds returns the needs to read the cluster and all applications.
func documentNeeds(*web.Call) []access.Need {
	return []access.Need{{Resource: access.Operator, Verb: access.Read}, {Resource: access.App, Verb: access.Read}}
}

// document is GET /v1/rollcall/overview: the overview for programs.
func (c call) document() (any, error) {
	limit, part := uint64(defaultApps), strings.ToLower(c.Text("q"))
	if n, given := c.Number("limit"); given {
		limit = n
	}
	if c.Err == nil && limit > maxApps {
		c.Refuse("limit must be a number from 0 to %d", maxApps)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	seen, overdue := c.monitor.now(c.R.Context()), c.monitor.overdue()
	apps := c.monitor.tally.of(v, time.Now())
	line := truthOf(c.facts(v, seen))
	o := api.Overview{
		Line: api.Line{Level: line.level, Text: line.text()}, Figures: c.figuresOf(apps), Attention: []api.Attention{}, Apps: []api.AppCount{},
		Status: seen.status, SelfPreservation: c.monitor.preservation(v), Peers: seen.peers,
	}
	o.SelfPreservation.Applications, o.SelfPreservation.Transitions = []api.AppFigures{}, []api.PreservationStep{}
	for _, n := range c.attention(apps) {
		level := "warn"
		if n.bad {
			level = "bad"
		}
		o.Attention = append(o.Attention, api.Attention{Level: level, Text: n.words, App: n.app})
	}
	o.Attention = o.Attention[:min(len(o.Attention), maxApps)]
	worstFirst(apps)
	apps = slices.DeleteFunc(apps, func(a appCount) bool { return !contains(a.Name, part) })
	o.Figures.Applications = len(apps)
	for _, a := range apps[:min(len(apps), int(limit))] {
		o.Apps = append(o.Apps, api.AppCount{App: a.Name, Up: a.Up(), All: a.Total, Before: a.before(), Overdue: overdueOf(overdue[a.Name]), Changed: a.Changed})
	}
	return o, nil
}

// figuresOf returns the current figures: rates come from the newest sample.
func (c call) figuresOf(apps []appCount) api.OverviewFigures {
	watching, _ := c.Used()
	f := api.OverviewFigures{Watchers: int(watching)}
	for _, a := range apps {
		f.Up, f.NotUp = f.Up+a.Up(), f.NotUp+a.Total-a.Up()
		if a.Total > 0 {
			f.Apps++
		}
	}
	history := c.monitor.history()
	if len(history) == 0 {
		return f
	}
	last := history[len(history)-1]
	known := func(figure int) *float64 {
		x := float64(last.figures[figure])
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	f.SampledMS = last.at
	f.Changes, f.Writes, f.WriteP99 = known(changesAMinute), known(writesASecond), known(writeP99)
	f.Overdue = int(last.figures[overdueLeases])
	return f
}
