package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// replicationConfig says which peers changes are sent to, and how.
type replicationConfig struct {
	Nodes       []string          `key:"replication.nodes" reload:"yes" help:"mode ap: URLs of the datacenter's nodes, such as http://10.0.0.1:8761; may include this one"`
	Datacenters map[string]string `key:"replication.datacenters" reload:"yes" help:"other Rollcall datacenters by name, each with the URLs of its nodes, separated by spaces"`
	Eureka      map[string]string `key:"replication.eureka" reload:"yes" help:"Netflix Eureka servers: a name of your choice for each, with its service URL, such as http://user:password@10.0.0.9:8761/eureka"`

	Rates    map[string]string `key:"replication.rates" reload:"yes" help:"by peer: most tasks per second sent to it; not set: no limit"`
	Timeouts map[string]string `key:"replication.timeouts" reload:"yes" help:"by peer: overrides replication.read-timeout"`
	Single   []string          `key:"replication.single" reload:"yes" help:"Eureka servers that get one call per item instead of batches"`

	// TokenFiles keeps passwords out of URLs, and so out of settings files and process lists.
	TokenFiles map[string]string `key:"replication.token-files" path:"yes" reload:"yes" help:"by datacenter or Eureka server (this datacenter: its nodes, in mode ap): file (mode 0640 or stricter) with the token or password for calls to it; read at each call"`

	link.Flow `reload:"yes"`
	replication.Repair

	TLS replicationTLSConfig
}

// Peers translates the settings of replication. trust returns the TLS configuration for a new connection, or nil if
// none is set. own has the addresses of this node, which is not a peer of itself.
func (c *Config) Peers(trust func() *tls.Config, own ...string) []link.PeerConfig {
	r := &c.Replication
	var peers []link.PeerConfig
	for _, u := range r.Nodes {
		if host := hostOf(u); !slices.Contains(own, host) {
			p := r.peer(link.Node, host, trust, u)
			p.TokenFile = r.TokenFiles[c.Datacenter]
			peers = append(peers, p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Datacenters)) {
		peers = append(peers, r.peer(link.Datacenter, name, trust, strings.Fields(r.Datacenters[name])...))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Eureka)) {
		p := r.peer(link.Eureka, name, trust, r.Eureka[name])
		p.Single = slices.Contains(r.Single, name)
		peers = append(peers, p)
	}
	for i := range peers {
		peers[i].Life = c.Store.Test.ConnectionLife
	}
	return peers
}

func (r *replicationConfig) peer(kind link.Kind, name string, trust func() *tls.Config, urls ...string) link.PeerConfig {
	p := link.PeerConfig{Name: name, Kind: kind, TLS: trust, Flow: r.Flow, TokenFile: r.TokenFiles[name]}
	for _, u := range urls {
		p.URLs = append(p.URLs, strings.TrimRight(u, "/"))
	}
	// Validate has checked the settings of single peers.
	if text, ok := r.Rates[name]; ok {
		p.Rate, _ = parseRate(text)
	}
	if text, ok := r.Timeouts[name]; ok {
		p.ReadTimeout, _ = parseTimeout(text)
	}
	return p
}

// Leases returns the settings that decide when leases end if this node leads. The policies for cut links have one
// canonical form in the state, however they are written.
func (c *Config) Leases() registry.Settings {
	s := c.Store.Settings
	given, _ := setting.ParseMap(s.OnCut) // Validate has read it
	policies := make(map[string]replication.CutPolicy, len(given))
	for name, text := range given {
		policies[name], _ = replication.ParseCutPolicy(text)
	}
	s.OnCut = replication.OnCut(policies)
	return s
}

func parseRate(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of tasks per second, such as 5000", text)
	}
	return n, nil
}

func parseTimeout(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration with its unit, such as 500ms or 2s", text)
	}
	return d, nil
}

func (c *Config) validateReplication() error {
	r := &c.Replication
	errs := []error{
		checkFile("replication.tls.ca", r.TLS.CA, certfiles.ReadPool),
		checkFile("replication.tls.cert", r.TLS.Cert, os.Stat),
		checkKeyFile("replication.tls.key", r.TLS.Key),
		c.validatePeerNames(),
		c.validateNamed(),
		c.validateTokenFiles(),
	}
	if r.Queue < r.BatchSize {
		errs = append(errs, fmt.Errorf("replication.queue: %d is below replication.batch-size, %d", r.Queue, r.BatchSize))
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		errs = append(errs, errors.New("replication.tls: cert and key belong together; give both or none"))
	}
	if !nodeName.MatchString(c.Datacenter) {
		errs = append(errs, fmt.Errorf("datacenter: %q is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit", c.Datacenter))
	}
	return errors.Join(errs...)
}

