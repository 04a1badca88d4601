package consul

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// aclToken is a token as Consul shows it (github.com/hashicorp/consul/api v1.34.4, acl.go).
type aclToken struct {
	AccessorID, SecretID, Description string
	Policies, Roles                   []aclLink
	Local                             bool
	CreateTime                        time.Time
	ExpirationTime                    *time.Time `json:",omitempty"`
}

// aclLink names a policy or a role.
type aclLink struct{ ID, Name string }

// hiddenSecret replaces a secret that is not shown.
const hiddenSecret = "<hidden>"

// anonymousToken is the token of callers without one.
var anonymousToken = aclToken{
	AccessorID: "00000000-0000-0000-0000-000000000002", SecretID: "anonymous", Description: "Anonymous Token", Policies: []aclLink{}, Roles: []aclLink{},
}

// ownToken is GET /v1/acl/token/self. Where no credentials are required, clients of Consul see no access control
// either.
func (c call) ownToken() (any, error) {
	p := c.Principal()
	switch k := c.Token(p); {
	case p == nil && c.AccessMode() == access.Off:
		return nil, errNoACL
	case p == nil:
		return anonymousToken, nil
	case k == nil:
		return aclToken{Description: p.Name, Policies: []aclLink{}, Roles: []aclLink{}}, nil
	default:
		return shownToken(k, hiddenSecret), nil
	}
}

func shownToken(k *access.Token, secret string) aclToken {
	shown := aclToken{
		AccessorID: k.Accessor, SecretID: secret, Description: k.Name, Policies: []aclLink{}, Roles: []aclLink{},
		CreateTime: time.UnixMilli(k.Created).UTC(),
	}
	for _, name := range k.Roles {
		shown.Roles = append(shown.Roles, aclLink{ID: name, Name: name})
	}
	if k.Expires != 0 {
		at := time.UnixMilli(k.Expires).UTC()
		shown.ExpirationTime = &at
	}
	return shown
}

// bootstrap is PUT /v1/acl/bootstrap: it makes the first operator, once for each cluster. In Consul whoever comes
// first may do that; here, as with every change of roles and tokens, only a caller who may change them, such as one
// over the socket in a node's data directory.
func (c call) bootstrap() (any, error) {
	if body := c.Body(c.Limits().IgnoredBytes); len(body) > 0 {
		c.Refuse("Invalid bootstrap request: secrets are made here, and none is taken")
	}
	if c.Err != nil {
		return nil, c.Err
	}
	secret := c.NewSecret("")
	accessor, hash, _ := access.Parse(secret, c.ClusterID()) // cannot fail: it was just made
	k := &access.Token{Accessor: accessor, Secrets: []access.Secret{{Hash: hash}}, By: c.Principal().Name}
	result, err := c.CoordinateAwaitingLeader(c.R.Context(), kv.Access{Change: access.Founding(k)})
	switch {
	case err != nil:
		return nil, err
	case result.Refusal != "" && c.AccessTable().Bootstrapped:
		return nil, &web.Refusal{Status: http.StatusForbidden, Text: fmt.Sprintf("Permission denied: ACL bootstrap no longer allowed (reset index: %d)", c.AccessTable().Revision)}
	case result.Refusal != "":
		return nil, rejected("%s", result.Refusal)
	}
	k.Created = c.World.Now().UnixMilli()
	c.W.Header().Set("Cache-Control", "no-store")
	return shownToken(k, secret), nil
}
