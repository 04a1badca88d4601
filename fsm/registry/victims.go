package registry

// RoundLimit is how many leases may be evicted in the rest of an eviction interval in which taken
// were evicted already: of the n at its beginning, n - threshold·n together. Permanent ones do not count.
// Source: AbstractInstanceRegistry.evict.
func (v *View) RoundLimit(taken int) int {
	n := v.Total() - v.tables.permanent + taken
	return max(0, n-v.settings.kept().Of(n)-taken)
}

// Victims draws limit of the leases that are due, or all if there are not more, at random by a partial
// Knuth shuffle; draw(k) returns a number in [0, k). due is reordered.
func Victims(due []EvictItem, limit int, draw func(k int) int) []EvictItem {
	victims := min(len(due), limit)
	for i := range victims {
		next := i + draw(len(due)-i)
		due[i], due[next] = due[next], due[i]
	}
	return due[:victims]
}

// kept is the share of the registry that one eviction round leaves alone. A threshold of 0 asks for
// no self-preservation by numbers; that a round may take everything it says only together with
// self-preservation switched off.
func (s Settings) kept() Share {
	if s.Threshold == 0 && s.SelfPreservation {
		return DefaultSettings().Threshold
	}
	return s.Threshold
}
