package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/httpd"
)

// The modes.
const (
	modeCP = "cp"
	modeAP = "ap"
)

// readsEureka are the words of reads.eureka.
var readsEureka = []string{httpd.ReadsLinearizable.String(), httpd.ReadsStaleWithoutQuorum.String(), httpd.ReadsStale.String()}

var (
	modes      = []string{modeCP, modeAP}
	syncs      = []string{"interval", "always", "none"}
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

// nodeName is what a name may look like: it is part of cluster.dial's flag form and of a server id
// (package store holds the same rule, for its directories).
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Validate reports every mistake at once, each with the key to change and what would be right.
func (c *Config) Validate() error {
	return errors.Join(
		c.validateNode(),
		c.validateAddresses(),
		c.validateExposure(),
		c.validateTLS(),
		c.validateCommit(),
		c.validateRaft(),
		c.SelfPreservation.validate(),
		c.EurekaCompat.validate(),
		c.RateLimiter.validate(),
		c.Checks.validate(),
		c.validateReplication(),
		c.Limits.validate(),
		cli.OneOf("reads.eureka", c.Reads.Eureka, readsEureka),
		cli.OneOf("log.level", c.Log.Level, logLevels),
		cli.OneOf("log.format", c.Log.Format, logFormats),
		atLeast("gc.percent", c.GC.Percent, 0),
	)
}

// maxSyncDelay is more than any disk takes that a node would not give up.
const maxSyncDelay = 10 * time.Second

func (c *Config) validateNode() error {
	var errs []error
	errs = append(errs, cli.OneOf("mode", c.Mode, modes), cli.OneOf("data.sync", c.Data.Sync, syncs),
		atLeast("data.sync-interval", c.Data.SyncInterval, time.Millisecond),
		atLeast("data.min-free", c.Data.MinFree, 0),
		atLeast("data.sync-delay", c.Data.SyncDelay, 0), atMost("data.sync-delay", c.Data.SyncDelay, maxSyncDelay))
	if c.Data.Dir == "" {
		errs = append(errs, errors.New("data.dir: is required: the directory that holds the node's state"))
	}
	if c.Mode == modeAP && c.Reads.Eureka != httpd.ReadsStale.String() {
		errs = append(errs, fmt.Errorf("reads.eureka: %q is not offered in mode ap, where every node answers by what it has: stale", c.Reads.Eureka))
	}
	if c.Node.Name != "" && !nodeName.MatchString(c.Node.Name) {
		errs = append(errs, fmt.Errorf("node.name: %q is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit", c.Node.Name))
	}
	return errors.Join(errs...)
}

// maxInFlight is half of the unanswered batches that the state machine remembers for a node; it could
// not tell a repeated batch from a new one beyond that.
const maxInFlight = 32

func (c *Config) validateCommit() error {
	return errors.Join(
		atLeast("commit.in-flight", c.Commit.InFlight, 1),
		atMost("commit.in-flight", c.Commit.InFlight, maxInFlight),
		atLeast("cluster.bootstrap-expect", c.Cluster.BootstrapExpect, 1),
		c.validateExpect(),
		atLeast("eviction.interval", c.Eviction.Interval, 10*time.Millisecond),
	)
}

// validateExpect: a node that waits for others it is not told of would wait for ever.
func (c *Config) validateExpect() error {
	if c.Cluster.BootstrapExpect > 1 && len(c.Cluster.Join) == 0 {
		return fmt.Errorf("cluster.join: is required with cluster.bootstrap-expect %d: the node-to-node addresses of the nodes to wait for", c.Cluster.BootstrapExpect)
	}
	return nil
}

// validateRaft holds the rules of hashicorp/raft (ValidateConfig), in the words of our keys.
func (c *Config) validateRaft() error {
	r := &c.Raft
	errs := []error{
		atLeast("raft.heartbeat-timeout", r.HeartbeatTimeout, 5*time.Millisecond),
		atLeast("raft.election-timeout", r.ElectionTimeout, 5*time.Millisecond),
		atLeast("raft.lease-timeout", r.LeaseTimeout, 5*time.Millisecond),
		atLeast("raft.commit-timeout", r.CommitTimeout, time.Millisecond),
		atLeast("raft.snapshot-interval", r.SnapshotInterval, 5*time.Millisecond),
		atLeast("raft.snapshot-threshold", r.SnapshotThreshold, 1),
	}
	if r.LeaseTimeout > r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.lease-timeout: %v is longer than raft.heartbeat-timeout %v", r.LeaseTimeout, r.HeartbeatTimeout))
	}
	if r.ElectionTimeout < r.HeartbeatTimeout {
		errs = append(errs, fmt.Errorf("raft.election-timeout: %v is shorter than raft.heartbeat-timeout %v", r.ElectionTimeout, r.HeartbeatTimeout))
	}
	return errors.Join(errs...)
}

func atLeast[T int | int64 | uint64 | time.Duration](name string, value, least T) error {
	if value >= least {
		return nil
	}
	return fmt.Errorf("%s: %v is below %v", name, value, least)
}

func atMost[T int | time.Duration](name string, value, most T) error {
	if value <= most {
		return nil
	}
	return fmt.Errorf("%s: %v is above %v", name, value, most)
}

// name is the node's name, by default the first label of the host's.
func (c *Config) name() (string, error) {
	if c.Node.Name != "" {
		return c.Node.Name, nil
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
