package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func newDebugCommand() *cobra.Command {
	return cli.Group("debug", "Collect what helps to see what is wrong", newDebugBundleCommand())
}

func newDebugBundleCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Write what a node can say about itself into a tar.gz file",
		Long: "Writes what a node can say about itself into a tar.gz file: its version, its settings without secrets, the\n" +
			"cluster's status, its metrics twice, its goroutines, a heap profile, and the last lines of its log. An existing file\n" +
			"is left alone. The default name has the time.",
		Example: "  rollcall debug bundle --addr http://127.0.0.1:8762\n  rollcall debug bundle n2.tar.gz --addr http://127.0.0.1:8762",
	}, cobra.MaximumNArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		file := cmp.Or(firstOf(args), fmt.Sprintf("rollcall-debug-%s.tar.gz", time.Now().UTC().Format("20060102T150405Z")))
		content, err := cl.DebugBundle(ctx)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(content)
		return bundled{file, len(content)}, errors.Join(err, f.Close())
	})
}

// bundled is a file that was written.
type bundled struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

func (b bundled) Table() [][]string {
	return [][]string{{"written", b.File, fmt.Sprint(b.Bytes, " bytes")}}
}
