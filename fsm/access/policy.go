package access

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Need is what a call needs to be allowed: one verb on one thing.
type Need struct {
	Resource Resource
	// Name is the thing; of keys, locks and applications "" is all there are. Where a call reads or deletes all names
	// with a prefix, the name is the prefix, and Below is true.
	Name  string
	Below bool
	Verb  Verbs
	// Counted: for want of it nothing is refused yet, in no mode; it is counted as in mode log-only.
	Counted bool
}

// String is a need as messages and the audit have it.
func (n Need) String() string {
	switch {
	case kinds[n.Resource].matching == unnamed:
		return n.Resource.String() + " " + n.Verb.String()
	case n.Below || n.Name == "":
		return n.Resource.String() + " " + n.Name + "* " + n.Verb.String()
	}
	return n.Resource.String() + " " + n.Name + " " + n.Verb.String()
}

// ParseNeed reads a need as a rule with one verb, whose * at the end stands for all below.
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

// Policy is the rules of one principal, for decisions. Immutable. The zero Policy allows nothing.
type Policy struct {
	granted [resources]grants
	targets []Target // that checks may look at
}

// grants are those of one resource.
type grants struct {
	exact    map[string]Verbs // nil: none
	prefixes []prefix         // sorted
}

// prefix grants verbs on all names that begin with it, those of the prefixes that it begins with itself included.
type prefix struct {
	text   string
	verbs  Verbs
	parent int // the longest other prefix that text begins with; -1: none
}

// Compile makes the rules of a principal ready. app is what stands for {app}; a rule with the parameter says nothing where
// app is "".
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

// sorted are prefixes in order, each with the verbs of those that it begins with.
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

// AllowsSome says whether there is any of a kind of resource that a verb is allowed on.
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

// Allows decides.
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
	low, high := 0, len(g.prefixes) // by hand: slices.BinarySearchFunc takes a half longer
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
