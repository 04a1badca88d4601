package main

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// parseMap parses name=value,name=value.
func parseMap(text string) (map[string]string, error) {
	m := make(map[string]string)
	for _, part := range cli.SplitList(text) {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" || value == "" {
			return nil, errors.New("no name=value: " + part)
		}
		m[name] = value
	}
	return m, nil
}

// formatMap is the inverse of parseMap, sorted by name.
func formatMap(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+m[name])
	}
	return strings.Join(parts, ",")
}
