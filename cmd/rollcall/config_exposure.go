package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// validateExposure keeps listeners without TLS on loopback, unless the operator says otherwise, and
// the profiler there in any case.
func (c *Config) validateExposure() error {
	return errors.Join(
		checkExposed("http", c.HTTP.Addr, c.HTTP.TLS.Cert != "" || c.HTTP.Plain, "http.tls.cert and http.tls.key"),
		checkExposed("cluster", c.Store.ClusterAddr, c.Store.TLS.Cert != "" || c.ClusterPlain, "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"),
		checkProfiler(c.PProfAddr),
	)
}

func checkExposed(section, addr string, allowed bool, remedy string) error {
	if allowed || checkAddr("", addr) != nil || loopback(addr) {
		return nil
	}
	return fmt.Errorf("%s.addr: %q can be reached from other machines without TLS; set %s, or listen on 127.0.0.1, or say %[1]s.plain: true", section, addr, remedy)
}

// warnExposed says what an address that others reach means as long as nobody is asked who he is.
func (c *Config) warnExposed(log *slog.Logger) {
	if loopback(c.HTTP.Addr) {
		return
	}
	if c.HTTP.TLS.ClientCA != "" {
		log.Warn("there is no authentication yet: anybody with a certificate of http.tls.client-ca may read and change everything in the registry", "http.addr", c.HTTP.Addr)
		return
	}
	log.Warn("there is no authentication yet: anybody who can reach http.addr may read and change everything in the registry, with TLS too", "http.addr", c.HTTP.Addr)
}

func checkProfiler(addr string) error {
	if addr == "" {
		return nil
	}
	if err := checkAddr("pprof.addr", addr); err != nil {
		return err
	}
	if !loopback(addr) {
		return fmt.Errorf("pprof.addr: %q is not loopback; profiles show memory, so listen on 127.0.0.1 and tunnel to it", addr)
	}
	return nil
}

// warn says what is allowed and yet probably not meant.
func (c *Config) warn(log *slog.Logger) {
	c.warnExposed(log)
	if c.Store.Settings.Threshold == registry.Whole {
		log.Warn("nothing is ever evicted: the threshold leaves a round no share of the registry",
			"key", "self-preservation.renewal-percent-threshold", "value", c.Store.Settings.Threshold)
	}
}
