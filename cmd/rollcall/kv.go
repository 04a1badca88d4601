package main

import (
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
	cmd.Flags().StringVar(&c.consistency, "consistency", "", "linearizable or stale (default: linearizable)")
}

// keys opens the connection of a command about keys.
func (c *connection) keys() (client.KV, error) {
	if err := cli.OneOf("--consistency", c.consistency, []string{"", "linearizable", "stale"}); err != nil {
		return client.KV{}, cli.Usage(err)
	}
	cl, err := c.open(nil)
	if err != nil {
		return client.KV{}, err
	}
	return cl.KV(), nil
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
