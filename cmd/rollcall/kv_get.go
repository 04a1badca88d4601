package main

import (
	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newKVGetCommand() *cobra.Command {
	var c connection
	var detail bool
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print a key's value, byte by byte",
		Long: "Prints a key's value and nothing else, not even an end of line. With --detail or -o json it shows\n" +
			"the whole entry: flags, indexes, and who holds the key. A key that is not there is an error.",
		Example: "  rollcall kv get config/colour\n" +
			"  rollcall kv get config/colour --detail\n" +
			"  rollcall kv get config/colour -o json",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := c.keys()
			if err != nil {
				return err
			}
			e, err := keys.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if detail || c.out == cli.JSON {
				return c.out.Print(cmd.OutOrStdout(), newKeyEntry(e))
			}
			_, err = cmd.OutOrStdout().Write(e.Value)
			return err
		},
	}
	c.addFlags(cmd)
	c.addConsistency(cmd)
	cmd.Flags().BoolVar(&detail, "detail", false, "show the whole entry")
	return cmd
}
