// Command rollcall is the registry's one binary: the server, a local cluster for development, and the operator's
// commands. The commands are clients of a cluster; cmd/internal/node assembles a server from the packages.
// docs/reference/cli.md shows every command and docs/reference/settings.md every setting.
//
//	main.go, server.go, dev.go, config.go         the program, and the commands about servers on this machine
//	status.go, verify.go, upgrade.go, debug.go    the cluster, and what support asks of a node
//	overview.go                                   the cluster again and again, by status --watch
//	auth.go, token.go, audit.go                   who may do what, and who did
//	tls.go                                        certificates of further nodes and clients
//	peers.go, selfpreservation.go                 its peers, and whether it withholds evictions
//	instance.go, register.go, ls.go, watch.go     instances: acts on one, registration, lists and changes
//	kv.go, session.go, lock.go, child.go          keys, sessions, and commands that run while something is held
//	connect.go, arguments.go, cells.go            what commands share: the client, arguments, flags, cells of tables
//	completion.go, tree.go                        what shells complete, and what man pages are made from
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := newRootCommand().ExecuteContext(ctx)
	last := node.NewLogQueue(os.Stderr) // which may block without keeping the process from ending
	code := cli.ExitCode(last, "rollcall", err)
	last.Flush(node.FlushLimit)
	os.Exit(code)
}

func newRootCommand() *cobra.Command {
	root := cli.Root("rollcall", "A service registry that speaks Eureka's protocol and agrees by Raft",
		newServerCommand(),
		newDevCommand(),
		newStatusCommand(),
		newVerifyCommand(),
		newLsCommand(),
		newRegisterCommand(),
		newCancelCommand(),
		newOverrideCommand(),
		newQuarantineCommand(),
		newDrainCommand(),
		newWatchCommand(),
		newExplainCommand(),
		newEventsCommand(),
		newSelfPreservationCommand(),
		newSnapshotCommand(),
		newRecoverCommand(),
		newMembersCommand(),
		newAuthCommand(),
		newRoleCommand(),
		newTokenCommand(),
		newAuditCommand(),
		newTLSCommand(),
		newPeersCommand(),
		newUpgradeCommand(),
		newPruneCommand(),
		newKVCommand(),
		newSessionCommand(),
		newLockCommand(),
		newSemaphoreCommand(),
		newConfigCommand(),
		newDebugCommand(),
		newGoneCommand("bench", "the benchmarks are a program of their own: rollcall-bench, which make build puts beside this one"),
		newGoneCommand("top", "rollcall top was removed: rollcall status --watch shows the cluster, and rollcall watch its changes"),
		newTreeCommand(),
		newVersionCommand(),
	)
	root.PersistentPreRunE = warnOfSecret
	addCompletions(root)
	return root
}

// version is set by the linker (Makefile).
var version = "unknown"

func newVersionCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the program's version",
		Example: "  rollcall version -o json",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Validate(); err != nil {
				return cli.Usage(err)
			}
			return out.Print(cmd.OutOrStdout(), build{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
		},
	}
	out.AddFlag(cmd)
	return cmd
}

// build is the program's version and what built it.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (b build) Table() [][]string { return [][]string{{"rollcall", b.Version, b.Go, b.Platform}} }

// newGoneCommand stands for a command that was removed. Its error says what to use instead.
func newGoneCommand(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Say what to use instead of this command, which was removed",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usage(errors.New(instead))
		},
	}
}
