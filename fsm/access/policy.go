package access

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Need is what a call must be allowed to do: one verb on one thing.
type Need struct {
	Resource Resource
	// Name is the thing; for keys, locks and applications "" means all of them. If a call reads or deletes all names
	// with a prefix, Name is the prefix, and Below is true.
	Name  string
	Below bool
	Verb  Verbs
	// Counted: a caller without this right is not refused yet, in any mode, but counted as in mode log-only.
	Counted bool
}

// String returns a need as messages and the audit show it.
func (n Need) String() string {
	switch {
	case kinds[n.Resource].matching == unnamed:
		return n.Resource.String() + " " + n.Verb.String()
	case n.Below || n.Name == "":
		return n.Resource.String() + " " + n.Name + "* " + n.Verb.String()
	}
	return n.Resource.String() + " " + n.Name + " " + n.Verb.String()
}

// ParseNeed reads a need as a rule with one verb; a * at the end stands for all names with that prefix.
func ParseNeed(text string) (Need, error) {
	rule, err := ParseRule(text)
	if err != nil {
		return Need{}, err
	}
	n := Need{Resource: rule.Resource, Name: rule.Match, Verb: rule.Verbs}
	if kinds[n.Resource].matching == byName {
		n.Name, n.Below = strings.CutSuffix(n.Name, "*")
	}
	switch {
	case n.Verb&(n.Verb-1) != 0:
		return Need{}, fmt.Errorf("%q has several verbs; ask for one at a time", text)
	case strings.Contains(n.Name, appParameter):
		return Need{}, fmt.Errorf("%q has a parameter; name what it is about", text)
	}
	return n, nil
}

// Policy holds the rules of one principal, ready for decisions. It is immutable. The zero Policy allows nothing.
type Policy struct {
	granted [resources]grants
	targets []Target // that checks may look at
}

// grants holds the verbs granted on one resource.
type grants struct {
	exact    map[string]Verbs // may be nil
	prefixes []prefix         // sorted
}

// prefix grants verbs on all names that begin with it. They include those of each shorter prefix of its own text.
type prefix struct {
	text   string
	verbs  Verbs
	parent int // the longest other prefix of text, or -1
}

// Compile prepares the rules of a principal for decisions. app replaces {app}; if app is "", rules with {app} grant
// nothing.
func Compile(app string, roles ...*Role) *Policy {
	p := new(Policy)
	byPrefix := [resources]map[string]Verbs{}
	for _, role := range roles {
		for _, rule := range role.Rules {
			match := rule.Match
			if strings.Contains(match, appParameter) {
				if app == "" {
					continue
				}
				match = canonical(rule.Resource, strings.ReplaceAll(match, appParameter, app))
			}
			switch name, open := strings.CutSuffix(match, "*"); {
			case rule.Resource == CheckTarget:
				if t, err := ParseTarget(match); err == nil {
					p.targets = append(p.targets, t)
				}
			case open || kinds[rule.Resource].matching != byName:
				add(&byPrefix[rule.Resource], name, rule.Verbs)
			default:
				add(&p.granted[rule.Resource].exact, match, rule.Verbs)
			}
		}
	}
	for r, prefixes := range byPrefix {
		p.granted[r].prefixes = sorted(prefixes)
	}
	return p
}

func add(to *map[string]Verbs, name string, verbs Verbs) {
	if *to == nil {
		*to = make(map[string]Verbs)
	}
	(*to)[name] |= verbs
}

// sorted returns prefixes in order, each with the verbs of all prefixes that it begins with.
func sorted(verbs map[string]Verbs) []prefix {
	var all []prefix
	for text, v := range verbs {
		all = append(all, prefix{text: text, verbs: v})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].text < all[j].text })
	for i := range all {
		p := &all[i]
		for p.parent = i - 1; p.parent >= 0 && !strings.HasPrefix(p.text, all[p.parent].text); {
			p.parent = all[p.parent].parent
		}
		if p.parent >= 0 {
			p.verbs |= all[p.parent].verbs
		}
	}
	return all
}

// AllowsSome reports whether a verb is allowed on anything of one kind.
func (p *Policy) AllowsSome(on Resource, verb Verbs) bool {
	if p == nil {
		return false
	}
	for _, verbs := range p.granted[on].exact {
		if verbs&verb != 0 {
			return true
		}
	}
	return slices.ContainsFunc(p.granted[on].prefixes, func(p prefix) bool { return p.verbs&verb != 0 })
}

// AllowsAs does what Allows does, for the principal with a name. On a session that has an owner, rights over sessions
// count only for the owner; others must be operators.
func (p *Policy) AllowsAs(name string, n Need, owner func(session string) string) bool {
	if n.Resource == Session && n.Name != "" {
		if of := owner(n.Name); of != "" && of != name {
			return p.Allows(Need{Resource: Operator, Verb: Write})
		}
		n.Name = ""
	}
	return p.Allows(n)
}

// Allows reports whether a need is granted.
func (p *Policy) Allows(n Need) bool {
	if p == nil {
		return false
	}
	if n.Resource == CheckTarget {
		at, err := netip.ParseAddrPort(n.Name)
		return err == nil && n.Verb == Probe && slices.ContainsFunc(p.targets, func(t Target) bool { return t.Contains(at) })
	}
	g := &p.granted[n.Resource]
	if n.Name != "" && !n.Below && g.exact[n.Name]&n.Verb != 0 {
		return true
	}
	low, high := 0, len(g.prefixes) // by hand: slices.BinarySearchFunc takes half as long again
	for low < high {
		if middle := (low + high) / 2; g.prefixes[middle].text <= n.Name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for at := low - 1; at >= 0; {
		if strings.HasPrefix(n.Name, g.prefixes[at].text) {
			return g.prefixes[at].verbs&n.Verb != 0
		}
		at = g.prefixes[at].parent
	}
	return false
}
