package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/kv"
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

// keyPair is a key with its value in JSON. Scripts rely on its members' names.
type keyPair struct {
	Key         string `json:"key"`
	Value       []byte `json:"value"` // base64
	Flags       uint64 `json:"flags"`
	Session     string `json:"session,omitempty"` // absent if no session holds the key
	LockIndex   uint64 `json:"lock_index"`
	CreateIndex uint64 `json:"create_index"`
	ModifyIndex uint64 `json:"modify_index"`
	Fence       uint64 `json:"fence,omitempty"` // only for a single pair whose key is held
}

func newKeyPair(e client.Pair) keyPair {
	return keyPair{
		Key: e.Key, Value: append([]byte{}, e.Value...), Flags: e.Flags, Session: e.Session,
		LockIndex: e.LockIndex, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, Fence: e.Fence,
	}
}

func (e keyPair) Table() [][]string {
	return [][]string{
		{"KEY", "FLAGS", "INDEX", "CREATED", "LOCKED", "SESSION", "FENCE", "VALUE"},
		{e.Key, number(e.Flags), number(e.ModifyIndex), number(e.CreateIndex), number(e.LockIndex), e.Session, unlessZero(e.Fence), shortValue(e.Value)},
	}
}

// shortValue shows the beginning of a value that is one line of text, and the length of any other value.
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
		Long: "Prints a key's value and nothing else, not even an end of line, unless a terminal shows it. With --detail or\n" +
			"-o json it shows the flags, the indexes and the key's holder, too. A key that is not there is an error.",
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
				return c.out.Print(cmd.OutOrStdout(), newKeyPair(e))
			}
			out := cmd.OutOrStdout()
			if cli.IsTerminal(out) && !bytes.HasSuffix(e.Value, []byte("\n")) {
				e.Value = append(e.Value, '\n')
			}
			_, err = out.Write(e.Value)
			return err
		},
	}
	c.addFlags(cmd)
	c.addConsistency(cmd)
	cmd.Flags().BoolVar(&detail, "detail", false, "show flags, indexes and holder, too")
	return cmd
}

func newKVDelCommand() *cobra.Command {
	var c connection
	var cas uint64
	var prefix bool
	cmd := &cobra.Command{
		Use:   "del KEY",
		Short: "Delete a key, or all that begin with it",
		Long: "Deletes a key, also one that a session holds. An absent key is no error. With --prefix it deletes all\n" +
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
		deleted, err := cl.KV().DeleteCAS(ctx, key, cas)
		if err == nil && !deleted {
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
		if names {
			found, err := cl.KV().Keys(ctx, firstOf(args), separator)
			return append(keyNames{}, found...), err
		}
		found, err := cl.KV().List(ctx, firstOf(args))
		list := make(keyList, 0, len(found))
		for _, e := range found {
			list = append(list, newKeyPair(e))
		}
		return list, err
	})
	c.addConsistency(cmd)
	cmd.Flags().BoolVar(&names, "keys", false, "print the names alone")
	cmd.Flags().StringVar(&separator, "separator", "", "cut each name after the first one that follows the prefix")
	return cmd
}

// keyList has keys in the form of ls, an empty list rather than null.
type keyList []keyPair

func (l keyList) Table() [][]string {
	return cli.Rows(l, []string{"KEY", "BYTES", "FLAGS", "INDEX", "SESSION"}, func(e keyPair) []string {
		return []string{e.Key, strconv.Itoa(len(e.Value)), number(e.Flags), number(e.ModifyIndex), e.Session}
	})
}

// keyNames has the names alone, without a header, for pipes.
type keyNames []string

func (l keyNames) Table() [][]string {
	var rows [][]string
	for _, name := range l {
		rows = append(rows, []string{name})
	}
	return rows
}

func newKVPutCommand() *cobra.Command {
	var c connection
	var o putOptions
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|@FILE|-",
		Short: "Write a key's value, if the conditions hold",
		Long: "Writes a key. The value is the argument, the content of a file (@FILE) or standard input (-). If a\n" +
			"condition does not hold, nothing is written and the exit code is 1.",
		Example: "  rollcall kv put config/colour blue\n" +
			"  rollcall kv put config/app @app.yaml\n" +
			"  rollcall kv put config/colour green --cas 57\n" +
			"  rollcall kv put leader me --acquire 954b5e76-54d1-4c1f-9d0c-0c5b6f6a2d11\n" +
			"  rollcall kv put backup/last today --fence $ROLLCALL_FENCE --fence-lock $ROLLCALL_LOCK",
	}
	o.addFlags(cmd.Flags())
	return c.command(cmd, cobra.ExactArgs(2), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		w, err := o.write(cmd.Flags(), args[0])
		if err != nil {
			return nil, cli.Usage(err)
		}
		switch name, isFile := strings.CutPrefix(args[1], "@"); {
		case isFile:
			w.Value, err = os.ReadFile(name)
		case name == "-":
			w.Value, err = io.ReadAll(cmd.InOrStdin())
		default:
			w.Value = []byte(name)
		}
		if err != nil {
			return nil, err
		}
		done, err := cl.KV().Write(ctx, w)
		if err == nil && !done.OK {
			err = o.unwritten(args[0], done)
		}
		return keyDone{Done: o.word(), Key: args[0], Fence: done.Fence}, err
	})
}

// putOptions are the flags of put.
type putOptions struct {
	flags, cas, fence                   uint64
	acquire, release                    string
	fenceKey, fenceLock, fenceSemaphore string
}

