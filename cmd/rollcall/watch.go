package main

import (
	"encoding/json"
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
	var index string
	cmd := &cobra.Command{
		Use:   "watch [APP]",
		Short: "Print every change as it happens, of one application or of all, until Ctrl-C",
		Long: "Prints a line for every change, until Ctrl-C: the time, the kind of change, the instance, its\n" +
			"status and the reason. It fails over between the servers and goes on where it was. If changes may\n" +
			"have been missed, standard error says so.",
		Example: "  rollcall watch\n" +
			"  rollcall watch ORDERS -o json\n" +
			"  rollcall watch --index a1f79bff3c19188a-42",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.open(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			p := watchPrinter{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), form: c.out, now: time.Now}
			return cl.Watch(cmd.Context(), client.WatchConfig{App: appOf(args), Index: index}, p.print)
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&index, "index", "", "go on after this index, as an earlier watch or X-Rollcall-Index gave it (default: from now)")
	return cmd
}

// watchPrinter prints the events of a watch, a line for each.
type watchPrinter struct {
	out, errs io.Writer
	form      cli.Output
	now       func() time.Time
}

func (p watchPrinter) print(event client.WatchEvent) error {
	if p.form == cli.JSON {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(newWatchLine(event))
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
	Action   string           `json:"action,omitempty"` // this and the rest: of change
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
			shown.Index = numberOf(e.Index)
			line.Instance = &shown
		}
		return line
	}
	return watchLine{}
}

// numberOf is the number in an index, epoch-number; 0: it is none.
func numberOf(index string) uint64 {
	n, _ := strconv.ParseUint(index[strings.LastIndexByte(index, '-')+1:], 10, 64)
	return n
}
