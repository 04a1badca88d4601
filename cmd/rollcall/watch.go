package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

func newWatchCommand() *cobra.Command {
	var c connection
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch [APP]",
		Short: "Print every change as it happens, of one application or of all, until Ctrl-C",
		Long: "Prints a line for every change, until Ctrl-C, or as long as --for and --count say: the time, the kind of change, the instance, its\n" +
			"status and the reason. It fails over between the servers and goes on where it was. If changes may\n" +
			"have been missed, standard error says so.",
		Example: "  rollcall watch\n" +
			"  rollcall watch ORDERS -o json\n" +
			"  rollcall watch --for 10s\n" +
			"  rollcall watch ORDERS --count 1\n" +
			"  rollcall watch --index a1f79bff3c19188a-42",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			cl, err := c.open(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			p := watchPrinter{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), form: c.out, now: time.Now}
			ctx := cmd.Context()
			if o.length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.length)
				defer cancel()
			}
			err = cl.Watch(ctx, client.WatchConfig{App: firstOf(args), Index: o.index}, o.counted(p.print))
			if errors.Is(err, errCounted) {
				return nil
			}
			return err
		},
	}
	c.addFlags(cmd)
	cmd.Flags().DurationVar(&o.length, "for", 0, "how long to watch; 0: until Ctrl-C")
	cmd.Flags().IntVar(&o.count, "count", 0, "how many changes to print; 0: all")
	cmd.Flags().StringVar(&o.index, "index", "", "go on after this index, as an earlier watch or X-Rollcall-Index gave it (default: from now)")
	return cmd
}

// watchOptions are the flags of watch.
type watchOptions struct {
	index  string
	length time.Duration
	count  int
}

func (o watchOptions) validate() error {
	if o.length < 0 || o.count < 0 {
		return fmt.Errorf("--for %v, --count %d: they cannot be negative", o.length, o.count)
	}
	return nil
}

// errCounted ends a watch that has printed as many changes as were asked for.
var errCounted = errors.New("all changes that were wanted are printed")

// counted ends the watch after the last change that was asked for.
func (o watchOptions) counted(print func(client.WatchEvent) error) func(client.WatchEvent) error {
	changes := 0
	return func(event client.WatchEvent) error {
		if err := print(event); err != nil {
			return err
		}
		if _, ok := event.(client.WatchChange); ok {
			changes++
		}
		if o.count > 0 && changes >= o.count {
			return errCounted
		}
		return nil
	}
}

// watchPrinter prints the events of a watch, a line for each.
type watchPrinter struct {
	out, errs io.Writer
	form      cli.Output
	now       func() time.Time
}

func (p watchPrinter) print(event client.WatchEvent) error {
	if p.form == cli.JSON {
		return cli.PrintLine(p.out, newWatchLine(event))
	}
	switch e := event.(type) {
	case client.WatchStart:
		_, err := fmt.Fprintf(p.errs, "watching %s, after %s\n", cli.Printable(e.Server), cli.Printable(e.Index))
		return err
	case client.WatchReset:
		_, err := fmt.Fprintf(p.errs, "changes before %s may have been missed: %s\n", cli.Printable(e.Index), cli.Printable(e.Reason))
		return err
	case client.WatchChange:
		_, err := fmt.Fprintf(p.out, "%s  %-8s  %s  %s  %s\n", p.now().UTC().Format("2006-01-02T15:04:05.000Z"),
			cli.Printable(e.Action), cli.Printable(e.Key().String()), cli.Printable(e.Status), cli.Printable(e.Why))
		return err
	}
	return nil
}

// watchLine is an event of a watch in JSON. Scripts rely on its members' names.
type watchLine struct {
	Event    string           `json:"event"` // start, change or reset
	Index    string           `json:"index"`
	Server   string           `json:"server,omitempty"` // of start
	Reason   string           `json:"reason,omitempty"` // of reset
	Action   string           `json:"action,omitempty"` // this and the following: of change
	Why      string           `json:"why,omitempty"`
	App      string           `json:"app,omitempty"`
	ID       string           `json:"id,omitempty"`
	Status   string           `json:"status,omitempty"`
	Instance *client.Instance `json:"instance,omitempty"`
}

func newWatchLine(event client.WatchEvent) watchLine {
	switch e := event.(type) {
	case client.WatchStart:
		return watchLine{Event: "start", Index: e.Index, Server: e.Server}
	case client.WatchReset:
		return watchLine{Event: "reset", Index: e.Index, Reason: e.Reason}
	case client.WatchChange:
		line := watchLine{Event: "change", Index: e.Index, Action: e.Action, Why: e.Why, App: e.App, ID: e.ID, Status: e.Status}
		if e.Instance != nil {
			shown := api.InstanceOf(e.Instance)
			// epoch-number, or 0 if it is not one
			shown.Index, _ = strconv.ParseUint(e.Index[strings.LastIndexByte(e.Index, '-')+1:], 10, 64)
			line.Instance = &shown
		}
		return line
	}
	return watchLine{}
}