// validatePeerNames checks the names and URLs of nodes, other datacenters and Eureka servers.
func (c *Config) validatePeerNames() error {
	r := &c.Replication
	var errs []error
	if c.Mode != AP && len(r.Nodes) > 0 {
		errs = append(errs, errors.New("replication.nodes: is for mode ap; in mode cp the nodes of a datacenter find each other by cluster.join"))
	}
	for _, u := range r.Nodes {
		errs = append(errs, checkBaseURL("replication.nodes", u))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Datacenters)) {
		key := "replication.datacenters: " + name
		errs = append(errs, checkPeerName(key, name))
		if name == c.Datacenter {
			errs = append(errs, fmt.Errorf("%s: is this node's own datacenter", key))
		}
		urls := strings.Fields(r.Datacenters[name])
		if len(urls) == 0 {
			errs = append(errs, fmt.Errorf("%s: has no URL", key))
		}
		for _, u := range urls {
			errs = append(errs, checkBaseURL(key, u))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Eureka)) {
		key := "replication.eureka: " + name
		errs = append(errs, checkPeerName(key, name), checkURL(key, r.Eureka[name]))
		if _, twice := r.Datacenters[name]; twice || name == c.Datacenter {
			errs = append(errs, fmt.Errorf("%s: is the name of a datacenter too", key))
		}
	}
	return errors.Join(errs...)
}

// validateNamed checks the settings of single peers.
func (c *Config) validateNamed() error {
	r := &c.Replication
	onCut, _ := setting.ParseMap(c.Store.Settings.OnCut)
	var errs []error
	named := func(key string, values map[string]string, local bool, check func(string) error) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !r.has(name, local) {
				errs = append(errs, fmt.Errorf("%s: %s: no peer has that name", key, name))
			}
			errs = append(errs, prefix(key+": "+name, check(values[name])))
		}
	}
	named("replication.on-cut", onCut, false, func(text string) error { _, err := replication.ParseCutPolicy(text); return err })
	named("replication.rates", r.Rates, true, func(text string) error { _, err := parseRate(text); return err })
	named("replication.timeouts", r.Timeouts, true, func(text string) error { _, err := parseTimeout(text); return err })
	for _, name := range r.Single {
		if _, ok := r.Eureka[name]; !ok {
			errs = append(errs, fmt.Errorf("replication.single: %s: there is no Eureka server of that name", name))
		}
	}
	return errors.Join(errs...)
}

// validateTokenFiles checks that the files can be read, and that their peers' URLs have no password.
func (c *Config) validateTokenFiles() error {
	r := &c.Replication
	urls := map[string][]string{}
	for name, text := range r.Datacenters {
		urls[name] = strings.Fields(text)
	}
	for name, text := range r.Eureka {
		urls[name] = []string{text}
	}
	if len(r.Nodes) > 0 {
		urls[c.Datacenter] = r.Nodes
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.TokenFiles)) {
		key := "replication.token-files: " + name
		if urls[name] == nil {
			errs = append(errs, fmt.Errorf("%s: no peer has that name", key))
		}
		for _, text := range urls[name] {
			if u, err := url.Parse(text); err == nil {
				if _, has := u.User.Password(); has {
					errs = append(errs, fmt.Errorf("%s: there is a password in the peer's URL, too; give it in one place", key))
					break
				}
			}
		}
		_, err := certfiles.ReadPrivate(r.TokenFiles[name], 4096)
		errs = append(errs, prefix(key, err))
	}
	return errors.Join(errs...)
}

// has reports whether there is a peer with a name; with local, nodes of this datacenter count, too.
func (r *replicationConfig) has(name string, local bool) bool {
	_, dc := r.Datacenters[name]
	_, eureka := r.Eureka[name]
	return dc || eureka || local && slices.ContainsFunc(r.Nodes, func(u string) bool { return hostOf(u) == name })
}

func checkPeerName(key, name string) error {
	if nodeName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%s: is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit", key)
}

// checkURL checks for an absolute HTTP URL. The text may hold a password, so errors do not repeat it.
func checkURL(key, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%s: is not a URL of the form http://host:port or https://host:port", key)
	}
	return nil
}

// checkBaseURL is checkURL for a Rollcall node, whose URL has no path.
func checkBaseURL(key, text string) error {
	if err := checkURL(key, text); err != nil {
		return err
	}
	if u, _ := url.Parse(text); strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("%s: %q has a path; give scheme, host and port only", key, u.Redacted())
	}
	return nil
}

// hostOf returns the host and port of a URL that was checked.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
