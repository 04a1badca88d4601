package main

import (
	"cmp"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/probe"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/store"
)

// Config is everything that can be set for a server, each a row: its tags are its key in the file, from which the flag
// and the environment variable follow, its default, its bounds and its help (see package setting). The reference table of
// docs/operations.md is made of them.
type Config struct {
	Mode       string `key:"mode" default:"cp" words:"cp ap" help:"how operations are ordered: cp (by Raft, in a cluster) or ap (by each node for itself, as Eureka does)"`
	Datacenter string `key:"datacenter" default:"dc1" help:"name of the datacenter that this node belongs to; unique among those that replicate to each other"`
	NodeName   string `key:"node.name" help:"the node's name, unique in its cluster and bound to its data directory; empty: the host name"`

	HTTP         HTTPConfig
	HTTPD        httpd.Config
	ClusterPlain bool `key:"cluster.plain" help:"allow cluster.addr to be reached from other machines without TLS: anybody who reaches it can take part in the consensus"`
	Store        store.Config
	MinFree      int64 `key:"data.min-free" default:"67108864" min:"0" help:"bytes that the disk of data.dir must have left; with less, the node (in mode cp all nodes, if it leads) answers 507 to what its clients want to add, and goes on with everything else; 0: no bound"`
	Quota        Quota
	Checks       ChecksConfig
	Replication  ReplicationConfig

	// EurekaCompat brings upstream's behaviour back, for comparison.
	EurekaCompat bool `key:"eureka-compat.all" help:"turn on eureka-compat.doubled-lease, .eviction-timer, .expectation and .read-only-cache: leases end, and are kept, as a stock Eureka server does it"`

	PProfAddr string `key:"pprof.addr" help:"loopback address that serves /debug/pprof/; empty: none"`
	LogLevel  string `key:"log.level" default:"info" words:"debug info warn error" help:"what is logged, to standard error"`
	LogFormat string `key:"log.format" default:"text" words:"text json" help:"how it is written"`
	GCPercent int    `key:"gc.percent" default:"200" min:"0" help:"heap growth in percent between collections; 0: leave it to GOGC"`
}

// HTTPConfig is where clients are served.
type HTTPConfig struct {
	Addr      string   `key:"http.addr" default:"127.0.0.1:8761" help:"address that serves the HTTP API"`
	Advertise string   `key:"http.advertise" help:"address at which clients reach the HTTP API, shown by status; empty: http.addr"`
	Hosts     []string `key:"http.hosts" help:"names under which a listener on loopback is served, beside localhost, addresses and that of http.advertise; another one is answered 421"`
	TLS       HTTPTLSConfig
	Plain     bool `key:"http.plain" help:"allow http.addr to be reached from other machines without TLS, which a mesh or a proxy may add: what is said there can be read and changed on its way"`
	// HeartbeatTakeover is explained in docs/adr/0007.
	HeartbeatTakeover bool `key:"http.heartbeat-takeover" default:"true" help:"read connections that carry heartbeats, without TLS, without net/http: the same answers for less CPU"`
}

// HTTPTLSConfig names the files of the HTTP listener's TLS.
type HTTPTLSConfig struct {
	Cert     string `key:"http.tls.cert" help:"PEM file with the server's certificate chain; read again when it changes"`
	Key      string `key:"http.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
	ClientCA string `key:"http.tls.client-ca" help:"PEM file with the authorities of client certificates; if given, clients must present one"`
}

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	Probes bool `key:"checks.probes" default:"true" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	Rules  probe.Rules
}

// defaultConfig is what holds where nothing was set.
func defaultConfig() *Config {
	c := setting.Default[Config]()
	return &c
}

// settings are the rows of the configuration, sorted by key.
func (c *Config) settings() []setting.Setting {
	all := setting.Of(c)
	slices.SortFunc(all, func(a, b setting.Setting) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
