package consul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Check is a check in responses.
type Check struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  json.RawMessage `bexpr:"-"`
	CreateIndex registry.Index  `bexpr:"-"`
	ModifyIndex registry.Index  `bexpr:"-"`

	PeerName string `json:"-"` // always empty

	answered bool // Output may have what a service answered to an HTTP check
	follows  bool // the same of a check that it follows
}

// Follows reports whether the check is an alias.
func (c Check) Follows() bool { return c.follows }

// Public returns the check without what a service answered, but for its status.
func (c Check) Public() Check {
	if before, _, has := strings.Cut(c.Output, " Output: "); has && (c.answered || c.follows) { // see probe
		c.Output = before
	}
	return c
}

// OutputOf returns the output of a stored check, with what a service answered to an HTTP check or without.
func OutputOf(c *catalog.Check, answers bool) string {
	if answers {
		return c.Output
	}
	return checkOf(c).Public().Output
}

// Agent is the check as the agent shows it: without indexes.
func (c Check) Agent() Check {
	c.CreateIndex, c.ModifyIndex = 0, 0
	return c
}

// noDefinition is the definition of a check that was registered without one.
var noDefinition = json.RawMessage("{}")

// checkOf is a stored check as responses show it.
func checkOf(c *catalog.Check) Check {
	shown := Check{
		Node: ShownNode(c.Node), CheckID: c.ID, Name: c.Name, Status: StatusWord(c.Status), Notes: c.Notes, Output: c.Output, ServiceID: c.Service,
		ServiceTags: []string{}, Type: c.Type, Definition: noDefinition, CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex,
	}
	if c.Definition != nil {
		shown.Definition = c.Definition
	}
	shown.follows = c.Alias != nil
	if p := c.Probe; p != nil {
		shown.answered = p.HTTP != ""
		shown.Interval, shown.Timeout = shownDuration(p.Interval), shownDuration(p.Timeout)
	}
	return shown
}

// shownDuration is a length of time (ms) as the reference shows it; "": it was not given.
func shownDuration(ms int64) string {
	if ms == 0 {
		return ""
	}
	return (time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond).String()
}

// NodeChecks are the checks of a node itself as responses show them; nil: the logical one, on which no
// checks were registered.
func NodeChecks(logical bool, n *catalog.Node) []Check {
	checks := []Check{}
	if logical {
		checks = append(checks, serfHealth)
	}
	if n == nil {
		return checks
	}
	for _, c := range n.Checks {
		checks = append(checks, checkOf(c))
	}
	return checks
}

// serfHealth is that of the logical node, which is not stored.
var serfHealth = func() Check {
	alive := catalog.AgentAlive
	alive.CreateIndex, alive.ModifyIndex = 1, 1
	return checkOf(&alive)
}()

// checksOf are the checks of a service: those that were registered, and those that say what Rollcall
// knows of its status.
func checksOf(l *registry.Lease, s Service) []Check {
	checks := []Check{}
	if l.Service == nil {
		checks = append(checks, s.check(l, "service:"+s.ID, "Eureka status", eurekaType, statusOf(l.Instance.Status)))
	} else {
		for _, c := range l.Service.Checks {
			shown := checkOf(c)
			shown.ServiceName, shown.ServiceTags = s.Name, s.Tags
			checks = append(checks, shown)
		}
	}
	if decided, ok := s.decided(l, checks); ok {
		checks = append(checks, decided)
	}
	return checks
}

// Types of the checks that were not registered.
const (
	eurekaType   = "eureka"
	overrideType = "override"
)

// statusOf is a status of Eureka's as that of a check: an instance that is not UP gets no requests.
func statusOf(s registry.Status) catalog.CheckStatus {
	if s == registry.Up {
		return catalog.Passing
	}
	return catalog.Critical
}

// decided is the check that keeps a service out of use by a decision made in Rollcall or through
// Eureka's API, if there is one: OUT_OF_SERVICE is maintenance, another status that no check gives the
// reason for is an override.
func (s Service) decided(l *registry.Lease, checks []Check) (Check, bool) {
	i := l.Instance
	switch {
	case i.Status == registry.Up, l.Service != nil && i.Overridden == registry.Unknown:
		return Check{}, false // its checks, or those of its node, say it all
	case i.Status == registry.OutOfService:
		m := Maintenance(s.ID, reasonOf(l))
		if slices.ContainsFunc(checks, func(c Check) bool { return c.CheckID == m.ID }) {
			return Check{}, false
		}
		c := s.check(l, m.ID, m.Name, m.Type, catalog.Critical)
		c.Notes = m.Notes
		return c, true
	case slices.ContainsFunc(checks, func(c Check) bool { return c.Status == StatusWord(catalog.Critical) }):
		return Check{}, false
	}
	return s.check(l, "_status_override:"+s.ID, "Status override", overrideType, catalog.Critical), true
}

func reasonOf(l *registry.Lease) string {
	if l.Override == nil {
		return ""
	}
	return l.Override.By.Reason
}

// check is a check that was not registered.
func (s Service) check(l *registry.Lease, id, name, kind string, status catalog.CheckStatus) Check {
	return Check{
		Node: ShownNode(s.Node), CheckID: id, Name: name, Status: StatusWord(status), Output: explained(l), ServiceID: s.ID, ServiceName: s.Name,
		ServiceTags: s.Tags, Type: kind, Definition: noDefinition, CreateIndex: l.Registered, ModifyIndex: l.Changed,
	}
}

// explained says which status an instance has, and names the author of an override.
func explained(l *registry.Lease) string {
	text := "The status is " + l.Instance.Status.String()
	if l.Instance.Overridden == registry.Unknown {
		return text
	}
	text += ", overridden"
	if o := l.Override; o != nil {
		if o.By.Author != "" {
			text += " by " + o.By.Author
		}
		if o.By.Reason != "" {
			text += fmt.Sprintf(" (%s)", o.By.Reason)
		}
		text += "; the client said " + o.Reported.String()
	}
	return text
}

// maintenanceWord is the aggregate of a service that is kept out of use.
const maintenanceWord = "maintenance"

// Aggregate is the worst of checks: passing, warning, critical or maintenance.
func Aggregate(checks []Check) string {
	worst := 0
	for _, c := range checks {
		state, _ := ParseStatus(c.Status)
		if (&catalog.Check{ID: c.CheckID}).Maintenance() {
			return maintenanceWord
		}
		worst = max(worst, int(state))
	}
	return StatusWord(catalog.CheckStatus(worst))
}

// Worse says whether one aggregate is worse than another.
func Worse(one, other string) bool { return rank(one) > rank(other) }

func rank(aggregate string) int {
	if aggregate == maintenanceWord {
		return len(statusWords)
	}
	state, _ := ParseStatus(aggregate)
	return int(state)
}

// WhyNotPassing says of an instance whose status is not UP what keeps it from that: a check of its own
// or of its node, or what its client or an operator said.
func WhyNotPassing(v *registry.View, l *registry.Lease) string {
	if l.Service == nil || l.Instance.Overridden != registry.Unknown {
		return explained(l)
	}
	checks := l.Service.Checks
	if n, ok := v.Node(l.Service.Node); ok {
		checks = slices.Concat(checks, n.Checks)
	}
	for _, c := range checks {
		if c.Status != catalog.Critical {
			continue
		}
		if text := cmp.Or(OutputOf(c, false), c.Notes); text != "" {
			return fmt.Sprintf("check %s is critical: %s", c.ID, text)
		}
		return fmt.Sprintf("check %s is critical", c.ID)
	}
	return explained(l)
}
