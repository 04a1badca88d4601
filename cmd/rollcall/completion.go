package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// candidates returns the possible names for an argument that was partly typed.
type candidates func(ctx context.Context, cl *client.Client, typed string) ([]string, error)

// completed has the commands whose first argument shells complete by asking the cluster. A command is its path
// without the program's name.
var completed = []struct {
	names    candidates
	commands []string
}{
	{applications, []string{"ls", "register", "watch"}},
	{instances, []string{"cancel", "drain", "explain", "override", "quarantine"}},
	{members, []string{"members remove", "members transfer"}},
	{peers, []string{"peers diff", "peers pause", "peers repair", "peers resume"}},
	{senders, []string{"peers forget"}},
	{listed((*client.Client).Sessions, func(s client.Session) string { return s.ID }), []string{"session destroy", "session renew"}},
	{listed((*client.Client).Locks, permitsName), []string{"lock"}},
	{listed((*client.Client).Semaphores, permitsName), []string{"semaphore"}},
	{keys, []string{"kv del", "kv get", "kv ls", "kv put", "kv watch"}},
	{listed((*client.Client).Roles, func(r client.Role) string { return r.Name }), []string{"role delete", "role get", "role put"}},
	{listed((*client.Client).Tokens, func(t client.Token) string { return t.Accessor }), []string{"auth test", "token revoke", "token rotate"}},
}

// addCompletions adds completion to the commands of the table.
func addCompletions(root *cobra.Command) {
	for _, row := range completed {
		for _, path := range row.commands {
			cmd, _, err := root.Find(strings.Fields(path))
			if err != nil {
				panic(err) // the table names a command that does not exist
			}
			cmd.ValidArgsFunction = complete(row.names)
		}
	}
}

// completionLimit is the longest that a shell waits for names.
const completionLimit = time.Second

// complete answers a shell. If the cluster cannot be asked there are no names: a shell in the middle of a line has no
// place for errors.
func complete(names candidates) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch further := len(args) > 0; {
		case further && (strings.Contains(cmd.Use, "COMMAND") || strings.Contains(cmd.Use, "FILE")):
			return nil, cobra.ShellCompDirectiveDefault
		case further:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		c := connectionOf(cmd)
		cl, err := c.client(nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, err := names(ctx, cl, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		offered := slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, typed) || !oneWord.MatchString(name) })
		slices.Sort(offered)
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(offered, func(name string) bool { return strings.HasSuffix(name, "/") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // the name goes on
		}
		return slices.Compact(offered), directive
	}
}

// oneWord matches a name that every shell reads as one word, unchanged. Other names are not offered: services name
// themselves, and no name may become part of an operator's command line and do something there.
var oneWord = regexp.MustCompile(`^[\pL\pN_][\pL\pN_./:@%+=,-]*$`)

// connectionOf returns the connection that the flags of a command line describe. It reads what a server has in
// memory, which is quick and needs no leader.
func connectionOf(cmd *cobra.Command) *connection {
	c := &connection{consistency: "stale"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.addServerFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flags().Lookup(f.Name); given != nil {
			_ = f.Value.Set(given.Value.String()) // they are texts, and every text is valid
		}
	})
	return c
}

func applications(ctx context.Context, cl *client.Client, typed string) ([]string, error) {
	all, err := cl.List(ctx, "")
	lower := typed != strings.ToUpper(typed) // as typed, because shells compare letter by letter
	return namesOf(all, err, func(i client.Instance) string {
		if lower {
			return strings.ToLower(i.App)
		}
		return i.App
	})
}

// instances returns APP/ once for each application, and APP/ID for the application that was typed.
func instances(ctx context.Context, cl *client.Client, typed string) ([]string, error) {
	app, _, ok := strings.Cut(typed, "/")
	if !ok {
		apps, err := applications(ctx, cl, typed)
		return namesOf(apps, err, func(app string) string { return app + "/" })
	}
	all, err := cl.List(ctx, app)
	if hidden, hiddenErr := cl.Quarantined(ctx, app); hiddenErr == nil {
		all = append(all, hidden...)
	}
	return namesOf(all, err, func(i client.Instance) string { return registry.Key{App: app, ID: i.ID}.String() })
}

func members(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
	status, err := cl.Status(ctx)
	return namesOf(status.Nodes, err, func(n client.NodeStatus) string { return n.ID })
}

func peers(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
	found, err := cl.Peers(ctx)
	return namesOf(found.Peers, err, func(p client.Peer) string { return p.Name })
}

func senders(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
	found, err := cl.Peers(ctx)
	return namesOf(found.Senders, err, func(s client.PeerSender) string { return s.Sender })
}

// keys returns those that begin with what was typed, up to the next slash.
func keys(ctx context.Context, cl *client.Client, typed string) ([]string, error) {
	return cl.KV().Keys(ctx, typed, "/")
}

// listed returns the names of what a method of the client lists.
func listed[T any](list func(*client.Client, context.Context) ([]T, error), name func(T) string) candidates {
	return func(ctx context.Context, cl *client.Client, _ string) ([]string, error) {
		all, err := list(cl, ctx)
		return namesOf(all, err, name)
	}
}

func permitsName(p client.Permits) string { return p.Name }

// namesOf returns the names of all, if they could be read.
func namesOf[T any](all []T, err error, name func(T) string) (names []string, _ error) {
	for _, one := range all {
		names = append(names, name(one))
	}
	return names, err
}
