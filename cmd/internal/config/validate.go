package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Validate reports all mistakes at once, each with the key to change and what would be right.
func (c *Config) Validate() error {
	return errors.Join(
		setting.Check(c),
		c.validateNode(),
		c.validateAddresses(),
		c.validateExposure(),
		c.validateTLS(),
		c.validateAuth(),
		c.validateRaft(),
		c.validateReplication(),
		c.validateBatches(),
	)
}

func (c *Config) validateNode() error {
	var errs []error
	if c.Store.DataDir == "" {
		errs = append(errs, errors.New("data.dir: is required: the directory that holds the node's state"))
	}
	if c.Mode == AP && c.HTTPD.Reads != web.ReadsStale {
		errs = append(errs, fmt.Errorf("reads.eureka: %q is not offered in mode ap, where every node reads its own state: stale", c.HTTPD.Reads))
	}
	if c.Mode == AP && c.Store.RestoreFrom != "" {
		errs = append(errs, errors.New("restore-from: is not offered in mode ap, which has no founding; rollcall snapshot restore brings instances into a node that runs"))
	}
	if c.NodeName != "" && !nodeName.MatchString(c.NodeName) {
		errs = append(errs, fmt.Errorf("node.name: %q is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit", c.NodeName))
	}
	return errors.Join(errs...)
}

// validateRaft checks the rules of hashicorp/raft (ValidateConfig), in the words of our keys. It refuses a node that
// would wait forever for others whose addresses it does not know.
func (c *Config) validateRaft() error {
	r := &c.Store
	var errs []error
	if r.BootstrapExpect > 1 && len(r.Join) == 0 {
		errs = append(errs, fmt.Errorf("cluster.join: is required with cluster.bootstrap-expect %d: the node-to-node addresses of the nodes to wait for", r.BootstrapExpect))
	}
	if r.LeaseTimeout > r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.lease-timeout: %v is longer than raft.heartbeat-timeout %v", r.LeaseTimeout, r.HeartbeatTimeout))
	}
	if r.ElectionTimeout < r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.election-timeout: %v is shorter than raft.heartbeat-timeout %v", r.ElectionTimeout, r.HeartbeatTimeout))
	}
	return errors.Join(errs...)
}

// validateBatches checks that the bodies in flight have room for two of the largest batches, decoded.
func (c *Config) validateBatches() error {
	l := &c.HTTPD.Limits
	if least := 16 * l.BatchBytes; l.InFlightBytes < least {
		return fmt.Errorf("limits.in-flight-bytes: %d is below %d, which a batch of limits.batch-bytes may need", l.InFlightBytes, least)
	}
	return nil
}

func (c *Config) validateAddresses() error {
	errs := []error{
		checkAddr("http.addr", c.HTTP.Addr),
		checkAddr("cluster.addr", c.Store.ClusterAddr),
		checkAdvertise("http", c.HTTP.Addr, c.HTTP.Advertise),
		checkAdvertise("cluster", c.Store.ClusterAddr, c.Store.ClusterAdvertise),
	}
	for _, host := range c.HTTP.Hosts {
		if strings.ContainsAny(host, ":/[]") {
			errs = append(errs, fmt.Errorf("http.hosts: %q is not the name of a host, without a scheme or a port", host))
		}
	}
	for _, addr := range c.Store.Join {
		errs = append(errs, checkDialable("cluster.join", addr))
	}
	for _, node := range slices.Sorted(maps.Keys(c.Store.Test.Dial)) {
		errs = append(errs, checkDialable("test.dial: "+node, c.Store.Test.Dial[node]))
	}
	return errors.Join(errs...)
}

// checkAddr checks for host:port with a numeric port; the host may be empty, for all interfaces.
func checkAddr(name, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q is not an address of the form host:port", name, addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s: %q has no port number from 0 to 65535", name, addr)
	}
	return nil
}

// checkDialable checks for an address that another node can dial.
func checkDialable(name, addr string) error {
	if err := checkAddr(name, addr); err != nil {
		return err
	}
	if allInterfaces(addr) {
		return fmt.Errorf("%s: %q names no host that can be dialled", name, addr)
	}
	return nil
}

// checkAdvertise checks that others can dial the address. One that stands for all interfaces cannot be dialled.
func checkAdvertise(section, addr, advertise string) error {
	switch {
	case advertise != "":
		return checkDialable(section+".advertise", advertise)
	case checkAddr("", addr) == nil && allInterfaces(addr):
		return fmt.Errorf("%s.advertise: is required, because %s.addr %q names no host that others can dial", section, section, addr)
	}
	return nil
}

func allInterfaces(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Host returns this node's host as other hosts name it, or "" if they do not reach it.
func (c *Config) Host() string {
	addr := cmp.Or(c.Store.ClusterAdvertise, c.Store.ClusterAddr)
	if loopback(addr) {
		return ""
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// Warn logs what is allowed but probably not intended. It judges protection by settings and auth.file: the cluster's
// mode is not known yet.
func (c *Config) Warn(log *slog.Logger) {
	mode := c.Floor()
	if file, err := loadAuthFile(c.Auth.File); c.Auth.File != "" && err == nil {
		mode = max(mode, file.Mode)
	}
	for _, lack := range c.Insecure(mode) {
		log.Warn(lack.Warning, "insecure", lack.What)
	}
	if mode == access.Unset {
		log.Warn("every program of this machine may read and change everything in the registry (auth.mode)")
	}
	if c.Store.Settings.Threshold == registry.Whole {
		log.Warn("nothing is ever evicted: the threshold leaves a round no share of the registry",
			"key", "self-preservation.renewal-percent-threshold", "value", c.Store.Settings.Threshold)
	}
}
