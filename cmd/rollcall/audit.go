package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

func newAuditCommand() *cobra.Command {
	var c authConnection
	var q client.AuditQuery
	var follow bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, and who tried to",
		Long: "Shows changes and attempts that the node at --addr has recorded, newest last: who called, from where, what\n" +
			"was to be done to what, and what came of it. Each node records the calls that came to it. An outcome is done, refused (the cluster could not do it), denied (the caller may not), would-deny\n" +
			"(the same, in mode log-only), failed or unauthenticated. With --follow it goes on until Ctrl-C, as lines.",
		Example: "  rollcall audit --app PAYMENTS --since 24h\n" +
			"  rollcall audit --outcome denied --follow\n" +
			"  rollcall audit --principal ops --since 2026-11-22T08:00:00Z -o json",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.resolve(); err != nil {
				return cli.Usage(err)
			}
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			if follow {
				f := follower{ask: func(q client.AuditQuery) ([]client.AuditRecord, error) { return cl.Audit(cmd.Context(), q) },
					out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), form: c.out}
				return f.run(cmd.Context(), q)
			}
			found, err := cl.Audit(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), append(auditRecords{}, found...))
		},
	}
	c.addFlags(cmd)
	c.addDataDir(cmd)
	f := cmd.Flags()
	f.StringVar(&q.App, "app", "", "about one application only")
	f.StringVar(&q.Principal, "principal", "", "of one caller only")
	f.StringVar(&q.Outcome, "outcome", "", "of one outcome only: done, refused, denied, would-deny, failed or unauthenticated")
	f.StringVar(&q.Since, "since", "", "from when on: a duration before now, such as 1h, or a time such as 2026-11-22T08:00:00Z")
	f.IntVar(&q.Limit, "limit", 0, "the newest so many, at most 10000 (default: 100)")
	f.BoolVar(&follow, "follow", false, "go on with what happens, until Ctrl-C")
	return cmd
}

// auditRecords is part of the audit as a table.
type auditRecords []client.AuditRecord

func (l auditRecords) Table() [][]string {
	return cli.Rows(l, []string{"TIME", "NODE", "WHO", "ACCESSOR", "FROM", "OPERATION", "OF", "OUTCOME", "INDEX", "SAYS"}, auditRow)
}

func auditRow(r client.AuditRecord) []string {
	by := r.Principal
	if r.Via != "" && r.Via != "token" && r.Via != r.Principal {
		by += " (" + r.Via + ")"
	}
	says := r.Says
	if r.Grants != "" {
		says = strings.TrimSpace("[" + r.Grants + "] " + says)
	}
	if r.Suppressed > 0 {
		says += fmt.Sprintf(" (and %d before that were not recorded)", r.Suppressed)
	}
	return []string{r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), r.Node, by, r.Accessor, r.Address, r.Operation, cmp.Or(r.Name, r.Resource), r.Outcome, unlessZero(r.Index), says}
}

// follower prints the audit as it grows.
type follower struct {
	ask       func(client.AuditQuery) ([]client.AuditRecord, error)
	out, errs io.Writer
	form      cli.Output
	printed   map[client.AuditRecord]bool // those of the last response: the next one begins before its end
	failing   bool
}

// auditMost is the most records that a node returns.
const auditMost = 10_000

// The audit is read again after each auditPoll, from auditOverlap before the last question on: a record may have been
// late.
const auditPoll, auditOverlap = time.Second, 3 * time.Second

// run prints records until ctx ends, or until an error that another try would not change.
func (f *follower) run(ctx context.Context, q client.AuditQuery) error {
	var asked time.Time // when the last response was asked for
	for {
		if !asked.IsZero() {
			q.Since, q.Limit = (time.Since(asked) + auditOverlap).Round(time.Millisecond).String(), auditMost
		}
		began := time.Now()
		records, err := f.ask(q)
		if ctx.Err() != nil {
			return nil
		}
		status, is := errors.AsType[*client.StatusError](err)
		switch { // another try would bring the same response
		case errors.Is(err, client.ErrNeedsRollcall):
			return err
		case is && status.Status != http.StatusTooManyRequests && (status.Status < 500 || status.Status == http.StatusNotImplemented):
			return err
		}
		f.report(err)
		if err == nil {
			asked = began
			if err := f.print(records); err != nil {
				return err
			}
		}
		if !wait.For(ctx, auditPoll) {
			return nil
		}
	}
}

// report logs that records cannot be read, or can again.
func (f *follower) report(err error) {
	switch failing := err != nil; {
	case failing && !f.failing:
		fmt.Fprintf(f.errs, "%v; trying again\n", err)
	case !failing && f.failing:
		fmt.Fprintln(f.errs, "the audit is read again")
	}
	f.failing = err != nil
}

// print prints the records that the last response did not have.
func (f *follower) print(records []client.AuditRecord) error {
	now := make(map[client.AuditRecord]bool, len(records))
	for _, r := range records {
		r.Time = r.Time.UTC() // comparable
		now[r] = true
		if f.printed[r] {
			continue
		}
		if err := f.line(r); err != nil {
			return err
		}
	}
	f.printed = now
	return nil
}

func (f *follower) line(r client.AuditRecord) error {
	if f.form == cli.JSON {
		return cli.PrintLine(f.out, r)
	}
	cells := auditRow(r)
	for i, cell := range cells {
		cells[i] = cli.Printable(cell)
	}
	_, err := fmt.Fprintln(f.out, strings.Join(cells, "  "))
	return err
}
