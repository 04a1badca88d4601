package main

import "github.com/seed-20419f34/rollcall/replication"

// ReplicationConfig is to whom changes are carried, and how.
type ReplicationConfig struct {
	Nodes       []string          `key:"replication.nodes" help:"mode ap: URLs of the datacenter's nodes, such as http://10.0.0.1:8761, this one allowed among them"`
	Datacenters map[string]string `key:"replication.datacenters" help:"other Rollcall datacenters by name, each with the URLs of its nodes, separated by spaces"`
	Eureka      map[string]string `key:"replication.eureka" help:"Netflix Eureka servers by a name for each, with the service URL, such as http://user:password@10.0.0.9:8761/eureka"`

	Rates    map[string]string `key:"replication.rates" help:"by peer: the most tasks per second that are sent to it; not given: no limit"`
	Timeouts map[string]string `key:"replication.timeouts" help:"by peer: a replication.read-timeout of its own"`
	Single   []string          `key:"replication.single" help:"Eureka servers that get one call per item instead of batches"`

	replication.Flow
	replication.Repair

	TLS ReplicationTLSConfig
}

// ReplicationTLSConfig is how peers with https URLs are trusted, and what they are shown.
type ReplicationTLSConfig struct {
	CA   string `key:"replication.tls.ca" help:"PEM file with the authorities of the peers' certificates; empty: the system's"`
	Cert string `key:"replication.tls.cert" help:"PEM file with the certificate that is shown to peers that ask for one"`
	Key  string `key:"replication.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
}
