package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func newUpgradeCommand() *cobra.Command {
	return cli.Group("upgrade", "Show which versions the nodes run, and end an upgrade (docs/run/upgrade.md)", newUpgradeStatusCommand(), newUpgradeFinalizeCommand())
}

func newUpgradeStatusCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "status",
		Short:   "Show which levels of the formats the nodes read, and which the cluster writes",
		Example: "  rollcall upgrade status\n  rollcall upgrade status -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		u, err := cl.Upgrade(ctx)
		return upgradeStatus{u}, err
	})
}

func newUpgradeFinalizeCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:   "finalize",
		Short: "Have the cluster write the formats of the newest version that all nodes run",
		Long: "Has the cluster write the next level of the formats, which all nodes must have read for 30 s. The version\n" +
			"before can no longer be started on the data directories then.",
		Example: "  rollcall upgrade finalize",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		u, err := cl.FinalizeUpgrade(ctx)
		return upgradeStatus{u}, err
	})
}

// upgradeStatus says where a cluster stands between two levels: a sentence, the nodes, and what waits.
type upgradeStatus struct{ client.Upgrade }

func (u upgradeStatus) Table() [][]string {
	rows := [][]string{{u.sentence()}, {}, {"NODE", "VERSION", "READS", "SINCE", "WRITES"}}
	for _, n := range u.Nodes {
		if n.Newest == 0 {
			rows = append(rows, []string{n.ID, "unknown", "", "", ""})
			continue
		}
		since := time.UnixMilli(n.Since).UTC().Format(time.RFC3339)
		rows = append(rows, []string{n.ID, n.Version, fmt.Sprintf("%d-%d", n.Oldest, n.Newest), since, strconv.Itoa(n.Writes)})
	}
	if len(u.Waiting) > 0 {
		rows = append(rows, []string{}, []string{"LEVEL", "FROM VERSION", "WAITING FOR IT"})
	}
	for _, w := range u.Waiting {
		rows = append(rows, []string{strconv.Itoa(w.Level), w.Version, w.Brings})
	}
	return rows
}

// sentence says which level is written, and what the next one waits for.
func (u upgradeStatus) sentence() string {
	switch {
	case u.Next == 0:
		return fmt.Sprintf("The cluster writes level %d, the newest.", u.Level)
	case u.Lacking != "":
		return fmt.Sprintf("The cluster writes level %d. Level %d waits: %s.", u.Level, u.Next, u.Lacking)
	case u.Due == 0:
		return fmt.Sprintf("The cluster writes level %d, and could write %d: rollcall upgrade finalize.", u.Level, u.Next)
	}
	return fmt.Sprintf("The cluster writes level %d, and will write %d at %s, or after rollcall upgrade finalize.", u.Level, u.Next, time.UnixMilli(u.Due).UTC().Format(time.RFC3339))
}
