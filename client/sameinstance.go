package client

import (
	"cmp"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// sameInstance says whether clients see the same in two instances: all that an instance has,
// lastDirtyTimestamp too. Metadata is a map to clients, and servers that keep it in one give it in an
// order of their own: the order is no difference.
func sameInstance(a, b *registry.Instance) bool {
	return a.Equal(b) || inOrder(a).Equal(inOrder(b))
}

// inOrder is an instance with its metadata in the order of the keys.
func inOrder(i *registry.Instance) *registry.Instance {
	sorted := *i
	for _, pairs := range []*[]registry.Pair{&sorted.Metadata, &sorted.DataCenter.Metadata} {
		*pairs = slices.SortedFunc(slices.Values(*pairs), func(a, b registry.Pair) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
		})
	}
	return &sorted
}
