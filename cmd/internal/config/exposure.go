package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/seed-20419f34/rollcall/fsm/access"
)

// loopback reports whether a listener on addr is out of reach of other machines.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// validateExposure refuses open listeners that other machines reach: an HTTP listener needs TLS and a mode of access
// control, one between nodes TLS. Each of these can be waived explicitly. The profiler stays on loopback in any case.
func (c *Config) validateExposure() error {
	var open error
	if c.Auth.Mode == "" && exposed(c.HTTP.Addr) {
		open = fmt.Errorf("auth.mode: is required, because http.addr %q can be reached from other machines: on or log-only; or, if every machine that reaches it may read and change everything, off", c.HTTP.Addr)
	}
	return errors.Join(
		checkExposed("http", c.HTTP.Addr, c.HTTP.TLS.Cert != "" || c.HTTP.Plain, "http.tls.cert and http.tls.key"),
		open,
		checkExposed("cluster", c.Store.ClusterAddr, c.Store.TLS.Cert != "" || c.ClusterPlain, "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"),
		checkProfiler(c.PProfAddr),
	)
}

func exposed(addr string) bool { return checkAddr("", addr) == nil && !loopback(addr) }

func checkExposed(section, addr string, allowed bool, remedy string) error {
	if allowed || !exposed(addr) {
		return nil
	}
	return fmt.Errorf("%s.addr: %q can be reached from other machines without TLS; set %s, or listen on 127.0.0.1, or say %[1]s.plain: true", section, addr, remedy)
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

// Floor returns the mode of access control that the settings demand, or Unset if they say nothing.
func (c *Config) Floor() access.Mode {
	mode, _ := access.ParseMode(c.Auth.Mode) // Validate knows the words
	return mode
}

// lack is a protection that a node does without.
type lack struct{ What, Warning string }

// Lacks has all that Insecure can name.
var Lacks = [...]lack{
	{"http-plain", "other machines reach http.addr, and what they send, tokens too, can be read and changed on its way"},
	{"cluster-plain", "other machines reach cluster.addr without TLS, and each of them can take part in the consensus"},
	{"auth-off", "every machine that reaches http.addr may read and change everything in the registry"},
	{"auth-log-only", "calls are counted that their callers may not make, and performed"},
}

// Insecure returns which protection is missing from listeners that other machines reach, with access control in the
// given mode.
func (c *Config) Insecure(mode access.Mode) (all []lack) {
	http := exposed(c.HTTP.Addr)
	for i, without := range []bool{
		http && c.HTTP.TLS.Cert == "",
		c.Mode == CP && exposed(c.Store.ClusterAddr) && c.Store.TLS.Cert == "",
		http && mode <= access.Off,
		http && mode == access.LogOnly,
	} {
		if without {
			all = append(all, Lacks[i])
		}
	}
	return all
}

// validateAuth checks where roles and tokens come from.
func (c *Config) validateAuth() error {
	errs := []error{
		checkFile("auth.file", c.Auth.File, loadAuthFile),
		checkFile("auth.bootstrap-token-file", c.Auth.BootstrapTokenFile, ReadToken),
	}
	if c.Mode == AP && c.Auth.File == "" && c.Floor() == access.On {
		errs = append(errs, errors.New("auth.file: is required in mode ap with auth.mode on: roles and tokens come from that file"))
	}
	if c.Mode == AP && c.Auth.BootstrapTokenFile != "" {
		errs = append(errs, errors.New("auth.bootstrap-token-file: is for mode cp; in mode ap the operators come from auth.file"))
	}
	return errors.Join(errs...)
}
