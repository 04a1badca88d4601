package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

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

// reloader reads the settings of a running node again.
type reloader struct {
	load    func() (settings, error)
	apply   func(*Config)
	log     *slog.Logger
	running Config // what the node runs with
}

// hangups returns where SIGHUP arrives, which ends the process otherwise, until stop is called.
func hangups() (hup <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// during reloads at each signal while do runs, and returns its error.
func (r *reloader) during(ctx context.Context, hup <-chan os.Signal, do func(context.Context) error) error {
	done, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reloading sync.WaitGroup
	reloading.Go(func() { r.run(done, hup) })
	defer reloading.Wait()
	defer cancel()
	return do(ctx)
}

// run reloads at each signal until ctx ends.
func (r *reloader) run(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-hup:
			r.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload takes over what can change while the node runs, and says what cannot. Settings with a
// mistake leave everything as it is.
func (r *reloader) reload() {
	s, err := r.load()
	if err != nil {
		r.log.Error("the settings were not read again, the old ones hold", "err", err)
		return
	}
	now, later := r.takeOver(s.Config)
	r.apply(&r.running)
	r.log.Info("the settings were read again", "changed", now)
	if len(later) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", later)
	}
}

// takeOver lists the keys that differ from what runs: those that hold from now on, and those that need
// a restart.
func (r *reloader) takeOver(c *Config) (now, later []string) {
	read := c.settings()
	for i, running := range r.running.settings() {
		switch {
		case running.String() == read[i].String():
		case running.Reload:
			running.Value.Set(read[i].Value)
			now = append(now, running.Key)
		default:
			later = append(later, running.Key)
		}
	}
	return now, later
}
