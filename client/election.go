package client

import "context"

// Elect takes part in an election until ctx ends: it waits for the lock of that name and calls lead
// while it holds it. The context that lead gets ends when leadership is lost, or ctx ends; lead should
// return then, and nothing is given back before it has. If leadership was lost it takes part again.
//
// It returns what lead returned if leadership lasted until then (the lock is released), nil if ctx ended
// first, and an error if the cluster refuses the lock or the client was closed. As with every lock, a
// leader that was paused may go on for a moment without knowing that it is one no more: hand
// Held.Fence to what it writes to.
func (c *Client) Elect(ctx context.Context, o LockOptions, lead func(ctx context.Context, h *Held) error) error {
	panic("not written")
}

// Leader returns who leads an election, which is who holds the lock of that name. ErrNoLeader: nobody
// does.
func (c *Client) Leader(ctx context.Context, name string) (Holder, error) { panic("not written") }
