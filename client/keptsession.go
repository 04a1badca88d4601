package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// KeptSession is a session that is renewed every third of its TTL until it is closed, for keys that are acquired with
// it (Write.Acquire). Safe for concurrent use. It must be closed, which Client.Close does too.
type KeptSession struct {
	*keeper
	closed once // the end of the session
}

// KeepSession creates a session and keeps it alive. ctx bounds the creation, and gives its values to
// KeptSession.Context. ErrClosed means that the client was closed, or is being closed.
func (c *Client) KeepSession(ctx context.Context, o SessionOptions) (*KeptSession, error) {
	ctx, opening, err := c.acquiring(ctx)
	if err != nil {
		return nil, fmt.Errorf("keep a session: %w", err)
	}
	defer opening.finish()
	k, err := c.newKeeper(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("keep a session: %w", opening.reason(ctx, err))
	}
	s := &KeptSession{keeper: k}
	if err := s.startHolding("session", s); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		return nil, fmt.Errorf("keep a session: %w", errors.Join(err, s.giveUp(ctx, s.destroy)))
	}
	return s, nil
}

// ID returns the session's id.
func (s *KeptSession) ID() string { return s.session }

// Context returns a context that ends when the session is lost or closed; context.Cause says which (ErrLost,
// ErrReleased). Like Held.Context it checks the clock whenever it is asked.
func (s *KeptSession) Context() context.Context { return s.heldContext() }

// Err returns nil while the session is kept, and afterwards why it is not: ErrLost or ErrReleased.
func (s *KeptSession) Err() error { return s.err() }

// Close ends the session, which frees what it holds after its lock delay. It tries until ctx ends, or until the
// session would expire. Later calls return what the first returned. ErrLost means that it had ended before.
func (s *KeptSession) Close(ctx context.Context) error {
	return s.closed.do(ctx, "", func() error {
		defer s.client.drop(s)
		return wait.Annotate(s.giveUp(ctx, s.destroy), "close session %q", []any{s.session})
	})
}

// withdraw ends the session unless it was lost.
func (s *KeptSession) withdraw(ctx context.Context) error {
	if err := s.Close(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}
