package client

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// setMetadata replaces entries where they are and appends what is new. The list that was given stays as
// it is.
func setMetadata(pairs, entries []registry.Pair) []registry.Pair {
	pairs = slices.Clone(pairs)
	for _, e := range entries {
		at := slices.IndexFunc(pairs, func(p registry.Pair) bool { return p.Key == e.Key })
		if at < 0 {
			pairs = append(pairs, e)
			continue
		}
		pairs[at] = e
	}
	return pairs
}

// deleteMetadata returns another list.
func deleteMetadata(pairs []registry.Pair, keys []string) []registry.Pair {
	return slices.DeleteFunc(slices.Clone(pairs), func(p registry.Pair) bool { return slices.Contains(keys, p.Key) })
}
