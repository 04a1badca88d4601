package access

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Role is a named set of rules.
type Role struct {
	Name  string
	Rules []Rule
}

func (r *Role) fields(c *codec.Codec) {
	c.Lasting(&r.Name)
	codec.List(c, &r.Rules, 3, (*Rule).fields)
}

// String returns the rules of a role.
func (r *Role) String() string {
	texts := make([]string, len(r.Rules))
	for i, rule := range r.Rules {
		texts[i] = rule.String()
	}
	return strings.Join(texts, "; ")
}

// Validate returns an error that says why a role cannot be stored.
func (r *Role) Validate() error {
	if err := validName("role", r.Name); err != nil {
		return err
	}
	if len(r.Rules) > maxRules {
		return fmt.Errorf("role %s has %d rules; at most %d are kept", r.Name, len(r.Rules), maxRules)
	}
	for _, rule := range r.Rules {
		if err := rule.validate(); err != nil {
			return fmt.Errorf("role %s: %w", r.Name, err)
		}
	}
	return nil
}

// validName refuses a name that people could not type or read.
func validName(what, name string) error {
	if name == "" || strings.ContainsAny(name, " /?#%\"'\\") {
		return fmt.Errorf("%s %q: a name has 1 to %d bytes without spaces and / ? # %% \" ' \\", what, name, MaxName)
	}
	return validText("the name of "+what+" "+name, name)
}

func validText(what, text string) error {
	switch {
	case len(text) > MaxName:
		return fmt.Errorf("%s has %d bytes; at most %d are kept", what, len(text), MaxName)
	case !order.PlainText(text) || strings.ContainsFunc(text, unicode.IsSpace):
		return fmt.Errorf("%s must be UTF-8 without spaces and control characters", what)
	}
	return nil
}

// Everything returns the rules of an operator who may do everything.
func Everything() []Rule {
	var rules []Rule
	for r, k := range kinds {
		rule := Rule{Resource: Resource(r), Verbs: k.verbs}
		switch {
		case rule.Resource == Peer: // an operator does not send messages that name a datacenter
			continue
		case rule.Resource == CheckTarget:
			rule.Match = "0.0.0.0/0:*"
			rules = append(rules, rule)
			rule.Match = "::/0:*"
		case k.matching == byName:
			rule.Match = "*"
		}
		rules = append(rules, rule)
	}
	return rules
}

// Mode says what happens to a call that is not allowed.
type Mode uint8

// The modes, from mild to strict. Never renumber one.
const (
	Unset   Mode = iota // no mode is given
	Off                 // nobody is asked who they are
	LogOnly             // it is counted and logged, and performed
	On                  // it is refused
)

var modeWords = []string{Unset: "", Off: "off", LogOnly: "log-only", On: "on"}

// String returns the word for a mode in settings and messages; "" for Unset.
func (m Mode) String() string { return modeWords[m] }

// ParseMode reads a mode.
func ParseMode(word string) (Mode, error) {
	for m, w := range modeWords {
		if w == word && word != "" {
			return Mode(m), nil
		}
	}
	return Unset, fmt.Errorf("%q is no mode of access control: want off, log-only or on", word)
}
