package catalog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Alias names what an alias check follows: the checks of a service and of its node, or only those of a node.
// Immutable.
type Alias struct {
	Named   bool   // Node is given; otherwise it is the check's own
	Node    string // "": the logical node
	Service string // id; "": only the node
	// By is the accessor of the token that registered the check; "" if no token was asked for, so that the check may
	// follow anything.
	By string
	// Reads names what the token may read of the target: the application of the service, or the node. The leader
	// judges it, or the node that accepted the registration. Apart from its own application and node, the check
	// follows nothing else.
	Reads string
}

func (a *Alias) fields(c *codec.Codec) {
	c.Bool(&a.Named)
	c.String(&a.Node)
	c.String(&a.Service)
	if c.Since(3, false) { // below level 3 everybody's checks follow everything
		c.String(&a.By)
		c.String(&a.Reads)
	}
}

func (a *Alias) equal(o *Alias) bool { return a == o || a != nil && o != nil && *a == *o }

// Target is what alias checks follow: a service on a node, or the node itself if Service is "".
type Target struct{ Node, Service string }

// notFound returns the text for a target that does not exist.
func (t Target) notFound() string {
	if t.Service == "" {
		return fmt.Sprintf("Node %s could not be found", t.Node)
	}
	return fmt.Sprintf("Service %s could not be found on node %s", t.Service, cmp.Or(t.Node, LogicalNode))
}

// Target returns what a check on a node follows.
func (a *Alias) Target(node string) Target {
	if a.Named {
		node = a.Node
	}
	return Target{node, a.Service}
}

func (c *Check) target() Target { return c.Alias.Target(c.Node) }

// sameTarget reports whether an alias check names the same target as another check.
func (c *Check) sameTarget(o *Check) bool {
	return o.Alias != nil && *c.Alias == Alias{o.Alias.Named, o.Alias.Node, o.Alias.Service, c.Alias.By, c.Alias.Reads}
}

// Reading returns a copy of an alias check whose token may read name, see Alias.Reads.
func (c *Check) Reading(name string, at Moment) *Check {
	now, alias := *c, *c.Alias
	alias.Reads = strings.Clone(name)
	now.Alias, now.ModifyIndex = &alias, at.Next
	return &now
}

// owner returns the service or node that has a check.
func (c *Check) owner() Target { return Target{c.Node, c.Service} }

// aliases tracks which alias checks have to follow. They follow at the end of the operation that changed something,
// because their services and nodes can be targets too: sessions end with them, and no reader sees a state in between.
type aliases struct {
	touched []Target // targets whose checks may have changed since Follow
	entered []*Check // alias checks that were registered or set since then
	steps   int      // see Steps
}

// aliasRow finds an alias check by its target.
type aliasRow struct {
	Target
	check *Check
}

func compareAliases(a, b aliasRow) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Service, b.Service), compareCheckRefs(a.check.ref(), b.check.ref()))
}

func (c *Catalog) deleteAlias(check *Check) {
	if check.Alias != nil {
		c.byTarget.Delete(aliasRow{check.target(), check})
	}
}

// Touch records that a service, a node, or one of its checks changed. It costs nothing without alias checks.
func (c *Catalog) Touch(t Target) {
	if c.byTarget.Len() > 0 {
		c.touched = append(c.touched, t)
	}
}

// Touched reports whether alias checks may have to follow, see Follow.
func (a *aliases) Touched() bool { return len(a.touched) > 0 || len(a.entered) > 0 }

// ForgetTouched forgets what changed, once all alias checks have followed it.
func (a *aliases) ForgetTouched() { a.touched, a.entered = nil, nil }

// followers calls do for each alias check that follows a target, until do returns false. A service follows its node.
func followers(byTarget order.Tree[aliasRow], t Target, do func(*Check) bool) {
	byTarget.Ascend(aliasRow{t, new(Check)}, func(row aliasRow) bool {
		return row.Node == t.Node && (t.Service == "" || row.Service == t.Service) && do(row.check)
	})
}

