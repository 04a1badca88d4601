package catalog

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Alias is what an alias check follows: the checks of a service and of its node, or those of a node alone. Immutable.
type Alias struct {
	Named   bool   // Node is given; else it is the check's own
	Node    string // "": the logical node
	Service string // id; "": the node alone
}

func (a *Alias) fields(c *codec.Codec) {
	c.Bool(&a.Named)
	c.String(&a.Node)
	c.String(&a.Service)
}

func (a *Alias) equal(o *Alias) bool { return a == o || a != nil && o != nil && *a == *o }

// Target is what alias checks follow: a service on a node, or (Service "") the node.
type Target struct{ Node, Service string }

// target is what an alias check follows.
func (c *Check) target() Target {
	if c.Alias.Named {
		return Target{c.Alias.Node, c.Alias.Service}
	}
	return Target{c.Node, c.Alias.Service}
}

// aliases are the alias checks of a catalog. They follow at the end of the operation that changed something, because
// their services and nodes can be targets, too: sessions end with them, and no reader sees a state between.
type aliases struct {
	byTarget *btree.BTreeG[aliasRow]
	touched  []Target   // whose checks may have changed since Follow
	entered  []CheckRef // alias checks that were registered or set since then
}

// aliasRow is an alias check and its target.
type aliasRow struct {
	Target
	check CheckRef
}

func newAliases() aliases { return aliases{byTarget: order.NewTree(compareAliases)} }

func compareAliases(a, b aliasRow) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Service, b.Service), compareCheckRefs(a.check, b.check))
}

func (a *aliases) addAlias(c *Check) {
	if c.Alias != nil {
		a.byTarget.Set(aliasRow{c.target(), c.ref()})
		a.entered = append(a.entered, c.ref())
	}
}

func (a *aliases) deleteAlias(c *Check) {
	if c.Alias != nil {
		a.byTarget.Delete(aliasRow{c.target(), c.ref()})
	}
}

// Touch notes that a service, or a node, or a check of it changed. It costs nothing where there are no alias checks.
func (a *aliases) Touch(t Target) {
	if a.byTarget.Len() > 0 {
		a.touched = append(a.touched, t)
	}
}

// Unsettled says whether alias checks may have to follow, see Follow.
func (a *aliases) Unsettled() bool { return len(a.touched) > 0 || len(a.entered) > 0 }

// Settle forgets what changed: all alias checks have followed it.
func (a *aliases) Settle() { a.touched, a.entered = nil, nil }

// followers calls do for each alias check that follows a target. A service follows its node.
func (a *aliases) followers(t Target, do func(CheckRef)) {
	a.byTarget.Ascend(aliasRow{Target: t}, func(row aliasRow) bool {
		if row.Node != t.Node || t.Service != "" && row.Service != t.Service {
			return false
		}
		do(row.check)
		return true
	})
}

// Followed is an alias check and the state that follows from its target.
type Followed struct {
	CheckRef
	Status CheckStatus
	Output string
}

// Texts of alias checks (agent/checks/alias.go of hashicorp/consul).
const (
	allPassing = "All checks passing."
	noChecks   = "No checks found."
)

// maxAliasOutput is the longest output of an alias check, in bytes: an alias of an alias quotes the other's.
const maxAliasOutput = 4 << 10

// Follow returns the states of the alias checks that follow what changed, where they are others than the checks have,
// in the order in which the checks were found. elsewhere says of a service that is no row here whether the registry has it,
// and of any service why it is not in use beyond its checks ("": it is).
//
// The states are the best ones in which each alias check has the worst status of its target. Aliases of each other so
// recover with what they follow, and an alias of its own service does not count itself. All that are to follow begin as
// passing and only get worse, each at most twice, so the work ends, and is linear in them.
// Source: agent/checks/alias.go, where checks follow one by one; those of a circle stay critical there.
func (c *Catalog[K]) Follow(elsewhere func(Target) (known bool, why string)) (changed []Followed) {
	f := &following[K]{Catalog: c, elsewhere: elsewhere, states: map[CheckRef]*Followed{}}
	f.find()
	for queue := f.all; len(queue) > 0; {
		worse := f.worsen(queue)
		queue = nil
		f.each(worse, func(ref CheckRef) { queue = append(queue, ref) })
	}
	for _, ref := range f.all {
		now := f.states[ref]
		if row, _ := c.Check(ref.Node, ref.ID); row.Check.Status != now.Status || row.Check.Output != now.Output {
			changed = append(changed, *now)
		}
	}
	return changed
}

