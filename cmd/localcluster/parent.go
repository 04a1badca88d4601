package localcluster

import (
	"context"
	"io"
)

// parentPipeEnv, set to 1, makes a program of Rollcall end when its standard input does. The parent holds the
// other end of that pipe, so it cannot leave such a process behind, however the parent ends.
const parentPipeEnv = "ROLLCALL_PARENT_PIPE"

// UntilParentEnds returns a context that ends with ctx and, in a process that Start started, with the parent.
func UntilParentEnds(ctx context.Context, env func(string) (string, bool), stdin io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if v, _ := env(parentPipeEnv); v != "1" {
		return ctx, cancel
	}
	go func() {
		// Nobody waits for this goroutine: a read of standard input cannot be interrupted.
		defer cancel()
		io.Copy(io.Discard, stdin)
	}()
	return ctx, cancel
}
