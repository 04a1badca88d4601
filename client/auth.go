package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// AuthStatus returns, as one node sees it, what happens to calls that their callers may not make, and who the caller
// is to that node.
func (c *Client) AuthStatus(ctx context.Context) (AuthStatus, error) {
	return transport.Ask[AuthStatus](ctx, c.cluster, ownAuth(http.MethodGet), "read the state of access control")
}

// AuthChange accompanies a change of the mode, of roles or of tokens.
type AuthChange struct {
	By registry.Act // author and reason, which the audit records besides the caller
	// Force makes the change even if it leaves no token that can change roles and tokens, or none without an expiry.
	// They can still be changed through the socket in a node's data directory. For a rotation: even if it at once
	// ends the older of two secrets that are valid.
	Force bool
}

// SetAuthMode sets the cluster's mode: off, log-only or on. A node whose own settings are stricter keeps those.
func (c *Client) SetAuthMode(ctx context.Context, mode string, o AuthChange) (AuthStatus, error) {
	return transport.Ask[AuthStatus](ctx, c.cluster, o.of(ownAuth(http.MethodPut, "mode").With("mode", mode)), "set the mode of access control")
}

// Bootstrap creates the first operator's token, once per cluster, and returns it with its secret, which cannot be
// read again. Through the socket in a node's data directory it needs no credential. Name and Expires of the request
// are optional. After ErrUnknownOutcome create a token through that socket.
func (c *Client) Bootstrap(ctx context.Context, r TokenRequest, by registry.Act) (NewToken, error) {
	return c.newToken(ctx, AuthChange{By: by}.of(ownAuth(http.MethodPost, "bootstrap")), r, "make the first operator's token")
}

// Roles returns all roles, sorted by name.
func (c *Client) Roles(ctx context.Context) ([]Role, error) {
	return transport.Ask[[]Role](ctx, c.cluster, ownAuth(http.MethodGet, "roles"), "list the roles")
}

// Role returns a role, or ErrUnknownRole if no role has that name.
func (c *Client) Role(ctx context.Context, name string) (Role, error) {
	return transport.Ask[Role](ctx, c.cluster, ownAuth(http.MethodGet, "roles", name).Or(ErrUnknownRole), "read role %q", name)
}

// PutRole creates a role, or replaces its rules, and returns it as the cluster writes it.
func (c *Client) PutRole(ctx context.Context, r Role, o AuthChange) (Role, error) {
	q := o.of(ownAuth(http.MethodPut, "roles", r.Name))
	var err error
	if q.Body, err = json.Marshal(r); err != nil {
		return Role{}, err
	}
	return transport.Ask[Role](ctx, c.cluster, q, "put role %q", r.Name)
}

// DeleteRole deletes a role: tokens that have it lose what it granted. It returns ErrUnknownRole if no role has
// that name.
func (c *Client) DeleteRole(ctx context.Context, name string, o AuthChange) error {
	q := o.of(ownAuth(http.MethodDelete, "roles", name)).Or(ErrUnknownRole)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "delete role %q", name)
	return err
}

// Tokens returns all tokens without their secrets, sorted by accessor.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return transport.Ask[[]Token](ctx, c.cluster, ownAuth(http.MethodGet, "tokens"), "list the tokens")
}

// CreateToken creates a token, and returns it with its secret, which cannot be read again. After ErrUnknownOutcome
// there may be a token whose secret nobody knows: Tokens lists it.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest, by registry.Act) (NewToken, error) {
	return c.newToken(ctx, AuthChange{By: by}.of(ownAuth(http.MethodPost, "tokens")), r, "make a token")
}

// RotateToken gives a token another secret, and returns it. The old secret stays valid for grace; with 0 it ends at
// once. After ErrUnknownOutcome the token may have a secret that nobody knows: wait for the end of the grace, or
// rotate again with Force, which ends the old secret at once. It returns ErrUnknownToken if no token has that
// accessor.
func (c *Client) RotateToken(ctx context.Context, accessor string, grace time.Duration, o AuthChange) (NewToken, error) {
	q := o.of(ofToken(http.MethodPost, accessor, "rotate").With("grace", grace.String()))
	q.Once = true
	return transport.Ask[NewToken](ctx, c.cluster, q, "rotate token %q", accessor)
}

// RevokeToken ends a token for good. It returns ErrUnknownToken if no token has that accessor.
func (c *Client) RevokeToken(ctx context.Context, accessor string, o AuthChange) error {
	q := o.of(ofToken(http.MethodDelete, accessor))
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "revoke token %q", accessor)
	return err
}

// TestPolicy reports whether a token may do something, in the words of a rule with one verb: app ORDERS register.
func (c *Client) TestPolicy(ctx context.Context, accessor, need string) (Decision, error) {
	return transport.Ask[Decision](ctx, c.cluster, ownAuth(http.MethodGet, "test").With("accessor", accessor, "need", need), "test a policy")
}

// CheckAuth returns what is registered and would be refused under the current roles.
func (c *Client) CheckAuth(ctx context.Context) (AuthCheck, error) {
	return transport.Ask[AuthCheck](ctx, c.cluster, ownAuth(http.MethodGet, "check"), "check what roles allow")
}

// AuditQuery selects records of the audit. The zero AuditQuery selects the newest.
type AuditQuery struct {
	Since     string // a duration before now, such as 1h, or an RFC 3339 time; "" means everything on record
	Principal string // of one principal; "" means all
	App       string // about one application; "" means everything
	Outcome   string // with one outcome, such as denied; "" means all
	Limit     int    // the newest records up to this many, at most 10,000; 0 means 100
}

// Audit returns what was done and tried, newest last, as one node has recorded it: each node records the calls that
// reached it.
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

// ownAuth returns a call about roles and tokens.
func ownAuth(method string, path ...string) *transport.Call {
	return transport.Own(method, append([]string{"auth"}, path...)...)
}

// ofToken returns a call about one token.
func ofToken(method, accessor string, act ...string) *transport.Call {
	return ownAuth(method, append([]string{"tokens", accessor}, act...)...).Or(ErrUnknownToken)
}

// of adds what accompanies a change to its call.
func (o AuthChange) of(q *transport.Call) *transport.Call {
	q = signed(q, o.By, 0)
	if o.Force {
		q.Query.Set("force", "")
	}
	return q
}

// longestToken bounds a token, in bytes: the header size that servers accept, with room for the rest.
const longestToken = 16 << 10

// checkToken checks that a text can be sent in a header. Its error never repeats the text.
func checkToken(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty")
	case len(text) > longestToken:
		return fmt.Errorf("it has more than %d bytes", longestToken)
	case strings.ContainsFunc(text, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsGraphic(c) || c == ' ' }):
		return errors.New("it is not a token: a token is one word of ASCII characters")
	}
	return nil
}

// readToken reads the token in a file, and ignores white space around it. The error names the file, and shows nothing
// of its contents.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, longestToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// tokenFile is a file with a token, which may be replaced at any time. It is read for each request: that costs a
// hundredth of a request, and no change is missed.
type tokenFile struct {
	path string

	mu     sync.Mutex
	last   string // that was read
	outage wait.Outage
}

// token returns the token in the file or, if that cannot be read, the last one that was read.
func (f *tokenFile) token() string {
	token, err := readToken(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.last = token
	}
	f.outage.Report(err, "the file of the token cannot be read, the token that it had stays in use",
		"the file of the token is read again", "file", f.path)
	return f.last
}
