package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// plan lays out the nodes' addresses and directories, one datacenter after the other.
func (o devOptions) plan() []devNode {
	var nodes []devNode
	for dc := 1; dc <= o.dcs; dc++ {
		for number := 1; number <= o.nodes; number++ {
			port := o.httpPort + (dc-1)*dcPortsApart + number - 1
			n := devNode{dc: dc, number: number, http: localhost(port)}
			if o.mode == modeCP {
				n.cluster = localhost(port - clusterPortsBelow)
			}
			n.dir = filepath.Join(o.dataOf(dc), n.name())
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// dataOf is where a datacenter's nodes have their directories.
func (o devOptions) dataOf(dc int) string {
	if dc == 1 {
		return o.data
	}
	return filepath.Join(o.data, datacenterName(dc))
}

func localhost(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// serverArgs are the arguments of a node's process.
func (o devOptions) serverArgs(n devNode, all []devNode) []string {
	args := []string{
		"server",
		"--mode", o.mode,
		"--datacenter", n.datacenter(),
		"--node-name", n.name(),
		"--http-addr", n.http,
		"--data-dir", filepath.Join(n.dir, "data"),
	}
	http, cluster := addressesByDC(all)
	if o.mode == modeCP {
		args = append(args,
			"--cluster-addr", n.cluster,
			"--cluster-join", strings.Join(cluster[n.dc], ","),
			"--cluster-bootstrap-expect", strconv.Itoa(o.nodes))
	} else {
		args = append(args, "--replication-nodes", strings.Join(http[n.dc], ","))
	}
	for dc := 1; dc <= o.dcs; dc++ {
		if dc != n.dc {
			args = append(args, "--replication-datacenters", datacenterName(dc)+"="+strings.Join(http[dc], " "))
		}
	}
	return args
}

// addressesByDC lists the HTTP URLs and the node-to-node addresses of each datacenter.
func addressesByDC(nodes []devNode) (http, cluster map[int][]string) {
	http, cluster = make(map[int][]string), make(map[int][]string)
	for _, n := range nodes {
		http[n.dc] = append(http[n.dc], "http://"+n.http)
		cluster[n.dc] = append(cluster[n.dc], n.cluster)
	}
	return http, cluster
}

// checkPorts finds the ports that other processes hold, before any node is started, so that a
// cluster comes up whole or not at all.
func checkPorts(nodes []devNode) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, checkPort(n.http, "HTTP", n.name()))
		if n.cluster != "" {
			errs = append(errs, checkPort(n.cluster, "node-to-node", n.name()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w\nuse other ports with --http-port (node-to-node ports lie %d below the HTTP ports), or stop what holds these", err, clusterPortsBelow)
	}
	return nil
}

func checkPort(addr, what, node string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("the %s port of %s cannot be used: %w", what, node, err)
	}
	return l.Close()
}

// checkData refuses a directory that holds clusters of another size: its nodes would look for each
// other in vain, or not at all.
func (o devOptions) checkData() error {
	for dc := 1; dc <= o.dcs; dc++ {
		found, err := countNodes(o.dataOf(dc))
		if err != nil {
			return fmt.Errorf("--data: %w", err)
		}
		if found != 0 && found != o.nodes {
			return fmt.Errorf("--data: %s holds a cluster of %d nodes; run dev with --nodes %d, or with another --data", o.dataOf(dc), found, found)
		}
	}
	return nil
}

// countNodes counts the directories of nodes in a directory, which need not exist.
func countNodes(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	found := 0
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if _, err := strconv.Atoi(number); err == nil && e.IsDir() {
				found++
			}
		}
	}
	return found, err
}
