package main

import (
	"fmt"
	"time"
)

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	DeregisterCriticalAfter time.Duration `yaml:"deregister-critical-after" help:"a service whose check has been critical for so long is removed, where the check does not say (DeregisterCriticalServiceAfter); at least 1m, 0s: never"`

	Probes        bool `yaml:"probes" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	AllowLoopback bool `yaml:"allow-loopback" help:"checks may name loopback addresses of the leader's machine; default: whether http.addr is one. Link-local, multicast and metadata addresses are never probed"`
}

// shortestReap is the least time for which a check may be critical before its service goes, as in Consul.
const shortestReap = time.Minute

func (c ChecksConfig) validate() error {
	if after := c.DeregisterCriticalAfter; after != 0 && after < shortestReap {
		return fmt.Errorf("checks.deregister-critical-after: %v is less than %v; give 0s to keep critical services for ever", after, shortestReap)
	}
	return nil
}
