package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newKVDelCommand() *cobra.Command {
	var c connection
	var cas uint64
	var prefix bool
	cmd := &cobra.Command{
		Use:   "del KEY",
		Short: "Delete a key, or all that begin with it",
		Long: "Deletes a key, whoever holds it. One that is not there is no error. With --prefix it deletes all\n" +
			"keys that begin with KEY.",
		Example: "  rollcall kv del config/colour\n" +
			"  rollcall kv del config/colour --cas 57\n" +
			"  rollcall kv del config/ --prefix",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			conditional := cmd.Flags().Changed("cas")
			if conditional && prefix {
				return cli.Usage(errors.New("give --cas or --prefix, and not both"))
			}
			if args[0] == "" && !prefix {
				return cli.Usage(errors.New("an empty KEY names no key; with --prefix it means all keys"))
			}
			keys, err := c.keys()
			if err != nil {
				return err
			}
			switch {
			case prefix:
				err = keys.DeleteTree(cmd.Context(), args[0])
			case conditional:
				var gone bool
				if gone, err = keys.DeleteCAS(cmd.Context(), args[0], cas); err == nil && !gone {
					err = fmt.Errorf("%s was not deleted: its index is not %d", args[0], cas)
				}
			default:
				err = keys.Delete(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), keyDone{Done: "deleted", Key: args[0]})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().Uint64Var(&cas, "cas", 0, "delete only if the key's index is this")
	cmd.Flags().BoolVar(&prefix, "prefix", false, "delete all keys that begin with KEY")
	return cmd
}
