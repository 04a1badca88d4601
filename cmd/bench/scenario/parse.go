package scenario

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

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
// the line and the key: unknown and repeated keys, values of the wrong kind, and values that cannot be.
func Parse(name string, text []byte) (Scenario, error) {
	root, err := singleDocument(text)
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	p := parser{file: name, lines: map[string]int{"": root.Line}}
	s := defaults()
	p.value("", root, reflect.ValueOf(&s).Elem())
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

// value reads a node into a value, by its type: the keys of a struct are the yaml names of its fields.
func (p *parser) value(key string, n *yaml.Node, to reflect.Value) {
	if wants, ok := plain[to.Type()]; ok {
		p.scalar(key, n, wants, to)
		return
	}
	switch to.Kind() {
	case reflect.Pointer: // nil where none is given
		to.Set(reflect.New(to.Type().Elem()))
		p.value(key, n, to.Elem())
	case reflect.Struct:
		fields := make(map[string]reflect.Value)
		for i := range to.NumField() {
			if name := to.Type().Field(i).Tag.Get("yaml"); name != "-" {
				fields[name] = to.Field(i)
			}
		}
		p.mapping(key, n, slices.Sorted(maps.Keys(fields)), func(inner, name string, n *yaml.Node) { p.value(inner, n, fields[name]) })
	case reflect.Map:
		to.Set(reflect.MakeMap(to.Type()))
		p.mapping(key, n, keysOf(to.Type(), n), func(inner, name string, n *yaml.Node) {
			element := reflect.New(to.Type().Elem()).Elem()
			p.value(inner, n, element)
			to.SetMapIndex(reflect.ValueOf(name).Convert(to.Type().Key()), element)
		})
	case reflect.Slice:
		p.list(key, n, to)
	}
}

// keysOf are the keys that a map may hold. The names of the servers' settings are not known here.
func keysOf(t reflect.Type, n *yaml.Node) (keys []string) {
	switch t {
	case reflect.TypeFor[map[string]Limits](): // of modes, and of columns that have limits of their own
		return append(columnNames(), keysIn(n)...)
	case reflect.TypeFor[map[string]float64]():
		return slices.Sorted(maps.Keys(rateFields(new(Load))))
	}
	return keysIn(n)
}

func keysIn(n *yaml.Node) (keys []string) {
	for i := 0; i < len(n.Content); i += 2 {
		keys = append(keys, n.Content[i].Value)
	}
	return keys
}

func (p *parser) mapping(key string, n *yaml.Node, known []string, read func(inner, name string, n *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.wrong(key, "holds no keys; want some of %s", strings.Join(known, ", "))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		inner := strings.TrimPrefix(key+"."+name, ".")
		p.lines[inner] = n.Content[i].Line
		switch {
		case !slices.Contains(known, name):
			p.wrong(inner, "is unknown; want one of %s", strings.Join(known, ", "))
		case seen[name]:
			p.wrong(inner, "is given twice; want it once")
		default:
			read(inner, name, n.Content[i+1])
		}
		seen[name] = true
	}
}

func (p *parser) list(key string, n *yaml.Node, to reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		p.wrong(key, "is no list; want one, a dash before each element")
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
	for i, element := range n.Content {
		inner := fmt.Sprintf("%s[%d]", key, i)
		p.lines[inner] = element.Line
		p.value(inner, element, to.Index(i))
	}
}

// wants says what a plain value must be, and of a wrong one what it is not; empty: its own error says so.
type wants struct{ what, not string }

var plain = map[reflect.Type]wants{
	reflect.TypeFor[string]():  {"a text", ""},
	reflect.TypeFor[Kind]():    {"a text", ""},
	reflect.TypeFor[bool]():    {"true or false", "is neither true nor false"},
	reflect.TypeFor[int]():     {"a whole number", "is no whole number"},
	reflect.TypeFor[float64](): {"a number", "is no number"},
	reflect.TypeFor[Span]():    {"a duration such as 15s", ""},
	reflect.TypeFor[Moment]():  {"a share such as 20% or a duration such as 3s", ""},
}

func (p *parser) scalar(key string, n *yaml.Node, w wants, to reflect.Value) {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.wrong(key, "is no plain value; want %s", w.what)
		return
	case n.Tag == "!!null":
		p.wrong(key, "has no value; want %s", w.what)
		return
	}
	var err error
	switch text, own := to.Addr().Interface().(encoding.TextUnmarshaler); {
	case own:
		err = text.UnmarshalText([]byte(n.Value))
	case to.Kind() == reflect.String:
		to.SetString(n.Value) // also of what would be a number elsewhere
	case to.Kind() == reflect.Int && n.ShortTag() != "!!int", // Decode would cut 1.5 to 1
		n.Decode(to.Addr().Interface()) != nil:
		err = fmt.Errorf("%q %s", n.Value, w.not)
	}
	if err != nil {
		p.wrong(key, "%s", err)
	}
}

// defaults is a scenario of which nothing was said.
func defaults() Scenario {
	return Scenario{
		Datacenters: 1,
		Load: Load{
			Instances:  300,
			Heartbeat:  Span(time.Second),
			Lease:      Span(3 * time.Second),
			Registers:  5,
			Writes:     60,
			Reads:      150,
			Fetches:    5,
			Deltas:     20,
			Watchers:   6,
			Sightings:  4,
			OwnKeys:    12,
			SharedKeys: 6,
			Sealed:     20,
		},
	}
}

// rateFields are the rates of a load that a storm may change, by their names in files.
func rateFields(l *Load) map[string]*float64 {
	return map[string]*float64{
		"registers": &l.Registers,
		"writes":    &l.Writes,
		"reads":     &l.Reads,
		"fetches":   &l.Fetches,
		"deltas":    &l.Deltas,
		"sealed":    &l.Sealed,
	}
}

// With is the load with other rates, by their names in files, as in a storm. Names that a storm cannot hold
// change nothing.
func (l Load) With(rates map[string]float64) Load {
	of := rateFields(&l)
	for name, rate := range rates {
		if to, ok := of[name]; ok {
			*to = rate
		}
	}
	return l
}

// Rates are the rates that a storm may change, by their names in files.
func (l Load) Rates() map[string]float64 {
	rates := make(map[string]float64)
	for name, rate := range maps.All(rateFields(&l)) {
		rates[name] = *rate
	}
	return rates
}
