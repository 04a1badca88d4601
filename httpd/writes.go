package httpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// apply performs one operation and counts it.
func (c *call) apply(origin registry.Origin, op registry.Op) (registry.Result, error) {
	results, err := c.perform(c.r.Context(), origin, op)
	return c.counted(origin, op, results, err)
}

// counted is what came of one operation, after it was counted.
func (h *Handler) counted(origin registry.Origin, op registry.Op, results []registry.Result, err error) (registry.Result, error) {
	if err != nil {
		err = writeOutcome(err)
		h.metrics.count(op, origin, errorOutcome(err))
		return registry.Result{}, err
	}
	h.metrics.count(op, origin, outcomeNames[results[0].Outcome])
	return results[0], nil
}

// errorOutcome is the metrics' word for an Apply that failed.
func errorOutcome(err error) string {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, registry.ErrNoLeader):
		return "no_leader"
	}
	return "error"
}

// labelWrite names the version of the registry that the write made, if it made one.
func (h *Handler) labelWrite(header http.Header, result registry.Result) {
	if result.Index == 0 {
		return
	}
	if v := staleView(h.config.Service); v != nil {
		header.Set("X-Rollcall-Index", formatIndex(v.Epoch(), result.Index))
	}
}

// viewAfterWrite shows at least what was just written; without a quorum, what this node has.
func (h *Handler) viewAfterWrite(ctx context.Context) (freshView, error) {
	return h.viewOrStale(ctx)
}

// register is POST apps/{app}. It answers 204 and nothing else: clients take 200 for a failure.
func (c *call) register() (any, error) {
	instance := decodedEureka(c, c.config.Limits.RegisterBytes, func(body []byte, f eureka.Format) (*registry.Instance, error) {
		return eureka.DecodeRegistration(body, f, c.segment("app"))
	})
	if c.err == nil {
		c.err = c.checkQuota(instance.Key())
	}
	if c.err != nil {
		return nil, c.err
	}
	result, err := c.apply(c.originOf(c.r), registry.Register{Instance: instance})
	if err != nil {
		return nil, err
	}
	labelClamped(c.w.Header(), instance)
	c.labelWrite(c.w.Header(), result)
	c.w.WriteHeader(http.StatusNoContent)
	return answered, nil
}

// unparsable words the error of a body that cannot be read in the body's own form; another error is
// left as it is.
func unparsable(f eureka.Format, err error) error {
	if !errors.Is(err, eureka.ErrUnparsable) {
		return err
	}
	return &refusal{status: http.StatusBadRequest, text: string(eureka.AppendParseError(nil, f)), mediaType: mediaType(f), cause: err}
}

// checkQuota refuses instances that are new where there are too many. It looks at this node's copy,
// so it may be late by the registrations under way.
func (h *Handler) checkQuota(key registry.Key) error {
	v := staleView(h.config.Service)
	if v == nil {
		return nil
	}
	if _, exists := v.Find(key); exists {
		return nil
	}
	if v.Total() >= h.config.Limits.InstancesTotal {
		return &refusal{status: http.StatusInsufficientStorage, text: "the registry is full"}
	}
	if app, ok := v.App(key.App); ok && app.Len() >= h.config.Limits.InstancesInApp {
		return &refusal{status: http.StatusTooManyRequests, text: "the application has too many instances"}
	}
	return nil
}

// labelClamped says which lease times were out of bounds and what was taken instead.
func labelClamped(header http.Header, instance *registry.Instance) {
	interval, duration, clamped := registry.ClampLease(instance.RenewalInterval, instance.Duration)
	if !clamped {
		return
	}
	var said []string
	if instance.RenewalInterval > 0 && interval != instance.RenewalInterval {
		said = append(said, "renewalIntervalInSecs="+strconv.Itoa(int(interval)))
	}
	if instance.Duration > 0 && duration != instance.Duration {
		said = append(said, "durationInSecs="+strconv.Itoa(int(duration)))
	}
	header.Set("X-Rollcall-Lease-Clamped", strings.Join(said, ", "))
}

