package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

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
