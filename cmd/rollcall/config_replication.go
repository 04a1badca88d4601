package main

import (
	"time"
)

// ReplicationConfig is to whom changes are carried, and how.
type ReplicationConfig struct {
	Nodes       []string          `key:"replication.nodes" help:"mode ap: URLs of the datacenter's nodes, such as http://10.0.0.1:8761, this one allowed among them"`
	Datacenters map[string]string `key:"replication.datacenters" help:"other Rollcall datacenters by name, each with the URLs of its nodes, separated by spaces"`
	Eureka      map[string]string `key:"replication.eureka" help:"Netflix Eureka servers by a name for each, with the service URL, such as http://user:password@10.0.0.9:8761/eureka"`

	Rates    map[string]string `key:"replication.rates" help:"by peer: the most tasks per second that are sent to it; not given: no limit"`
	Timeouts map[string]string `key:"replication.timeouts" help:"by peer: a replication.read-timeout of its own"`
	Single   []string          `key:"replication.single" help:"Eureka servers that get one call per item instead of batches"`

	// BatchSize: upstream's servers take 250, and a Rollcall peer 8 MiB.
	BatchSize       int           `key:"replication.batch-size" default:"250" min:"1" max:"1000" help:"most tasks of one batch"`
	BatchDelay      time.Duration `key:"replication.batch-delay" default:"500ms" min:"1ms" help:"how long a task waits for others, from its first submission; a full batch goes at once (maxBatchingDelay)"`
	Queue           int           `key:"replication.queue" default:"10000" min:"1" help:"most pending tasks per peer (maxElementsInPeerReplicationPool)"`
	Workers         int           `key:"replication.workers" default:"20" min:"1" max:"1000" help:"batches on their way at a time, per peer (maxThreadsForPeerReplication)"`
	CongestionDelay time.Duration `key:"replication.congestion-delay" default:"1s" min:"1ms" help:"pause after a peer was busy or slow"`
	NetworkDelay    time.Duration `key:"replication.network-delay" default:"100ms" min:"1ms" help:"pause after a peer could not be reached"`
	MaxDelay        time.Duration `key:"replication.max-delay" default:"30s" min:"1ms" help:"bound of both pauses"`
	Backoff         bool          `key:"replication.backoff" default:"true" help:"let both pauses grow, with a random part; false: always the same, as upstream"`
	Expiry          time.Duration `key:"replication.expiry" default:"30s" min:"1s" help:"after which a cancel or status change is read anew instead of tried again (maxTimeForReplication)"`
	ConnectTimeout  time.Duration `key:"replication.connect-timeout" default:"1s" min:"1ms" help:"time to reach a peer (peerNodeConnectTimeoutMs)"`
	ReadTimeout     time.Duration `key:"replication.read-timeout" default:"5s" min:"1ms" help:"time for a peer's answer (peerNodeReadTimeoutMs)"`
	DigestInterval  time.Duration `key:"replication.digest-interval" default:"1m" min:"1s" help:"time between two comparisons with a Rollcall peer"`
	CopyWait        time.Duration `key:"replication.copy-wait" default:"3s" min:"1ms" help:"mode ap: how long a node that starts waits for another one that is ready to be copied from, before it goes on with what it has"`

	TLS ReplicationTLSConfig
}

// ReplicationTLSConfig is how peers with https URLs are trusted, and what they are shown.
type ReplicationTLSConfig struct {
	CA   string `key:"replication.tls.ca" help:"PEM file with the authorities of the peers' certificates; empty: the system's"`
	Cert string `key:"replication.tls.cert" help:"PEM file with the certificate that is shown to peers that ask for one"`
	Key  string `key:"replication.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
}
