package registry

// Victims draws the leases that one eviction round may take: of those due, at most
// n - threshold·n for a registry of n leases, at random by a partial Knuth shuffle; draw(k) returns a
// number in [0, k). due is reordered. Source: AbstractInstanceRegistry.evict.
func (v *View) Victims(due []EvictItem, draw func(k int) int) []EvictItem {
	n := v.Total()
	victims := min(len(due), n-v.settings.kept().Of(n))
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
		return defaultThreshold
	}
	return s.Threshold
}
