package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
)

// newAuthHash returns the command that makes tokens for auth.file, and for auth.bootstrap-token-file. It calls no
// server.
func newAuthHash() *cobra.Command {
	var o hashOptions
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "Make a token for auth.file: its line, which has but a hash, and its text",
		Long: "Makes a token for auth.file, and calls no server. The line for the list of tokens goes to standard output; the text,\n" +
			"which clients present, to --out or, once, to standard error. With --from the line is for a text that was made\n" +
			"before. With --accessor it is another text of a token that there is: keep both of its hashes in the file until\n" +
			"every client has the new one.",
		Example: "  rollcall auth hash --name orders --role service --app ORDERS --out orders.token >> auth.yaml\n" +
			"  rollcall auth hash --name operator --out bootstrap.token",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "the principal, which the audit names")
	f.StringArrayVar(&o.roles, "role", nil, "a role of the file; may be given again")
	f.StringVar(&o.app, "app", "", "what stands for {app} in the rules of the roles")
	f.DurationVar(&o.expires, "expires", 0, "after which time the token ends, such as 720h; 0: never")
	f.StringVar(&o.accessor, "accessor", "", "of the token that there is")
	f.StringVar(&o.from, "from", "", "file with the text of a token; -: standard input")
	f.StringVar(&o.out, "out", "", "file that is written with the text, for its owner alone; it must not be there")
	return cmd
}

type hashOptions struct {
	name, app, accessor, from, out string
	roles                          []string
	expires                        time.Duration
}

func (o *hashOptions) run(cmd *cobra.Command) error {
	switch {
	case o.name == "":
		return cli.Usage(errors.New("give --name: the principal, which the audit names"))
	case o.from != "" && (o.out != "" || o.accessor != ""):
		return cli.Usage(errors.New("--from has the text already: it goes with neither --out nor --accessor"))
	case o.accessor != "" && !access.IsAccessor(o.accessor):
		return cli.Usage(errors.New("--accessor: that is the second part of a token's text, rct_ACCESSOR_SECRET_CHECK"))
	case o.expires < 0:
		return cli.Usage(errors.New("--expires must be a duration above 0s, like 720h"))
	}
	text, err := o.text(cmd.InOrStdin())
	if err != nil {
		return err
	}
	k, err := config.TokenOf(text)
	if err != nil {
		return err
	}
	k.Name, k.Roles, k.App = o.name, o.roles, o.app
	if o.expires > 0 {
		k.Expires = time.Now().Add(o.expires).UnixMilli()
	}
	if err := k.Validate(); err != nil {
		return cli.Usage(err)
	}
	item, err := config.TokenItem(k)
	if err == nil {
		err = o.give(cmd.ErrOrStderr(), text)
	}
	if err == nil {
		_, err = cmd.OutOrStdout().Write(item)
	}
	return err
}

// text returns the text of --from, or a new one.
func (o *hashOptions) text(stdin io.Reader) (string, error) {
	if o.from == "" {
		return config.NewTokenText(o.accessor), nil
	}
	read := func() ([]byte, error) { return os.ReadFile(o.from) }
	if o.from == "-" {
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(stdin, 1024)) }
	}
	text, err := read()
	return strings.TrimSpace(string(text)), err
}

// give hands out a new text, once.
func (o *hashOptions) give(stderr io.Writer, text string) error {
	switch {
	case o.from != "":
		return nil
	case o.out == "":
		_, err := fmt.Fprintf(stderr, "the token, which is shown this once: %s\n", text)
		return err
	}
	out, err := openSecret(o.out, nil)
	if err != nil {
		return err
	}
	return out.write(text + "\n")
}
