package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newCancelCommand() *cobra.Command {
	var c connection
	return c.instanceCommand(&cobra.Command{
		Use:     "cancel APP/ID",
		Short:   "Remove an instance",
		Example: "  rollcall cancel ORDERS/orders-1",
	}, func(ctx context.Context, cl *client.Client, key registry.Key) (cli.Tabler, error) {
		return done{Done: "canceled", App: key.App, ID: key.ID}, cl.Cancel(ctx, key)
	})
}

// done says what was done, and to what. Scripts rely on its members' names.
type done struct {
	Done     string `json:"done"`
	App      string `json:"app,omitempty"` // this and the following: of an instance
	ID       string `json:"id,omitempty"`
	Status   string `json:"status,omitempty"`
	Session  string `json:"session,omitempty"` // of one of the others
	Role     string `json:"role,omitempty"`
	Accessor string `json:"accessor,omitempty"`
	Peer     string `json:"peer,omitempty"`
}

func (d done) Table() [][]string {
	row := []string{d.Done, d.Session + d.Role + d.Accessor + d.Peer}
	if d.App != "" {
		row[1] = d.App + "/" + d.ID
	}
	if d.Status != "" {
		row = append(row, d.Status)
	}
	return [][]string{row}
}

func newQuarantineCommand() *cobra.Command {
	var c connection
	var o operator
	var d time.Duration
	var end bool
	cmd := c.instanceCommand(&cobra.Command{
		Use:   "quarantine APP/ID --for DURATION | quarantine APP/ID --end",
		Short: "Hide an instance from every list for a time, or list it again",
		Long: "Hides an instance from every list for a time, so that no client calls it. Its heartbeats are accepted\n" +
			"meanwhile, and it does not notice. If it registers again, it stays hidden.",
		Example: "  rollcall quarantine ORDERS/orders-1 --for 10m --reason \"heap dump\"\n" +
			"  rollcall quarantine ORDERS/orders-1 --end",
	}, func(ctx context.Context, cl *client.Client, key registry.Key) (cli.Tabler, error) {
		switch {
		case end && d != 0:
			return nil, cli.Usage(errors.New("give --for or --end, and not both"))
		case end:
			_, err := cl.EndQuarantine(ctx, key, o.act())
			return done{Done: "quarantine ended", App: key.App, ID: key.ID}, err
		}
		if err := checkFor(d); err != nil {
			return nil, cli.Usage(err)
		}
		_, err := cl.Quarantine(ctx, key, o.act(), d)
		return done{Done: "quarantined", App: key.App, ID: key.ID}, err
	})
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&d, "for", 0, "how long, from 1s to 168h")
	cmd.Flags().BoolVar(&end, "end", false, "list the instance again")
	return cmd
}

func newDrainCommand() *cobra.Command {
	var c connection
	var o operator
	var pollTime, timeout time.Duration
	var cmd *cobra.Command
	cmd = c.instanceCommand(&cobra.Command{
		Use:   "drain APP/ID",
		Short: "Take an instance out of service, and return when it may be stopped",
		Long: "Overrides an instance's status with OUT_OF_SERVICE. It waits until every node of the cluster has\n" +
			"applied the override, and then until polling clients have fetched it. Afterwards no client calls the\n" +
			"instance any more. The override ends when the instance is started again (below level 3 of the formats:\n" +
			"when its lease ends), or by override --delete.",
		Example: "  rollcall drain ORDERS/orders-1\n" +
			"  rollcall drain ORDERS/orders-1 --settle 60s --reason \"kernel update\"",
	}, func(ctx context.Context, cl *client.Client, key registry.Key) (cli.Tabler, error) {
		if pollTime < 0 {
			return nil, cli.Usage(fmt.Errorf("--settle: %v is negative", pollTime))
		}
		if timeout <= 0 {
			return nil, cli.Usage(fmt.Errorf("--timeout: %v leaves no time for the nodes", timeout))
		}
		ctx, cancel := context.WithTimeout(ctx, timeout+pollTime)
		defer cancel()
		fmt.Fprintf(cmd.ErrOrStderr(), "draining %s: waiting up to %v until every node lists it as OUT_OF_SERVICE, and then %v until polling clients know (--settle)\n", key, timeout, pollTime)
		return done{Done: "drained", App: key.App, ID: key.ID, Status: registry.OutOfService.String()}, cl.Drain(ctx, key, pollTime, o.act())
	})
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&pollTime, "settle", 30*time.Second, "time for polling clients, after every node has applied it")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "longest time to wait for the nodes, before --settle begins")
	return cmd
}

// overrideOptions are the flags of override.
type overrideOptions struct {
	operator
	remove bool
	length time.Duration
	hints  io.Writer // standard error
}

