package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// AuthStatus says what becomes of calls that their callers may not make, as one node sees it, and who the caller is to it.
func (c *Client) AuthStatus(ctx context.Context) (AuthStatus, error) {
	return transport.Ask[AuthStatus](ctx, c.cluster, ownAuth(http.MethodGet), "read the state of access control")
}

// AuthChange goes with a change of the mode, of roles and of tokens.
type AuthChange struct {
	By registry.Act // author and reason, which the audit keeps beside who called
	// Force: also if no token is left then by which roles and tokens can be changed, or none that does not end. By the socket in
	// a node's data directory they still can be. Of a rotation: also if the older of two secrets that are good ends by it at once.
	Force bool
}

// SetAuthMode sets the cluster's mode: off, log-only or on. A node whose own settings say something stricter stays with that.
func (c *Client) SetAuthMode(ctx context.Context, mode string, o AuthChange) (AuthStatus, error) {
	return transport.Ask[AuthStatus](ctx, c.cluster, o.of(ownAuth(http.MethodPut, "mode").With("mode", mode)), "set the mode of access control")
}

// Bootstrap makes the first operator's token, once for each cluster, and returns it with its secret, which cannot be read
// again. It needs no credential by the socket in a node's data directory. Name and Expires of the request are optional. After
// ErrUnknownOutcome make a token by that socket.
func (c *Client) Bootstrap(ctx context.Context, r TokenRequest, by registry.Act) (NewToken, error) {
	return c.newToken(ctx, AuthChange{By: by}.of(ownAuth(http.MethodPost, "bootstrap")), r, "make the first operator's token")
}

// Roles returns all roles, by name.
func (c *Client) Roles(ctx context.Context) ([]Role, error) {
	return transport.Ask[[]Role](ctx, c.cluster, ownAuth(http.MethodGet, "roles"), "list the roles")
}

// Role returns a role. ErrUnknownRole: there is none of that name.
func (c *Client) Role(ctx context.Context, name string) (Role, error) {
	return transport.Ask[Role](ctx, c.cluster, ownAuth(http.MethodGet, "roles", name).Or(ErrUnknownRole), "read role %q", name)
}

// PutRole makes a role, or replaces its rules, and returns it as the cluster writes it.
func (c *Client) PutRole(ctx context.Context, r Role, o AuthChange) (Role, error) {
	q := o.of(ownAuth(http.MethodPut, "roles", r.Name))
	var err error
	if q.Body, err = json.Marshal(r); err != nil {
		return Role{}, err
	}
	return transport.Ask[Role](ctx, c.cluster, q, "put role %q", r.Name)
}

// DeleteRole deletes a role: tokens that have it lose what it granted. ErrUnknownRole: there is none of that name.
func (c *Client) DeleteRole(ctx context.Context, name string, o AuthChange) error {
	q := o.of(ownAuth(http.MethodDelete, "roles", name)).Or(ErrUnknownRole)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "delete role %q", name)
	return err
}

// Tokens returns all tokens without their secrets, by accessor.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return transport.Ask[[]Token](ctx, c.cluster, ownAuth(http.MethodGet, "tokens"), "list the tokens")
}

// CreateToken makes a token, and returns it with its secret, which cannot be read again. After ErrUnknownOutcome there may be
// a token whose secret nobody knows: Tokens lists it.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest, by registry.Act) (NewToken, error) {
	return c.newToken(ctx, AuthChange{By: by}.of(ownAuth(http.MethodPost, "tokens")), r, "make a token")
}

// RotateToken gives a token another secret, and returns that. The one that it had stays good for grace (0: not at all). After
// ErrUnknownOutcome the token may have a secret that nobody knows: wait for the end of the grace, or rotate again with Force, which
// ends the old secret at once. ErrUnknownToken: there is none with that accessor.
func (c *Client) RotateToken(ctx context.Context, accessor string, grace time.Duration, o AuthChange) (NewToken, error) {
	q := o.of(ofToken(http.MethodPost, accessor, "rotate").With("grace", grace.String()))
	q.Once = true
	return transport.Ask[NewToken](ctx, c.cluster, q, "rotate token %q", accessor)
}

// RevokeToken ends a token for good. ErrUnknownToken: there is none with that accessor.
func (c *Client) RevokeToken(ctx context.Context, accessor string, o AuthChange) error {
	q := o.of(ofToken(http.MethodDelete, accessor))
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "revoke token %q", accessor)
	return err
}

// TestPolicy says whether a token may do something, in the words of a rule with one verb: app ORDERS register.
func (c *Client) TestPolicy(ctx context.Context, accessor, need string) (Decision, error) {
	return transport.Ask[Decision](ctx, c.cluster, ownAuth(http.MethodGet, "test").With("accessor", accessor, "need", need), "test a policy")
}

// CheckAuth returns what is registered and would be refused by the roles as they are now.
func (c *Client) CheckAuth(ctx context.Context) (AuthCheck, error) {
	return transport.Ask[AuthCheck](ctx, c.cluster, ownAuth(http.MethodGet, "check"), "check what roles allow")
}

// AuditQuery says which records of the audit are wanted. The zero AuditQuery wants the newest.
type AuditQuery struct {
	Since     string // a duration before now, such as 1h, or a time as of RFC 3339; "": as far as the records go back
	Principal string // of one principal; "": of all
	App       string // about one application; "": about everything
	Outcome   string // of one outcome, such as denied; "": of all
	Limit     int    // the newest so many, at most 10,000; 0: 100
}

// Audit returns what was done and tried, newest last, as one node has recorded it: each records the calls that came to it.
func (c *Client) Audit(ctx context.Context, o AuditQuery) ([]AuditRecord, error) {
	q := transport.Own(http.MethodGet, "audit").With("since", o.Since, "principal", o.Principal, "app", o.App, "outcome", o.Outcome)
	if o.Limit > 0 {
		q = q.With("limit", strconv.Itoa(o.Limit))
	}
	found, err := transport.Ask[api.Audit](ctx, c.cluster, q, "read the audit")
	return found.Records, err
}

// newToken sends a request for a token.
func (c *Client) newToken(ctx context.Context, q *transport.Call, r TokenRequest, what string) (made NewToken, err error) {
	if q.Body, err = json.Marshal(r); err != nil {
		return made, err
	}
	q.Once = true
	return transport.Ask[NewToken](ctx, c.cluster, q, what)
}

// ownAuth is a call about roles and tokens.
func ownAuth(method string, path ...string) *transport.Call {
	return transport.Own(method, append([]string{"auth"}, path...)...)
}

// ofToken is a call about one token.
func ofToken(method, accessor string, act ...string) *transport.Call {
	return ownAuth(method, append([]string{"tokens", accessor}, act...)...).Or(ErrUnknownToken)
}

// of adds what goes with a change to its call.
func (o AuthChange) of(q *transport.Call) *transport.Call {
	q = signed(q, o.By, 0)
	if o.Force {
		q.Query.Set("force", "")
	}
	return q
}
