package client

import "context"

// KeptSession is a session that is renewed every third of its TTL until it is closed, for keys that are
// acquired with it (KV.Acquire). Safe for concurrent use. It must be closed.
type KeptSession struct {
	keeper *keeper
}

// KeepSession creates a session and keeps it alive. ctx bounds the creation, and gives its values to
// KeptSession.Context.
func (c *Client) KeepSession(ctx context.Context, o SessionOptions) (*KeptSession, error) {
	panic("not written")
}

// ID is the session's id.
func (s *KeptSession) ID() string { return s.keeper.session }

// Context ends when the session is lost or closed; context.Cause says which (ErrLost, ErrReleased). Like
// Held.Context it looks at the clock whenever it is asked.
func (s *KeptSession) Context() context.Context { return keptContext{s.keeper.ctx, s.keeper} }

// Err is nil while the session is kept, and then says why it is not: ErrLost or ErrReleased.
func (s *KeptSession) Err() error { panic("not written") }

// Close ends the session, which frees what it holds after its lock-delay. Later calls return what the
// first returned. ErrLost: it had ended before.
func (s *KeptSession) Close(ctx context.Context) error { panic("not written") }
