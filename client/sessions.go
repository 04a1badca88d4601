package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

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
func (c *Client) createSession(ctx context.Context, o SessionOptions) (Session, answer, error) {
	body, err := json.Marshal(o.request())
	if err != nil {
		return Session{}, answer{}, err
	}
	var s Session
	// A session that an earlier try created holds nothing and ends by itself.
	a, err := c.do(ctx, call{method: http.MethodPost, path: sessionPath(), body: body, write: true})
	if err == nil {
		err = a.decode(&s)
	}
	if err != nil {
		return Session{}, answer{}, fmt.Errorf("create a session: %w", err)
	}
	return s, a, nil
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
func (c *Client) renewSession(ctx context.Context, id string, patience time.Duration) (Session, answer, error) {
	var s Session
	a, err := c.do(ctx, call{method: http.MethodPut, path: append(sessionPath(), id, "renew"), write: true, patience: patience})
	if err == nil {
		err = a.sessionDocument(&s)
	}
	if err != nil {
		return Session{}, answer{}, fmt.Errorf("renew session %q: %w", id, err)
	}
	return s, a, nil
}

// Session returns a session. ErrNoSession: it has ended, or never was.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	var s Session
	a, err := c.read(ctx, append(sessionPath(), id)...)
	if err == nil {
		err = a.sessionDocument(&s)
	}
	if err != nil {
		return Session{}, fmt.Errorf("read session %q: %w", id, err)
	}
	return s, nil
}

// Sessions returns all sessions, by id.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	var all []Session
	if err := c.readJSON(ctx, &all, sessionPath()...); err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	return all, nil
}

// DestroySession ends a session. What it held is free after its lock-delay. ErrNoSession: it has ended
// already, or never was.
func (c *Client) DestroySession(ctx context.Context, id string) error {
	a, err := c.do(ctx, call{method: http.MethodDelete, path: append(sessionPath(), id), write: true})
	if err == nil && a.status == http.StatusNotFound && a.repeated {
		return nil // an earlier try did it, as far as anybody can tell, and it is gone
	}
	if err == nil {
		err = a.sessionOutcome()
	}
	if err != nil {
		return fmt.Errorf("destroy session %q: %w", id, err)
	}
	return nil
}

func (a answer) sessionDocument(into *Session) error {
	if err := a.sessionOutcome(); err != nil {
		return err
	}
	return a.decode(into)
}

// sessionOutcome turns an answer about one session that is no success into an error.
func (a answer) sessionOutcome() error {
	if a.status == http.StatusNotFound {
		return ErrNoSession
	}
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	return nil
}

func sessionPath() []string { return []string{"v1", "rollcall", "sessions"} }

// noSession says that an operation failed because its session has ended.
func noSession(err error) bool { return errors.Is(err, ErrNoSession) }
