package consul

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// partsHeader counts the steps of a removal that is too large for one. Readers may see the state between two steps.
const partsHeader = "X-Rollcall-Parts"

// Sizes of a step before the last one, and how often a removal starts over if more arrives meanwhile.
const (
	keysInPart     = 1000
	servicesInPart = 250
	maxTries       = 10
)

var errNotEnded = &web.Refusal{Status: http.StatusServiceUnavailable, Retry: true,
	Text: "not everything was removed: more came in the meantime than one step removes; try again"}

// deleteInParts deletes more keys than one operation can: in steps, least recently changed first, and then the rest by
// the operation itself.
func (c call) deleteInParts(op kv.KeyOp) (kv.Result, error) {
	steps := 1
	for range maxTries {
		v, err := c.Coordination.View(c.R.Context(), registry.Linearizable)
		if err != nil {
			return kv.Result{}, err
		}
		for part := range slices.Chunk(v.Oldest(op.Key), keysInPart) {
			ops := make([]kv.Op, len(part))
			for i, key := range part {
				ops[i] = kv.KeyOp{Verb: kv.Delete, Key: key, Fence: op.Fence}
			}
			results, err := c.Coordination.Apply(c.R.Context(), ops...)
			if err != nil {
				return kv.Result{}, err
			}
			last := results[len(results)-1]
			if last.Revoked {
				return last, registry.ErrRevoked
			}
			if !last.OK {
				return last, nil // the fence no longer holds
			}
			steps++
		}
		result, err := c.performOnce(op)
		if err != nil || result.Excess != kv.Crowded {
			c.W.Header().Set(partsHeader, strconv.Itoa(steps))
			return result, err
		}
	}
	return kv.Result{}, errNotEnded
}

// removeNode removes a node with more on it than one operation removes: in steps, the services that were registered
// first go first, and then the rest with the node.
func (c call) removeNode(op registry.DeregisterCatalog) (registry.Result, error) {
	steps := 1
	for range maxTries {
		v, err := c.newest()
		if err != nil {
			return registry.Result{}, err
		}
		if err := c.Allow(registry.Needs(op, v)...); err != nil {
			return registry.Result{}, err
		}
		for ops := range slices.Chunk(oldestOn(v, op.Node), servicesInPart) {
			if _, err := c.Service.Apply(c.R.Context(), registry.FromClient, ops...); err != nil {
				return registry.Result{}, err
			}
			steps++
		}
		result, err := c.applyCatalog(op)
		if err != nil || result.Outcome != registry.TooMany {
			c.W.Header().Set(partsHeader, strconv.Itoa(steps))
			return result, err
		}
	}
	return registry.Result{}, errNotEnded
}

// oldestOn returns removals of a node's services in the order of their registrations, without the newest ones, which
// one operation removes with the node.
func oldestOn(v *registry.View, node string) (ops []registry.Op) {
	services := slices.SortedFunc(v.ServicesOn(node), func(a, b *registry.Lease) int { return cmp.Compare(a.Registered, b.Registered) })
	left := registry.MaxRemoved
	for _, l := range slices.Backward(services) {
		if left -= 1 + len(l.Service.Checks); left < 0 {
			ops = append(ops, registry.DeregisterCatalog{Node: node, Service: l.Service.ID})
		}
	}
	slices.Reverse(ops)
	return ops
}
