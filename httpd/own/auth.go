package own

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// authStatus is GET /v1/rollcall/auth.
func (c call) authStatus() (any, error) {
	s := c.AccessStatus(c.Principal())
	if p := c.Principal(); p != nil {
		s.Caller = api.Caller{Name: p.Name, Accessor: p.Accessor, Via: p.Via}
	}
	return s, nil
}

// errByFile is the response of a node whose roles and tokens come from a file.
var errByFile = &web.Refusal{
	Status: http.StatusNotImplemented,
	Text:   "without consensus (mode ap) roles and tokens are those of the file that auth.file names: edit it on each node",
}

// table returns the cluster's roles and tokens.
func (c call) table() (*access.Table, error) {
	if c.Coordination == nil {
		return nil, errByFile
	}
	return c.AccessTable(), c.Known(c.R.Context())
}

// changeAccess performs a change.
func (c call) changeAccess(op access.Change) error {
	if c.Coordination == nil {
		return errByFile
	}
	op.Sure = op.Sure || c.Present("force")
	c.Explain()
	if c.Err != nil {
		return c.Err
	}
	result, err := c.Coordinate(c.R.Context(), kv.Access{Change: op})
	if err != nil {
		return err
	}
	if result.Refusal != "" {
		return &web.Refusal{Status: http.StatusConflict, Text: result.Refusal}
	}
	// Once answered, the caller may rely on the change here. If this node cannot catch up now, that does not undo the
	// change.
	_, _ = c.Coordination.View(c.R.Context(), registry.Linearizable)
	return nil
}

// setAuthMode is PUT /v1/rollcall/auth/mode.
func (c call) setAuthMode() (any, error) {
	mode, err := access.ParseMode(c.Text("mode"))
	if err != nil && c.Err == nil {
		c.Err = web.BadRequest("mode: " + err.Error())
	}
	if err := c.changeAccess(access.Change{Mode: mode}); err != nil {
		return nil, err
	}
	return c.authStatus()
}

// listRoles is GET /v1/rollcall/auth/roles.
func (c call) listRoles() (any, error) {
	t, err := c.table()
	if err != nil {
		return nil, err
	}
	return listed(slices.Values(t.Roles), shownRole), nil
}

func shownRole(r *access.Role) api.Role {
	return api.Role{Name: r.Name, Rules: listed(slices.Values(r.Rules), access.Rule.String)}
}

// getRole is GET /v1/rollcall/auth/roles/{name}.
func (c call) getRole() (any, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	return shownRole(r), nil
}

// role returns the role that a path names.
func (c call) role() (*access.Role, error) {
	if _, err := c.table(); err != nil {
		return nil, err
	}
	name := c.Segment("name")
	r, err := web.Find(c.R.Context(), c.Node, func() *access.Role { return c.AccessTable().Role(name) })
	if err == nil && r == nil {
		err = &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no role %q", name)}
	}
	return r, err
}

// putRole is PUT /v1/rollcall/auth/roles/{name}.
func (c call) putRole() (any, error) {
	given := web.Decode(c.Call, c.Limits().IgnoredBytes, func(body []byte) (r api.Role, err error) {
		return r, decodeStrictly(body, &r, `{"rules": ["app ORDERS read,register"]}`)
	})
	r := &access.Role{Name: c.Segment("name")}
	if c.Err == nil && given.Name != "" && given.Name != r.Name {
		c.Refuse("the body names role %q, the path %q", given.Name, r.Name)
	}
	for _, text := range given.Rules {
		rule, err := access.ParseRule(text)
		if err != nil {
			c.Refuse("%v", err)
		}
		r.Rules = append(r.Rules, rule)
	}
	if err := r.Validate(); err != nil {
		c.Refuse("%v", err)
	}
	if err := c.changeAccess(access.Change{PutRoles: []*access.Role{r}}); err != nil {
		return nil, err
	}
	return shownRole(r), nil
}

// deleteRole is DELETE /v1/rollcall/auth/roles/{name}.
func (c call) deleteRole() (any, error) {
	r, err := c.role()
	if err != nil {
		return nil, err
	}
	if err := c.changeAccess(access.Change{DropRoles: []string{r.Name}}); err != nil {
		return nil, err
	}
	return shownRole(r), nil
}

// decodeStrictly reads an object and refuses unknown fields.
func decodeStrictly(body []byte, to any, like string) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil || dec.More() {
		return web.BadRequest("the body must be a JSON object like " + like)
	}
	return nil
}

// listTokens is GET /v1/rollcall/auth/tokens.
func (c call) listTokens() (any, error) {
	t, err := c.table()
	if err != nil {
		return nil, err
	}
	return listed(slices.Values(t.Tokens), c.shownToken), nil
}

