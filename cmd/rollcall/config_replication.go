package main

import (
	"time"
)

// ReplicationConfig is to whom changes are carried, and how.
type ReplicationConfig struct {
	Nodes       []string          `yaml:"nodes" help:"mode ap: URLs of the datacenter's nodes, such as http://10.0.0.1:8761, this one allowed among them"`
	Datacenters map[string]string `yaml:"datacenters" help:"other Rollcall datacenters by name, each with the URLs of its nodes, separated by spaces"`
	Eureka      map[string]string `yaml:"eureka" help:"Netflix Eureka servers by a name for each, with the service URL, such as http://user:password@10.0.0.9:8761/eureka"`

	OnCut    map[string]string `yaml:"on-cut" help:"by datacenter or Eureka server: what becomes of its instances whose time has passed while the link is cut: keep (the default), keep-for:1h, expire"`
	Rates    map[string]string `yaml:"rates" help:"by peer: the most tasks per second that are sent to it; not given: no limit"`
	Timeouts map[string]string `yaml:"timeouts" help:"by peer: a replication.read-timeout of its own"`
	Single   []string          `yaml:"single" help:"Eureka servers that get one call per item instead of batches"`

	BatchSize       int           `yaml:"batch-size" help:"most tasks of one batch"`
	BatchDelay      time.Duration `yaml:"batch-delay" help:"how long a task waits for others, from its first submission; a full batch goes at once (maxBatchingDelay)"`
	Queue           int           `yaml:"queue" help:"most pending tasks per peer (maxElementsInPeerReplicationPool)"`
	Workers         int           `yaml:"workers" help:"batches on their way at a time, per peer (maxThreadsForPeerReplication)"`
	CongestionDelay time.Duration `yaml:"congestion-delay" help:"pause after a peer was busy or slow"`
	NetworkDelay    time.Duration `yaml:"network-delay" help:"pause after a peer could not be reached"`
	MaxDelay        time.Duration `yaml:"max-delay" help:"bound of both pauses"`
	Backoff         bool          `yaml:"backoff" help:"let both pauses grow, with a random part; false: always the same, as upstream"`
	Expiry          time.Duration `yaml:"expiry" help:"after which a cancel or status change is read anew instead of tried again (maxTimeForReplication)"`
	ConnectTimeout  time.Duration `yaml:"connect-timeout" help:"time to reach a peer (peerNodeConnectTimeoutMs)"`
	ReadTimeout     time.Duration `yaml:"read-timeout" help:"time for a peer's answer (peerNodeReadTimeoutMs)"`
	DigestInterval  time.Duration `yaml:"digest-interval" help:"time between two comparisons with a Rollcall peer"`
	CopyWait        time.Duration `yaml:"copy-wait" help:"mode ap: how long a node that starts waits for another one that is ready to be copied from, before it goes on with what it has"`
	WaitWhenEmpty   time.Duration `yaml:"wait-when-empty" help:"mode ap: how long lists are refused after a start that found no instance anywhere (waitTimeInMsWhenSyncEmpty)"`

	TLS ReplicationTLSConfig `yaml:"tls"`
}

// ReplicationTLSConfig is how peers with https URLs are trusted, and what they are shown.
type ReplicationTLSConfig struct {
	CA   string `yaml:"ca" help:"PEM file with the authorities of the peers' certificates; empty: the system's"`
	Cert string `yaml:"cert" help:"PEM file with the certificate that is shown to peers that ask for one"`
	Key  string `yaml:"key" help:"PEM file with its key, of mode 0640 or narrower"`
}

func defaultReplication() ReplicationConfig {
	return ReplicationConfig{
		BatchSize: 250, BatchDelay: 500 * time.Millisecond, Queue: 10_000, Workers: 20,
		CongestionDelay: time.Second, NetworkDelay: 100 * time.Millisecond, MaxDelay: 30 * time.Second, Backoff: true,
		Expiry: 30 * time.Second, ConnectTimeout: time.Second, ReadTimeout: 5 * time.Second, DigestInterval: time.Minute,
		CopyWait: 3 * time.Second,
	}
}
