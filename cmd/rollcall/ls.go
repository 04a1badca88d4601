package main

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func newLsCommand() *cobra.Command {
	var c connection
	var quarantined bool
	cmd := c.command(&cobra.Command{
		Use:   "ls [APP]",
		Short: "List the instances, of one application or of all",
		Example: "  rollcall ls\n  rollcall ls ORDERS -o json\n  rollcall ls --consistency stale\n" +
			"  rollcall ls --quarantined",
	}, cobra.MaximumNArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		if quarantined {
			hidden, err := cl.Quarantined(ctx, firstOf(args))
			return append(quarantineList{}, hidden...), err
		}
		found, err := cl.List(ctx, firstOf(args))
		return append(instanceList{}, found...), err
	})
	cmd.Flags().StringVar(&c.consistency, "consistency", "", "linearizable, leader or stale (default: the server's setting)")
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "list those that are in quarantine, which no other list shows")
	return cmd
}

// instanceList has instances in the form of ls, an empty list rather than null. Scripts rely on the names of its JSON
// members.
type instanceList []client.Instance

func (l instanceList) Table() [][]string {
	rows := [][]string{{"APP", "ID", "STATUS", "HOST", "IP", "PORT", "VIP", "LEASE"}}
	for _, i := range l {
		rows = append(rows, []string{i.App, i.ID, i.Status, i.Host, i.IP, ports(i), i.VIP, strconv.Itoa(int(i.Lease)) + "s"})
	}
	if slices.ContainsFunc(l, func(i client.Instance) bool { return i.Datacenter != "" }) {
		rows[0] = append(rows[0], "DATACENTER")
		for n, i := range l {
			owner := i.Datacenter // "" for the cluster's own
			if i.UnheardMS != 0 {
				owner += " (unheard for " + duration(i.UnheardMS) + ")"
			}
			rows[n+1] = append(rows[n+1], owner)
		}
	}
	return rows
}

func ports(i client.Instance) string {
	switch {
	case i.SecurePort == 0 && i.Port == 0:
		return ""
	case i.SecurePort == 0:
		return strconv.Itoa(i.Port)
	case i.Port == 0:
		return strconv.Itoa(i.SecurePort) + "(tls)"
	}
	return strconv.Itoa(i.Port) + "," + strconv.Itoa(i.SecurePort) + "(tls)"
}

// quarantineList has the instances in quarantine, an empty list rather than null.
type quarantineList []client.Instance

func (l quarantineList) Table() [][]string {
	return cli.Rows(l, []string{"APP", "ID", "STATUS", "HOST", "IP", "LAST RENEWAL", "UNTIL"}, func(q client.Instance) []string {
		return []string{q.App, q.ID, q.Status, q.Host, q.IP, clockTime(q.LastRenewal), clockTime(q.QuarantinedUntil)}
	})
}
