package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/backup"
)

func newSnapshotCommand() *cobra.Command {
	return cli.Group("snapshot", "Save the cluster's state to a file, look into it, restore it",
		newSnapshotSaveCommand(),
		newSnapshotInspectCommand(),
		newSnapshotDiffCommand(),
		newSnapshotRestoreCommand(),
	)
}

func newSnapshotSaveCommand() *cobra.Command {
	var c connection
	var stale bool
	cmd := &cobra.Command{
		Use:   "save FILE|-",
		Short: "Save the cluster's state to a file, and read it back",
		Long: "Saves instances, the catalog, keys, sessions, locks and semaphores: what the cluster had acknowledged when\n" +
			"the command began or, with --stale, what the server has, also without a leader. The file takes its name when\n" +
			"it was synced and read back; until then an older file of that name stays as it is. - writes to the standard\n" +
			"output, and what it says goes to the standard error.",
		Example: "  rollcall snapshot save rollcall.snap\n" +
			"  rollcall snapshot save - --stale > rollcall.snap",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			save := func(w io.Writer) error { return cl.SaveSnapshot(cmd.Context(), w, stale) }
			if args[0] != "-" {
				h, size, err := backup.SaveFile(args[0], save)
				if err != nil {
					return err
				}
				return c.out.Print(cmd.OutOrStdout(), saved{args[0], size, stateOf(h)})
			}
			var b bytes.Buffer
			if err := save(&b); err != nil {
				return err
			}
			h, _, err := backup.Verify(bytes.NewReader(b.Bytes()))
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(b.Bytes()); err != nil {
				return err
			}
			return c.out.Print(cmd.ErrOrStderr(), saved{"-", int64(b.Len()), stateOf(h)})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "save what the server has, also without a leader")
	return cmd
}

// saved is what snapshot save prints.
type saved struct {
	File  string            `json:"file"`
	Bytes int64             `json:"bytes"`
	State client.SavedState `json:"state"`
}

func (s saved) Table() [][]string {
	size := strconv.FormatFloat(float64(s.Bytes)/1e6, 'f', 1, 64) + " MB"
	return [][]string{{fmt.Sprintf("saved %s: %d instances, %d keys, %d sessions, index %s, %s, verified",
		s.File, s.State.Instances, s.State.Keys, s.State.Sessions, s.State.Index, size)}}
}

func stateOf(h backup.Header) client.SavedState {
	return client.SavedState{
		Level: int(h.Level), Mode: h.Mode, ClusterID: h.Cluster, Node: h.Node, Version: h.Version, Time: h.Wall,
		Index:     h.Epoch + "-" + strconv.FormatUint(uint64(h.Index), 10),
		Instances: h.Counts.Instances, Nodes: h.Counts.Nodes, Keys: h.Counts.Keys, Sessions: h.Counts.Sessions, Permits: h.Counts.Permits,
	}
}

// readSnapshot reads a file, or standard input for "-".
func readSnapshot(cmd *cobra.Command, name string) (backup.Contents, error) {
	var from io.Reader = cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return backup.Contents{}, err
		}
		defer f.Close()
		from = f
	}
	c, err := backup.Read(from)
	if err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func newSnapshotInspectCommand() *cobra.Command {
	var out cli.Output
	var keys string
	var apps bool
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Show what a snapshot has, without a cluster",
		Example: "  rollcall snapshot inspect rollcall.snap\n" +
			"  rollcall snapshot inspect rollcall.snap --apps\n" +
			"  rollcall snapshot inspect rollcall.snap --keys config/ -o json",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Validate(); err != nil {
				return cli.Usage(err)
			}
			c, err := readSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			found := inspected{State: stateOf(c.Header)}
			if apps {
				found.Apps = appsOf(c.Instances)
			}
			if cmd.Flags().Changed("keys") {
				found.Keys = []keyPair{}
				for _, p := range c.Pairs {
					if strings.HasPrefix(p.Key, keys) {
						found.Keys = append(found.Keys, keyPair{Key: p.Key, Value: append([]byte{}, p.Value...), Flags: p.Flags, Session: p.Session,
							LockIndex: p.LockIndex, CreateIndex: uint64(p.CreateIndex), ModifyIndex: uint64(p.ModifyIndex)})
					}
				}
			}
			return out.Print(cmd.OutOrStdout(), found)
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().StringVar(&keys, "keys", "", "show the keys that begin with this, too")
	cmd.Flags().BoolVar(&apps, "apps", false, "show how many instances each application has, by status, too")
	return cmd
}

