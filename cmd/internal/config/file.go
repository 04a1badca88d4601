package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/internal/setting"
)

func readConfigFile(in inputs) (fileValues, error) {
	path, err := in.flags.GetString(configFlag)
	if err != nil || path == "" {
		return nil, err
	}
	data, err := in.read(path)
	if err != nil {
		return nil, fmt.Errorf("flag --%s: %w", configFlag, err)
	}
	return parseConfigFile(path, data)
}

// fileValue is one key of the file, in the form that Setting.Set parses, with its line.
type fileValue struct {
	text string
	file string
	line int
}

// within returns the text with relative paths made absolute. They are relative to the folder of the file, so that
// both can be moved together.
func (v fileValue) within(s setting.Setting) string {
	if !s.Path || v.text == "" {
		return v.text
	}
	named, err := setting.ParseMap(v.text)
	if s.Kind() != "map" || err != nil { // Set says what is wrong with it
		return v.path(v.text)
	}
	for name, path := range named {
		named[name] = v.path(path)
	}
	return setting.FormatMap(named)
}

func (v fileValue) path(text string) string {
	if filepath.IsAbs(text) {
		return text
	}
	path := filepath.Join(filepath.Dir(v.file), text)
	// otherwise the working directory is unknown, and so is the file's
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

type fileValues map[string]fileValue

// parseConfigFile reads the YAML of a configuration file. Its error joins every key that is unknown, given twice or
// of the wrong shape, each with its line.
func parseConfigFile(path string, data []byte) (fileValues, error) {
	root, err := singleDocument(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if root == nil {
		return nil, nil
	}
	p := fileParser{file: path, kinds: make(map[string]string), values: make(fileValues)}
	for _, s := range setting.Of(new(Config)) {
		p.kinds[s.Key] = s.Kind()
	}
	p.section("", root)
	return p.values, errors.Join(p.errs...)
}

type fileParser struct {
	file   string
	kinds  map[string]string // of every known key
	values fileValues
	errs   []error
}

func (p *fileParser) fail(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...)))
}

// section reads a mapping whose keys begin with prefix.
func (p *fileParser) section(prefix string, n *yaml.Node) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s is a section: it holds keys, not a value", cmp.Or(strings.TrimSuffix(prefix, "."), "the file"))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := prefix+n.Content[i].Value, n.Content[i+1]
		if seen[name] {
			p.fail(n.Content[i], "key %s is given twice", name)
			continue
		}
		seen[name] = true
		switch kind, known := p.kinds[name]; {
		case known:
			p.leaf(name, kind, value)
		case p.isSection(name):
			p.section(name+".", value)
		default:
			p.fail(n.Content[i], "unknown key %s", name)
		}
	}
}

func (p *fileParser) isSection(name string) bool {
	for known := range p.kinds {
		if strings.HasPrefix(known, name+".") {
			return true
		}
	}
	return false
}

// leaf reads a value. Lists and maps may also be given in their flag form, as one text.
func (p *fileParser) leaf(name, kind string, n *yaml.Node) {
	switch {
	case isNull(n): // "key:" without a value leaves the default
	case n.Kind == yaml.ScalarNode:
		p.values[name] = fileValue{n.Value, p.file, n.Line}
	case kind == "list" && n.Kind == yaml.SequenceNode:
		p.joined(name, n, func(c []*yaml.Node) string { return c[0].Value }, 1)
	case kind == "map" && n.Kind == yaml.MappingNode:
		p.joined(name, n, func(c []*yaml.Node) string { return c[0].Value + "=" + c[1].Value }, 2)
	default:
		p.fail(n, "key %s must have a %s", name, kind)
	}
}

// joined turns the elements of a list or map, step nodes each, into the flag form.
func (p *fileParser) joined(name string, n *yaml.Node, text func([]*yaml.Node) string, step int) {
	var parts []string
	for i := 0; i+step <= len(n.Content); i += step {
		elem := n.Content[i : i+step]
		for _, c := range elem {
			if c.Kind != yaml.ScalarNode || strings.ContainsAny(c.Value, ",=") {
				p.fail(c, "key %s must have plain addresses and names", name)
				return
			}
		}
		parts = append(parts, text(elem))
	}
	p.values[name] = fileValue{strings.Join(parts, ","), p.file, n.Line}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
