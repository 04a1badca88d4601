package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/audit"
)

// The audit gets every operation of a client's call except renewals, operators' acts that are not operations, and
// samples of the calls that were denied, or would be. In mode off, where callers need no name, it gets only operators'
// acts.

// asker describes the request behind a context's calls.
type asker struct {
	id, remote, method, path string
	operates                 bool         // its route is for operators
	by                       registry.Act // see Call.Explain
}

type askerKey struct{}

// asking returns a context for the calls of a request; id is its id, or "".
func asking(ctx context.Context, r *http.Request, id string, operates bool) context.Context {
	return context.WithValue(ctx, askerKey{}, &asker{id: id, remote: r.RemoteAddr, method: r.Method, path: r.URL.Path, operates: operates})
}

// operating reports whether a need is an operator's.
func operating(n access.Need) bool {
	return n.Verb == access.Override || n.Verb == access.Write && (n.Resource == access.Operator || n.Resource == access.Auth)
}

// record returns a record with what is known of every call of a context.
func (n *Node) record(ctx context.Context) api.AuditRecord {
	r := api.AuditRecord{Time: n.World.Now().UTC(), Node: n.Name}
	if a, _ := ctx.Value(askerKey{}).(*asker); a != nil {
		r.RequestID = a.id
		if addr := addressIn(a.remote); addr.IsValid() {
			r.Address = addr.String()
		}
	}
	if p := principalOf(ctx); p != nil {
		r.Principal, r.Accessor, r.Via = p.Name, p.Accessor, p.Via
	}
	return r
}

// recordDenial records a sample of the calls that were denied, or would be.
func (n *Node) recordDenial(ctx context.Context, need access.Need, outcome string) {
	if n.Audit == nil {
		return
	}
	r := n.record(ctx)
	r.Operation, r.Resource, r.Outcome = need.Verb.String(), resourceOf(need), outcome
	n.recordSample(ctx, r)
}

// recordFailure records a bad credential.
func (n *Node) recordFailure(ctx context.Context, r *http.Request, outcome string, err error) {
	if n.Audit == nil {
		return
	}
	if ctx.Value(askerKey{}) == nil { // a heartbeat, which has no id unless the caller set one
		ctx = n.askingBeat(ctx, r)
	}
	rec := n.record(ctx)
	rec.Operation, rec.Outcome, rec.Says = "authenticate", outcome, err.Error()
	text, _ := credentialOf(r, n.access.TokenInQuery)
	if accessor, _, wrong := access.Parse(text, n.access.cluster()); wrong == nil {
		rec.Accessor = accessor
	}
	n.recordSample(ctx, rec)
}

// askingBeat returns the context of a refused heartbeat.
func (n *Node) askingBeat(ctx context.Context, r *http.Request) context.Context {
	if n.Audit == nil {
		return ctx
	}
	return asking(ctx, r, givenID(r), false)
}

func (n *Node) recordSample(ctx context.Context, r api.AuditRecord) {
	by := audit.Caller{Principal: r.Principal}
	if a, _ := ctx.Value(askerKey{}).(*asker); a != nil {
		r.Name = a.method + " " + a.path
		if addr := addressIn(a.remote); addr.IsValid() {
			by.From = NetworkOf(addr)
		}
	}
	n.Audit.RecordTry(by, r)
}

// resourceOf returns what a need is about, in the words of a rule.
func resourceOf(n access.Need) string {
	if n == anything {
		return ""
	}
	return strings.TrimSuffix(n.String(), " "+n.Verb.String())
}

// deed is something that a client has done: an operation, or a part of one.
type deed struct {
	operation string
	needs     []access.Need // of its sender; empty if it concerns nothing that exists
	name      string        // of its object
	grants    string        // see api.AuditRecord
	by        registry.Act
	at        int // index of its operation in the call
}

// says returns the author and the reason that the caller, with or without ("") a principal, gave.
func (d *deed) says(principal string) string {
	author := d.by.Says
	if principal == "" && !strings.HasPrefix(d.by.Author, "from ") {
		author = d.by.Author
	}
	if author == "" || d.by.Reason == "" {
		return author + d.by.Reason
	}
	return author + ": " + d.by.Reason
}

// recorded returns the deeds that the audit must have. It is called before they are done, because afterwards nobody
// knows whose a service was.
func (n *Node) recorded(ctx context.Context, deeds []deed) []deed {
	if n.access.asks() {
		return deeds
	}
	a, _ := ctx.Value(askerKey{}).(*asker)
	p := principalOf(ctx)
	if a != nil && a.operates || p != nil && p.all {
		return deeds
	}
	return slices.DeleteFunc(deeds, func(d deed) bool { return !slices.ContainsFunc(d.needs, operating) })
}

