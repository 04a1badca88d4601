package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/node"
	"github.com/seed-20419f34/rollcall/store"
)

func newRecoverCommand() *cobra.Command {
	var out cli.Output
	var dir string
	var convert string
	var skip uint64
	var members map[string]string
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Go on with one node's data directory, when the majority of the nodes is lost for good",
		Long: "Makes a stopped node's data directory that of a cluster of this node alone, with all that the node had\n" +
			"stored. What the other nodes had acknowledged beyond that is lost. --members names this node and those that\n" +
			"will join it: the command refuses while a majority of them, or of the cluster as the directory knows it,\n" +
			"answers. The directory as it was stays beside the new one.\n" +
			"Afterwards start this node, give the others empty data directories, and start them: they join again. Nodes that\n" +
			"are started with their old directories stop as soon as they meet this one.\n" +
			"With --convert-log it makes the log of a stopped node's data directory one of the other kind (raft.log), with the\n" +
			"same entries, term and vote, and recovers nothing. If it is interrupted, the log is what it was.\n" +
			"With --skip-entry it has a stopped node pass over one entry of its log, and recovers nothing: for an entry that\n" +
			"panics, at which every node stops (docs/run/node-died.md). Do the same on every node, then start them: nodes that\n" +
			"skip other entries refuse each other. What the entry was to do is lost, and an entry is skipped for good.",
		Example: "  rollcall recover --data-dir /var/lib/rollcall --members n1=10.0.0.1:7761,n3=10.0.0.3:7761\n" +
			"  rollcall recover --data-dir /var/lib/rollcall --convert-log wal\n" +
			"  rollcall recover --data-dir /var/lib/rollcall --skip-entry 4711",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Validate(); err != nil {
				return cli.Usage(err)
			}
			skips := cmd.Flags().Changed("skip-entry")
			given := slices.DeleteFunc([]bool{len(members) > 0, convert != "", skips}, func(is bool) bool { return !is })
			if dir == "" || len(given) != 1 {
				return cli.Usage(errors.New("give --data-dir, and one of --members, --convert-log and --skip-entry"))
			}
			if skips {
				return skipEntry(dir, skip, out, cmd.OutOrStdout())
			}
			if convert != "" {
				return convertLog(dir, convert, out, cmd.OutOrStdout())
			}
			for name, address := range members {
				if _, _, err := net.SplitHostPort(address); err != nil {
					return cli.Usage(fmt.Errorf("--members: %s=%s: want NAME=HOST:PORT: %w", name, address, err))
				}
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			return recoverCluster(cmd.Context(), dir, members, log, out, cmd.OutOrStdout())
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().StringVar(&dir, "data-dir", "", "the data directory of a node that does not run")
	cmd.Flags().StringToStringVar(&members, "members", nil, "this node and those that will join it, with their node-to-node addresses: n1=HOST:PORT,n3=HOST:PORT")
	cmd.Flags().StringVar(&convert, "convert-log", "", "what is to hold the log of the data directory: bolt or wal")
	cmd.Flags().Uint64Var(&skip, "skip-entry", 0, "the log entry to pass over without an effect: the index that the node's last line names")
	return cmd
}

// recoverCluster makes a cluster go on with one data directory.
func recoverCluster(ctx context.Context, dir string, members map[string]string, log *slog.Logger, out cli.Output, w io.Writer) error {
	done, err := node.Recover(ctx, dir, members, log)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return out.Print(w, recovered{
		Node: done.Node, ClusterID: done.Cluster, Entry: done.Entry, Before: uint64(done.Before), Index: uint64(done.Index),
		Instances: done.Instances, Keys: done.Keys, Others: append([]string{}, done.Others...), Old: done.Old,
	})
}

// skipEntry makes a node skip a log entry.
func skipEntry(dir string, entry uint64, out cli.Output, w io.Writer) error {
	if entry == 0 {
		return cli.Usage(errors.New("--skip-entry: 0 is not a log entry: give the index that the node's last line names"))
	}
	done, err := node.SkipEntry(dir, entry)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return out.Print(w, skippedEntry{done})
}

// skippedEntry is what recover --skip-entry prints.
type skippedEntry struct{ node.SkippedEntry }

func (s skippedEntry) Table() [][]string {
	rows := [][]string{{fmt.Sprintf("%s skips log entry %d from now on; it skips %v", s.Node, s.Entry, s.Skipped)}}
	for _, op := range s.Operations {
		rows = append(rows, []string{"without an effect: " + op})
	}
	return append(rows, []string{"now do the same on every other node of the cluster, then start them: nodes that skip other entries refuse each other"})
}

// convertLog converts the log of a data directory to another kind.
func convertLog(dir, to string, out cli.Output, w io.Writer) error {
	if to != string(store.LogBolt) && to != string(store.LogWAL) {
		return cli.Usage(fmt.Errorf("--convert-log: %q is neither %s nor %s", to, store.LogBolt, store.LogWAL))
	}
	entries, err := node.ConvertLog(dir, store.RaftLog(to))
	if err != nil {
		return err
	}
	return out.Print(w, converted{Log: to, Entries: entries})
}

// converted is what recover --convert-log prints.
type converted struct {
	Log     string `json:"log"`
	Entries uint64 `json:"entries"` // entries in the log
}

func (c converted) Table() [][]string {
	return [][]string{{fmt.Sprintf("the log is in %s now, with %d entries: start the node with raft.log %[1]s", c.Log, c.Entries)}}
}

// recovered is what recover prints.
type recovered struct {
	Node      string   `json:"node"`
	ClusterID string   `json:"cluster_id"`
	Entry     uint64   `json:"entry"`  // the last log entry in the directory
	Before    uint64   `json:"before"` // the index until now
	Index     uint64   `json:"index"`  // the index from which it goes on
	Instances int      `json:"instances"`
	Keys      int      `json:"keys"`
	Others    []string `json:"others"` // in the old cluster
	Old       string   `json:"old"`    // where the old directory was moved
}

func (r recovered) Table() [][]string {
	return [][]string{
		{fmt.Sprintf("recovered %s of cluster %s: %d instances, %d keys, up to index %s-%d (log entry %d)", r.Node, r.ClusterID, r.Instances, r.Keys, r.ClusterID, r.Before, r.Entry)},
		{fmt.Sprintf("what %s had after %d is lost; the index goes on from %d", cmp.Or(enumerate(r.Others, "and"), "no other node"), r.Before, r.Index)},
		{"the directory as it was: " + r.Old},
		{"now start " + r.Node + ", and the others with empty data directories; never start them with their old ones"},
	}
}
