package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/probe"
)

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	DeregisterCriticalAfter time.Duration `yaml:"deregister-critical-after" help:"a service whose check has been critical for so long is removed, where the check does not say (DeregisterCriticalServiceAfter); at least 1m, 0s: never"`

	Probes        bool `yaml:"probes" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	AllowLoopback bool `yaml:"allow-loopback" help:"checks may name loopback addresses of the leader's machine; default: whether http.addr is one. Link-local, multicast and metadata addresses are never probed"`

	Targets []string `yaml:"targets" help:"what checks may address beside what their own service registered: CIDR:port, with * for any port, such as 10.0.0.0/8:* or [fd00::/8]:8080"`
	Methods []string `yaml:"methods" help:"HTTP methods that checks may use"`
}

// shortestReap is the least time for which a check may be critical before its service goes, as in Consul.
const shortestReap = time.Minute

func (c ChecksConfig) validate() error {
	if after := c.DeregisterCriticalAfter; after != 0 && after < shortestReap {
		return fmt.Errorf("checks.deregister-critical-after: %v is less than %v; give 0s to keep critical services for ever", after, shortestReap)
	}
	_, err := c.rules()
	return err
}

// rules translates the settings.
func (c ChecksConfig) rules() (probe.Rules, error) {
	rules := probe.Rules{AllowLoopback: c.AllowLoopback, Methods: c.Methods}
	var errs []error
	for _, text := range c.Targets {
		target, err := probe.ParseTarget(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("checks.targets: %w", err))
		}
		rules.Targets = append(rules.Targets, target)
	}
	return rules, errors.Join(errs...)
}
