package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newSelfPreservationCommand() *cobra.Command {
	cmd := newPreservationStatusCommand("self-preservation", "Show whether evictions are withheld and why, or decide it")
	cmd.Example = "  rollcall self-preservation\n  rollcall self-preservation -o json"
	cmd.AddCommand(
		newPreservationStatusCommand("status", "Show whether evictions are withheld, and why"),
		newPreservationReleaseCommand(),
		newPreservationHoldCommand(),
	)
	return cmd
}

func newPreservationStatusCommand(use, short string) *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  rollcall self-preservation status",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		p, err := cl.SelfPreservation(ctx)
		return preservation{p}, err
	})
}

func newPreservationReleaseCommand() *cobra.Command {
	var c connection
	var o operator
	cmd := c.command(&cobra.Command{
		Use:   "release",
		Short: "Let evictions go on",
		Long: "Ends self-preservation that is on or held: leases that have ended are evicted. It does not turn on\n" +
			"again by itself before enough leases have been fresh once.",
		Example: `  rollcall self-preservation release --reason "the twelve hosts are gone for good"`,
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		p, err := cl.ReleaseSelfPreservation(ctx, o.act())
		return preservation{p}, err
	})
	o.addFlags(cmd)
	return cmd
}

func newPreservationHoldCommand() *cobra.Command {
	var c connection
	var o operator
	var d time.Duration
	cmd := c.command(&cobra.Command{
		Use:     "hold",
		Short:   "Withhold every eviction for a time",
		Example: `  rollcall self-preservation hold --for 30m --reason "network works in zone b"`,
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		if err := checkFor(d); err != nil {
			return nil, cli.Usage(err)
		}
		p, err := cl.HoldSelfPreservation(ctx, o.act(), d)
		return preservation{p}, err
	})
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&d, "for", 0, "how long, from 1s to 168h (required)")
	return cmd
}

// preservation shows self-preservation as text: the reason, the state with its numbers, the leases that are overdue,
// and the transitions.
type preservation struct{ client.SelfPreservation }

func (p preservation) Table() [][]string {
	rows := [][]string{
		{p.Reason},
		{},
		{"STATE", "SINCE", "UNTIL", "BY", "NOTE", "WITHHELD"},
		{p.State, clockTime(p.Since), clockTime(p.Until), saidBy(p.Author, p.Says), p.Note, number(p.Withheld)},
		{},
		{"APP", "LEASES", "COUNTED", "FRESH", "EXPIRED"},
	}
	for _, a := range p.Applications {
		rows = append(rows, figuresRow(a.App, a.Figures))
	}
	rows = append(rows, figuresRow("(all)", p.Figures))
	overdue := [][]string{{}, {"OVERDUE", "SILENT", "ENDS IN"}} // the leases that are not fresh
	for _, a := range p.Applications {
		for _, o := range a.Overdue {
			overdue = append(overdue, []string{registry.NewKey(a.App, o.ID).String(), duration(o.SilentMS), duration(o.EndsInMS)})
		}
	}
	rows = append(rows, unlessEmpty(overdue)...)
	transitions := [][]string{{}, {"TIME", "BECAME", "BY", "COUNTED", "FRESH", "EXPIRED", "REASON"}} // newest first
	for _, t := range p.Transitions {
		transitions = append(transitions, []string{clockTime(t.At), t.State, saidBy(t.Author, t.Says), number(t.Counted), number(t.Fresh), number(t.Expired), t.Reason})
	}
	return append(rows, unlessEmpty(transitions)...)
}

func figuresRow(name string, f client.Figures) []string {
	return []string{name, number(f.Leases), number(f.Counted), number(f.Fresh), number(f.Expired)}
}
