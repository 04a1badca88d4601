package httpd

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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
