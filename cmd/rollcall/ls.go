package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newLsCommand() *cobra.Command {
	var c connection
	var quarantined bool
	cmd := &cobra.Command{
		Use:   "ls [APP]",
		Short: "List the instances, of one application or of all",
		Example: "  rollcall ls\n  rollcall ls ORDERS -o json\n  rollcall ls --consistency stale\n" +
			"  rollcall ls --quarantined",
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			if quarantined {
				hidden, err := cl.Quarantined(cmd.Context(), appOf(args))
				if err != nil {
					return err
				}
				return c.out.print(cmd.OutOrStdout(), append(quarantineList{}, hidden...))
			}
			found, err := list(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			return c.out.print(cmd.OutOrStdout(), newInstanceList(found))
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&c.consistency, "consistency", "", "linearizable, leader or stale (default: what the server is set to)")
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "list those that are in quarantine, which no other list shows")
	return cmd
}

// appOf is the application that the arguments name; "": all.
func appOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func list(ctx context.Context, cl *client.Client, args []string) ([]*registry.Lease, error) {
	if app := appOf(args); app != "" {
		return cl.Instances(ctx, app)
	}
	apps, err := cl.Apps(ctx)
	if err != nil {
		return nil, err
	}
	var all []*registry.Lease
	for _, app := range apps {
		all = append(all, app.Leases...)
	}
	return all, nil
}

// instanceList is instances in the form of ls. Scripts rely on the names of its JSON members.
type instanceList []shownInstance

type shownInstance struct {
	App         string            `json:"app"`
	ID          string            `json:"id"`
	Status      string            `json:"status"`
	Overridden  string            `json:"overridden,omitempty"` // the override, if there is one
	Host        string            `json:"host"`
	IP          string            `json:"ip"`
	Port        int               `json:"port,omitempty"`
	SecurePort  int               `json:"secure_port,omitempty"`
	VIP         string            `json:"vip,omitempty"`
	Lease       int32             `json:"lease_seconds"`
	Interval    int32             `json:"interval_seconds"`
	LastRenewal int64             `json:"last_renewal"` // ms since the epoch, as of the last change
	Registered  int64             `json:"registered"`   // ms since the epoch
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func newInstanceList(found []*registry.Lease) instanceList {
	shown := make(instanceList, len(found)) // JSON shows an empty list, not null
	for i, l := range found {
		shown[i] = show(l)
	}
	return shown
}

func show(l *registry.Lease) shownInstance {
	i := l.Instance
	s := shownInstance{
		App: i.App, ID: i.ID(), Status: i.Status.String(), Host: i.HostName, IP: i.IPAddr, VIP: i.VIP,
		Port: openPort(i.Port), SecurePort: openPort(i.SecurePort),
		Lease: l.Duration, Interval: l.Interval, LastRenewal: l.RenewedAt.Wall, Registered: l.RegisteredAt,
	}
	if i.Overridden != registry.Unknown {
		s.Overridden = i.Overridden.String()
	}
	if len(i.Metadata) > 0 {
		s.Metadata = make(map[string]string, len(i.Metadata))
	}
	for _, p := range i.Metadata {
		s.Metadata[p.Key] = p.Value
	}
	return s
}

// openPort is the port's number, 0 if the instance does not listen there.
func openPort(p registry.Port) int {
	if !p.Enabled {
		return 0
	}
	return int(p.Number)
}

func (l instanceList) table() [][]string {
	rows := [][]string{{"APP", "ID", "STATUS", "HOST", "IP", "PORT", "VIP", "LEASE"}}
	for _, i := range l {
		rows = append(rows, []string{i.App, i.ID, i.Status, i.Host, i.IP, i.ports(), i.VIP, strconv.Itoa(int(i.Lease)) + "s"})
	}
	return rows
}

func (i shownInstance) ports() string {
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

// quarantineList is the instances in quarantine, an empty list rather than null.
type quarantineList []client.Quarantined

func (l quarantineList) table() [][]string {
	rows := [][]string{{"APP", "ID", "STATUS", "HOST", "IP", "LAST RENEWAL", "UNTIL"}}
	for _, q := range l {
		rows = append(rows, []string{q.App, q.ID, q.Status, q.Host, q.IP, clockTime(q.LastRenewal), clockTime(q.Until)})
	}
	return rows
}