// following is a Follow under way.
type following[K comparable] struct {
	*Catalog[K]
	elsewhere func(Target) (known bool, why string)
	all       []CheckRef // that are to follow
	states    map[CheckRef]*Followed
}

// find fills all with the alias checks that follow what changed, and those that follow these.
func (f *following[K]) find() {
	seen := map[Target]bool{}
	var next []Target
	add := func(ref CheckRef) {
		if row, ok := f.Check(ref.Node, ref.ID); ok && row.Check.Alias != nil && f.states[ref] == nil {
			f.states[ref] = &Followed{CheckRef: ref}
			f.all = append(f.all, ref)
			next = append(next, Target{ref.Node, row.Check.Service})
		}
	}
	for _, ref := range f.entered {
		add(ref)
	}
	next = append(next, f.touched...)
	for len(next) > 0 {
		t := next[len(next)-1]
		if next = next[:len(next)-1]; !seen[t] {
			seen[t] = true
			f.followers(t, add)
		}
	}
}

// each calls do once for each alias check that follows one of some targets.
func (f *following[K]) each(targets []Target, do func(CheckRef)) {
	seen, done := map[Target]bool{}, map[CheckRef]bool{}
	for _, t := range targets {
		if seen[t] {
			continue
		}
		seen[t] = true
		f.followers(t, func(ref CheckRef) {
			if !done[ref] {
				done[ref] = true
				do(ref)
			}
		})
	}
}

// worsen gives alias checks the states of their targets as far as they are worse, and returns the owners of those that got
// worse: other alias checks may follow them.
func (f *following[K]) worsen(refs []CheckRef) (worse []Target) {
	for _, ref := range refs {
		row, _ := f.Check(ref.Node, ref.ID)
		state := f.states[ref]
		status, output := f.of(row.Check)
		if status > state.Status {
			worse = append(worse, Target{ref.Node, row.Check.Service})
		}
		if status > state.Status || state.Output == "" {
			state.Status, state.Output = status, output
		}
	}
	return worse
}

// of is the state of an alias check's target.
func (f *following[K]) of(alias *Check) (status CheckStatus, output string) {
	t := alias.target()
	output = noChecks
	for _, check := range f.checksAt(t) {
		switch s, text := f.stateOf(check); {
		case s == Passing:
			if status == Passing {
				output = allPassing
			}
		case s > status:
			status, output = s, failing(alias, check, s, text)
		case s == status && alias.quotes(check, s):
			output = alias.Output
		}
	}
	known, why := f.known(t)
	switch {
	case status == Critical:
	case why != "":
		return Critical, "Aliased service failing: " + why
	case !known && t.Service == "":
		return Critical, fmt.Sprintf("Node %s could not be found", t.Node)
	case !known:
		return Critical, fmt.Sprintf("Service %s could not be found on node %s", t.Service, t.Node)
	}
	return status, output
}

// failing is the output of an alias that has a status because of a check. While the same check keeps it so, the output
// with which it began stands: as in Consul, where an output alone makes no alias follow.
func failing(alias, check *Check, status CheckStatus, output string) string {
	if alias.quotes(check, status) {
		return alias.Output
	}
	output = because(check) + output
	if len(output) > maxAliasOutput {
		output = strings.ToValidUTF8(output[:maxAliasOutput], "")
	}
	return output
}

func because(check *Check) string { return fmt.Sprintf("Aliased check %q failing: ", check.Name) }

// quotes says whether an alias has a status because of a check.
func (c *Check) quotes(check *Check, status CheckStatus) bool {
	return c.Status == status && strings.HasPrefix(c.Output, because(check))
}

// checksAt are the checks of a service and of its node.
func (f *following[K]) checksAt(t Target) (checks []*Check) {
	if _, s, ok := f.Service(t.Node, t.Service); ok {
		checks = append(checks, s.Checks...)
	}
	if n, ok := f.Node(t.Node); ok {
		checks = append(checks, n.Checks...)
	}
	return checks
}

// stateOf is the state of a check, for one that is to follow the one that it is found to have so far.
func (f *following[K]) stateOf(c *Check) (CheckStatus, string) {
	if s := f.states[c.ref()]; s != nil {
		return s.Status, s.Output
	}
	return c.Status, c.Output
}

// known says whether a target is there, and why it is out of use beyond its checks; "": it is not.
func (f *following[K]) known(t Target) (known bool, why string) {
	if t.Service != "" {
		return f.elsewhere(t)
	}
	_, ok := f.Node(t.Node)
	return ok || t.Node == "", ""
}
