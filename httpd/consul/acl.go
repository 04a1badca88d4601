package consul

import "time"

// ACLToken is a token as Consul shows it (github.com/hashicorp/consul/api v1.34.4, acl.go).
type ACLToken struct {
	AccessorID, SecretID, Description string
	Policies, Roles                   []ACLLink
	Local                             bool
	CreateTime                        time.Time
	ExpirationTime                    *time.Time `json:",omitempty"`
}

// ACLLink names a policy or a role.
type ACLLink struct{ ID, Name string }

// HiddenSecret is in the place of a secret that is not shown.
const HiddenSecret = "<hidden>"

// AnonymousToken is that of callers without one.
var AnonymousToken = ACLToken{
	AccessorID: "00000000-0000-0000-0000-000000000002", SecretID: "anonymous", Description: "Anonymous Token", Policies: []ACLLink{}, Roles: []ACLLink{},
}
