package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/fsm/access"
)

// secretText finds the text of a token anywhere in a text.
var secretText = regexp.MustCompile(`rct_[a-z2-7]{16}_[a-z2-7]`)

// ParseAuthFile reads what a file of a name says. The error joins all mistakes, each with its line. It repeats no text
// of a token, and no value that stands where a hash belongs.
func ParseAuthFile(name string, data []byte) (access.Content, error) {
	p := parser{name: name}
	if at := secretText.FindIndex(data); at != nil {
		p.fail(1+bytes.Count(data[:at[0]], []byte("\n")), "this is the text of a token; only its hash belongs in the file (rollcall auth hash makes it)")
		return access.Content{}, errors.Join(p.errs...)
	}
	root, err := singleDocument(data)
	if err != nil {
		return access.Content{}, fmt.Errorf("%s: %w", name, syntaxError(err))
	}
	if root != nil {
		p.fields(root, "the file", []field{{"mode", p.mode}, {"roles", p.roles}, {"tokens", p.tokens}})
	}
	p.content.Bootstrapped = len(p.content.Tokens) > 0
	for i, k := range p.content.Tokens { // against each other and against the roles
		if i > 0 && p.content.Tokens[i-1].Accessor == k.Accessor {
			p.fail(p.lines[k], "token %s is there twice", k.Accessor)
		}
		for _, name := range k.Roles {
			if p.content.Role(name) == nil {
				p.fail(p.lines[k], "token %s (%s) has the role %q, and the file has no role of that name", k.Accessor, k.Name, name)
			}
		}
	}
	if len(p.errs) > 0 {
		return access.Content{}, errors.Join(p.errs...)
	}
	return p.content, nil
}

// singleDocument returns the root of the only document, or nil.
func singleDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; give one")
	}
	return doc.Content[0], nil
}

// syntaxError returns an error of the YAML library, without what it quotes from the file.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.ContainsAny(text, "'\"`") {
		line, _, found := strings.Cut(text, ":")
		if !found || !strings.HasPrefix(line, "line ") {
			line = "somewhere"
		}
		text = line + ": it is no YAML"
	}
	return errors.New(text)
}

type parser struct {
	name    string
	content access.Content
	lines   map[*access.Token]int
	errs    []error
}

func (p *parser) fail(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.name, line, fmt.Sprintf(format, args...)))
}

// field is a key that a section may have, and the function that reads its value.
type field struct {
	key  string
	read func(*yaml.Node)
}

// fields reads a section with known keys.
func (p *parser) fields(n *yaml.Node, what string, known []field) {
	p.pairs(n, what, func(key, value *yaml.Node) {
		i := slices.IndexFunc(known, func(f field) bool { return f.key == key.Value })
		if i < 0 {
			keys := make([]string, len(known))
			for i, f := range known {
				keys[i] = f.key
			}
			p.fail(key.Line, "%s has an unknown key; there are %s", what, strings.Join(keys, ", "))
			return
		}
		known[i].read(value)
	})
}

// pairs reads a section of arbitrary keys, each at most once.
func (p *parser) pairs(n *yaml.Node, what string, read func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "%s must have keys with values", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			p.fail(key.Line, "a key of %s is not text", what)
		case seen[key.Value]:
			p.fail(key.Line, "a key of %s is given twice", what)
		default:
			read(key, n.Content[i+1])
		}
		seen[key.Value] = true
	}
}

func (p *parser) text(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		p.fail(n.Line, "%s must be a text", what)
		return "", false
	}
	return n.Value, true
}

// items reads a list.
func (p *parser) items(n *yaml.Node, what string, read func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n.Line, "%s must be a list", what)
		return
	}
	for _, item := range n.Content {
		read(item)
	}
}

func (p *parser) mode(n *yaml.Node) {
	word, ok := p.text(n, "mode")
	if !ok {
		return
	}
	mode, err := access.ParseMode(word)
	if err != nil {
		p.fail(n.Line, "mode: want off, log-only or on")
	}
	p.content.Mode = mode
}

func (p *parser) roles(n *yaml.Node) {
	p.pairs(n, "roles", func(key, value *yaml.Node) {
		r := &access.Role{Name: key.Value}
		p.items(value, "role "+key.Value, func(item *yaml.Node) {
			text, ok := p.text(item, "a rule")
			if !ok {
				return
			}
			rule, err := access.ParseRule(text)
			if err != nil {
				p.fail(item.Line, "role %s: %v", key.Value, err)
				return
			}
			r.Rules = append(r.Rules, rule)
		})
		if err := r.Validate(); err != nil {
			p.fail(key.Line, "%v", err)
		}
		p.content.Roles = append(p.content.Roles, r)
	})
	slices.SortFunc(p.content.Roles, func(a, b *access.Role) int { return cmp.Compare(a.Name, b.Name) })
}

func (p *parser) tokens(n *yaml.Node) {
	p.lines = map[*access.Token]int{}
	p.items(n, "tokens", func(item *yaml.Node) {
		k := new(access.Token)
		before := len(p.errs)
		p.fields(item, "a token", []field{
			{"accessor", func(n *yaml.Node) { k.Accessor = p.accessor(n) }},
			{"name", func(n *yaml.Node) { k.Name, _ = p.text(n, "name") }},
			{"app", func(n *yaml.Node) { k.App, _ = p.text(n, "app") }},
			{"roles", func(n *yaml.Node) {
				p.items(n, "roles of a token", func(item *yaml.Node) {
					if role, ok := p.text(item, "a role of a token"); ok {
						k.Roles = append(k.Roles, role)
					}
				})
			}},
			{"hashes", func(n *yaml.Node) { p.items(n, "hashes", func(item *yaml.Node) { p.hash(k, item) }) }},
			{"expires", func(n *yaml.Node) { k.Expires = p.expires(n) }},
		})
		if len(p.errs) > before {
			return
		}
		if k.Accessor == "" {
			p.fail(item.Line, "a token has no accessor")
			return
		}
		if err := k.Validate(); err != nil {
			p.fail(item.Line, "%v", err)
		}
		p.lines[k] = item.Line
		p.content.Tokens = append(p.content.Tokens, k)
	})
	slices.SortStableFunc(p.content.Tokens, func(a, b *access.Token) int { return cmp.Compare(a.Accessor, b.Accessor) })
}

func (p *parser) accessor(n *yaml.Node) string {
	text, ok := p.text(n, "accessor")
	if ok && !access.IsAccessor(text) {
		p.fail(n.Line, "this is not an accessor, which is the second part of a token's text, rct_ACCESSOR_SECRET_CHECK")
		return ""
	}
	return text
}

func (p *parser) hash(k *access.Token, n *yaml.Node) {
	text, ok := p.text(n, "a hash")
	if !ok {
		return
	}
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		p.fail(n.Line, "this is not a hash, which has %d hexadecimal digits: the SHA-256 of a token's text (rollcall auth hash makes it)", 2*sha256.Size)
		return
	}
	k.Secrets = append(k.Secrets, access.Secret{Hash: [sha256.Size]byte(sum)})
}

// expires reads a time, or a day, at whose beginning the token ends.
func (p *parser) expires(n *yaml.Node) int64 {
	text, ok := p.text(n, "expires")
	if !ok {
		return 0
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil && at.UnixMilli() > 0 {
			return at.UnixMilli()
		}
	}
	p.fail(n.Line, "expires must be a day or a moment, like 2027-01-31 or 2027-01-31T12:00:00Z")
	return 0
}
