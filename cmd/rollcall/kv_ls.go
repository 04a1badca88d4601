package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newKVLsCommand() *cobra.Command {
	var c connection
	var names bool
	var separator string
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the keys that begin with a prefix, or all",
		Long: "Lists keys in byte order, with their sizes, indexes and holders. With --keys it prints the names\n" +
			"alone, one per line; --separator then cuts each after the first separator that follows the prefix,\n" +
			"as directories are listed.",
		Example: "  rollcall kv ls\n" +
			"  rollcall kv ls config/\n" +
			"  rollcall kv ls --keys --separator /",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if separator != "" && !names {
				return cli.Usage(errors.New("--separator: goes with --keys"))
			}
			keys, err := c.keys()
			if err != nil {
				return err
			}
			list, err := listKeys(cmd.Context(), keys, appOf(args), names, separator)
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), list)
		},
	}
	c.addFlags(cmd)
	c.addConsistency(cmd)
	cmd.Flags().BoolVar(&names, "keys", false, "print the names alone")
	cmd.Flags().StringVar(&separator, "separator", "", "cut each name after the first one that follows the prefix")
	return cmd
}

func listKeys(ctx context.Context, keys client.KV, prefix string, names bool, separator string) (cli.Tabler, error) {
	if names {
		found, err := keys.Keys(ctx, prefix, separator)
		return append(keyNames{}, found...), err
	}
	found, err := keys.List(ctx, prefix)
	list := make(keyList, 0, len(found))
	for _, e := range found {
		list = append(list, newKeyEntry(e))
	}
	return list, err
}

// keyList is keys in the form of ls, an empty list rather than null.
type keyList []keyEntry

func (l keyList) Table() [][]string {
	rows := [][]string{{"KEY", "BYTES", "FLAGS", "INDEX", "SESSION"}}
	for _, e := range l {
		rows = append(rows, []string{e.Key, strconv.Itoa(len(e.Value)), number(e.Flags), number(e.ModifyIndex), e.Session})
	}
	return rows
}

// keyNames is the names alone: no head, so that they can be handed on.
type keyNames []string

func (l keyNames) Table() [][]string {
	var rows [][]string
	for _, name := range l {
		rows = append(rows, []string{name})
	}
	return rows
}
