package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Resource is a kind of thing that may be read, changed or used.
type Resource uint8

// The resources. Never renumber one: they are part of the formats.
const (
	App         Resource = iota // an application, or service, by its name in capitals
	KV                          // keys by prefix
	Lock                        // locks and semaphores by prefix
	Session                     // sessions, which belong to their creators
	Node                        // nodes of the catalog that are not instances
	Operator                    // the cluster: members, settings, self-preservation, peers, snapshots
	Auth                        // roles, tokens, the mode and the audit
	Metrics                     // figures for monitoring
	Peer                        // a datacenter that replicates with this one, by its name
	CheckTarget                 // addresses that checks may look at, CIDR:PORT
	resources
)

// Verbs is a set of things that may be done to a resource.
type Verbs uint8

// The verbs. Never renumber one: they are part of the formats.
const (
	Read     Verbs = 1 << iota
	Write          // create, change, delete
	Register       // register, renew, cancel, and set status and metadata, by any protocol
	Override       // drain, quarantine, prune: an operator's part of an application
	Exchange       // replicate
	Probe          // make a check look at an address
	Takeover       // replace or remove, as another datacenter, living instances of this one; from level 3 on
)

// matching is how the rules of a resource name things.
type matching uint8

const (
	unnamed  matching = iota // there is only one thing
	byName                   // a name, or a prefix with * at its end
	byPrefix                 // always a prefix
	byCIDR                   // an address range and ports
)

// kind is what rules may say about a resource.
type kind struct {
	word     string
	matching matching
	verbs    Verbs
}

var kinds = [resources]kind{
	App:         {"app", byName, Read | Register | Override},
	KV:          {"kv", byPrefix, Read | Write},
	Lock:        {"lock", byPrefix, Read | Write},
	Session:     {"session", unnamed, Read | Write},
	Node:        {"node", unnamed, Read | Write},
	Operator:    {"operator", unnamed, Read | Write},
	Auth:        {"auth", unnamed, Read | Write},
	Metrics:     {"metrics", unnamed, Read},
	Peer:        {"peer", byName, Exchange | Takeover},
	CheckTarget: {"check-target", byCIDR, Probe},
}

var verbWords = []string{"read", "write", "register", "override", "exchange", "probe", "takeover"}

// String returns the word for a resource in rules, metrics and messages.
func (r Resource) String() string { return kinds[r].word }

// String returns the words for verbs, in their order, separated by commas.
func (v Verbs) String() string {
	var words []string
	for i, word := range verbWords {
		if v&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// Rule grants verbs on what it names.
type Rule struct {
	Resource Resource
	// Match names what the rule is about, see matching; "" if there is only one thing. In it, {app} stands for the
	// parameter of that name of the token that has the role.
	Match string
	Verbs Verbs
}

// String returns the text that ParseRule reads.
func (r Rule) String() string {
	if kinds[r.Resource].matching == unnamed {
		return r.Resource.String() + " " + r.Verbs.String()
	}
	return r.Resource.String() + " " + cmp.Or(r.Match, "*") + " " + r.Verbs.String() // an empty prefix covers all
}

// maxMatch bounds Rule.Match, in bytes.
const maxMatch = 512

// ParseRule reads a rule: a resource, a name (if there is more than one thing), and verbs separated by commas, as in
// "app ORDERS read,register" or "operator read".
func ParseRule(text string) (Rule, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Rule{}, fmt.Errorf("a rule is empty; a rule is like %q", "app ORDERS read,register")
	}
	at := slices.IndexFunc(kinds[:], func(k kind) bool { return k.word == words[0] })
	if at < 0 {
		known := make([]string, resources)
		for i, k := range kinds {
			known[i] = k.word
		}
		return Rule{}, fmt.Errorf("rule %q: %q is no resource; there are %s", text, words[0], strings.Join(known, ", "))
	}
	kind := kinds[at]
	rule := Rule{Resource: Resource(at)}
	switch {
	case kind.matching == unnamed && len(words) != 2:
		return Rule{}, fmt.Errorf("rule %q: want %s VERBS, with verbs of %s", text, kind.word, kind.verbs)
	case kind.matching != unnamed && len(words) != 3:
		return Rule{}, fmt.Errorf("rule %q: want %s %s VERBS, with verbs of %s", text, kind.word, kind.matching, kind.verbs)
	case len(words) == 3:
		rule.Match = words[1]
	}
	for word := range strings.SplitSeq(words[len(words)-1], ",") {
		i := slices.Index(verbWords, word)
		if i < 0 || kind.verbs&(1<<i) == 0 {
			return Rule{}, fmt.Errorf("rule %q: %q is no verb of %s; there are %s", text, word, kind.word, kind.verbs)
		}
		rule.Verbs |= 1 << i
	}
	rule.Match = canonical(rule.Resource, rule.Match)
	return rule, rule.validate()
}

// canonical returns a name as decisions compare it: applications have names in capitals.
func canonical(r Resource, name string) string {
	switch {
	case r == App && !strings.Contains(name, "{"):
		return strings.ToUpper(name)
	case kinds[r].matching == byPrefix:
		return strings.TrimSuffix(name, "*")
	}
	return name
}

// validate returns an error that says what is wrong with a rule that was not made by ParseRule.
func (r Rule) validate() error {
	if r.Resource >= resources {
		return fmt.Errorf("%d is no resource", r.Resource)
	}
	kind := kinds[r.Resource]
	wrong := ""
	switch {
	case r.Verbs == 0 || r.Verbs&^kind.verbs != 0:
		wrong = "its verbs are not of " + kind.verbs.String()
	case (kind.matching == unnamed) != (r.Match == "") && kind.matching != byPrefix:
		wrong = "it must name something if there is more than one, and only then"
	case len(r.Match) > maxMatch:
		wrong = fmt.Sprintf("what it names has more than %d bytes", maxMatch)
	case !order.PlainText(r.Match) || strings.ContainsFunc(r.Match, unicode.IsSpace):
		wrong = "what it names must be UTF-8 without spaces and control characters"
	case kind.matching == byName && strings.Contains(strings.TrimSuffix(r.Match, "*"), "*"):
		wrong = "* may stand at the end alone"
	case strings.ContainsAny(strings.ReplaceAll(r.Match, appParameter, ""), "{}"):
		wrong = "the only parameter is " + appParameter
	}
	if _, err := ParseTarget(r.Match); err != nil && kind.matching == byCIDR {
		wrong = err.Error()
	}
	if wrong != "" {
		return fmt.Errorf("rule %q: %s", r, wrong)
	}
	return nil
}

// appParameter in a Match stands for Token.App.
const appParameter = "{app}"

func (m matching) String() string {
	return [...]string{unnamed: "", byName: "NAME (or PREFIX*)", byPrefix: "PREFIX (or *)", byCIDR: "CIDR:PORTS"}[m]
}

func (r *Rule) fields(c *codec.Codec) {
	codec.Enum(c, &r.Resource, resources-1, "resource")
	c.Lasting(&r.Match)
	c.Since(3, r.Verbs&Takeover != 0)
	codec.Enum(c, &r.Verbs, 1<<len(verbWords)-1, "verbs")
}
