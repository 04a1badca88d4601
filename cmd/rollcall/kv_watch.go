package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newKVWatchCommand() *cobra.Command {
	var c connection
	var prefix bool
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Print a key as it is and then every change of it, or of all that begin with it, until Ctrl-C",
		Long: "Prints a line for the key as it is, and then one for every change, until Ctrl-C: when it came, what\n" +
			"it was, the key, its index and its value. Changes in short order may be told as the last of them.",
		Example: "  rollcall kv watch config/colour\n" +
			"  rollcall kv watch config/ --prefix -o json",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.open(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			p := keyPrinter{out: cmd.OutOrStdout(), form: c.out, now: time.Now}
			if prefix {
				return cl.KV().WatchTree(cmd.Context(), args[0], p.tree)
			}
			return cl.KV().Watch(cmd.Context(), args[0], func(e *client.Entry) error {
				if e == nil {
					return p.tree(nil)
				}
				return p.tree([]client.Entry{*e})
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&prefix, "prefix", false, "watch all keys that begin with KEY")
	return cmd
}

// keyPrinter prints what changed from one state of some keys to the next, a line for each.
type keyPrinter struct {
	out     io.Writer
	form    cli.Output
	now     func() time.Time
	started bool
	known   []client.Entry // by key
}

// tree prints what differs from what is known; both are in byte order.
func (p *keyPrinter) tree(now []client.Entry) error {
	old := p.known
	var errs error
	tell := func(what string, e client.Entry) {
		if errs == nil {
			errs = p.print(what, e)
		}
	}
	for _, e := range now {
		for len(old) > 0 && old[0].Key < e.Key {
			tell("deleted", client.Entry{Key: old[0].Key})
			old = old[1:]
		}
		before, wasThere := client.Entry{}, len(old) > 0 && old[0].Key == e.Key
		if wasThere {
			before, old = old[0], old[1:]
		}
		if !wasThere || before.ModifyIndex != e.ModifyIndex {
			tell(p.change(before, e), e)
		}
	}
	for _, e := range old {
		tell("deleted", client.Entry{Key: e.Key})
	}
	p.known, p.started = now, true
	return errs
}

// change says what happened to a key that is there.
func (p *keyPrinter) change(before, now client.Entry) string {
	switch {
	case !p.started:
		return "present"
	case before.Session == now.Session:
		return "written"
	case now.Session == "":
		return "released"
	}
	return "acquired"
}

// keyLine is a change in JSON. Scripts rely on its members' names.
type keyLine struct {
	Event string `json:"event"` // present, written, acquired, released or deleted
	keyEntry
}

func (p *keyPrinter) print(what string, e client.Entry) error {
	if p.form == cli.JSON {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(keyLine{what, newKeyEntry(e)})
	}
	value := "-"
	if what != "deleted" {
		value = shortValue(bytes.TrimRight(e.Value, "\n"))
	}
	_, err := fmt.Fprintf(p.out, "%s  %-8s  %s  %s  %s\n", p.now().UTC().Format("2006-01-02T15:04:05.000Z"), what, cli.Printable(e.Key), cli.Printable(unlessZero(e.ModifyIndex)), cli.Printable(value))
	return err
}
