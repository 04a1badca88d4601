package main

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication"
)

// peers translates the settings; own are the addresses of this node, which is no peer of itself.
func (c *Config) peers(own ...string) ([]replication.PeerConfig, error) {
	r := &c.Replication
	trust, err := r.TLS.open()
	if err != nil {
		return nil, err
	}
	var peers []replication.PeerConfig
	for _, u := range r.Nodes {
		if host := hostOf(u); !slices.Contains(own, host) {
			peers = append(peers, r.peer(replication.Node, host, trust, u))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Datacenters)) {
		peers = append(peers, r.peer(replication.Datacenter, name, trust, strings.Fields(r.Datacenters[name])...))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Eureka)) {
		p := r.peer(replication.Eureka, name, trust, r.Eureka[name])
		p.Single = slices.Contains(r.Single, name)
		peers = append(peers, p)
	}
	return peers, nil
}

func (r *ReplicationConfig) peer(kind replication.Kind, name string, trust *tls.Config, urls ...string) replication.PeerConfig {
	p := replication.PeerConfig{Name: name, Kind: kind, TLS: trust, Flow: r.Flow}
	for _, u := range urls {
		p.URLs = append(p.URLs, strings.TrimRight(u, "/"))
	}
	// What is said of this peer alone was checked by Validate.
	if text, ok := r.Rates[name]; ok {
		p.Rate, _ = parseRate(text)
	}
	if text, ok := r.Timeouts[name]; ok {
		p.ReadTimeout, _ = parseTimeout(text)
	}
	return p
}

// leases decide how leases end, if this node leads. The policies for links that are cut have one form in the state.
func (c *Config) leases() registry.Settings {
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

// open reads the files; nil if none is configured.
func (c *ReplicationTLSConfig) open() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pool, err := readPool(c.CA)
		if err != nil {
			return nil, fmt.Errorf("replication.tls.ca: %w", err)
		}
		config.RootCAs = pool
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("replication.tls.cert and replication.tls.key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
