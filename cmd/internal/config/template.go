package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/internal/setting"
)

// ValidateFile reads a file alone, without flags and environment, and reports all mistakes at once, each with its
// key.
func ValidateFile(path string) error {
	_, err := loadFile(path)
	return err
}

func loadFile(path string) (*Config, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Set(configFlag, path); err != nil {
		return nil, err
	}
	loaded, err := Load(inputs{flags: flags, env: func(string) (string, bool) { return "", false }, read: os.ReadFile})
	return loaded.Config, err
}

// production is what a production file has besides the defaults. Values to be changed are in words.
var production = map[string]string{
	"node.name": "n1", "data.dir": "/var/lib/rollcall", "log.format": "json", "shutdown-delay": "10s",
	"http.addr": "10.0.0.1:8761", "http.tls.cert": "/etc/rollcall/http.pem", "http.tls.key": "/etc/rollcall/http.key", "auth.mode": "on",
	"cluster.addr": "10.0.0.1:7761", "cluster.join": "10.0.0.1:7761,10.0.0.2:7761,10.0.0.3:7761", "cluster.bootstrap-expect": "3",
	"cluster.tls.cert": "/etc/rollcall/node.pem", "cluster.tls.key": "/etc/rollcall/node.key", "cluster.tls.ca": "/etc/rollcall/nodes-ca.pem",
}

// Template returns a file with every setting, each as a comment with its default, its bounds and its meaning. Not
// commented out are the chosen settings, and those that a node cannot start without or, for production, those of one
// of three nodes.
func Template(forProduction bool, chosen map[string]string) string {
	set := map[string]string{"data.dir": "data"}
	if forProduction {
		set = maps.Clone(production)
	}
	maps.Copy(set, chosen)
	return template(set)
}

// ParseChosen reads settings for Template, each as key=value. The error joins all mistakes.
func ParseChosen(texts []string) (map[string]string, error) {
	known := map[string]setting.Setting{}
	for _, s := range templated() {
		known[s.Key] = s
	}
	chosen := map[string]string{}
	var errs []error
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		s, found := known[key]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%q is not of the form key=value", text))
		case !found:
			errs = append(errs, fmt.Errorf("%s is not a setting", key))
		default:
			err := prefix(key, s.Set(value))
			if err == nil {
				err = s.Check()
			}
			errs = append(errs, err)
			chosen[key] = value
		}
	}
	return chosen, errors.Join(errs...)
}

// templated returns the settings that a template has.
func templated() (all []setting.Setting) {
	for _, s := range Default().Settings() {
		if !strings.HasPrefix(s.Key, "test.") {
			all = append(all, s)
		}
	}
	return all
}

// template returns a file with every setting; those with a value are not commented out.
func template(set map[string]string) string {
	b := strings.Builder{}
	b.WriteString("# Settings of rollcall server. A line that is a comment shows the default; docs/reference/settings.md explains them.\n")
	writeSection(&b, "", templated(), set)
	return b.String()
}

// writeSection writes the settings whose keys begin with prefix, which are sorted. Keys of a section stand together
// in any order of their texts.
func writeSection(b *strings.Builder, prefix string, all []setting.Setting, set map[string]string) {
	indent := strings.Repeat("  ", strings.Count(prefix, "."))
	seen := map[string]bool{}
	for _, s := range all {
		rest := strings.TrimPrefix(s.Key, prefix)
		section, _, nested := strings.Cut(rest, ".")
		if !nested {
			writeSetting(b, indent, rest, s, set)
			continue
		}
		if seen[section] {
			continue
		}
		seen[section] = true
		var within []setting.Setting
		comment := "# "
		for _, other := range all {
			if strings.HasPrefix(other.Key, prefix+section+".") {
				within = append(within, other)
				if _, given := set[other.Key]; given {
					comment = ""
				}
			}
		}
		fmt.Fprintf(b, "\n%s%s%s:\n", indent, comment, section)
		writeSection(b, prefix+section+".", within, set)
	}
}

func writeSetting(b *strings.Builder, indent, name string, s setting.Setting, set map[string]string) {
	fmt.Fprintf(b, "%s# %s", indent, s.Help)
	if limits := s.Limits(); limits != "" {
		fmt.Fprintf(b, " (%s)", limits)
	}
	if text, given := set[s.Key]; given {
		fmt.Fprintf(b, "\n%s%s: %s\n", indent, name, yamlText(text))
		return
	}
	fmt.Fprintf(b, "\n%s# %s: %s\n", indent, name, yamlText(s.String()))
}

// yamlText returns a text as a YAML scalar.
func yamlText(text string) string {
	encoded, err := yaml.Marshal(scalar(text)) // a scalar always encodes
	if err != nil || text == "" {
		return `""`
	}
	return strings.TrimSpace(string(encoded))
}

// Schema returns a JSON schema (draft 2020-12) of the file: sections are objects, and no other keys are allowed.
// Values that are texts in the file, such as durations, are fully checked by `rollcall config validate`.
func Schema() map[string]any {
	root := object()
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "Settings of rollcall server"
	for _, s := range Default().Settings() {
		at := root
		parts := strings.Split(s.Key, ".")
		for _, section := range parts[:len(parts)-1] {
			properties := at["properties"].(map[string]any)
			if properties[section] == nil {
				properties[section] = object()
			}
			at = properties[section].(map[string]any)
		}
		at["properties"].(map[string]any)[parts[len(parts)-1]] = schemaOf(s)
	}
	return root
}

func object() map[string]any {
	return map[string]any{"type": []string{"object", "null"}, "additionalProperties": false, "properties": map[string]any{}}
}

// schemaOf returns the schema of one value. A key without a value leaves the default, and lists and maps may be
// texts.
func schemaOf(s setting.Setting) map[string]any {
	types := map[string][]string{"bool": {"boolean"}, "number": {"number"}, "list": {"array", "string"}, "map": {"object", "string"}}[s.Kind()]
	if types == nil {
		types = []string{"string"}
	}
	schema := map[string]any{"type": append(types, "null"), "description": s.Help}
	if s.Default != "" {
		schema["default"] = s.JSON()
	}
	if len(s.Words) > 0 {
		words := []any{nil}
		for _, w := range s.Words {
			words = append(words, w)
		}
		schema["enum"] = words
	}
	if s.Kind() == "number" && s.Zero == "" {
		for key, bound := range map[string]string{"minimum": s.Min, "maximum": s.Max} {
			if number, err := strconv.ParseFloat(bound, 64); err == nil {
				schema[key] = number
			}
		}
	}
	return schema
}
