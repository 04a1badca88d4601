package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ReadFile reads the scenario of a file.
func ReadFile(path string) (Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("read a scenario: %w", err)
	}
	return Parse(filepath.Base(path), text)
}

// Parse reads a scenario, and fills in the defaults. Its error joins every mistake, each with the file's name,
// the line and the key: unknown and repeated keys, values of the wrong kind, and what Validate refuses.
func Parse(name string, text []byte) (Scenario, error) {
	root, err := singleDocument(text)
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	p := parser{file: name, lines: map[string]int{"": root.Line}}
	s := defaults()
	p.scenario(&s)("", root)
	if s.Title == "" {
		s.Title = s.Name
	}
	for _, m := range mistakes(s) {
		p.wrong(m.key, "%s", m.text)
	}
	if len(p.wrongs) > 0 {
		return Scenario{}, p.err()
	}
	return s, nil
}

// singleDocument returns the root of the only document.
func singleDocument(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty; want a scenario, see docs/scenarios.md")
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document; want one scenario per file")
	}
	return doc.Content[0], nil
}

// parser collects what is wrong with a file, and where its values stand.
type parser struct {
	file   string
	lines  map[string]int // by key, as in faults[0].at
	wrongs []wrong
}

type wrong struct {
	line int
	key  string
	text string
}

// wrong notes a mistake in the value of a key, at most one for each.
func (p *parser) wrong(key, format string, args ...any) {
	if slices.ContainsFunc(p.wrongs, func(w wrong) bool { return w.key == key }) {
		return
	}
	p.wrongs = append(p.wrongs, wrong{p.line(key), key, fmt.Sprintf(format, args...)})
}

// line is where a key stands, or the one that it would belong to.
func (p *parser) line(key string) int {
	for {
		if line, known := p.lines[key]; known {
			return line
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
}

func (p *parser) err() error {
	slices.SortStableFunc(p.wrongs, func(a, b wrong) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(p.wrongs))
	for i, w := range p.wrongs {
		errs[i] = fmt.Errorf("%s:%d: %s: %s", p.file, w.line, cmp.Or(w.key, "the scenario"), w.text)
	}
	return errors.Join(errs...)
}

// reader takes the value of a key from a node, or notes what is wrong with it.
type reader func(key string, n *yaml.Node)

// fields are what a mapping may hold.
type fields map[string]reader

func (p *parser) mapping(known fields) reader {
	return func(key string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			p.wrong(key, "holds no keys; want some of %s", names(known))
			return
		}
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i].Value, n.Content[i+1]
			inner := join(key, name)
			p.lines[inner] = n.Content[i].Line
			read, ok := known[name]
			switch {
			case !ok:
				p.wrong(inner, "is unknown; want one of %s", names(known))
			case seen[name]:
				p.wrong(inner, "is given twice; want it once")
			default:
				read(inner, value)
			}
			seen[name] = true
		}
	}
}

func names(f fields) string {
	all := make([]string, 0, len(f))
	for name := range f {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// list reads a list, whose elements each reads.
func (p *parser) list(each func(key string, n *yaml.Node)) reader {
	return func(key string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			p.wrong(key, "is no list; want one, a dash before each element")
			return
		}
		for i, element := range n.Content {
			inner := fmt.Sprintf("%s[%d]", key, i)
			p.lines[inner] = element.Line
			each(inner, element)
		}
	}
}

// scalar reads a plain value by take, whose error says what is wrong with it.
func (p *parser) scalar(want string, take func(n *yaml.Node) error) reader {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind != yaml.ScalarNode:
			p.wrong(key, "is no plain value; want %s", want)
		case n.Tag == "!!null":
			p.wrong(key, "has no value; want %s", want)
		default:
			if err := take(n); err != nil {
				p.wrong(key, "%s", err)
			}
		}
	}
}

func (p *parser) text(to *string) reader {
	return p.scalar("a text", func(n *yaml.Node) error {
		*to = n.Value
		return nil
	})
}

func (p *parser) flag(to *bool) reader {
	return p.scalar("true or false", func(n *yaml.Node) error { return decode(n, to, "is neither true nor false") })
}

func (p *parser) whole(to *int) reader {
	return p.scalar("a whole number", func(n *yaml.Node) error {
		if n.ShortTag() != "!!int" { // Decode would cut 1.5 to 1
			return fmt.Errorf("%q is no whole number", n.Value)
		}
		return decode(n, to, "is no whole number")
	})
}

func (p *parser) number(to *float64) reader {
	return p.scalar("a number", func(n *yaml.Node) error { return decode(n, to, "is no number") })
}

func decode[T any](n *yaml.Node, to *T, not string) error {
	if err := n.Decode(to); err != nil {
		return fmt.Errorf("%q %s", n.Value, not)
	}
	return nil
}

func (p *parser) span(to *Span) reader {
	return p.scalar("a duration such as 15s", func(n *yaml.Node) error { return to.UnmarshalText([]byte(n.Value)) })
}

func (p *parser) moment(to *Moment) reader {
	return p.scalar("a share such as 20% or a duration such as 3s", func(n *yaml.Node) error {
		return to.UnmarshalText([]byte(n.Value))
	})
}

// optional reads a value that stays nil where none is given.
func optional[T any](read func(*T) reader, to **T) reader {
	return func(key string, n *yaml.Node) {
		*to = new(T)
		read(*to)(key, n)
	}
}
