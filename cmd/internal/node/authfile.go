package node

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// authFileRecord returns a record for the audit: other roles and tokens of auth.file are in force, though no call has
// changed them.
func authFileRecord(at time.Time, node string, old, now *access.Table) api.AuditRecord {
	come, left := tokensBeside(now, old), tokensBeside(old, now)
	roles := []string{}
	for _, r := range now.Roles {
		if was := old.Role(r.Name); was == nil || was.String() != r.String() {
			roles = append(roles, r.Name+" = "+r.String())
		}
	}
	for _, r := range old.Roles {
		if now.Role(r.Name) == nil {
			roles = append(roles, r.Name+" left")
		}
	}
	return api.AuditRecord{
		Time: at.UTC(), Node: node, Via: "file", Operation: "auth_file", Resource: "auth", Outcome: api.AuditDone,
		Grants: fmt.Sprintf("mode %v; roles that changed: %s; tokens that came: %v, that left: %v; digest %s, before %s", now.Mode, cmp.Or(strings.Join(roles, " | "), "none"), come, left, now.Digest(), old.Digest()),
	}
}

// tokensBeside returns the accessors of the tokens that another table lacks.
func tokensBeside(t, other *access.Table) []string {
	accessors := []string{}
	for _, k := range t.Tokens {
		if other.Holder(k.Accessor) == nil {
			accessors = append(accessors, k.Accessor)
		}
	}
	return accessors
}