// Followed holds an alias check and the state that follows from its target.
type Followed struct {
	Check  *Check
	Status CheckStatus
	Output string
}

// Texts of alias checks (agent/checks/alias.go of hashicorp/consul).
const (
	allPassing = "All checks passing."
	noChecks   = "No checks found."
)

// maxAliasOutput is the longest output of an alias check, in bytes.
const maxAliasOutput = 4 << 10

// Follow returns the alias checks whose state must change because something they follow has changed, with their new
// states, in the order found. elsewhere returns the application of a service ("" if it does not exist), and why the
// service is out of use apart from its checks ("" if it is in use).
//
// The states are the best ones that give each alias check the worst status of its target. So aliases of each other
// recover together with what they follow, and an alias of its own service does not count itself. All affected checks
// begin as passing and only get worse, each at most twice, so the work ends, and is linear in their number.
// Source: agent/checks/alias.go, where checks follow one by one; those in a circle stay critical there.
func (c *Catalog) Follow(elsewhere func(Target) (app, why string)) (changed []Followed) {
	f := &following{Catalog: c, elsewhere: elsewhere, states: map[*Check]*Followed{}, worsts: map[worstKey]Followed{}}
	f.find()
	c.steps += stepsToFollow * len(f.all)
	c.figures.Largest.Store(max(c.figures.Largest.Load(), int64(len(f.all))))
	for queue := f.all; len(queue) > 0; {
		queue = f.followersOf(f.worsen(queue))
	}
	for _, check := range f.all {
		if now := f.states[check]; check.Status != now.Status || check.Output != now.Output {
			changed = append(changed, *now)
		}
	}
	return changed
}

// following is one Follow in progress.
type following struct {
	*Catalog
	elsewhere func(Target) (app, why string)
	all       []*Check // those that must follow
	states    map[*Check]*Followed
	worsts    map[worstKey]Followed // of targets without alias checks, whose own states do not change meanwhile
}

// worstKey is everything that worst depends on.
type worstKey struct {
	Target
	status CheckStatus
	output string
}

// find fills all with the alias checks that follow what changed, and with those that follow these.
func (f *following) find() {
	seen := map[Target]bool{}
	var next []Target
	add := func(c *Check) bool {
		if f.states[c] == nil {
			f.states[c] = &Followed{Check: c}
			f.all = append(f.all, c)
			next = append(next, c.owner())
		}
		return true
	}
	for _, c := range f.entered {
		if row, ok := f.byTarget.Get(aliasRow{c.target(), c}); ok { // unless it is gone again
			add(row.check)
		}
	}
	next = append(next, f.touched...)
	for len(next) > 0 {
		t := next[len(next)-1]
		if next = next[:len(next)-1]; !seen[t] {
			seen[t] = true
			followers(f.byTarget, t, add)
		}
	}
}

// followersOf returns the alias checks that follow any of the targets, each once.
func (f *following) followersOf(targets []Target) (checks []*Check) {
	seen, found := map[Target]bool{}, map[*Check]bool{}
	for _, t := range targets {
		if seen[t] {
			continue
		}
		seen[t] = true
		followers(f.byTarget, t, func(c *Check) bool {
			if !found[c] {
				found[c] = true
				checks = append(checks, c)
			}
			return true
		})
	}
	return checks
}

// worsen gives alias checks the states of their targets if these are worse. It returns the owners of the checks that
// got worse, which other alias checks may follow.
func (f *following) worsen(checks []*Check) (worse []Target) {
	for _, c := range checks {
		state := f.states[c]
		status, output := f.of(c)
		if status > state.Status {
			worse = append(worse, c.owner())
		}
		if status > state.Status || state.Output == "" {
			state.Status, state.Output = status, output
		}
	}
	return worse
}

