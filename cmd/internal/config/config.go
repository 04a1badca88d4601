// Package config is the configuration of a server: its settings, how they are read from flags, environment and file,
// how they are validated, and how they are shown. It opens no files except those that settings name and those that it
// writes for a new node, and starts nothing.
//
//	config.go    every setting that does not belong to another package; the node's name
//	load.go      flags, environment, file and defaults, merged
//	file.go      the YAML file
//	validate.go  mistakes, each with the key to change; warnings about what is allowed
//	peers.go     settings of replication, and the peers that they name
//	exposure.go  what other machines can reach, and which protection it lacks
//	tls.go       files of certificates, keys and authorities
//	template.go  a file with every setting, a file checked on its own, and the file's schema
//	folders.go   a folder for each node of a cluster with TLS, with the certificates that an authority signs
//	show.go      the settings as YAML, each with its source
//	authfile.go  the roles and tokens of auth.file, which is read again when it changes: in mode ap their only source,
//	             in mode cp they stand beside the cluster's. The file holds hashes, no secrets
//	authparse.go auth.file, with all its mistakes
//	token.go     a token for auth.file, and the file of the first operator's
package config

import (
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/probe"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/store"
)

// Config is everything that can be set for a server. The tags of a setting are its key in the file, which also gives
// the flag and the environment variable, its default, its bounds and its help (see package setting). The table of
// docs/reference/settings.md is generated from them.
type Config struct {
	Mode       string `key:"mode" default:"cp" words:"cp ap" help:"how operations are ordered: cp (by Raft, in a cluster) or ap (by each node on its own, as in Eureka)"`
	Datacenter string `key:"datacenter" default:"dc1" help:"name of this node's datacenter; unique among those that replicate to each other"`
	NodeName   string `key:"node.name" help:"the node's name, unique in its cluster and bound to its data directory; empty: the host name"`

	NodeVoter bool   `key:"node.voter" default:"true" help:"mode cp: if false, the node serves reads and accepts writes but does not vote; it joins an existing cluster"`
	NodeZone  string `key:"node.zone" help:"the node's location, such as a rack or an availability zone; status shows it, and warns if a majority of the voters shares one"`

	HTTP         httpConfig
	HTTPD        httpd.Config
	ClusterPlain bool `key:"cluster.plain" help:"let other machines reach cluster.addr without TLS: any machine that reaches it can take part in the consensus"`
	Store        store.Config
	MinFree      int64 `key:"data.min-free" default:"67108864" min:"0" help:"bytes that must stay free on the disk of data.dir; with less, the node (in mode cp, if it leads, every node) answers 507 to additions and serves everything else; 0: no limit"`
	Quota        Quota `reload:"yes"`
	Checks       checksConfig
	Backup       BackupConfig
	Auth         authConfig
	Audit        audit.Config
	Replication  replicationConfig

	// EurekaCompat restores upstream's behaviour, for comparison.
	EurekaCompat bool `key:"eureka-compat.all" help:"turn on eureka-compat.doubled-lease, .eviction-timer, .expectation and .read-only-cache: leases end and are kept exactly as in a stock Eureka server"`

	ShutdownDelay time.Duration `key:"shutdown-delay" default:"0s" min:"0s" reload:"yes" help:"how long a stopping node keeps serving while /readyz answers 503, so that balancers stop sending before it closes its listeners"`

	PProfAddr string `key:"pprof.addr" help:"loopback address that serves /debug/pprof/; empty: off"`
	LogLevel  string `key:"log.level" default:"info" words:"debug info warn error" reload:"yes" help:"least severe level that is logged, to standard error"`
	LogFormat string `key:"log.format" default:"text" words:"text json" help:"format of the log"`
	GCPercent int    `key:"gc.percent" default:"200" min:"0" help:"heap growth in percent between collections; 0: leave it to GOGC"`
}

// Quota bounds what is stored besides instances.
type Quota struct {
	StateBytes int64 `key:"limits.state-bytes" default:"1073741824" min:"1" help:"most bytes, roughly, for keys, sessions, locks with their queues, records of deleted keys, remembered results and nodes of the catalog; above it additions get 507, everything else works"`
	Sessions   int   `key:"limits.sessions" default:"100000" min:"1" help:"mode cp: most sessions; creating one more gets 507"`
	Share      int   `key:"limits.principal-share" default:"50" min:"0" max:"100" help:"mode cp with access control: percent of limits.sessions and limits.state-bytes that one principal may hold; additions beyond it get 507, everything else works; 0: no limit per principal"`
	Nodes      int   `key:"limits.nodes" default:"100000" min:"1" help:"most nodes in the catalog; adding one more gets 507"`
}

