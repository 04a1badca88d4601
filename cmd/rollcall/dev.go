package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
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
			"HTTP on port P+i-1 and, in mode cp, the other nodes on port P+i-1001. With --dcs M there are M\n" +
			"datacenters of N nodes, dc1, dc2 and so on, that replicate to each other; those of dc2 use ports that\n" +
			"are higher by 100. The nodes inherit the environment, so ROLLCALL_LOG_LEVEL=debug and the like reach\n" +
			"all of them.",
		Example: "  rollcall dev --nodes 3\n" +
			"  rollcall dev --mode ap\n" +
			"  rollcall dev --mode cp --dcs 2",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			if !cmd.Flags().Changed("data") {
				o.data = dataOfMode(o.mode)
			}
			return runDev(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 3, "nodes of each datacenter")
	f.StringVar(&o.mode, "mode", modeCP, "how operations are ordered: cp or ap")
	f.IntVar(&o.dcs, "dcs", 1, "datacenters")
	f.IntVar(&o.httpPort, "http-port", 8761, "HTTP port of the first node")
	f.StringVar(&o.data, "data", dataOfMode(modeCP), "directory of the nodes' data and logs; in mode ap "+dataOfMode(modeAP))
	return cmd
}

// dataOfMode is where the nodes' data is unless --data says otherwise: a node's directory belongs to one mode.
func dataOfMode(mode string) string {
	if mode == modeAP {
		return "data/ap"
	}
	return "data"
}

// maxDCs keeps the node-to-node ports of the last datacenter below the HTTP ports of the first.
const maxDCs = 9

// dcPortsApart is how far the ports of two neighbouring datacenters lie apart.
const dcPortsApart = 100

// clusterPortsBelow is how far the node-to-node ports lie below the HTTP ports.
const clusterPortsBelow = 1000

func (o devOptions) validate() error {
	var errs []error
	errs = append(errs, cli.OneOf("--mode", o.mode, modes))
	if o.dcs < 1 || o.dcs > maxDCs {
		errs = append(errs, fmt.Errorf("--dcs: %d is not a number from 1 to %d", o.dcs, maxDCs))
	}
	if o.nodes < 1 || o.nodes > 99 {
		errs = append(errs, fmt.Errorf("--nodes: %d is not a number from 1 to 99", o.nodes))
	}
	if last := o.httpPort + (o.dcs-1)*dcPortsApart + o.nodes - 1; o.httpPort <= clusterPortsBelow || last > 65535 {
		errs = append(errs, fmt.Errorf("--http-port: %d leaves no room for the ports of %d nodes between 1 and 65535", o.httpPort, o.dcs*o.nodes))
	}
	return errors.Join(errs...)
}
