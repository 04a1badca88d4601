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

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// plan lays out the nodes' addresses and directories, one datacenter after the other.
func (o devOptions) plan() []*localcluster.Node {
	var nodes []*localcluster.Node
	for dc := 1; dc <= o.dcs; dc++ {
		for number := 1; number <= o.nodes; number++ {
			port := o.httpPort + (dc-1)*dcPortsApart + number - 1
			n := &localcluster.Node{
				Name: "node" + strconv.Itoa(number), Datacenter: localcluster.DatacenterName(dc), Mode: o.mode,
				HTTP: localcluster.Address(port),
			}
			if o.mode == modeCP {
				n.Cluster = localcluster.Address(port - clusterPortsBelow)
			}
			n.PutBelow(filepath.Join(o.dataOf(dc), n.Name))
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		n.Introduce(nodes)
	}
	return nodes
}

// dataOf is where a datacenter's nodes have their directories.
func (o devOptions) dataOf(dc int) string {
	if dc == 1 {
		return o.data
	}
	return filepath.Join(o.data, localcluster.DatacenterName(dc))
}

// checkPorts finds the ports that other processes hold, before any node is started, so that a
// cluster comes up whole or not at all.
func checkPorts(nodes []*localcluster.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, checkPort(n.HTTP, "HTTP", n.Name))
		if n.Cluster != "" {
			errs = append(errs, checkPort(n.Cluster, "node-to-node", n.Name))
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