// acts lists the names of operators' acts.
var acts = []string{
	"status", "status_delete", "quarantine", "self_preservation", "cancel", // the last one by prune
	"log_level", "upgrade_finalize", "snapshot_save", "snapshot_restore", "peer_repair", "peer_pause", "peer_resume", "sender_forget", "member_remove", "leadership_transfer",
	"auth_bootstrap", "auth_mode", "role_put", "role_delete", "token_create", "token_rotate", "token_revoke",
}

// recordDeed records the outcome of a deed.
func (n *Node) recordDeed(ctx context.Context, d deed, outcome string, index uint64, err error) {
	r := n.record(ctx)
	a, _ := ctx.Value(askerKey{}).(*asker)
	if a != nil && d.by == (registry.Act{}) {
		d.by = a.by
	}
	r.Operation, r.Name, r.Grants, r.Says, r.Outcome = d.operation, d.name, d.grants, d.says(r.Principal), outcome
	if len(d.needs) > 0 {
		r.Resource = resourceOf(d.needs[0])
	}
	if !n.WithoutConsensus {
		r.Index = index
	}
	if err != nil {
		r.Outcome = outcomeOf(err)
		if refused := RefusalOf(err); refused.Text != "" && r.Says == "" {
			r.Says = refused.Text
		}
	}
	if isAct := a != nil && a.operates || slices.ContainsFunc(d.needs, operating); isAct && r.Outcome == api.AuditDone {
		n.acts.WithLabelValues(d.operation).Inc()
	}
	n.Audit.Record(r)
}

// outcomeOf returns the audit's word for the outcome of a call that failed.
func outcomeOf(err error) string {
	switch status := RefusalOf(err).Status; {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return api.AuditFailed
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return api.AuditDenied
	case status < http.StatusInternalServerError:
		return api.AuditRefused
	}
	return api.AuditFailed
}

// did records a deed that appears in none of a client's operations, and returns its error.
func (n *Node) did(ctx context.Context, d deed, err error) error {
	if n.Audit != nil {
		n.recordDeed(ctx, d, api.AuditDone, 0, err)
	}
	return err
}

// deedsIn returns those of a client's operations that belong in the audit.
func (n *Node) deedsIn(ctx context.Context, origin registry.Origin, ops []registry.Op) (deeds []deed) {
	if n.Audit == nil || origin.Replicated() {
		return nil
	}
	if _, renews := ops[0].(registry.Renew); renews && len(ops) == 1 {
		return nil
	}
	v := StaleView(n.Service)
	for i, op := range ops {
		name, by := nameOf(op)
		deeds = append(deeds, deed{operation: registry.Operations.Name(op), needs: registry.Needs(op, v), name: name, grants: setBy(op), by: by, at: i})
	}
	return n.recorded(ctx, deeds)
}

// recordAll records the outcomes of the deeds that deedsIn returned.
func (n *Node) recordAll(ctx context.Context, deeds []deed, results []registry.Result, err error) {
	for _, d := range deeds {
		if err != nil {
			n.recordDeed(ctx, d, "", 0, WriteError(err))
			continue
		}
		outcome := api.AuditRefused
		result := results[d.at]
		switch {
		case d.operation == "check" && result.Outcome == registry.Done && result.Index == 0:
			continue // a heartbeat
		case result.Outcome == registry.Done || result.Outcome == registry.KeptExisting:
			outcome = api.AuditDone
		case result.Outcome == registry.Revoked:
			outcome = api.AuditDenied
		}
		n.recordDeed(ctx, d, outcome, uint64(result.Index), nil)
	}
}

// setBy returns what an operator's act sets, and for how long, or "ended" for an act that ends one.
func setBy(op registry.Op) string {
	forTime := func(what string, ms int64) string {
		if ms == 0 {
			return what
		}
		return strings.TrimSpace(what + " for " + (time.Duration(ms) * time.Millisecond).String())
	}
	switch op := op.(type) {
	case registry.SetOverride:
		if op.Drain {
			return op.Status.String() + ", a drain"
		}
		return forTime(op.Status.String(), op.For)
	case registry.DeleteOverride:
		return "ended"
	case registry.Quarantine:
		if op.For == 0 {
			return "ended"
		}
		return forTime("", op.For)
	case registry.SelfPreservation:
		return forTime("", op.For)
	}
	return ""
}

// nameOf returns the name of an operation's object, and whose act it is.
func nameOf(op registry.Op) (name string, by registry.Act) {
	switch op := op.(type) {
	case registry.Register:
		return op.Instance.Key().String(), by
	case registry.Cancel:
		return op.Key.String(), by
	case registry.UpdateMetadata:
		return op.Key.String(), by
	case registry.SetOverride:
		return op.Key.String(), op.By
	case registry.DeleteOverride:
		return op.Key.String(), op.By
	case registry.Quarantine:
		return op.Key.String(), op.By
	case registry.SelfPreservation:
		return op.To.String(), op.By
	case registry.RegisterCatalog:
		if op.Service != nil {
			return placed(op.On(), op.Service.ID), by
		}
		var checks []string // that are registered on their own
		for _, c := range op.Checks {
			checks = append(checks, c.ID)
		}
		return placed(op.On(), strings.Join(checks, ",")), by
	case registry.DeregisterCatalog:
		return placed(op.Node, op.Service, op.Check), by
	case registry.SetCheck:
		return placed(op.Node, op.Check), by
	}
	return "", by
}

