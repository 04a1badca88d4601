package api

// AuthStatus is the response to GET /v1/rollcall/auth.
type AuthStatus struct {
	Mode         string  `json:"mode"`          // in force on this node: off, log-only or on
	NodeMode     string  `json:"node_mode"`     // by the node's settings; empty: they say nothing
	ClusterMode  string  `json:"cluster_mode"`  // of the cluster; empty: nothing was ever said
	Bootstrapped bool    `json:"bootstrapped"`  // the first operator was made
	Revision     uint64  `json:"revision"`      // of the newest change of roles and tokens that this node knows
	Age          float64 `json:"age_s"`         // how old what this node knows can be, seconds
	Roles        int     `json:"roles"`         // how many there are
	Tokens       int     `json:"tokens"`        // how many there are
	FileRevision uint64  `json:"file_revision"` // of the node's file of roles and tokens; 0: there is none
	FileDigest   string  `json:"file_digest"`   // of what the file says; nodes of one cluster should have the same
	FileError    string  `json:"file_error"`    // why the file is not in force as it is now, but as it was; empty: it is in force
	Caller       Caller  `json:"caller"`        // who asked
}

// Caller is who a call comes from.
type Caller struct {
	Name     string `json:"name"`     // of the principal; empty: no credential came
	Accessor string `json:"accessor"` // of the token; empty: there is none
	Via      string `json:"via"`      // token, file or admin.sock; empty: no credential came
}

// Role is rules under a name.
type Role struct {
	Name  string   `json:"name"`
	Rules []string `json:"rules"` // such as "app ORDERS read,register"
}

// TokenRequest is the body of POST /v1/rollcall/auth/tokens, and of .../bootstrap.
type TokenRequest struct {
	Name    string   `json:"name"`    // of the principal
	Roles   []string `json:"roles"`   // names of roles that there are
	App     string   `json:"app"`     // what stands for {app} in their rules
	Expires string   `json:"expires"` // a duration after which the token ends, such as "720h"; empty: never
}

// Token is a token without its secret.
type Token struct {
	Accessor string   `json:"accessor"`
	Name     string   `json:"name"`
	Roles    []string `json:"roles"`
	App      string   `json:"app"`
	Secrets  int      `json:"secrets"` // how many are good: while one is exchanged, two
	Created  int64    `json:"created"` // ms since the epoch
	By       string   `json:"by"`      // the principal that made it
	Expires  int64    `json:"expires"` // ms since the epoch; 0: never
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

// AuthCheck is the response to GET /v1/rollcall/auth/check: what is registered, and the present roles would refuse.
type AuthCheck struct {
	VIPs   []RefusedVIP   `json:"vips"`
	Checks []RefusedCheck `json:"checks"`
	More   int            `json:"more"` // how many are left out, beyond 1,000 of each
}

// RefusedVIP is a VIP of an application's instances, and who may register these but not under that VIP.
type RefusedVIP struct {
	App    string   `json:"app"`
	VIP    string   `json:"vip"`    // in capitals
	Roles  []string `json:"roles"`  // that let them register the application
	Tokens []string `json:"tokens"` // the names of their tokens
	Rule   string   `json:"rule"`   // by which they would be allowed
}

// RefusedCheck is a check that its token does not allow.
type RefusedCheck struct {
	Node     string   `json:"node"` // empty: the logical one
	Check    string   `json:"check"`
	Service  string   `json:"service"`  // its id; empty: it is one of the node
	From     string   `json:"from"`     // the address that it was registered from; empty: it is not known
	Token    string   `json:"token"`    // the name of the token; empty: it is no more
	Accessor string   `json:"accessor"` // of the token
	Roles    []string `json:"roles"`    // of the token
	Rule     string   `json:"rule"`     // by which it would be allowed, or the setting
}
