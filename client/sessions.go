package client

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/httpd/api"
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
