package eurekaroutes

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// isReplication reports whether another server had the request first. Only an exact true counts, as in upstream.
func isReplication(r *http.Request) bool {
	values := r.Header["X-Netflix-Discovery-Replication"]
	return len(values) > 0 && values[0] == "true"
}

// originOf returns the sender of a request of Eureka's protocol that is not a batch.
func (e *Eureka) originOf(r *http.Request) registry.Origin {
	if isReplication(r) {
		return e.serverOf(r)
	}
	return registry.FromClient
}

// serverOf returns the origin of operations that a Eureka server sends: a datacenter of its own.
func (e *Eureka) serverOf(r *http.Request) registry.Origin {
	if e.config.Sender == nil {
		return registry.FromEureka
	}
	return registry.Origin{
		Kind: registry.RemoteDC,
		DC:   e.config.Sender(r.Header.Get("DiscoveryIdentity-Id"), r.RemoteAddr),
	}
}

// register is POST apps/{app}. Success is exactly 204: clients take 200 for a failure.
func (c call) register() (any, error) {
	origin, key := c.originOf(c.R), registry.NewKey(c.Segment("app"), "")
	instance := decodedEureka(c, c.Limits().RegisterBytes, func(body []byte, f eureka.Format) (*registry.Instance, error) {
		return eureka.DecodeRegistration(body, f, c.Segment("app"))
	})
	if c.Err == nil {
		key = instance.Key()
		c.Err = c.CheckQuota(c.R.Context(), key)
	}
	if c.Err != nil {
		return nil, c.recordRefusal(origin, key, "register", c.Err)
	}
	var before *registry.Instance // with this key, if it has a lease now, as this node knows it
	if v := web.StaleView(c.Service); v != nil {
		if l, ok := v.Find(key); ok && (l.Permanent || c.Service.Health().Clock <= v.Ends(l)) {
			before = l.Instance
		}
	}
	result, err := c.Apply(origin, registry.Register{Instance: instance})
	if c.recordRefusal(origin, key, "register", err) != nil {
		return nil, err
	}
	if !origin.Replicated() {
		c.remark(before, instance)
	}
	labelClamped(c.W.Header(), instance)
	c.LabelWrite(c.W.Header(), result)
	c.W.WriteHeader(http.StatusNoContent)
	return web.Sent, nil
}

// warningHeader reports a probable mistake in an accepted registration.
const warningHeader = "X-Rollcall-Warning"

// remark reports probable mistakes in a client's registration: an address that differs from before, the instance of
// the same id that has a lease; and an id that heartbeats must escape.
func (c call) remark(before, instance *registry.Instance) {
	if before != nil {
		c.recordMove(before, instance)
	}
	if id := instance.ID(); strings.Contains(id, "/") {
		c.W.Header().Set(warningHeader, "the id has a slash: heartbeats must send it as %2F, or they get 404")
		if before == nil {
			c.Log.Warn("an instance was registered with a slash in its id: heartbeats must send it as %2F, or they get 404", "app", instance.App, "id", id)
		}
	}
}

// labelClamped says which lease times were out of bounds, and the times used instead.
func labelClamped(header http.Header, instance *registry.Instance) {
	interval, duration, clamped := registry.ClampLease(instance.RenewalInterval, instance.Duration)
	if !clamped {
		return
	}
	var corrected []string
	if instance.RenewalInterval > 0 && interval != instance.RenewalInterval {
		corrected = append(corrected, "renewalIntervalInSecs="+strconv.Itoa(int(interval)))
	}
	if instance.Duration > 0 && duration != instance.Duration {
		corrected = append(corrected, "durationInSecs="+strconv.Itoa(int(duration)))
	}
	header.Set("X-Rollcall-Lease-Clamped", strings.Join(corrected, ", "))
}

// change performs an operation on an existing instance: 200, or 404 if it does not exist, both empty.
func (c call) change(op registry.Op) (any, error) {
	origin := c.originOf(c.R)
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.recordRefusal(origin, c.Key(), registry.Operations.Name(op), c.Err)
	}
	result, err := c.Apply(origin, op)
	if c.recordRefusal(origin, c.Key(), registry.Operations.Name(op), err) != nil {
		return nil, err
	}
	if result.Outcome == registry.NotFound {
		return nil, web.NotFound
	}
	c.LabelWrite(c.W.Header(), result)
	c.W.WriteHeader(http.StatusOK)
	return web.Sent, nil
}

// cancel is DELETE apps/{app}/{id}.
func (c call) cancel() (any, error) {
	return c.change(registry.Cancel{Key: c.Key()})
}

// setStatus is PUT apps/{app}/{id}/status.
func (c call) setStatus() (any, error) {
	return c.change(registry.SetOverride{Key: c.Key(), Status: c.StatusValue(true), LastDirty: c.LastDirty()})
}

// deleteStatus is DELETE apps/{app}/{id}/status.
func (c call) deleteStatus() (any, error) {
	return c.change(registry.DeleteOverride{Key: c.Key(), Fallback: c.StatusValue(false), LastDirty: c.LastDirty()})
}

// updateMetadata is PUT apps/{app}/{id}/metadata: every parameter is an entry.
func (c call) updateMetadata() (any, error) {
	pairs, err := metadataParams(c.Raw)
	if c.Err = err; err == nil { // like the quota, the bound on what the metadata would become is of this node's copy
		var stored []registry.Pair
		if v := web.StaleView(c.Service); v != nil {
			if lease, ok := v.Find(c.Key()); ok {
				stored = lease.Instance.Metadata
			}
		}
		c.Err = eureka.CheckMetadata(registry.MergePairs(stored, pairs))
	}
	return c.change(registry.UpdateMetadata{Key: c.Key(), Pairs: pairs})
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
		key, err := web.UnescapeParam(key)
		if err != nil {
			return nil, err
		}
		if value, err = web.UnescapeParam(value); err != nil {
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
func (c call) autoScalingGroup() (any, error) {
	return nil, &web.Refusal{Status: http.StatusBadRequest}
}
