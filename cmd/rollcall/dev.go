package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// devOptions are the flags of dev.
type devOptions struct {
	nodes    int
	mode     string
	dcs      int
	httpPort int
	data     string
}

func newDevCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a local cluster, one process per node, until Ctrl-C",
		Long: "Starts the nodes of a local cluster as processes of their own, prints a line for each and then\n" +
			"\"ready\", and stops them at Ctrl-C. A node that dies is reported, not restarted. Node i serves\n" +
			"HTTP on port P+i-1 and the other nodes on port P+i-1001. The nodes inherit the environment, so\n" +
			"ROLLCALL_LOG_LEVEL=debug and the like reach all of them.",
		Example: "  rollcall dev --nodes 3",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return runDev(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 3, "nodes of the cluster")
	f.StringVar(&o.mode, "mode", modeCP, "how operations are ordered; this version offers cp only")
	f.IntVar(&o.dcs, "dcs", 1, "datacenters; this version offers one only")
	f.IntVar(&o.httpPort, "http-port", 8761, "HTTP port of the first node")
	f.StringVar(&o.data, "data", "data", "directory of the nodes' data and logs")
	return cmd
}

// clusterPortsBelow is how far the node-to-node ports lie below the HTTP ports.
const clusterPortsBelow = 1000

func (o devOptions) validate() error {
	var errs []error
	if o.mode != modeCP {
		errs = append(errs, unofferedMode("--mode", o.mode))
	}
	if o.dcs != 1 {
		errs = append(errs, fmt.Errorf("--dcs: %d datacenters are not offered: this version offers one only", o.dcs))
	}
	if o.nodes < 1 || o.nodes > 99 {
		errs = append(errs, fmt.Errorf("--nodes: %d is not a number from 1 to 99", o.nodes))
	}
	if o.httpPort <= clusterPortsBelow || o.httpPort+o.nodes-1 > 65535 {
		errs = append(errs, fmt.Errorf("--http-port: %d leaves no room for the ports of %d nodes between 1 and 65535", o.httpPort, o.nodes))
	}
	return errors.Join(errs...)
}

// devNode is one node of the local cluster, numbered from 1.
type devNode struct {
	number        int
	http, cluster string // addresses
	dir           string // of its data and log
}

func (n devNode) name() string { return "node" + strconv.Itoa(n.number) }

// line is what dev prints for a node; scripts read it.
func (n devNode) line(pid int) string {
	return fmt.Sprintf("node=%d dc=dc1 http=%s pid=%d", n.number, n.http, pid)
}

// readyWithin bounds the start of a cluster, data directories that must be read again included.
const readyWithin = time.Minute
