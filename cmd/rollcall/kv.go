package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newKVCommand() *cobra.Command {
	return cli.Group("kv", "Read and write keys, which programs coordinate by (mode cp)",
		newKVGetCommand(),
		newKVPutCommand(),
		newKVDelCommand(),
		newKVLsCommand(),
		newKVWatchCommand(),
	)
}

// addConsistency adds the choice of how fresh a read of keys must be.
func (c *connection) addConsistency(cmd *cobra.Command) {
	c.fresh = []string{"", "linearizable", "stale"}
	cmd.Flags().StringVar(&c.consistency, "consistency", "", "linearizable or stale (default: linearizable)")
}

// keyEntry is a key's entry in JSON. Scripts rely on its members' names.
type keyEntry struct {
	Key         string `json:"key"`
	Value       []byte `json:"value"` // base64
	Flags       uint64 `json:"flags"`
	Session     string `json:"session,omitempty"` // absent: nobody holds it
	LockIndex   uint64 `json:"lock_index"`
	CreateIndex uint64 `json:"create_index"`
	ModifyIndex uint64 `json:"modify_index"`
	Fence       uint64 `json:"fence,omitempty"` // of a single entry that somebody holds
}

func newKeyEntry(e client.Entry) keyEntry {
	return keyEntry{
		Key: e.Key, Value: append([]byte{}, e.Value...), Flags: e.Flags, Session: e.Session,
		LockIndex: e.LockIndex, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, Fence: e.Fence,
	}
}

func (e keyEntry) Table() [][]string {
	return [][]string{
		{"KEY", "FLAGS", "INDEX", "CREATED", "LOCKED", "SESSION", "FENCE", "VALUE"},
		{e.Key, number(e.Flags), number(e.ModifyIndex), number(e.CreateIndex), number(e.LockIndex), e.Session, unlessZero(e.Fence), shortValue(e.Value)},
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// unlessZero is a number, "" for 0.
func unlessZero(n uint64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

// shortValue shows the beginning of a value, if it is text that keeps a line; else its length.
func shortValue(value []byte) string {
	const longest = 80
	text := string(value)
	if !utf8.Valid(value) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Itoa(len(value)) + " bytes"
	}
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

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
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			e, err := cl.KV().Get(cmd.Context(), args[0])
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
	}
	cmd.Flags().Uint64Var(&cas, "cas", 0, "delete only if the key's index is this")
	cmd.Flags().BoolVar(&prefix, "prefix", false, "delete all keys that begin with KEY")
	return c.command(cmd, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		key, result := args[0], keyDone{Done: "deleted", Key: args[0]}
		conditional := cmd.Flags().Changed("cas")
		switch {
		case conditional && prefix:
			return nil, cli.Usage(errors.New("give --cas or --prefix, and not both"))
		case key == "" && !prefix:
			return nil, cli.Usage(errors.New("an empty KEY names no key; with --prefix it means all keys"))
		case prefix:
			return result, cl.KV().DeleteTree(ctx, key)
		case !conditional:
			return result, cl.KV().Delete(ctx, key)
		}
		gone, err := cl.KV().DeleteCAS(ctx, key, cas)
		if err == nil && !gone {
			err = fmt.Errorf("%s was not deleted: its index is not %d", key, cas)
		}
		return result, err
	})
}

func newKVLsCommand() *cobra.Command {
	var c connection
	var names bool
	var separator string
	cmd := c.command(&cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the keys that begin with a prefix, or all",
		Long: "Lists keys in byte order, with their sizes, indexes and holders. With --keys it prints the names\n" +
			"alone, one per line; --separator then cuts each after the first separator that follows the prefix,\n" +
			"as directories are listed.",
		Example: "  rollcall kv ls\n" +
			"  rollcall kv ls config/\n" +
			"  rollcall kv ls --keys --separator /",
	}, cobra.MaximumNArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		if separator != "" && !names {
			return nil, cli.Usage(errors.New("--separator: goes with --keys"))
		}
		return listKeys(ctx, cl.KV(), appOf(args), names, separator)
	})
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
