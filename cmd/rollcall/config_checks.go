package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/probe"
)

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	DeregisterCriticalAfter time.Duration `key:"checks.deregister-critical-after" default:"72h" min:"1m" zero:"never" help:"a service whose check has been critical for so long is removed, where the check does not say (DeregisterCriticalServiceAfter); at least 1m, 0s: never"`

	Probes        bool `key:"checks.probes" default:"true" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	AllowLoopback bool `key:"checks.allow-loopback" default:"true" help:"checks may name loopback addresses of the leader's machine; default: whether http.addr is one. Link-local, multicast and metadata addresses are never probed"`

	Targets []string `key:"checks.targets" help:"what checks may address beside what their own service registered: CIDR:port, with * for any port, such as 10.0.0.0/8:* or [fd00::/8]:8080"`
	Methods []string `key:"checks.methods" default:"GET,HEAD" help:"HTTP methods that checks may use"`
}

func (c ChecksConfig) validate() error {
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
