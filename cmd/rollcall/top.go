package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/top"
)

// shortestInterval keeps top from becoming a load.
const shortestInterval = 200 * time.Millisecond

func newTopCommand() *cobra.Command {
	var c connection
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the overview of the cluster in the terminal, live",
		Long: "Shows how the cluster is in one sentence, its nodes, peers and applications, what needs attention, and\n" +
			"the last changes as they come, until q. / filters the applications, the arrow keys scroll them, and ?\n" +
			"lists the keys. If standard output is no terminal, it prints one frame as text.",
		Example: "  rollcall top\n" +
			"  rollcall top --addr http://10.0.0.1:8761,http://10.0.0.2:8761 --interval 5s\n" +
			"  rollcall top | cat",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < shortestInterval {
				return cli.Usage(fmt.Errorf("--interval: %v is shorter than %v", interval, shortestInterval))
			}
			overview := top.Config{Servers: c.servers(os.Getenv(cli.AddrEnv)), Interval: interval, Open: c.some}
			out := cmd.OutOrStdout()
			if !isTerminal(out) {
				return top.Print(cmd.Context(), overview, out)
			}
			return top.Show(cmd.Context(), overview)
		},
	}
	c.addServerFlags(cmd.Flags())
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two questions, at least 200ms")
	return cmd
}

// isTerminal reports whether a person reads what is written there.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// some returns a client for some of the servers, which return what they have in memory: an overview needs no leader.
func (c connection) some(servers []string, log *slog.Logger) (*client.Client, error) {
	c.addr, c.consistency = strings.Join(servers, ","), "stale"
	return c.client(log)
}
