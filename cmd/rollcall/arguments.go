// Arguments and flags that more than one command has.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// parseKey splits APP/ID at the first slash: ids may contain further ones.
func parseKey(text string) (registry.Key, error) {
	app, id, ok := strings.Cut(text, "/")
	if !ok || app == "" || id == "" {
		return registry.Key{}, fmt.Errorf("%q does not name an instance; write APP/ID, as ls shows them", text)
	}
	return registry.NewKey(app, id), nil
}

// parseStatus reads a status that an argument or flag of this name holds.
func parseStatus(name, word string) (registry.Status, error) {
	status, ok := registry.ParseStatus(word)
	if !ok {
		return 0, fmt.Errorf("%s: %q is not %s", name, word, enumerate(registry.StatusWords(), "or"))
	}
	return status, nil
}

// enumerate returns "a", "a and b", or "a, b and c", with the given word before the last.
func enumerate(words []string, before string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + before + " " + words[last]
}

// firstOf returns the first of optional arguments, or "" without any.
func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// longestAct is the longest time that an operator's act can last.
const longestAct = 168 * time.Hour

// checkFor checks the length of an act.
func checkFor(d time.Duration) error {
	switch {
	case d == 0:
		return errors.New("--for: is required: how long, such as 30m")
	case d < time.Second || d > longestAct:
		return fmt.Errorf("--for: %v is not between 1s and 168h", d)
	}
	return nil
}

// checkSession checks the times of a session.
func checkSession(ttl, lockDelay time.Duration) error {
	var errs []error
	if ttl <= 0 {
		errs = append(errs, fmt.Errorf("--ttl: %v is not above 0s", ttl))
	}
	if lockDelay < 0 || lockDelay > time.Minute {
		errs = append(errs, fmt.Errorf("--lock-delay: %v is not between 0s and 1m", lockDelay))
	}
	return errors.Join(errs...)
}

// noneIfZero translates a lock delay for the client, to which 0 means the default.
func noneIfZero(lockDelay time.Duration) time.Duration {
	if lockDelay == 0 {
		return -1
	}
	return lockDelay
}

// operator has the flags of commands whose author and reason the cluster remembers.
type operator struct{ author, reason string }

func (o *operator) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.author, "author", "", "the author (default: USER@HOST)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why")
}

func (o *operator) act() registry.Act {
	return registry.Act{Author: cmp.Or(o.author, whoami()), Reason: o.reason}
}

// whoami returns USER@HOST, with what this machine knows of them.
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
