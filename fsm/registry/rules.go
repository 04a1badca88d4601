package registry

// decide is the status rule chain, first match wins: what an instance's status becomes, given the
// one it reports (in a renewal: the stored one), the override for it, and the status of the lease
// that exists (Unknown if none does).
// Source: com.netflix.eureka.registry.rule, in the order of PeerAwareInstanceRegistryImpl.
func decide(reported, override, existing Status, replicated bool) Status {
	switch {
	case reported != Up && reported != OutOfService: // DownOrStartingRule
		return reported
	case override != Unknown: // OverrideExistsRule
		return override
	case !replicated && (existing == Up || existing == OutOfService): // LeaseExistsRule
		return existing
	default: // AlwaysMatchInstanceStatusRule
		return reported
	}
}
