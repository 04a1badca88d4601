package consulroutes

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// ownToken is GET /v1/acl/token/self. Where nobody is asked, there is no access control for clients of Consul either.
func (c call) ownToken() (any, error) {
	p := c.Principal()
	switch k := c.Token(p); {
	case p == nil && c.AccessMode() == access.Off:
		return nil, errNoACL
	case p == nil:
		return consul.AnonymousToken, nil
	case k == nil:
		return consul.ACLToken{Description: p.Name, Policies: []consul.ACLLink{}, Roles: []consul.ACLLink{}}, nil
	default:
		return shownToken(k, consul.HiddenSecret), nil
	}
}

func shownToken(k *access.Token, secret string) consul.ACLToken {
	shown := consul.ACLToken{
		AccessorID: k.Accessor, SecretID: secret, Description: k.Name, Policies: []consul.ACLLink{}, Roles: []consul.ACLLink{},
		CreateTime: time.UnixMilli(k.Created).UTC(),
	}
	for _, name := range k.Roles {
		shown.Roles = append(shown.Roles, consul.ACLLink{ID: name, Name: name})
	}
	if k.Expires != 0 {
		at := time.UnixMilli(k.Expires).UTC()
		shown.ExpirationTime = &at
	}
	return shown
}

// bootstrap is PUT /v1/acl/bootstrap: the first operator, once for each cluster. In Consul whoever comes first gets that;
// here, as every change of roles and tokens, only who may change them, such as by the socket in a node's data directory.
func (c call) bootstrap() (any, error) {
	if body := c.Body(c.Limits().IgnoredBytes); len(body) > 0 {
		c.Refuse("Invalid bootstrap request: secrets are made here, and none is taken")
	}
	if c.Err != nil {
		return nil, c.Err
	}
	secret := c.NewSecret("")
	accessor, hash, _ := access.Parse(secret, c.ClusterID()) // it was just made
	k := &access.Token{Accessor: accessor, Secrets: []access.Secret{{Hash: hash}}, By: c.Principal().Name}
	result, err := c.CoordinateAwaitingLeader(c.R.Context(), kv.Access{Change: access.Founding(k)})
	switch {
	case err != nil:
		return nil, err
	case result.Refusal != "" && c.AccessTable().Bootstrapped:
		return nil, &web.Refusal{Status: http.StatusForbidden, Text: fmt.Sprintf("Permission denied: ACL bootstrap no longer allowed (reset index: %d)", c.AccessTable().Revision)}
	case result.Refusal != "":
		return nil, consulError(result.Refusal)
	}
	k.Created = c.World.Now().UnixMilli()
	c.W.Header().Set("Cache-Control", "no-store")
	return shownToken(k, secret), nil
}
