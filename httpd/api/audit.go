package api

import "time"

// Audit is what was recorded by the node that was asked (GET /v1/rollcall/audit).
type Audit struct {
	Node    string        `json:"node"`
	Records []AuditRecord `json:"records"` // newest last
}

// AuditRecord is what a caller of a node did, or tried to do.
type AuditRecord struct {
	Time       time.Time `json:"time"`
	Node       string    `json:"node"`                 // that was called
	RequestID  string    `json:"request_id"`           // of the call; empty: it had none
	Principal  string    `json:"principal"`            // name of the caller; empty: no credential came, or none that is good
	Accessor   string    `json:"accessor"`             // of the token; empty: there is none. Of a failed credential the one that was claimed
	Via        string    `json:"via"`                  // token, file or admin.sock; empty: as with Principal
	Address    string    `json:"address"`              // that the call came from, without a port; empty: by admin.sock
	Operation  string    `json:"operation"`            // such as register; of what was denied a rule's verb; authenticate
	Resource   string    `json:"resource"`             // in the words of a rule, such as "app ORDERS"
	Name       string    `json:"name"`                 // of what was to be changed, such as ORDERS/i-1; of what was denied the method and the path
	Grants     string    `json:"grants,omitempty"`     // the rules of a role that was made; the roles of a token, its application and its end; of auth.file what has changed; of an override or a quarantine what was set, and for how long
	Outcome    string    `json:"outcome"`              // one of AuditOutcomes
	Says       string    `json:"says"`                 // what the caller gave as author and reason, or why it failed
	Index      uint64    `json:"index"`                // of the change; 0: there is none, or it is not known
	Suppressed int       `json:"suppressed,omitempty"` // tries of the same caller that were not recorded since the record before, because there were too many
}

// Outcomes of audit records.
const (
	AuditDone            = "done"
	AuditRefused         = "refused" // by a rule of the registry, such as an instance that is not there
	AuditDenied          = "denied"  // for want of permission
	AuditWouldDeny       = "would-deny"
	AuditFailed          = "failed" // it is not known whether it was done, or it could not be tried
	AuditUnauthenticated = "unauthenticated"
)

// AuditOutcomes are all of them.
var AuditOutcomes = []string{AuditDone, AuditRefused, AuditDenied, AuditWouldDeny, AuditFailed, AuditUnauthenticated}