// httpConfig is the listener for clients.
type httpConfig struct {
	Addr      string   `key:"http.addr" default:"127.0.0.1:8761" help:"address that serves the HTTP API"`
	Advertise string   `key:"http.advertise" help:"address at which clients reach the HTTP API, shown by status; empty: http.addr"`
	Hosts     []string `key:"http.hosts" help:"host names that a loopback listener accepts, besides localhost, addresses and the name in http.advertise; requests for any other get 421"`
	TLS       httpTLSConfig
	Plain     bool `key:"http.plain" help:"let other machines reach http.addr without TLS, because a mesh or a proxy adds it; otherwise anybody on the path can read and change the traffic"`
	// HeartbeatTakeover is explained in docs/adr/0007.
	HeartbeatTakeover bool `key:"http.heartbeat-takeover" default:"true" help:"read connections that carry heartbeats without net/http: the same responses for less CPU"`
}

// httpTLSConfig names the files of the HTTP listener's TLS.
type httpTLSConfig struct {
	Cert     string `key:"http.tls.cert" path:"yes" help:"PEM file with the server's certificate chain; reread when it changes"`
	Key      string `key:"http.tls.key" path:"yes" help:"PEM file with its key; mode 0640 or stricter"`
	ClientCA string `key:"http.tls.client-ca" path:"yes" help:"PEM file with the authorities of client certificates; if set, clients must present one; reread when it changes"`
}

// checksConfig is for the checks of services that are registered through Consul's API.
type checksConfig struct {
	Probes bool `key:"checks.probes" default:"true" help:"mode cp: the leader runs HTTP, TCP, UDP, gRPC and HTTP/2 checks; false: they stay as clients set them"`
	Rules  probe.Rules
}

// authConfig says who may do what (docs/run/permissions.md).
type authConfig struct {
	Mode         string `key:"auth.mode" words:"off log-only on" zero:"off, which an http.addr that other machines reach demands to be written out" help:"what happens to a call without permission: off (no token is needed, but for roles and tokens), log-only (the call is counted and performed) or on (it is refused); the cluster's mode (rollcall auth mode) wins if it is stricter"`
	TokenInQuery bool   `key:"auth.token-in-query" help:"accept tokens in the URL (?token=), where they end up in logs"`
	File         string `key:"auth.file" path:"yes" help:"YAML file (mode 0640 or stricter) with roles and hashed tokens: the only ones in mode ap, and in addition to the cluster's in mode cp; changes take effect within 5 s"`
	// BootstrapTokenFile has the first operator's token.
	BootstrapTokenFile string `key:"auth.bootstrap-token-file" path:"yes" help:"mode cp: file (mode 0640 or stricter) with a token that rollcall auth hash made; a cluster that has no operator yet accepts it as the first operator's"`
}

// BackupConfig is for snapshots for people that are written on a schedule.
type BackupConfig struct {
	Dir      string        `key:"backup.dir" path:"yes" help:"directory to which the leader (mode ap: each node) writes scheduled snapshots, for rollcall snapshot restore; preferably on another disk than data.dir; empty: no snapshots"`
	Interval time.Duration `key:"backup.interval" default:"1h" min:"1s" help:"how often a snapshot is written"`
	Keep     int           `key:"backup.keep" default:"24" min:"1" help:"how many of its own snapshots a node keeps there; it deletes the oldest, and no file with another name"`
}

// Default returns the settings' defaults.
func Default() *Config {
	c := setting.Default[Config]()
	return &c
}

// Settings lists the settings, sorted by key.
func (c *Config) Settings() []setting.Setting {
	all := setting.Of(c)
	sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
	return all
}

// The modes.
const (
	CP = "cp"
	AP = "ap"
)

// Modes are all modes.
var Modes = []string{CP, AP}

// nodeName is the form of a name, which is part of test.dial's flag form and of a server id (package store has the
// same rule, for its directories).
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Name returns the node's name, by default the first label of the host's.
func (c *Config) Name() (string, error) {
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

// Served lists the names under which clients address the HTTP listener, besides localhost and IP addresses. All of
// them are known only for a listener on loopback; nil means that they are not known.
func (c *httpConfig) Served() []string {
	if !loopback(c.Addr) {
		return nil
	}
	return append([]string{c.Advertise}, c.Hosts...)
}
