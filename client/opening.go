package client

import (
	"context"
	"errors"
	"fmt"
)

// opening is something that is being acquired for the caller: a part until there is one to take its
// place, so that Close ends it as well.
type opening struct {
	client *Client
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// acquiring returns a context that ends with ctx, and with ErrClosed when the client is closed. The caller
// must end the opening.
func (c *Client) acquiring(ctx context.Context) (context.Context, *opening, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &opening{client: c, cancel: cancel, ended: make(chan struct{})}
	if err := c.adopt(o); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, o, nil
}

func (o *opening) end() {
	o.client.drop(o)
	o.cancel(nil)
	close(o.ended)
}

// reason is why it failed: that the client was closed rather than what came of that.
func (o *opening) reason(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return err
}

func (o *opening) stop(context.Context) error {
	o.cancel(ErrClosed)
	return nil
}

// leave waits until the caller has told the cluster that it gives up.
func (o *opening) leave(ctx context.Context) error {
	select {
	case <-o.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("give up what was being acquired: %w", context.Cause(ctx))
	}
}
