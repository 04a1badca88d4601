package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// OutcomeNames are the label values of registry outcomes.
var OutcomeNames = [...]string{
	registry.Done:           "done",
	registry.NotFound:       "not_found",
	registry.Newer:          "newer",
	registry.Older:          "older",
	registry.KeptExisting:   "kept_existing",
	registry.DeadHandle:     "gone_handle",
	registry.Refused:        "refused",
	registry.UnknownService: "unknown_service",
	registry.NameTaken:      "name_taken",
	registry.NoTTL:          "no_ttl",
	registry.TooManyChecks:  "too_many_checks",
	registry.AddressTaken:   "address_taken",
	registry.CheckTaken:     "check_taken",
	registry.Revoked:        "revoked",
	registry.TooMany:        "too_many",
	registry.Held:           "held",
	registry.Panicked:       "panicked",
}

// CountOperation counts one registry operation; err is what Apply returned for it.
func (n *Node) CountOperation(op registry.Op, origin registry.Origin, outcome string) {
	from := "client"
	if origin.Replicated() {
		from = "replication"
	}
	n.operations.WithLabelValues(registry.Operations.Name(op), from, outcome).Inc()
}

// renewOutcomes is the number of outcomes that a renewal can have.
const renewOutcomes = int(registry.Refused) + 1

// CountRenewal counts a renewal by its outcome.
func (n *Node) CountRenewal(origin registry.Origin, outcome registry.Outcome) {
	if origin.Replicated() {
		n.peerRenewals[outcome].Inc()
		return
	}
	n.clientRenewals[outcome].Inc()
}

// contactEvery is how often a contact with a Eureka server is recorded, ms of lease clock.
const contactEvery = 1000

// Perform applies a request's operations in order, as one unit of work. An operation from a Eureka server also shows
// that its link is alive, which is recorded with it.
//
// The context's principal must be allowed to do each of them; for operations that servers replicate, to exchange with
// their datacenter.
func (n *Node) Perform(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if err := n.allow(ctx, n.needsOf(origin, ops)...); err != nil {
		return nil, err
	}
	if !origin.Replicated() {
		return n.performAll(ctx, ops)
	}
	if !n.contactIsDue(origin.DC) {
		return n.Service.Apply(ctx, origin, ops...)
	}
	contact := registry.Contact{DC: origin.DC, Cut: n.Cut(origin.DC).Milliseconds()}
	results, err := n.Service.Apply(ctx, origin, append([]registry.Op{contact}, ops...)...)
	if err != nil {
		return nil, err
	}
	return results[1:], nil
}

// PerformAllowed performs a client's operations that were allowed by other rights than their own needs: Apply then
// only checks the token itself again.
func (n *Node) PerformAllowed(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	by := access.SenderOf(ctx)
	by.Judged = 0
	return n.performAll(access.As(ctx, by), ops)
}

// performAll applies a client's operations, and records them.
func (n *Node) performAll(ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
	deeds := n.deedsIn(ctx, registry.FromClient, ops)
	results, err := n.Service.Apply(ctx, registry.FromClient, ops...)
	n.recordAll(ctx, deeds, results, err)
	return results, err
}

// PerformAwaitingLeader performs one operation of a client on the catalog, and waits for a leader as long as Consul's
// clients need. Each try checks again whether the client may: the id that the operation names may meanwhile be
// another's.
func (n *Node) PerformAwaitingLeader(ctx context.Context, op registry.Op) ([]registry.Result, error) {
	var deeds []deed
	results, err := untilLeader(ctx, func(ctx context.Context) ([]registry.Result, error) {
		needs, nothing, err := n.needsByID(ctx, op)
		switch {
		case err != nil:
			return nil, err
		case nothing:
			return []registry.Result{{Outcome: registry.NotFound}}, nil
		}
		if err := n.allow(ctx, needs...); err != nil {
			return nil, err
		}
		deeds = n.deedsIn(ctx, registry.FromClient, []registry.Op{op})
		return n.Service.Apply(ctx, registry.FromClient, op)
	})
	n.recordAll(ctx, deeds, results, err)
	return results, err
}

// needsByID returns what the sender of an operation on the catalog needs, by the newest state: the operation replaces
// or removes what an id names there. A heartbeat, which does neither, is judged by what this node has, if it knows the
// check. If the id names nothing, nothing is needed, and the operation is not performed either: by the time it took
// effect, the id could be another's.
func (n *Node) needsByID(ctx context.Context, op registry.Op) (needs []access.Need, nothing bool, err error) {
	if !n.access.asks() {
		return nil, false, nil
	}
	if _, beats := op.(registry.SetCheck); beats {
		if needs = registry.Needs(op, StaleView(n.Service)); len(needs) > 0 {
			return needs, false, nil
		}
	}
	v, err := n.Newest(ctx)
	if err != nil {
		return nil, false, err
	}
	needs = registry.Needs(op, v.View)
	_, registers := op.(registry.RegisterCatalog)
	return needs, len(needs) == 0 && !registers, nil
}