func (o *putOptions) addFlags(f *pflag.FlagSet) {
	f.Uint64Var(&o.flags, "flags", 0, "a number that is stored with the key, for programs' own use")
	f.Uint64Var(&o.cas, "cas", 0, "write only if the key's index is this; 0: if there is no such key")
	f.StringVar(&o.acquire, "acquire", "", "a session, which becomes the holder unless another one holds the key")
	f.StringVar(&o.release, "release", "", "a session, which must be the holder and ceases to be it")
	f.Uint64Var(&o.fence, "fence", 0, "token of an acquisition that must still last: of this key, or of what the next flags name")
	f.StringVar(&o.fenceKey, "fence-key", "", "the key whose acquisition --fence means")
	f.StringVar(&o.fenceLock, "fence-lock", "", "the lock whose acquisition --fence means")
	f.StringVar(&o.fenceSemaphore, "fence-semaphore", "", "the semaphore whose acquisition --fence means")
}

// write returns what the flags ask for, without the value.
func (o *putOptions) write(f *pflag.FlagSet, key string) (client.Write, error) {
	w := client.Write{Key: key, Flags: o.flags, Acquire: o.acquire, Release: o.release}
	conditions := 0
	for _, name := range []string{"cas", "acquire", "release"} {
		if f.Changed(name) {
			conditions++
		}
	}
	if conditions > 1 {
		return w, errors.New("give one of --cas, --acquire and --release")
	}
	if f.Changed("cas") {
		w.CAS = &o.cas
	}
	fence, err := o.fenceOf(f, key)
	w.Fence = fence
	return w, err
}

// fenceOf returns the acquisition that must still last, or nil.
func (o *putOptions) fenceOf(f *pflag.FlagSet, key string) (*kv.Fence, error) {
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(o.fence)}
	names := 0
	for _, by := range []struct {
		flag, name string
		kind       kv.Kind
	}{{"fence-key", o.fenceKey, kv.Key}, {"fence-lock", o.fenceLock, kv.Lock}, {"fence-semaphore", o.fenceSemaphore, kv.Semaphore}} {
		if f.Changed(by.flag) {
			fence.Kind, fence.Name = by.kind, by.name
			names++
		}
	}
	switch given := f.Changed("fence"); {
	case names > 1:
		return nil, errors.New("give one of --fence-key, --fence-lock and --fence-semaphore")
	case names == 1 && !given:
		return nil, errors.New("--fence: is required: the token of the acquisition")
	case !given:
		return nil, nil
	}
	return fence, nil
}

// word names what a successful write has done.
func (o *putOptions) word() string {
	switch {
	case o.acquire != "":
		return "acquired"
	case o.release != "":
		return "released"
	}
	return "written"
}

// unwritten says why nothing was written, if that is known.
func (o *putOptions) unwritten(key string, w client.Written) error {
	switch {
	case o.fence != 0 && w.Fence != o.fence:
		return fmt.Errorf("%s was not written: the acquisition %d does not last any more", key, o.fence)
	case o.acquire != "":
		return fmt.Errorf("%s was not acquired: another session holds it, or its lock-delay is not over", key)
	case o.release != "":
		return fmt.Errorf("%s was not released: the session does not hold it", key)
	}
	return fmt.Errorf("%s was not written: its index is not %d", key, o.cas)
}

// keyDone is what was done to a key.
type keyDone struct {
	Done  string `json:"done"`
	Key   string `json:"key"`
	Fence uint64 `json:"fence,omitempty"` // token of the acquisition
}

func (d keyDone) Table() [][]string {
	row := []string{d.Done, d.Key}
	if d.Fence != 0 {
		row = append(row, strconv.FormatUint(d.Fence, 10))
	}
	return [][]string{row}
}

func newKVWatchCommand() *cobra.Command {
	var c connection
	var prefix bool
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Print a key as it is and then every change of it, or of all that begin with it, until Ctrl-C",
		Long: "Prints a line for the key as it is, and then one for every change, until Ctrl-C: when it came, what\n" +
			"it was, the key, its index and its value. Of changes in short order only the last may be printed.",
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
			return cl.KV().Watch(cmd.Context(), args[0], func(e *client.Pair) error {
				if e == nil {
					return p.tree(nil)
				}
				return p.tree([]client.Pair{*e})
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
	known   []client.Pair // by key
}

// tree prints the differences between the known state and the current one; both are in byte order.
func (p *keyPrinter) tree(now []client.Pair) error {
	old := p.known
	var errs error
	report := func(what string, e client.Pair) {
		if errs == nil {
			errs = p.print(what, e)
		}
	}
	for _, e := range now {
		for len(old) > 0 && old[0].Key < e.Key {
			report("deleted", client.Pair{Key: old[0].Key})
			old = old[1:]
		}
		before, existed := client.Pair{}, len(old) > 0 && old[0].Key == e.Key
		if existed {
			before, old = old[0], old[1:]
		}
		if !existed || before.ModifyIndex != e.ModifyIndex {
			report(p.change(before, e), e)
		}
	}
	for _, e := range old {
		report("deleted", client.Pair{Key: e.Key})
	}
	p.known, p.started = now, true
	return errs
}

// change says what happened to an existing key.
func (p *keyPrinter) change(before, now client.Pair) string {
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
	keyPair
}

func (p *keyPrinter) print(what string, e client.Pair) error {
	if p.form == cli.JSON {
		return cli.PrintLine(p.out, keyLine{what, newKeyPair(e)})
	}
	value := "-"
	if what != "deleted" {
		value = shortValue(bytes.TrimRight(e.Value, "\n"))
	}
	_, err := fmt.Fprintf(p.out, "%s  %-8s  %s  %s  %s\n", p.now().UTC().Format("2006-01-02T15:04:05.000Z"), what, cli.Printable(e.Key), cli.Printable(unlessZero(e.ModifyIndex)), cli.Printable(value))
	return err
}
