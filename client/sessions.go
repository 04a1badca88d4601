package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Defaults of sessions.
const (
	// DefaultSessionTTL is how long a session lasts without a renewal.
	DefaultSessionTTL = 15 * time.Second
	// DefaultLockDelay is how long no session gets what an expired session held.
	DefaultLockDelay = 15 * time.Second
)

// SessionOptions say what session to create. The zero SessionOptions have a default for each field.
type SessionOptions struct {
	Name      string        // for people
	TTL       time.Duration // how long it lasts without a renewal; 0 means DefaultSessionTTL
	LockDelay time.Duration // at most 1 minute; 0 means DefaultLockDelay, negative means no lock delay
	// DeleteKeys deletes the keys that the session holds when it ends, instead of releasing them.
	DeleteKeys bool
}

// CreateSession creates a session, which ends if it is not renewed for its TTL.
func (c *Client) CreateSession(ctx context.Context, o SessionOptions) (Session, error) {
	s, _, err := c.createSession(ctx, o)
	return s, err
}

// createSession also returns the response, which says when the session was asked for.
func (c *Client) createSession(ctx context.Context, o SessionOptions) (Session, transport.Response, error) {
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
	body, err := json.Marshal(r)
	if err != nil {
		return Session{}, transport.Response{}, err
	}
	// A session that an earlier try created holds nothing and expires.
	q := transport.Own(http.MethodPost, "sessions")
	q.Body = body
	return transport.AskWhole[Session](ctx, c.cluster, q, "create a session")
}

func (o SessionOptions) ttl() time.Duration { return cmp.Or(o.TTL, DefaultSessionTTL) }

// RenewSession restarts a session's TTL. It returns ErrNoSession if the session has ended.
func (c *Client) RenewSession(ctx context.Context, id string) (Session, error) {
	s, _, err := c.renewSession(ctx, id, 0)
	return s, err
}

// renewSession also returns the response. patience bounds one try; 0 means the client's timeout.
func (c *Client) renewSession(ctx context.Context, id string, patience time.Duration) (Session, transport.Response, error) {
	q := ofSession(http.MethodPut, id, "renew")
	q.Patience = patience
	return transport.AskWhole[Session](ctx, c.cluster, q, "renew session %q", id)
}

// Session returns a session, or ErrNoSession if it has ended or never existed.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	return transport.Ask[Session](ctx, c.cluster, c.cluster.Reading(ofSession(http.MethodGet, id)), "read session %q", id)
}

// Sessions returns all sessions, sorted by id.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	return transport.Ask[[]Session](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "sessions")), "list the sessions")
}

// DestroySession ends a session. What it held is free after its lock delay. It returns ErrNoSession if the session
// has ended already, or never existed.
func (c *Client) DestroySession(ctx context.Context, id string) error {
	q := ofSession(http.MethodDelete, id)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "destroy session %q", id)
	return err
}

func ofSession(method, id string, act ...string) *transport.Call {
	return transport.Own(method, append([]string{"sessions", id}, act...)...).Or(ErrNoSession)
}

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
