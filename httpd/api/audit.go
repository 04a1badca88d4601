package api

import "time"

// Audit holds the records of the node that was asked (GET /v1/rollcall/audit).
type Audit struct {
	Node    string        `json:"node"`
	Records []AuditRecord `json:"records"` // newest last
}

// AuditRecord is what a caller of a node did, or tried to do.
type AuditRecord struct {
	Time      time.Time `json:"time"`
	Node      string    `json:"node"`       // that was called
	RequestID string    `json:"request_id"` // of the call; empty if it had none
	Principal string    `json:"principal"`  // name of the caller; empty without a good credential
	Accessor  string    `json:"accessor"`   // of the token, or empty; for a failed credential the claimed one
	Via       string    `json:"via"`        // token, file or admin.sock; empty like Principal
	Address   string    `json:"address"`    // source of the call, without a port; empty over admin.sock
	Operation string    `json:"operation"`  // such as register; for a denial a rule's verb; or authenticate
	Resource  string    `json:"resource"`   // in the words of a rule, such as "app ORDERS"
	Name      string    `json:"name"`       // of the target, such as ORDERS/i-1; for a denial the method and the path
	// for a new role its rules; for a token its roles, application and expiry; for auth.file what changed; for an
	// override or a quarantine what was set, and for how long
	Grants  string `json:"grants,omitempty"`
	Outcome string `json:"outcome"` // one of AuditOutcomes
	Says    string `json:"says"`    // the author and reason that the caller gave, or why it failed
	Index   uint64 `json:"index"`   // of the change; 0 if there is none, or it is unknown
	// unrecorded tries of the same caller since its last record, because there were too many
	Suppressed int `json:"suppressed,omitempty"`
}

// Outcomes of audit records.
const (
	AuditDone            = "done"
	AuditRefused         = "refused" // by a rule of the registry, such as a missing instance
	AuditDenied          = "denied"  // the permission was missing
	AuditWouldDeny       = "would-deny"
	AuditFailed          = "failed" // it is unknown whether it was done, or it could not be tried
	AuditUnauthenticated = "unauthenticated"
)

// AuditOutcomes lists all outcomes.
var AuditOutcomes = []string{AuditDone, AuditRefused, AuditDenied, AuditWouldDeny, AuditFailed, AuditUnauthenticated}
