package main

import (
	"context"
	"io"
)

// parentPipeEnv, set to 1, makes a server end when its standard input does. Whoever starts servers
// and holds the other end of that pipe cannot leave one behind, however it ends itself.
const parentPipeEnv = "ROLLCALL_PARENT_PIPE"

// untilParentEnds returns a context that ends with ctx and, if the environment asks for it, with stdin.
func untilParentEnds(ctx context.Context, env func(string) (string, bool), stdin io.Reader) (context.Context, context.CancelFunc) {
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
