package main

import (
	"errors"
	"fmt"
)

// validateExposure keeps listeners without TLS on loopback, unless the operator says otherwise, and
// the profiler there in any case.
func (c *Config) validateExposure() error {
	return errors.Join(
		c.checkExposed("http", c.HTTP.Addr, c.HTTP.TLS.Cert != "", "http.tls.cert and http.tls.key"),
		c.checkExposed("cluster", c.Cluster.Addr, c.Cluster.TLS.Cert != "", "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"),
		checkProfiler(c.PProf.Addr),
	)
}

func (c *Config) checkExposed(section, addr string, tls bool, remedy string) error {
	if tls || c.Insecure || checkAddr("", addr) != nil || loopback(addr) {
		return nil
	}
	return fmt.Errorf("%s.addr: %q can be reached from other machines without TLS; set %s, or listen on 127.0.0.1, or say --insecure", section, addr, remedy)
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
