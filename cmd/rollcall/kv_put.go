package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

func newKVPutCommand() *cobra.Command {
	var c connection
	var o putOptions
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|@FILE|-",
		Short: "Write a key's value, if the conditions hold",
		Long: "Writes a key. The value is the argument, the content of a file (@FILE) or standard input (-). If a\n" +
			"condition does not hold, nothing is written and the exit code is 1.",
		Example: "  rollcall kv put config/colour blue\n" +
			"  rollcall kv put config/app @app.yaml\n" +
			"  rollcall kv put config/colour green --cas 57\n" +
			"  rollcall kv put leader me --acquire 954b5e76-54d1-4c1f-9d0c-0c5b6f6a2d11\n" +
			"  rollcall kv put backup/last today --fence $ROLLCALL_FENCE --fence-lock $ROLLCALL_LOCK",
	}
	o.addFlags(cmd.Flags())
	return c.command(cmd, cobra.ExactArgs(2), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		w, err := o.write(cmd.Flags(), args[0])
		if err != nil {
			return nil, cli.Usage(err)
		}
		if w.Value, err = readArgument(args[1], cmd.InOrStdin()); err != nil {
			return nil, err
		}
		done, err := cl.KV().Write(ctx, w)
		if err == nil && !done.OK {
			err = o.unwritten(args[0], done)
		}
		return keyDone{Done: o.word(), Key: args[0], Fence: done.Fence}, err
	})
}

// putOptions are the flags of put.
type putOptions struct {
	flags, cas, fence                   uint64
	acquire, release                    string
	fenceKey, fenceLock, fenceSemaphore string
}

func (o *putOptions) addFlags(f *pflag.FlagSet) {
	f.Uint64Var(&o.flags, "flags", 0, "a number that is stored with the key, for programs' own use")
	f.Uint64Var(&o.cas, "cas", 0, "write only if the key's index is this; 0: if there is no such key")
	f.StringVar(&o.acquire, "acquire", "", "a session, which becomes the holder unless another one is")
	f.StringVar(&o.release, "release", "", "a session, which must be the holder and ceases to be it")
	f.Uint64Var(&o.fence, "fence", 0, "token of an acquisition that must still last: of this key, or of what the next flags name")
	f.StringVar(&o.fenceKey, "fence-key", "", "the key whose acquisition --fence means")
	f.StringVar(&o.fenceLock, "fence-lock", "", "the lock whose acquisition --fence means")
	f.StringVar(&o.fenceSemaphore, "fence-semaphore", "", "the semaphore whose acquisition --fence means")
}

// write is what the flags ask for, without the value.
func (o *putOptions) write(f *pflag.FlagSet, key string) (client.Write, error) {
	w := client.Write{Key: key, Flags: o.flags, Acquire: o.acquire, Release: o.release}
	conditions := 0
	for _, name := range []string{"cas", "acquire", "release"} {
		if f.Changed(name) {
			conditions++
		}
	}
	if conditions > 1 {
		return w, errors.New("give one of --cas, --acquire and --release")
	}
	if f.Changed("cas") {
		w.CAS = &o.cas
	}
	fence, err := o.fenceOf(f, key)
	w.Fence = fence
	return w, err
}

// fenceOf is the acquisition that must last; nil: none.
func (o *putOptions) fenceOf(f *pflag.FlagSet, key string) (*kv.Fence, error) {
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(o.fence)}
	names := 0
	for _, by := range []struct {
		flag, name string
		kind       kv.Kind
	}{{"fence-key", o.fenceKey, kv.Key}, {"fence-lock", o.fenceLock, kv.Lock}, {"fence-semaphore", o.fenceSemaphore, kv.Semaphore}} {
		if f.Changed(by.flag) {
			fence.Kind, fence.Name = by.kind, by.name
			names++
		}
	}
	switch given := f.Changed("fence"); {
	case names > 1:
		return nil, errors.New("give one of --fence-key, --fence-lock and --fence-semaphore")
	case names == 1 && !given:
		return nil, errors.New("--fence: is required: the token of the acquisition")
	case !given:
		return nil, nil
	}
	return fence, nil
}

// word says what a write that was done has done.
func (o *putOptions) word() string {
	switch {
	case o.acquire != "":
		return "acquired"
	case o.release != "":
		return "released"
	}
	return "written"
}

// unwritten says why nothing was written, as far as that is known.
func (o *putOptions) unwritten(key string, w client.Written) error {
	switch {
	case o.fence != 0 && w.Fence != o.fence:
		return fmt.Errorf("%s was not written: the acquisition %d does not last any more", key, o.fence)
	case o.acquire != "":
		return fmt.Errorf("%s was not acquired: another session holds it, or its lock-delay is not over", key)
	case o.release != "":
		return fmt.Errorf("%s was not released: the session does not hold it", key)
	}
	return fmt.Errorf("%s was not written: its index is not %d", key, o.cas)
}

// readArgument is a value as it was given: text, @FILE or - for standard input.
func readArgument(text string, stdin io.Reader) ([]byte, error) {
	if text == "-" {
		return io.ReadAll(stdin)
	}
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		return os.ReadFile(name)
	}
	return []byte(text), nil
}

// keyDone says what became of a key.
type keyDone struct {
	Done  string `json:"done"`
	Key   string `json:"key"`
	Fence uint64 `json:"fence,omitempty"` // token of the acquisition
}

func (d keyDone) Table() [][]string {
	row := []string{d.Done, d.Key}
	if d.Fence != 0 {
		row = append(row, strconv.FormatUint(d.Fence, 10))
	}
	return [][]string{row}
}
