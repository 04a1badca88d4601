package main

import (
	"cmp"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// operator is the flags of commands whose author the cluster remembers.
type operator struct{ author, reason string }

func (o *operator) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.author, "author", "", "who does it (default: USER@HOST)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why")
}

func (o *operator) act() registry.Act {
	return registry.Act{Author: cmp.Or(o.author, whoami()), Reason: o.reason}
}

// whoami is user@host, as far as this machine knows them.
func whoami() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// clockTime shows ms since the epoch; "" for none.
func clockTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// lasting shows a number of ms as a duration.
func lasting(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
