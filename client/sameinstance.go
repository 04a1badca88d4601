package client

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// sameInstance says whether clients see the same in two instances: all that an instance has,
// lastDirtyTimestamp too. Metadata is a map to clients, and servers that keep it in one give it in an
// order of their own: the order is no difference.
func sameInstance(a, b *registry.Instance) bool {
	return a == b ||
		sameIdentity(a, b) && sameState(a, b) && sameAddress(a, b) && sameLinks(a, b)
}

func sameIdentity(a, b *registry.Instance) bool {
	return a.InstanceID == b.InstanceID && a.HostName == b.HostName && a.App == b.App && a.SID == b.SID &&
		a.AppGroup == b.AppGroup && a.ASG == b.ASG && a.CountryID == b.CountryID
}

func sameState(a, b *registry.Instance) bool {
	return a.Status == b.Status && a.Overridden == b.Overridden && a.LastDirty == b.LastDirty &&
		a.RenewalInterval == b.RenewalInterval && a.Duration == b.Duration &&
		samePairs(a.Metadata, b.Metadata) &&
		a.DataCenter.Name == b.DataCenter.Name && samePairs(a.DataCenter.Metadata, b.DataCenter.Metadata)
}

func sameAddress(a, b *registry.Instance) bool {
	return a.IPAddr == b.IPAddr && a.Port == b.Port && a.SecurePort == b.SecurePort &&
		a.VIP == b.VIP && a.SecureVIP == b.SecureVIP
}

func sameLinks(a, b *registry.Instance) bool {
	return a.HomePageURL == b.HomePageURL && a.StatusPageURL == b.StatusPageURL &&
		a.HealthCheckURL == b.HealthCheckURL && a.SecureHealthURL == b.SecureHealthURL
}

func samePairs(a, b []registry.Pair) bool {
	return slices.Equal(a, b) ||
		len(a) == len(b) && slices.Equal(slices.SortedFunc(slices.Values(a), comparePairs), slices.SortedFunc(slices.Values(b), comparePairs))
}

func comparePairs(a, b registry.Pair) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	return strings.Compare(a.Value, b.Value)
}
