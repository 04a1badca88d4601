package api

// AuthStatus is the response to GET /v1/rollcall/auth.
type AuthStatus struct {
	Mode         string  `json:"mode"`          // in force on this node: off, log-only or on
	NodeMode     string  `json:"node_mode"`     // by the node's settings; empty if they say nothing
	ClusterMode  string  `json:"cluster_mode"`  // of the cluster; empty if it was never set
	Bootstrapped bool    `json:"bootstrapped"`  // the first operator was made
	Revision     uint64  `json:"revision"`      // of the newest change of roles and tokens that this node knows
	Age          float64 `json:"age_s"`         // maximum age of what this node knows, seconds
	Roles        int     `json:"roles"`         // how many there are
	Tokens       int     `json:"tokens"`        // how many there are
	FileRevision uint64  `json:"file_revision"` // of the node's file of roles and tokens; 0 without a file
	FileDigest   string  `json:"file_digest"`   // of the file's content; nodes of one cluster should have the same
	// why an earlier version of the file is in force; empty if the current one is
	FileError string `json:"file_error"`
	Caller    Caller `json:"caller"` // who asked
}

// Caller is the sender of a call.
type Caller struct {
	Name     string `json:"name"`     // of the principal; empty without a credential
	Accessor string `json:"accessor"` // of the token; empty without one
	Via      string `json:"via"`      // token, file or admin.sock; empty without a credential
}

// Role is rules under a name.
type Role struct {
	Name  string   `json:"name"`
	Rules []string `json:"rules"` // such as "app ORDERS read,register"
}

// TokenRequest is the body of POST /v1/rollcall/auth/tokens, and of .../bootstrap.
type TokenRequest struct {
	Name    string   `json:"name"`    // of the principal
	Roles   []string `json:"roles"`   // names of existing roles
	App     string   `json:"app"`     // replaces {app} in their rules
	Expires string   `json:"expires"` // the token's lifetime, such as "720h"; empty for no end
}

// Token is a token without its secret.
type Token struct {
	Accessor string   `json:"accessor"`
	Name     string   `json:"name"`
	Roles    []string `json:"roles"`
	App      string   `json:"app"`
	Secrets  int      `json:"secrets"` // number of good ones: two during a rotation
	Created  int64    `json:"created"` // ms since the epoch
	By       string   `json:"by"`      // the principal that made it
	Expires  int64    `json:"expires"` // ms since the epoch; 0 means never
}

// NewToken is a token with its secret, which is shown once.
type NewToken struct {
	Token
	Secret string `json:"secret"` // what its holder presents
}

// Decision is the response to GET /v1/rollcall/auth/test.
type Decision struct {
	Allowed bool   `json:"allowed"`
	Need    string `json:"need"` // what was asked for
}

// AuthCheck is the response to GET /v1/rollcall/auth/check: the registrations that the current roles would refuse.
type AuthCheck struct {
	VIPs   []RefusedVIP   `json:"vips"`
	Checks []RefusedCheck `json:"checks"`
	More   int            `json:"more"` // how many are left out, beyond 1,000 of each
}

// RefusedVIP is a VIP of an application's instances, with the tokens that may register them, but not under that VIP.
type RefusedVIP struct {
	App    string   `json:"app"`
	VIP    string   `json:"vip"`    // in capitals
	Roles  []string `json:"roles"`  // that allow registering the application
	Tokens []string `json:"tokens"` // the names of their tokens
	Rule   string   `json:"rule"`   // that would allow it
}

// RefusedCheck is a check that its token does not allow.
type RefusedCheck struct {
	Node     string   `json:"node"` // empty for the logical one
	Check    string   `json:"check"`
	Service  string   `json:"service"`  // its id; empty for a check of the node
	From     string   `json:"from"`     // the address that it was registered from; empty if unknown
	Token    string   `json:"token"`    // the token's name; empty if the token no longer exists
	Accessor string   `json:"accessor"` // of the token
	Roles    []string `json:"roles"`    // of the token
	Rule     string   `json:"rule"`     // that would allow it, or the setting
}
