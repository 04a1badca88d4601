package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Defaults of sessions.
const (
	// DefaultSessionTTL is how long a session lasts without a renewal.
	DefaultSessionTTL = 15 * time.Second
	// DefaultLockDelay is for how long nobody gets what a session held that ended by itself.
	DefaultLockDelay = 15 * time.Second
)

// SessionOptions say what session to create. The zero SessionOptions have a default for each field.
type SessionOptions struct {
	Name      string        // for people
	TTL       time.Duration // how long it lasts without a renewal; 0: DefaultSessionTTL
	LockDelay time.Duration // see DefaultLockDelay, which 0 means; at most 1 minute; negative: none
	// DeleteKeys deletes the keys that the session holds when it ends, instead of releasing them.
	DeleteKeys bool
}

// CreateSession creates a session, which ends when it was not renewed for its TTL.
func (c *Client) CreateSession(ctx context.Context, o SessionOptions) (Session, error) {
	s, _, err := c.createSession(ctx, o)
	return s, err
}

// createSession also returns the answer, which says when the session was asked for.
func (c *Client) createSession(ctx context.Context, o SessionOptions) (Session, transport.Response, error) {
	body, err := json.Marshal(o.request())
	if err != nil {
		return Session{}, transport.Response{}, err
	}
	// A session that an earlier try created holds nothing and ends by itself.
	q := transport.Own(http.MethodPost, "sessions")
	q.Body = body
	return transport.AskWhole[Session](ctx, c.cluster, q, "create a session")
}

func (o SessionOptions) request() api.SessionRequest {
	r := api.SessionRequest{Name: o.Name, TTL: o.ttl().String(), LockDelay: o.LockDelay.String(), Behavior: "release"}
	switch {
	case o.LockDelay == 0:
		r.LockDelay = DefaultLockDelay.String()
	case o.LockDelay < 0:
		r.LockDelay = "0s"
	}
	if o.DeleteKeys {
		r.Behavior = "delete"
	}
	return r
}

func (o SessionOptions) ttl() time.Duration {
	if o.TTL == 0 {
		return DefaultSessionTTL
	}
	return o.TTL
}

// RenewSession starts a session's TTL anew. ErrNoSession: it has ended.
func (c *Client) RenewSession(ctx context.Context, id string) (Session, error) {
	s, _, err := c.renewSession(ctx, id, 0)
	return s, err
}

// renewSession also returns the answer. patience bounds one try; 0: the client's timeout.
func (c *Client) renewSession(ctx context.Context, id string, patience time.Duration) (Session, transport.Response, error) {
	q := ofSession(http.MethodPut, id, "renew")
	q.Patience = patience
	return transport.AskWhole[Session](ctx, c.cluster, q, "renew session %q", id)
}

// Session returns a session. ErrNoSession: it has ended, or never was.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	return transport.Ask[Session](ctx, c.cluster, c.cluster.Reading(ofSession(http.MethodGet, id)), "read session %q", id)
}

// Sessions returns all sessions, by id.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	return transport.Ask[[]Session](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "sessions")), "list the sessions")
}

// DestroySession ends a session. What it held is free after its lock-delay. ErrNoSession: it has ended
// already, or never was.
func (c *Client) DestroySession(ctx context.Context, id string) error {
	q := ofSession(http.MethodDelete, id)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "destroy session %q", id)
	return err
}

func ofSession(method, id string, act ...string) *transport.Call {
	return transport.Own(method, append([]string{"sessions", id}, act...)...).Or(ErrNoSession)
}

// KeptSession is a session that is renewed every third of its TTL until it is closed, for keys that are
// acquired with it (Write.Acquire). Safe for concurrent use. It must be closed; Client.Close does it, too.
type KeptSession struct {
	*keeper
	ending ending
}

// KeepSession creates a session and keeps it alive. ctx bounds the creation, and gives its values to
// KeptSession.Context. ErrClosed: the client was closed, or is being closed.
func (c *Client) KeepSession(ctx context.Context, o SessionOptions) (*KeptSession, error) {
	ctx, begun, err := c.acquiring(ctx)
	if err != nil {
		return nil, fmt.Errorf("keep a session: %w", err)
	}
	defer begun.end()
	k, err := c.keep(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("keep a session: %w", begun.reason(ctx, err))
	}
	s := &KeptSession{keeper: k}
	if err := s.begin(); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		return nil, fmt.Errorf("keep a session: %w", errors.Join(err, s.give(ctx, s.destroy)))
	}
	return s, nil
}

// ID is the session's id.
func (s *KeptSession) ID() string { return s.session }

// Context ends when the session is lost or closed; context.Cause says which (ErrLost, ErrReleased). Like
// Held.Context it looks at the clock whenever it is asked.
func (s *KeptSession) Context() context.Context { return s.kept() }

// Err is nil while the session is kept, and then says why it is not: ErrLost or ErrReleased.
func (s *KeptSession) Err() error { return s.err() }

// Close ends the session, which frees what it holds after its lock-delay. It tries until ctx ends, or
// until the session would end by itself. Later calls return what the first returned. ErrLost: it had
// ended before.
func (s *KeptSession) Close(ctx context.Context) error {
	return s.ending.do(ctx, "", func() error {
		defer s.client.drop(s)
		return wait.Annotate(s.give(ctx, s.destroy), "close session %q", []any{s.session})
	})
}

// begin makes it a part of the client. The error says that it cannot be kept.
func (s *KeptSession) begin() error {
	if err := s.hold("session", nil); err != nil {
		return err
	}
	return s.client.adopt(s)
}

// leave ends what was not lost.
func (s *KeptSession) leave(ctx context.Context) error {
	if err := s.Close(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}
