package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// The modes.
const (
	modeCP = "cp"
	modeAP = "ap"
)

var modes = []string{modeCP, modeAP}

// nodeName is what a name may look like: it is part of test.dial's flag form and of a server id
// (package store holds the same rule, for its directories).
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Validate reports every mistake at once, each with the key to change and what would be right.
func (c *Config) Validate() error {
	return errors.Join(
		setting.Check(c),
		c.validateNode(),
		c.validateAddresses(),
		c.validateExposure(),
		c.validateTLS(),
		c.validateExpect(),
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
	if c.Mode == modeAP && c.HTTPD.Reads != httpd.ReadsStale {
		errs = append(errs, fmt.Errorf("reads.eureka: %q is not offered in mode ap, where every node answers by what it has: stale", c.HTTPD.Reads))
	}
	if c.NodeName != "" && !nodeName.MatchString(c.NodeName) {
		errs = append(errs, fmt.Errorf("node.name: %q is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit", c.NodeName))
	}
	return errors.Join(errs...)
}

// validateExpect: a node that waits for others it is not told of would wait for ever.
func (c *Config) validateExpect() error {
	if c.Store.BootstrapExpect > 1 && len(c.Store.Join) == 0 {
		return fmt.Errorf("cluster.join: is required with cluster.bootstrap-expect %d: the node-to-node addresses of the nodes to wait for", c.Store.BootstrapExpect)
	}
	return nil
}

// validateRaft holds the rules of hashicorp/raft (ValidateConfig), in the words of our keys.
func (c *Config) validateRaft() error {
	r := &c.Store
	var errs []error
	if r.LeaseTimeout > r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.lease-timeout: %v is longer than raft.heartbeat-timeout %v", r.LeaseTimeout, r.HeartbeatTimeout))
	}
	if r.ElectionTimeout < r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.election-timeout: %v is shorter than raft.heartbeat-timeout %v", r.ElectionTimeout, r.HeartbeatTimeout))
	}
	return errors.Join(errs...)
}

// validateBatches: two of the largest batches, decoded, must fit into what is kept for bodies under way.
func (c *Config) validateBatches() error {
	l := &c.HTTPD.Limits
	if least := 16 * l.BatchBytes; l.InFlightBytes < least {
		return fmt.Errorf("limits.in-flight-bytes: %d is below %d, which a batch of limits.batch-bytes may need", l.InFlightBytes, least)
	}
	return nil
}

