package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// verifyAgain is the pause before asking again whether the nodes can be compared.
const verifyAgain = time.Second

func newVerifyCommand() *cobra.Command {
	var c connection
	var patience time.Duration
	cmd := c.command(&cobra.Command{
		Use:   "verify",
		Short: "Compare the states of all nodes",
		Long: "Compares digests of the states of all nodes, which each node makes of its own once a minute, all after the\n" +
			"same log entry. The exit code is 0 if all are equal, and 1 if one differs or cannot be compared.",
		Example: "  rollcall verify\n  rollcall verify --wait 0 -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := verifyWithin(ctx, cl, patience)
		if err == nil && found.Verdict != "equal" {
			err = cli.ExitStatus{Code: cli.ExitError}
		}
		return verification{found}, err
	})
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait for nodes that have no digest yet")
	return cmd
}

// verifyWithin asks until all nodes were compared, or a difference was found, but not for longer than patience.
func verifyWithin(ctx context.Context, cl *client.Client, patience time.Duration) (client.Verification, error) {
	until := time.Now().Add(patience)
	for {
		v, err := cl.Verify(ctx)
		if err != nil || v.Verdict != "undecided" || !time.Now().Before(until) {
			return v, err
		}
		if !wait.For(ctx, verifyAgain) {
			return v, ctx.Err()
		}
	}
}

// verification shows a comparison as a table of nodes, with the verdict below.
type verification struct{ client.Verification }

func (v verification) Table() [][]string {
	rows := [][]string{{"NODE", "INDEX", "DIGEST", ""}}
	for _, n := range v.Nodes {
		rows = append(rows, []string{n.ID, unlessZero(n.Index), cmp.Or(n.Digest, "-"), n.Sentence})
	}
	return append(rows, nil, []string{v.Sentence})
}