// inspected is what snapshot inspect shows.
type inspected struct {
	State client.SavedState `json:"state"`
	Apps  []savedApp        `json:"apps,omitempty"`
	Keys  []keyPair         `json:"keys,omitempty"`
}

// savedApp is an application in a snapshot.
type savedApp struct {
	App       string         `json:"app"`
	Instances int            `json:"instances"`
	ByStatus  map[string]int `json:"by_status"`
}

func appsOf(instances []registry.Saved) (apps []savedApp) {
	for _, in := range instances {
		if n := len(apps); n == 0 || apps[n-1].App != in.Instance.App {
			apps = append(apps, savedApp{App: in.Instance.App, ByStatus: map[string]int{}})
		}
		app := &apps[len(apps)-1]
		app.Instances++
		app.ByStatus[cmp.Or(in.Overridden, in.Instance.Status).String()]++
	}
	return apps
}

func (i inspected) Table() [][]string {
	s := i.State
	rows := [][]string{
		{"CLUSTER", "MODE", "NODE", "VERSION", "LEVEL", "TIME", "INDEX", "INSTANCES", "NODES", "KEYS", "SESSIONS", "LOCKS"},
		{s.ClusterID, s.Mode, s.Node, s.Version, strconv.Itoa(s.Level), time.UnixMilli(s.Time).UTC().Format(time.RFC3339), s.Index, strconv.Itoa(s.Instances),
			strconv.Itoa(s.Nodes), strconv.Itoa(s.Keys), strconv.Itoa(s.Sessions), strconv.Itoa(s.Permits)},
	}
	if i.Apps != nil {
		rows = append(rows, nil, []string{"APP", "INSTANCES", "STATUS"})
		for _, app := range i.Apps {
			var by []string
			for status, n := range app.ByStatus {
				by = append(by, fmt.Sprintf("%s:%d", status, n))
			}
			slices.Sort(by)
			rows = append(rows, []string{app.App, strconv.Itoa(app.Instances), strings.Join(by, " ")})
		}
	}
	if i.Keys != nil {
		rows = append(rows, nil, []string{"KEY", "FLAGS", "INDEX", "SESSION", "VALUE"})
		for _, k := range i.Keys {
			rows = append(rows, []string{k.Key, number(k.Flags), number(k.ModifyIndex), k.Session, shortValue(k.Value)})
		}
	}
	return rows
}

func newSnapshotDiffCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "diff FILE [OTHER]",
		Short: "Show what differs between a snapshot and another one, or a cluster",
		Long: "Shows what is in OTHER or, without it, in the cluster and not in FILE (+), what is gone (-), and what differs\n" +
			"(~). Renewals, indexes and times are no difference.",
		Example: "  rollcall snapshot diff monday.snap tuesday.snap\n" +
			"  rollcall snapshot diff monday.snap --addr http://n1:8761",
	}
	ask := func(_ context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		if len(args) == 2 && c.addr != "" {
			return nil, cli.Usage(errors.New("give OTHER or --addr, and not both"))
		}
		first, err := readSnapshot(cmd, args[0])
		if err != nil {
			return nil, err
		}
		second, err := otherSnapshot(cmd, cl, args[1:])
		if err != nil {
			return nil, err
		}
		return differencesOf(backup.Diff(&first.Image, &second.Image)), nil
	}
	return c.command(cmd, cobra.RangeArgs(1, 2), ask)
}

// otherSnapshot returns the snapshot in a file or, if none is named, of a cluster.
func otherSnapshot(cmd *cobra.Command, cl *client.Client, name []string) (backup.Contents, error) {
	if len(name) > 0 {
		return readSnapshot(cmd, name[0])
	}
	var b bytes.Buffer
	if err := cl.SaveSnapshot(cmd.Context(), &b, false); err != nil {
		return backup.Contents{}, err
	}
	return backup.Read(&b)
}

// differences is what snapshot diff shows.
type differences []difference