// change performs an operation on an existing instance: 200, or 404 if there is none, both empty.
func (c *call) change(op registry.Op) (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	result, err := c.apply(c.originOf(c.r), op)
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, notFound
	}
	c.labelWrite(c.w.Header(), result)
	c.w.WriteHeader(http.StatusOK)
	return answered, nil
}

// cancel is DELETE apps/{app}/{id}.
func (c *call) cancel() (any, error) {
	return c.change(registry.Cancel{Key: c.key()})
}

// setStatus is PUT apps/{app}/{id}/status.
func (c *call) setStatus() (any, error) {
	return c.change(registry.SetOverride{Key: c.key(), Status: c.statusValue(true), LastDirty: c.dirty()})
}

// deleteStatus is DELETE apps/{app}/{id}/status.
func (c *call) deleteStatus() (any, error) {
	return c.change(registry.DeleteOverride{Key: c.key(), Fallback: c.statusValue(false), LastDirty: c.dirty()})
}

// updateMetadata is PUT apps/{app}/{id}/metadata: every parameter is an entry.
func (c *call) updateMetadata() (any, error) {
	pairs, err := metadataParams(c.raw)
	if c.err = err; err == nil {
		c.err = c.checkMetadata(c.key(), pairs)
	}
	return c.change(registry.UpdateMetadata{Key: c.key(), Pairs: pairs})
}

// checkMetadata bounds what an instance's metadata would become. Like the quota it looks at this
// node's copy.
func (h *Handler) checkMetadata(key registry.Key, pairs []registry.Pair) error {
	var stored []registry.Pair
	if v := staleView(h.config.Service); v != nil {
		if lease, ok := v.Find(key); ok {
			stored = lease.Instance.Metadata
		}
	}
	return eureka.CheckMetadata(registry.MergePairs(stored, pairs))
}

// metadataParams keeps the order of the query and the first value of a repeated key.
func metadataParams(query string) ([]registry.Pair, error) {
	var pairs []registry.Pair
	seen := map[string]bool{}
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		key, err := unescapeParam(key)
		if err != nil {
			return nil, err
		}
		if value, err = unescapeParam(value); err != nil {
			return nil, err
		}
		if key == "" || seen[key] {
			continue
		}
		seen[key] = true
		pairs = append(pairs, registry.Pair{Key: key, Value: value})
	}
	return pairs, nil
}

// autoScalingGroup is PUT asg/{asg}/status, which exists on AWS only (upstream: ASGResource).
func (c *call) autoScalingGroup() (any, error) {
	return nil, &refusal{status: http.StatusBadRequest}
}

// override is PUT /v1/rollcall/apps/{app}/{id}/override: setStatus with an author, a reason and,
// if asked for, an end.
func (c *call) override() (any, error) {
	return c.act(registry.SetOverride{Key: c.key(), Status: c.statusValue(true), For: c.length(false), By: c.by()})
}

// endOverride is DELETE /v1/rollcall/apps/{app}/{id}/override.
func (c *call) endOverride() (any, error) {
	return c.act(registry.DeleteOverride{Key: c.key(), Fallback: c.statusValue(false), By: c.by()})
}

// quarantine is PUT /v1/rollcall/apps/{app}/{id}/quarantine: out of every list for a time.
func (c *call) quarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), For: c.length(true), By: c.by()})
}

// endQuarantine is DELETE /v1/rollcall/apps/{app}/{id}/quarantine.
func (c *call) endQuarantine() (any, error) {
	return c.act(registry.Quarantine{Key: c.key(), By: c.by()})
}

// act performs an operator's act on an instance. One that changes nothing is answered with the
// version that holds what it asks for.
func (c *call) act(op registry.Op) (any, error) {
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	key := c.key()
	result, err := c.apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, &refusal{status: http.StatusNotFound, text: fmt.Sprintf("%s is not registered", key)}
	}
	v, err := c.viewAfterWrite(c.r.Context())
	if err != nil {
		return nil, err
	}
	done := position{epoch: v.Epoch(), index: result.Index}
	if done.index == 0 {
		done.index = v.Index()
	}
	c.w.Header().Set("X-Rollcall-Index", done.String())
	return api.Acted{App: key.App, ID: key.ID, Index: done.String()}, nil
}