// needsOf returns what the sender of operations needs.
func (n *Node) needsOf(origin registry.Origin, ops []registry.Op) (all []access.Need) {
	if !n.access.asks() {
		return nil
	}
	if len(ops) == 1 {
		if _, renews := ops[0].(registry.Renew); renews {
			return nil // decided by MayRenew
		}
	}
	if origin.Replicated() {
		return []access.Need{exchanging(origin)}
	}
	v := StaleView(n.Service)
	for _, op := range ops {
		all = append(all, registry.Needs(op, v)...)
	}
	return all
}

// contactIsDue reports whether the last contact with a Eureka server that this node knows of is old. Without
// replication it is never due.
func (n *Node) contactIsDue(server string) bool {
	if n.Cut == nil {
		return false
	}
	v := StaleView(n.Service)
	if v == nil {
		return false
	}
	link, known := v.Link(server)
	return !known || n.Service.Health().Clock-link.LastContact > contactEvery
}

// Apply performs one operation and counts it.
func (c *Call) Apply(origin registry.Origin, op registry.Op) (registry.Result, error) {
	results, err := c.node.Perform(c.R.Context(), origin, op)
	return c.node.CountResult(c.R.Context(), origin, op, results, err)
}

// CountResult counts one operation and returns its result.
func (n *Node) CountResult(
	ctx context.Context, origin registry.Origin, op registry.Op, results []registry.Result, err error,
) (registry.Result, error) {
	if err != nil {
		err = WriteError(err)
		n.CountOperation(op, origin, OutcomeOfError(err))
		return registry.Result{}, err
	}
	n.CountOperation(op, origin, OutcomeNames[results[0].Outcome])
	if results[0].Outcome == registry.Revoked {
		return registry.Result{}, n.lateDenial(ctx)
	}
	return results[0], nil
}

// OutcomeOfError returns the metrics' word for a failed Apply.
func OutcomeOfError(err error) string {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, registry.ErrNoLeader):
		return "no_leader"
	}
	return "error"
}

// LabelWrite names the version of the registry that the write made, if any.
func (n *Node) LabelWrite(header http.Header, result registry.Result) {
	if result.Index == 0 {
		return
	}
	if v := StaleView(n.Service); v != nil {
		header.Set("X-Rollcall-Index", FormatIndex(v.Epoch(), result.Index))
	}
}

// CheckQuota refuses a new instance where there are too many.
func (n *Node) CheckQuota(ctx context.Context, key registry.Key) error { return n.Quota(ctx)(key) }

// Quota is CheckQuota for the instances of one call. It may lag by the registrations under way. A state that may lack
// an instance refuses nothing: then the newest state, read once, decides.
func (n *Node) Quota(ctx context.Context) func(registry.Key) error {
	newest := sync.OnceValues(func() (FreshView, error) { return n.Newest(ctx) })
	return func(key registry.Key) error {
		if v := StaleView(n.Service); v == nil || n.quotaIn(v, key) == nil {
			return nil
		}
		v, err := newest()
		if err != nil {
			return err
		}
		return n.quotaIn(v.View, key)
	}
}

func (n *Node) quotaIn(v *registry.View, key registry.Key) error {
	if _, exists := v.Find(key); exists {
		return nil
	}
	if v.Total() >= n.Limits().InstancesTotal {
		return &Refusal{Status: http.StatusInsufficientStorage, Text: "the registry is full"}
	}
	if app, ok := v.App(key.App); ok && app.Len() >= n.Limits().InstancesInApp {
		return &Refusal{Status: http.StatusTooManyRequests, Text: "the application has too many instances"}
	}
	return nil
}

// MayRenew refuses a heartbeat that its sender may not send, and returns the context to perform it in. s belongs to
// its connection, or is nil.
func (n *Node) MayRenew(r *http.Request, origin registry.Origin, app string, s *Standing) (context.Context, error) {
	if origin.Replicated() || strings.Contains(r.URL.RawQuery, "token=") {
		s = nil // the credential does not come from the connection alone
	}
	by := n.access.tables()
	if n.renews(s, by, app) {
		return s.ctx, nil
	}
	if !n.access.asks() {
		return r.Context(), nil
	}
	ctx, err := n.enter(r)
	if err != nil {
		return nil, err
	}
	need := registry.ToRegister(app)
	if origin.Replicated() {
		need = exchanging(origin)
	}
	if p := principalOf(ctx); !n.allows(p, need) {
		return ctx, n.allow(n.askingBeat(ctx, r), need)
	} else if s != nil {
		*s = Standing{by: by, ends: p.ends, ctx: ctx, app: app}
	}
	return ctx, nil
}
