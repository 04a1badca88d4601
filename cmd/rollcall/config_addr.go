package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

func (c *Config) validateAddresses() error {
	errs := []error{
		checkAddr("http.addr", c.HTTP.Addr),
		checkAddr("cluster.addr", c.Store.ClusterAddr),
		checkAdvertise("http", c.HTTP.Addr, c.HTTP.Advertise),
		checkAdvertise("cluster", c.Store.ClusterAddr, c.Store.ClusterAdvertise),
	}
	for _, host := range c.HTTP.Hosts {
		errs = append(errs, checkHost(host))
	}
	for _, addr := range c.Store.Join {
		errs = append(errs, checkDialable("cluster.join", addr))
	}
	for _, node := range slices.Sorted(maps.Keys(c.Store.Test.Dial)) {
		errs = append(errs, checkDialable("test.dial: "+node, c.Store.Test.Dial[node]))
	}
	return errors.Join(errs...)
}

// checkAddr wants host:port with a port by number; the host may be empty, for all interfaces.
func checkAddr(name, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q is not an address of the form host:port", name, addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s: %q has no port number from 0 to 65535", name, addr)
	}
	return nil
}

// checkHost wants the name of a host alone.
func checkHost(host string) error {
	if strings.ContainsAny(host, ":/[]") {
		return fmt.Errorf("http.hosts: %q is not the name of a host, without a scheme or a port", host)
	}
	return nil
}

// served are the names under which the HTTP listener is addressed, beside localhost and addresses. Only a
// listener on loopback knows them all; nil: they are not known.
func (c *HTTPConfig) served() []string {
	if !loopback(c.Addr) {
		return nil
	}
	return append([]string{c.Advertise}, c.Hosts...)
}

// checkDialable wants an address that another node can dial.
func checkDialable(name, addr string) error {
	if err := checkAddr(name, addr); err != nil {
		return err
	}
	if allInterfaces(addr) {
		return fmt.Errorf("%s: %q names no host that can be dialled", name, addr)
	}
	return nil
}

// checkAdvertise: an address that stands for all interfaces tells others nothing.
func checkAdvertise(section, addr, advertise string) error {
	switch {
	case advertise != "":
		return checkDialable(section+".advertise", advertise)
	case checkAddr("", addr) == nil && allInterfaces(addr):
		return fmt.Errorf("%s.advertise: is required, because %s.addr %q names no host that others can dial", section, section, addr)
	}
	return nil
}

func allInterfaces(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// loopback says whether a listener on addr is out of reach of other machines.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