// difference is one record that differs.
type difference struct {
	Change string `json:"change"` // +, - or ~
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

func differencesOf(all backup.Differences) differences {
	found := differences{}
	for _, kind := range []struct {
		name string
		backup.Difference
	}{
		{"instance", all.Instances}, {"node", all.Nodes}, {"key", all.Keys}, {"session", all.Sessions}, {"held", all.Permits},
		{"role", all.Roles}, {"token", all.Tokens}, {"revoked", all.Revoked}, {"setting", all.AuthMode},
	} {
		for change, names := range map[string][]string{"+": kind.Added, "-": kind.Removed, "~": kind.Changed} {
			for _, name := range names {
				found = append(found, difference{change, kind.name, name})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) < 0
	})
	return found
}

func (d differences) Table() [][]string {
	if len(d) == 0 {
		return [][]string{{"no difference"}}
	}
	return cli.Rows(d, []string{"CHANGE", "KIND", "NAME"}, func(one difference) []string {
		return []string{one.Change, one.Kind, one.Name}
	})
}

func newSnapshotRestoreCommand() *cobra.Command {
	var c connection
	var o client.RestoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Restore the cluster's state from a snapshot",
		Long: "Restores the state of a snapshot as one change for everybody. What is registered now stays; an instance that\n" +
			"is only in the file comes back with one full lease. Keys become those of the file. Sessions end, unless\n" +
			"--keep-sessions says otherwise. With --keys-only nothing but the keys that begin with --prefix is touched.\n" +
			"--dry-run says what would be done, and does nothing. Without --dry-run a --reason is required.",
		Example: "  rollcall snapshot restore rollcall.snap --dry-run\n" +
			"  rollcall snapshot restore rollcall.snap --reason \"config/ was deleted\" --keys-only --prefix config/",
	}
	f := cmd.Flags()
	f.StringVar(&o.By.Reason, "reason", "", "why, which is kept with what is restored")
	f.StringVar(&o.By.Author, "author", "", "who restores (default: this host's address, as the server sees it)")
	f.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	f.BoolVar(&o.KeysOnly, "keys-only", false, "restore keys alone")
	f.StringVar(&o.Prefix, "prefix", "", "of the keys, those that begin with this")
	f.BoolVar(&o.KeepSessions, "keep-sessions", false, "let sessions go on, with what they hold")
	f.BoolVar(&o.WithAuth, "with-auth", false, "restore roles, tokens and the mode of access control, too; what was revoked stays so")
	f.BoolVar(&o.AnotherCluster, "another-cluster", false, "the snapshot may be of another cluster")
	return c.command(cmd, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		switch {
		case o.Prefix != "" && !o.KeysOnly:
			return nil, cli.Usage(errors.New("--prefix goes with --keys-only: nothing but keys has a prefix"))
		case o.By.Reason == "" && !o.DryRun:
			return nil, cli.Usage(errors.New("a restore changes the whole cluster: say why by --reason, or look first by --dry-run"))
		}
		read := func() ([]byte, error) { return os.ReadFile(filepath.Clean(args[0])) }
		if args[0] == "-" {
			read = func() ([]byte, error) { return io.ReadAll(cmd.InOrStdin()) }
		}
		b, err := read()
		if err == nil {
			_, err = backup.Open(bytes.NewReader(b))
		}
		if err != nil {
			return nil, err
		}
		done, err := cl.Restore(ctx, b, o)
		return restored(done), err
	})
}

// restored is what snapshot restore prints.
type restored client.Restored

func (r restored) Table() [][]string {
	verb := func(done, would string) string {
		if r.DryRun {
			return would
		}
		return done
	}
	rows := [][]string{
		{verb("RESTORED", "WOULD BE"), "NUMBER"},
		{"instances that " + verb("came back", "come back"), strconv.Itoa(r.Instances)},
		{"instances that " + verb("stayed", "stay") + " as they are now", strconv.Itoa(r.InstancesStayed)},
		{"keys written", strconv.Itoa(r.Keys)},
		{"keys deleted", strconv.Itoa(r.KeysDeleted)},
		{"sessions ended", strconv.Itoa(r.SessionsEnded)},
	}
	if r.Roles+r.Tokens > 0 {
		rows = append(rows, []string{"roles that came back", strconv.Itoa(r.Roles)}, []string{"tokens that came back", strconv.Itoa(r.Tokens)})
	}
	if r.Plan == nil {
		return rows
	}
	var changes [][]string
	for _, list := range []struct {
		change, kind string
		names        []string
	}{{"+", "instance", r.Plan.Instances}, {"+", "node", r.Plan.Nodes}, {"+", "key", r.Plan.KeysWritten}, {"-", "key", r.Plan.KeysDeleted}, {"-", "session", r.Plan.SessionsEnded}} {
		for _, name := range list.names {
			changes = append(changes, []string{list.change, list.kind, name})
		}
	}
	switch {
	case changes != nil:
		rows = append(append(rows, nil, []string{"CHANGE", "KIND", "NAME"}), changes...)
	case r.Roles+r.Tokens == 0:
		rows = append(rows, nil, []string{"nothing would change"})
	}
	return rows
}
