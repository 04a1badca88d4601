package node

import (
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// authFileRecord is for the audit: other roles and tokens of auth.file are in force, though no call has changed them.
func authFileRecord(node string, old, now *access.Table) api.AuditRecord {
	come, left := tokensBeside(now, old), tokensBeside(old, now)
	return api.AuditRecord{
		Time: time.Now().UTC(), Node: node, Via: "file", Operation: "auth_file", Resource: "auth", Outcome: api.AuditDone,
		Grants: fmt.Sprintf("mode %v; %d roles; tokens that came: %v, that left: %v; digest %s, before %s", now.Mode, len(now.Roles), come, left, now.Digest(), old.Digest()),
	}
}

// tokensBeside are the accessors of the tokens that another table has not.
func tokensBeside(t, other *access.Table) []string {
	accessors := []string{}
	for _, k := range t.Tokens {
		if other.Holder(k.Accessor) == nil {
			accessors = append(accessors, k.Accessor)
		}
	}
	return accessors
}