func (c call) shownToken(k *access.Token) api.Token {
	shown := api.Token{
		Accessor: k.Accessor, Name: k.Name, Roles: append([]string{}, k.Roles...), App: k.App, Created: k.Created, By: k.By, Expires: k.Expires,
	}
	now := c.World.Now().UnixMilli()
	for _, s := range k.Secrets {
		if s.Until == 0 || now < s.Until {
			shown.Secrets++
		}
	}
	return shown
}

func creation(k *access.Token) access.Change { return access.Change{Create: []*access.Token{k}} }

// newToken returns the token that a body asks for.
func (c call) newToken() (k *access.Token, secret string) {
	given := web.Decode(c.Call, c.Limits().IgnoredBytes, func(body []byte) (r api.TokenRequest, err error) {
		if len(body) == 0 {
			return r, nil
		}
		return r, decodeStrictly(body, &r, `{"name": "orders", "roles": ["service"], "app": "ORDERS", "expires": "720h"}`)
	})
	var expires int64
	if given.Expires != "" {
		after, err := time.ParseDuration(given.Expires)
		if err != nil || after <= 0 {
			c.Refuse("expires must be a duration above 0s, like 720h")
		}
		expires = c.World.Now().Add(after).UnixMilli()
	}
	secret = c.NewSecret("")
	accessor, hash, _ := access.Parse(secret, c.ClusterID()) // cannot fail: it was just made
	k = &access.Token{Accessor: accessor, Name: given.Name, Roles: given.Roles, App: given.App, Secrets: []access.Secret{{Hash: hash}}, Expires: expires}
	if p := c.Principal(); p != nil {
		k.By = p.Name
	}
	return k, secret
}

// created makes an endpoint of POST /v1/rollcall/auth/tokens, or of …/bootstrap, which makes the first operator, once
// for each cluster. It performs a change that makes a token, and shows its secret.
func created(by func(k *access.Token) access.Change) endpoint {
	return func(c call) (any, error) {
		k, secret := c.newToken()
		op := by(k)
		if err := k.Validate(); err != nil {
			c.Refuse("%v", err)
		}
		if err := c.changeAccess(op); err != nil {
			return nil, err
		}
		k.Created = c.World.Now().UnixMilli()
		c.W.Header().Set("Cache-Control", "no-store")
		return api.NewToken{Token: c.shownToken(k), Secret: secret}, nil
	}
}

// token returns the token that a path names.
func (c call) token() (*access.Token, error) {
	if _, err := c.table(); err != nil {
		return nil, err
	}
	accessor := c.Segment("accessor")
	h, err := web.Find(c.R.Context(), c.Node, func() *access.Holder { return c.AccessTable().Holder(accessor) })
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no token with the accessor %q", accessor)}
	}
	return h.Token, nil
}

// maxGrace bounds how long two secrets are good at once.
const maxGrace = 90 * 24 * time.Hour

// rotateToken is POST /v1/rollcall/auth/tokens/{accessor}/rotate: it makes another secret, and keeps the old one for a
// time.
func (c call) rotateToken() (any, error) {
	k, err := c.token()
	if err != nil {
		return nil, err
	}
	grace, _ := c.Duration("grace", 0, maxGrace, fmt.Sprintf("grace must be a duration from 0s to %v: how long the old secret stays good", maxGrace))
	secret := c.NewSecret(k.Accessor)
	until := c.World.Now().Add(grace).UnixMilli()
	if err := c.changeAccess(access.Change{Rotate: []access.Rotation{{Accessor: k.Accessor, Hash: access.HashOf(secret), Until: until}}}); err != nil {
		return nil, err
	}
	shown := c.shownToken(k)
	if shown.Secrets = 1; grace > 0 {
		shown.Secrets = 2
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return api.NewToken{Token: shown, Secret: secret}, nil
}

// revokeToken is DELETE /v1/rollcall/auth/tokens/{accessor}.
func (c call) revokeToken() (any, error) {
	k, err := c.token()
	if err != nil {
		return nil, err
	}
	if err := c.changeAccess(access.Change{Revoke: []string{k.Accessor}}); err != nil {
		return nil, err
	}
	return c.shownToken(k), nil
}

// testPolicy is GET /v1/rollcall/auth/test: whether a token may do something, in the words of a rule.
func (c call) testPolicy() (any, error) {
	accessor := c.Text("accessor")
	h, err := web.Find(c.R.Context(), c.Node, func() *access.Holder { return c.Holder(accessor) })
	if err != nil {
		return nil, err
	}
	if h == nil {
		c.Refuse("accessor: there is no token %q", accessor)
	}
	need, err := access.ParseNeed(c.Text("need"))
	if err != nil {
		c.Refuse("need: %v", err)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return api.Decision{Allowed: !h.Expired(c.World.Now().UnixMilli()) && h.Policy.Allows(need), Need: need.String()}, nil
}