// Bounds of what an operator says of an act, in bytes, and of how long it may hold.
const (
	maxAuthor = 128
	maxReason = 512
	minFor    = time.Second
	maxFor    = 7 * 24 * time.Hour
)

// by reads who acts and why. Who does not say so is known by the address of the caller: an act always has an author.
func (c *call) by() (by registry.Act) {
	if by.Author = c.saying("author", maxAuthor); by.Author == "" {
		host, _, _ := net.SplitHostPort(c.r.RemoteAddr)
		by.Author = "from " + host
	}
	by.Reason = c.saying("reason", maxReason)
	return by
}

// saying reads a text that is shown to people.
func (q *query) saying(name string, limit int) string {
	text := q.text(name)
	switch {
	case len(text) > limit:
		q.refuse("%s has %d bytes; at most %d are kept", name, len(text), limit)
	case !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0:
		q.refuse("%s must be UTF-8 without control characters", name)
	}
	return text
}

// length reads how long an act holds, in ms; 0 if it is not given and need not be.
func (q *query) length(required bool) int64 {
	wrong := fmt.Sprintf("for must be a duration from %v to %vh, like 30m", minFor, maxFor.Hours())
	d, given := q.duration("for", minFor, maxFor, wrong)
	if required && !given {
		q.refuse("%s", wrong)
	}
	return d.Milliseconds()
}

// prunedTogether is how many instances are looked at anew and removed together.
const prunedTogether = 100

// prune is POST /v1/rollcall/prune?not-passing: it removes the instances whose status is not UP, of all
// services or of one, and names them. Those that are quarantined are left alone: an operator decided
// what becomes of them.
func (c *call) prune() (any, error) {
	if !c.present("not-passing") {
		c.refuse("what is to be removed must be said: not-passing, the instances whose status is not UP")
	}
	dry, service := c.present("dry-run"), c.text("service")
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	v, err := c.newest(c.r.Context())
	if err != nil {
		return nil, err
	}
	return c.pruneIn(c.r.Context(), v.View, strings.ToUpper(service), dry)
}

// pruneIn removes the instances of an application ("": of any) that v shows as not passing.
func (h *Handler) pruneIn(ctx context.Context, v *registry.View, app string, dry bool) ([]api.Pruned, error) {
	gone := []api.Pruned{} // shown as an empty list, not as null
	var keys []registry.Key
	for l := range leasesOf(v, app) {
		if l.Instance.Status == registry.Up {
			continue
		}
		if dry {
			gone = append(gone, prunedOf(v, l))
			continue
		}
		keys = append(keys, l.Key())
	}
	for batch := range slices.Chunk(keys, prunedTogether) {
		removed, err := h.pruneBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		gone = append(gone, removed...)
	}
	return gone, nil
}

// pruneBatch removes instances that are not passing even now: one may have recovered while others were
// removed. Between this look and the removal it still may.
func (h *Handler) pruneBatch(ctx context.Context, keys []registry.Key) ([]api.Pruned, error) {
	v, err := h.newest(ctx)
	if err != nil {
		return nil, err
	}
	var ops []registry.Op
	var meant []api.Pruned
	for _, key := range keys {
		if l, ok := v.Lease(key); ok && l.Instance.Status != registry.Up {
			ops, meant = append(ops, registry.Cancel{Key: key}), append(meant, prunedOf(v.View, l))
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	results, err := h.perform(ctx, registry.FromClient, ops...)
	if err != nil {
		return nil, writeOutcome(err)
	}
	var removed []api.Pruned
	for i, result := range results {
		h.metrics.count(ops[i], registry.FromClient, outcomeNames[result.Outcome])
		if result.Outcome == registry.Done {
			removed = append(removed, meant[i])
		}
	}
	return removed, nil
}

func prunedOf(v *registry.View, l *registry.Lease) api.Pruned {
	p := api.Pruned{App: l.Instance.App, ID: l.Instance.ID(), Status: l.Instance.Status.String(), Reason: consul.WhyNotPassing(v, l)}
	if l.Service != nil {
		p.Node = l.Service.Node
	}
	return p
}
