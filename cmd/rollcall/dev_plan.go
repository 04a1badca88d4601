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

// plan lays out the nodes' addresses and directories.
func (o devOptions) plan() []devNode {
	nodes := make([]devNode, o.nodes)
	for i := range nodes {
		n := &nodes[i]
		n.number = i + 1
		n.http = localhost(o.httpPort + i)
		n.cluster = localhost(o.httpPort + i - clusterPortsBelow)
		n.dir = filepath.Join(o.data, n.name())
	}
	return nodes
}

func localhost(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// serverArgs are the arguments of a node's process.
func (n devNode) serverArgs(all []devNode) []string {
	join := make([]string, len(all))
	for i, other := range all {
		join[i] = other.cluster
	}
	return []string{
		"server",
		"--mode", modeCP,
		"--node-name", n.name(),
		"--http-addr", n.http,
		"--cluster-addr", n.cluster,
		"--cluster-join", strings.Join(join, ","),
		"--cluster-bootstrap-expect", strconv.Itoa(len(all)),
		"--data-dir", filepath.Join(n.dir, "data"),
	}
}

// checkPorts finds the ports that other processes hold, before any node is started, so that a
// cluster comes up whole or not at all.
func checkPorts(nodes []devNode) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, checkPort(n.http, "HTTP", n.name()), checkPort(n.cluster, "node-to-node", n.name()))
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

// checkData refuses a directory that holds a cluster of another size: its nodes would look for each
// other in vain, or not at all.
func (o devOptions) checkData() error {
	entries, err := os.ReadDir(o.data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	found := 0
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if _, err := strconv.Atoi(number); err == nil && e.IsDir() {
				found++
			}
		}
	}
	if found != 0 && found != o.nodes {
		return fmt.Errorf("--data: %s holds a cluster of %d nodes; run dev with --nodes %d, or with another --data", o.data, found, found)
	}
	return nil
}