func newOverrideCommand() *cobra.Command {
	var c connection
	var o overrideOptions
	var cmd *cobra.Command
	cmd = c.command(&cobra.Command{
		Use:   "override APP/ID STATUS | override APP/ID --delete",
		Short: "Force an instance's status, in place of the reported one, or end that",
		Long: "Forces an instance's status, in place of the reported one. From level 3 of the formats on, OUT_OF_SERVICE\n" +
			"outlives the lease: an instance that is canceled or evicted and registers again within 24 h is OUT_OF_SERVICE\n" +
			"again. Below it, and with any other status, the override ends with the lease. To restart an instance, use drain.",
		Example: "  rollcall override ORDERS/orders-1 OUT_OF_SERVICE\n" +
			"  rollcall override ORDERS/orders-1 OUT_OF_SERVICE --for 30m --reason \"kernel update\"\n" +
			"  rollcall override ORDERS/orders-1 --delete",
	}, cobra.RangeArgs(1, 2), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		if err := o.check(args); err != nil {
			return nil, cli.Usage(err)
		}
		o.hints = cmd.ErrOrStderr()
		return o.override(ctx, cl, args)
	})
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.remove, "delete", false, "end the override; the instance is UNKNOWN until its next heartbeat")
	cmd.Flags().DurationVar(&o.length, "for", 0, "how long, from 1s to 168h; then the instance has the status that it reported last (default: until --delete)")
	return cmd
}

func (o *overrideOptions) check(args []string) error {
	if o.remove != (len(args) == 1) {
		return errors.New("give a status, or --delete, and not both")
	}
	if o.length == 0 {
		return nil
	}
	if o.remove {
		return fmt.Errorf("--for: %v is for an override, and --delete ends one", o.length)
	}
	return checkFor(o.length)
}

// override sets the status that the second argument names. Without one it ends an override.
func (o *overrideOptions) override(ctx context.Context, cl *client.Client, args []string) (done, error) {
	key, err := parseKey(args[0])
	if err != nil {
		return done{}, cli.Usage(err)
	}
	result := done{Done: "override deleted", App: key.App, ID: key.ID}
	if o.remove {
		_, err := cl.EndOverride(ctx, key, o.act())
		return result, err
	}
	status, err := parseStatus("STATUS", args[1])
	if err != nil {
		return done{}, cli.Usage(err)
	}
	result.Done, result.Status = "overridden", status.String()
	_, err = cl.Override(ctx, key, status, o.act(), o.length)
	if err == nil && status == registry.OutOfService && o.length == 0 {
		fmt.Fprintf(o.hints, "%s stays OUT_OF_SERVICE until --delete, even if it is restarted within 24h"+
			" (below level 3 of the formats, until its lease ends); use --for to set an end\n", key)
	}
	return result, err
}

func newExplainCommand() *cobra.Command {
	var c connection
	return c.instanceCommand(&cobra.Command{
		Use:     "explain APP/ID",
		Short:   "Say why an instance is listed, or why it is not, and what happened to it",
		Example: "  rollcall explain ORDERS/orders-1",
	}, func(ctx context.Context, cl *client.Client, key registry.Key) (cli.Tabler, error) {
		e, err := cl.Explain(ctx, key)
		return explanation{e}, err
	})
}

// explanation shows what the cluster knows of an instance as text: the summary, then the history.
type explanation struct{ client.Explanation }

func (e explanation) Table() [][]string {
	rows := [][]string{{e.Summary}, {}, {"TIME", "EVENT", "TIMES", "DETAILS", "BY", "REASON"}}
	for _, h := range e.History {
		rows = append(rows, []string{clockTime(h.At), h.What, number(h.Times), h.Text, saidBy(h.Author, h.Says), h.Reason})
	}
	return rows
}

// saidBy shows the author, and the person whom the author named.
func saidBy(author, says string) string {
	if says == "" {
		return author
	}
	return author + " as " + says
}

func newPruneCommand() *cobra.Command {
	var c connection
	var o client.PruneOptions
	var notPassing bool
	cmd := c.command(&cobra.Command{
		Use:   "prune --not-passing",
		Short: "Remove the instances that are not passing",
		Long: "Removes the instances that are not passing, of one service or of all, and prints them: dead ones that\n" +
			"were never canceled. It works through any node. A removed instance stays away until it registers again.\n" +
			"Instances in quarantine stay. Use --dry-run first.",
		Example: "  rollcall prune --not-passing --dry-run\n" +
			"  rollcall prune --not-passing --service orders",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		if !notPassing {
			return nil, cli.Usage(errors.New("--not-passing: is required: it says which instances to remove"))
		}
		found, err := cl.Prune(ctx, o)
		return append(prunedList{}, found...), err
	})
	cmd.Flags().BoolVar(&notPassing, "not-passing", false, "remove those whose status is not UP, such as services with a warning or critical check (required)")
	cmd.Flags().StringVar(&o.Service, "service", "", "of this service only (default: of all)")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "remove nothing, show what would be removed")
	return cmd
}

// prunedList lists the instances that were removed; as JSON it is an empty list rather than null.
type prunedList []client.Pruned

func (l prunedList) Table() [][]string {
	return cli.Rows(l, []string{"APP", "ID", "STATUS", "REASON"}, func(p client.Pruned) []string {
		return []string{p.App, p.ID, p.Status, p.Reason}
	})
}
