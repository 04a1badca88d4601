package main

import (
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/node"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

func newServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run one node",
		Long: "Runs one node until SIGTERM or Ctrl-C. Every flag but --config is a key of the file with dashes\n" +
			"for dots, and an environment variable too; docs/reference/settings.md lists them. Order: flag,\n" +
			"environment, file, default. After SIGHUP the node reads them again, applies those that the page\n" +
			"marks so, and logs which changed and which need a restart.",
		Example: "  rollcall server --data-dir /var/lib/rollcall\n" +
			"  rollcall server --config /etc/rollcall.yaml",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (config.Loaded, error) { return config.Load(config.FromProcess(cmd.Flags())) }
			s, err := load()
			if err != nil {
				return cli.Usage(err)
			}
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			queue := node.NewLogQueue(cmd.ErrOrStderr())
			defer queue.Flush(node.FlushLimit)
			level := node.NewLogLevel(s.LogLevel)
			stdlog.SetOutput(queue) // for libraries that use only this log
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP) // which would end the process
			defer signal.Stop(hangups)
			return node.Run(ctx, node.Options{
				Config: s.Config, Load: load, Version: version, Log: node.NewLog(queue, level, s.LogFormat), Level: level, Metrics: queue.Dropped,
				Settings: func(w io.Writer) error { return s.Write(w, true) }, LogTail: queue.Tail, Hangups: hangups,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