// placed names something on a node of the catalog; the logical node has no name.
func placed(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "/")
}

// deedsOf returns the parts of a coordination operation that belong in the audit.
func (n *Node) deedsOf(ctx context.Context, op kv.Op) []deed {
	if n.Audit == nil {
		return nil
	}
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	v, name := StaleView(n.Service), ""
	switch op := op.(type) {
	case kv.RenewSession:
		return nil
	case kv.KeyOp:
		return n.recorded(ctx, []deed{keyDeed(op, v)})
	case kv.Txn:
		return n.recorded(ctx, partsOf(op, v))
	case kv.Access:
		return n.recorded(ctx, changesOf(op, v))
	case kv.CreateSession:
		name = op.ID
	case kv.DestroySession:
		name = op.ID
	case kv.AcquirePermit:
		name = op.Name
	case kv.ReleasePermit:
		name = op.Name
	case kv.LeaveQueue:
		name = op.Name
	}
	return n.recorded(ctx, []deed{{operation: kv.Operations.Name(op), needs: kv.Needs(op, v), name: name}})
}

// verbs maps verbs to the words of Consul's transactions.
var verbs = map[kv.Verb]string{
	kv.Set: "set", kv.CAS: "cas", kv.Acquire: "lock", kv.Release: "unlock", kv.Delete: "delete", kv.DeleteCAS: "delete-cas", kv.DeleteTree: "delete-tree",
}

func keyDeed(op kv.KeyOp, v *registry.View) deed {
	return deed{operation: "key_" + verbs[op.Verb], needs: kv.Needs(op, v), name: op.Key}
}

// partsOf returns the changes of a transaction.
func partsOf(op kv.Txn, v *registry.View) (deeds []deed) {
	for _, o := range op.Ops {
		switch {
		case !o.Writes():
		case o.Key != nil:
			deeds = append(deeds, keyDeed(*o.Key, v))
		case o.Catalog != nil:
			does := "catalog_deregister"
			if o.Catalog.Register != nil {
				does = "catalog_register"
			}
			deeds = append(deeds, deed{operation: does, needs: o.Catalog.Needs(v), name: placed(o.Catalog.Node, o.Catalog.Service, o.Catalog.Check)})
		default:
			destroys := kv.DestroySession{ID: o.Session}
			deeds = append(deeds, deed{operation: kv.Operations.Name(destroys), needs: kv.Needs(destroys, v), name: o.Session})
		}
	}
	return deeds
}

// changesOf returns the changes of roles, tokens and the mode.
func changesOf(op kv.Access, v *registry.View) (deeds []deed) {
	add := func(does, name, grants string) {
		deeds = append(deeds, deed{operation: does, needs: kv.Needs(op, v), name: name, grants: grants})
	}
	if op.Bootstrap {
		add("auth_bootstrap", "", "")
	}
	if op.Mode != access.Unset {
		add("auth_mode", op.Mode.String(), "")
	}
	for _, r := range op.PutRoles {
		add("role_put", r.Name, r.String())
	}
	for _, name := range op.DropRoles {
		add("role_delete", name, "")
	}
	for _, k := range op.Create {
		add("token_create", placed(k.Name, k.Accessor), grantsOf(k))
	}
	for _, r := range op.Rotate {
		add("token_rotate", r.Accessor, untilText("the old secret", r.Until))
	}
	for _, accessor := range op.Revoke {
		add("token_revoke", accessor, "")
	}
	return deeds
}

// grantsOf describes a token's grants, without its secret.
func grantsOf(k *access.Token) string {
	text := "roles " + strings.Join(k.Roles, ",")
	if k.App != "" {
		text += "; app " + k.App
	}
	if k.Expires != 0 {
		text += "; " + untilText("good", k.Expires)
	}
	return text
}

func untilText(what string, wall int64) string {
	return what + " until " + time.UnixMilli(wall).UTC().Format(time.RFC3339)
}

// recordParts records the outcomes of the deeds that deedsOf returned.
func (n *Node) recordParts(ctx context.Context, deeds []deed, result kv.Result, err error) {
	outcome := api.AuditRefused
	if result.Refusal == "" && (result.OK || result.Index != 0 || result.Place != 0) {
		outcome = api.AuditDone
	}
	for _, d := range deeds {
		if result.Refusal != "" {
			d.by.Reason = result.Refusal
		}
		n.recordDeed(ctx, d, outcome, uint64(result.Index), err)
	}
}
