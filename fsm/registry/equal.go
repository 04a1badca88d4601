package registry

import "slices"

// equal compares two instances in everything that readers see.
func (i *Instance) equal(o *Instance) bool {
	return i == o ||
		i.sameIdentity(o) && i.sameState(o) && i.sameAddress(o) && i.sameLinks(o)
}

func (i *Instance) sameIdentity(o *Instance) bool {
	return i.InstanceID == o.InstanceID && i.HostName == o.HostName && i.App == o.App && i.SID == o.SID &&
		i.AppGroup == o.AppGroup && i.ASG == o.ASG && i.CountryID == o.CountryID
}

func (i *Instance) sameState(o *Instance) bool {
	return i.Status == o.Status && i.Overridden == o.Overridden && i.LastDirty == o.LastDirty &&
		i.RenewalInterval == o.RenewalInterval && i.Duration == o.Duration &&
		slices.Equal(i.Metadata, o.Metadata) &&
		i.DataCenter.Name == o.DataCenter.Name && slices.Equal(i.DataCenter.Metadata, o.DataCenter.Metadata)
}

func (i *Instance) sameAddress(o *Instance) bool {
	return i.IPAddr == o.IPAddr && i.Port == o.Port && i.SecurePort == o.SecurePort &&
		i.VIP == o.VIP && i.SecureVIP == o.SecureVIP
}

func (i *Instance) sameLinks(o *Instance) bool {
	return i.HomePageURL == o.HomePageURL && i.StatusPageURL == o.StatusPageURL &&
		i.HealthCheckURL == o.HealthCheckURL && i.SecureHealthURL == o.SecureHealthURL
}