// of returns the state of an alias check's target.
func (f *following) of(alias *Check) (status CheckStatus, output string) {
	t := alias.target()
	name, why := f.known(t)
	if !f.readable(alias, name) { // one text for both, so that it does not reveal whether the target exists
		return Critical, t.notFound() + ", or the token that registered this check may not read it"
	}
	status, output = f.worst(alias, t)
	switch {
	case status == Critical:
	case why != "":
		return Critical, "Aliased service failing: " + why
	case name == "":
		return Critical, t.notFound()
	}
	return status, output
}

// readable reports whether the token that registered an alias check may read what it follows; name comes from known.
func (f *following) readable(alias *Check, name string) bool {
	t, own := alias.target(), alias.owner()
	switch {
	case alias.Alias.By == "":
		return true
	case name == "" || name == alias.Alias.Reads:
		return name != ""
	case t.Service == "" || own.Service == "":
		return t == Target{Node: own.Node}
	}
	app, _ := f.known(own)
	return name == app
}

// worst returns the worst status of the checks of an alias check's target, and the output that follows from it. While
// the same check keeps the alias failing, the first output stays: in Consul, too, a new output alone does not make an
// alias follow.
func (f *following) worst(alias *Check, t Target) (worst CheckStatus, output string) {
	key := worstKey{t, alias.Status, alias.Output}
	if known, ok := f.worsts[key]; ok { // many follow one target
		return known.Status, known.Output
	}
	cause, follows := alias.cause(), false
	output = noChecks
	for _, checks := range f.checksAt(t) {
		for _, check := range checks {
			follows = follows || check.Alias != nil
			status, text := f.stateOf(check)
			stands := status == alias.Status && (check.Alias == nil && check.Name == cause || check.Alias != nil && text == alias.Output)
			switch {
			case status < worst, status == worst && status != Passing && !stands:
				continue
			case status == Passing:
				output = allPassing
			case stands:
				output = alias.Output
			case check.Alias != nil:
				output = text // names the check at the end of the chain, not the alias
			default:
				output = cut(fmt.Sprintf("%s%q failing: %s", causePrefix, check.Name, text))
			}
			worst = status
		}
	}
	if !follows {
		f.worsts[key] = Followed{Status: worst, Output: output}
	}
	return worst, output
}

const causePrefix = "Aliased check "

// cause returns the name of the check that makes an alias check fail, as its output says, or "".
func (c *Check) cause() string {
	rest, ok := strings.CutPrefix(c.Output, causePrefix)
	if !ok {
		return ""
	}
	quoted, _ := strconv.QuotedPrefix(rest)
	name, _ := strconv.Unquote(quoted)
	return name
}

func cut(output string) string {
	if len(output) > maxAliasOutput {
		output = strings.ToValidUTF8(output[:maxAliasOutput], "")
	}
	return output
}

// checksAt returns the checks of a service and of its node.
func (c *Catalog) checksAt(t Target) (checks [2][]*Check) {
	if _, s, ok := c.Service(t.Node, t.Service); ok {
		checks[0] = s.Checks
	}
	if n, ok := c.Node(t.Node); ok {
		checks[1] = n.Checks
	}
	return checks
}

// stateOf returns the state of a check; if it must follow, the state found so far.
func (f *following) stateOf(c *Check) (CheckStatus, string) {
	if c.Alias != nil {
		if s := f.states[c]; s != nil {
			return s.Status, s.Output
		}
	}
	return c.Status, c.Output
}

// known returns the application of a target service or the name of a target node ("" if it does not exist), and why
// it is out of use apart from its checks ("" if it is in use).
func (f *following) known(t Target) (name, why string) {
	if t.Service != "" {
		return f.elsewhere(t)
	}
	if _, ok := f.Node(t.Node); ok || t.Node == "" {
		return cmp.Or(t.Node, LogicalNode), ""
	}
	return "", ""
}
