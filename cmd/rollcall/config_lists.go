package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// splitList splits a comma-separated list, dropping white space and empty elements.
func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// parseMap parses name=value,name=value.
func parseMap(text string) (map[string]string, error) {
	m := make(map[string]string)
	for _, part := range splitList(text) {
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