// name is the node's name, by default the first label of the host's.
func (c *Config) name() (string, error) {
	if c.NodeName != "" {
		return c.NodeName, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("node.name: not given, and the host name is unknown: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	if !nodeName.MatchString(host) {
		return "", fmt.Errorf("node.name: not given, and the host name %q cannot serve as one", host)
	}
	return host, nil
}

func (c *Config) validateAddresses() error {
	errs := []error{
		checkAddr("http.addr", c.HTTP.Addr),
		checkAddr("cluster.addr", c.Store.ClusterAddr),
		checkAdvertise("http", c.HTTP.Addr, c.HTTP.Advertise),
		checkAdvertise("cluster", c.Store.ClusterAddr, c.Store.ClusterAdvertise),
	}
	for _, host := range c.HTTP.Hosts {
		errs = append(errs, checkHost(host))
	}
	for _, addr := range c.Store.Join {
		errs = append(errs, checkDialable("cluster.join", addr))
	}
	for _, node := range slices.Sorted(maps.Keys(c.Store.Test.Dial)) {
		errs = append(errs, checkDialable("test.dial: "+node, c.Store.Test.Dial[node]))
	}
	return errors.Join(errs...)
}

// checkAddr wants host:port with a port by number; the host may be empty, for all interfaces.
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

// checkHost wants the name of a host alone.
func checkHost(host string) error {
	if strings.ContainsAny(host, ":/[]") {
		return fmt.Errorf("http.hosts: %q is not the name of a host, without a scheme or a port", host)
	}
	return nil
}

// served are the names under which the HTTP listener is addressed, beside localhost and addresses. Only a
// listener on loopback knows them all; nil: they are not known.
func (c *HTTPConfig) served() []string {
	if !loopback(c.Addr) {
		return nil
	}
	return append([]string{c.Advertise}, c.Hosts...)
}

// checkDialable wants an address that another node can dial.
func checkDialable(name, addr string) error {
	if err := checkAddr(name, addr); err != nil {
		return err
	}
	if allInterfaces(addr) {
		return fmt.Errorf("%s: %q names no host that can be dialled", name, addr)
	}
	return nil
}

// checkAdvertise: an address that stands for all interfaces tells others nothing.
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

// loopback says whether a listener on addr is out of reach of other machines.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// validateExposure keeps listeners without TLS on loopback, unless the operator says otherwise, and
// the profiler there in any case.
func (c *Config) validateExposure() error {
	return errors.Join(
		checkExposed("http", c.HTTP.Addr, c.HTTP.TLS.Cert != "" || c.HTTP.Plain, "http.tls.cert and http.tls.key"),
		checkExposed("cluster", c.Store.ClusterAddr, c.Store.TLS.Cert != "" || c.ClusterPlain, "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"),
		checkProfiler(c.PProfAddr),
	)
}

func checkExposed(section, addr string, allowed bool, remedy string) error {
	if allowed || checkAddr("", addr) != nil || loopback(addr) {
		return nil
	}
	return fmt.Errorf("%s.addr: %q can be reached from other machines without TLS; set %s, or listen on 127.0.0.1, or say %[1]s.plain: true", section, addr, remedy)
}

// warnExposed says what an address that others reach means as long as nobody is asked who he is.
func (c *Config) warnExposed(log *slog.Logger) {
	if loopback(c.HTTP.Addr) {
		return
	}
	if c.HTTP.TLS.ClientCA != "" {
		log.Warn("there is no authentication yet: every client with a certificate of http.tls.client-ca may read and change everything in the registry", "http.addr", c.HTTP.Addr)
		return
	}
	log.Warn("there is no authentication yet: every client that can reach http.addr may read and change everything in the registry, with TLS too", "http.addr", c.HTTP.Addr)
}

func checkProfiler(addr string) error {
	if addr == "" {
		return nil
	}
	if err := checkAddr("pprof.addr", addr); err != nil {
		return err
	}
	if !loopback(addr) {
		return fmt.Errorf("pprof.addr: %q is not loopback; profiles show memory, so listen on 127.0.0.1 and tunnel to it", addr)
	}
	return nil
}

// warn says what is allowed and yet probably not meant.
func (c *Config) warn(log *slog.Logger) {
	c.warnExposed(log)
	if c.Store.Settings.Threshold == registry.Whole {
		log.Warn("nothing is ever evicted: the threshold leaves a round no share of the registry",
			"key", "self-preservation.renewal-percent-threshold", "value", c.Store.Settings.Threshold)
	}
}

// widestKey is the widest mode of a private key's file: owner writes, group reads.
const widestKey fs.FileMode = 0o640

func (c *Config) validateTLS() error {
	h, n := &c.HTTP.TLS, &c.Store.TLS
	var errs []error
	if (h.Cert == "") != (h.Key == "") {
		errs = append(errs, errors.New("http.tls: cert and key belong together; give both or none"))
	}
	if h.ClientCA != "" && h.Cert == "" {
		errs = append(errs, errors.New("http.tls.client-ca: needs http.tls.cert and http.tls.key"))
	}
	if given := countGiven(n.Cert, n.Key, n.CA); given != 0 && given != 3 {
		errs = append(errs, errors.New("cluster.tls: cert, key and ca belong together; give all three or none"))
	}
	return errors.Join(append(errs,
		checkFile("http.tls.cert", h.Cert),
		checkKeyFile("http.tls.key", h.Key),
		checkFile("http.tls.client-ca", h.ClientCA),
		checkFile("cluster.tls.cert", n.Cert),
		checkKeyFile("cluster.tls.key", n.Key),
		checkFile("cluster.tls.ca", n.CA),
	)...)
}

func countGiven(texts ...string) int {
	n := 0
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}

// checkFile wants a file where one is named.
func checkFile(name, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkKeyFile refuses a private key that others than owner and group could read.
func checkKeyFile(name, path string) error {
	if err := checkFile(name, path); err != nil || path == "" {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if mode := info.Mode().Perm(); mode&^widestKey != 0 {
		return fmt.Errorf("%s: %s has mode %#o, wider than %#o; chmod it", name, path, mode, widestKey)
	}
	return nil
}
