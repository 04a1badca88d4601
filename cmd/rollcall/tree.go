package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// described is a command, for the program that makes the man pages, which is separate from this one.
type described struct {
	Use      string          `json:"use"`
	Short    string          `json:"short"`
	Long     string          `json:"long,omitempty"`
	Example  string          `json:"example,omitempty"`
	Flags    []describedFlag `json:"flags,omitempty"`
	Commands []described     `json:"commands,omitempty"`
}

// describedFlag is a flag of one command; no flag is inherited.
type describedFlag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	Type      string `json:"type"`
	Default   string `json:"default,omitempty"`
	NoValue   string `json:"no_value,omitempty"` // what the flag means without a value
	Usage     string `json:"usage"`
}

func newTreeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "tree",
		Short:  "Print all commands and flags as JSON, for man pages",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.PrintLine(cmd.OutOrStdout(), describe(cmd.Root()))
		},
	}
}

func describe(cmd *cobra.Command) described {
	d := described{Use: cmd.Use, Short: cmd.Short, Long: cmd.Long, Example: cmd.Example}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			d.Flags = append(d.Flags, describedFlag{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Usage})
		}
	})
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" { // cobra adds it to whatever it prints pages of
			d.Commands = append(d.Commands, describe(sub))
		}
	}
	return d
}
