package client

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// validate reports every mistake at once.
func (c RegistrationConfig) validate() error {
	errs := []error{checkInstance(c.Instance)}
	if c.ReplicationDelay < 0 {
		errs = append(errs, fmt.Errorf("ReplicationDelay %v is negative", c.ReplicationDelay))
	}
	if c.ReplicationInterval != 0 && c.ReplicationInterval < time.Second {
		errs = append(errs, fmt.Errorf("ReplicationInterval %v is less than a second", c.ReplicationInterval))
	}
	if c.ReplicationBurst < 0 {
		errs = append(errs, fmt.Errorf("ReplicationBurst %d is negative; give 1 or more", c.ReplicationBurst))
	}
	return errors.Join(errs...)
}

// checkInstance finds what every server refuses, and a lease that cannot be kept.
func checkInstance(i *registry.Instance) error {
	if i == nil {
		return errors.New("no Instance is given; NewInstance makes one")
	}
	var errs []error
	for _, f := range []struct{ name, value string }{
		{"App", i.App}, {"HostName", i.HostName}, {"IPAddr", i.IPAddr}, {"DataCenter.Name", i.DataCenter.Name}, {"InstanceID", i.ID()},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("the Instance has no %s", f.name))
		}
	}
	if lease := leaseOf(i, ""); lease.interval >= lease.duration {
		errs = append(errs, fmt.Errorf("the Instance's RenewalInterval (%v) is not shorter than its Duration (%v): its lease would end between two heartbeats", lease.interval, lease.duration))
	}
	return errors.Join(errs...)
}

// withDefaults also takes a copy of the instance, with the application's name in the registry's form.
func (c RegistrationConfig) withDefaults() RegistrationConfig {
	instance := *c.Instance
	instance.App = strings.ToUpper(instance.App)
	c.Instance = &instance
	c.ReplicationDelay = cmp.Or(c.ReplicationDelay, DefaultReplicationDelay)
	c.ReplicationInterval = cmp.Or(c.ReplicationInterval, DefaultReplicationInterval)
	c.ReplicationBurst = cmp.Or(c.ReplicationBurst, DefaultReplicationBurst)
	return c
}

// rate is how many tokens come free in a minute: upstream's 60 * burst / interval in seconds, which
// makes one burst of them in each interval. Its whole numbers make 0 of it for an interval longer than
// burst minutes, and 0 limits nothing; here it is 1 at least.
func (c RegistrationConfig) rate() int64 {
	return max(1, int64(time.Minute.Seconds()*float64(c.ReplicationBurst)/c.ReplicationInterval.Seconds()))
}
