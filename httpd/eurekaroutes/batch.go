package eurekaroutes

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// batch is POST peerreplication/batch: what a peer's clients did, applied in order as one unit of work, because peers
// wait 200 ms for the response. Every item has its own status. A batch is refused as a whole only if the sender may
// try again (503), or if it can never succeed: after any other response the sender drops all items.
func (c call) batch() (any, error) {
	origin := c.serverOf(c.R)
	document, err := c.answerBatch(origin)
	return document, c.recordRefusal(origin, registry.Key{}, "batch", err)
}

func (c call) answerBatch(origin registry.Origin) (any, error) {
	if err := c.Allow(access.Need{Resource: access.Peer, Name: origin.DC, Verb: access.Exchange}); err != nil {
		return nil, err
	}
	items := decodedEureka(c, c.Limits().BatchBytes, func(body []byte, _ eureka.Format) ([]eureka.Item, error) {
		return eureka.DecodeBatch(body) // JSON only; XML does not parse as such
	})
	if c.Err != nil {
		return nil, c.Err
	}
	results, err := c.applyBatch(c.R.Context(), origin, items)
	if err != nil {
		return nil, web.RetryBatch(err)
	}
	return c.document(eureka.Format{}, eureka.AppendBatchResponse(nil, results))
}

// applyBatch returns one result per item, in order.
func (e *Eureka) applyBatch(ctx context.Context, origin registry.Origin, items []eureka.Item) ([]eureka.ItemResult, error) {
	responses := make([]eureka.ItemResult, len(items))
	var ops []registry.Op
	var itemOf []int // the item of each operation
	quota := e.Quota(ctx)
	for i := range items {
		if err := e.refuseItem(quota, &items[i]); err != nil {
			refused := web.RefusalOf(err)
			responses[i].Status = refused.Status
			e.config.Refused(registry.NewKey(items[i].App, items[i].ID), strings.ToLower(items[i].Action.String()), origin.DC, refused.Error())
			continue
		}
		ops, itemOf = append(ops, opOf(&items[i])), append(itemOf, i)
	}
	if len(ops) == 0 {
		return responses, nil
	}
	results, err := e.Perform(ctx, origin, ops...)
	if err != nil {
		err = web.WriteError(err)
		e.countBatch(origin, ops, func(int) string { return web.OutcomeOfError(err) })
		return nil, err
	}
	e.countBatch(origin, ops, func(n int) string { return web.OutcomeNames[results[n].Outcome] })
	for n, result := range results {
		item := &items[itemOf[n]]
		if responses[itemOf[n]].Status = itemStatus(result.Outcome); responses[itemOf[n]].Status == http.StatusOK {
			e.config.Refused(registry.NewKey(item.App, item.ID), "", origin.DC, "")
		}
	}
	return responses, e.addConflicts(ctx, items, responses)
}

func (e *Eureka) countBatch(origin registry.Origin, ops []registry.Op, outcome func(n int) string) {
	for n, op := range ops {
		e.CountOperation(op, origin, outcome(n))
	}
}

// maxItemBytes bounds an instance in a batch: more than any registration may have, and less than an operation, so that
// one that is too large does not spoil the others.
const maxItemBytes = 512 << 10

// refuseItem returns why an item must not be applied, or nil.
func (e *Eureka) refuseItem(quota func(registry.Key) error, item *eureka.Item) error {
	if status := item.Refusal(); status != 0 {
		refused := &web.Refusal{Status: status, Text: "it lacks a field that its action needs"}
		if item.Invalid != nil {
			refused.Text = item.Invalid.Error()
		}
		return refused
	}
	if item.Action != eureka.Register {
		return nil
	}
	if size := len(eureka.AppendInstance(nil, eureka.Format{}, item.Lease, item.Lease.RenewedAt)); size > maxItemBytes {
		return &web.Refusal{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("the instance has %d bytes; at most %d are allowed", size, maxItemBytes)}
	}
	return quota(item.Lease.Instance.Key())
}

// recordRefusal records whether an item that a server replicated by a single call was refused for good, and returns
// err. It leaves out panics, which the store logs and lists, and calls that cannot be performed just now, which are
// repeated.
func (e *Eureka) recordRefusal(origin registry.Origin, key registry.Key, what string, err error) error {
	if !origin.Replicated() {
		return err
	}
	if err == nil {
		e.config.Refused(key, what, origin.DC, "")
		return nil
	}
	switch refused := web.RefusalOf(err); refused.Status {
	case http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		e.config.Refused(key, what, origin.DC, fmt.Sprintf("%d %v", refused.Status, &refused))
	}
	return err
}

// opOf returns the operation of an item that is not refused.
func opOf(item *eureka.Item) registry.Op {
	key := registry.NewKey(item.App, item.ID)
	switch item.Action {
	case eureka.Register:
		return registry.Register{Instance: item.Lease.Instance}
	case eureka.Cancel:
		return registry.Cancel{Key: key}
	case eureka.StatusUpdate:
		return registry.SetOverride{Key: key, Status: item.Status, LastDirty: item.LastDirty}
	case eureka.DeleteStatusOverride:
		return registry.DeleteOverride{Key: key, Fallback: item.Status, LastDirty: item.LastDirty}
	default:
		return registry.Renew{Key: key, LastDirty: item.LastDirty, Overridden: item.Overridden}
	}
}

func itemStatus(outcome registry.Outcome) int {
	switch outcome {
	case registry.Done, registry.KeptExisting:
		return http.StatusOK
	case registry.Older:
		return http.StatusConflict
	case registry.Panicked:
		return http.StatusInternalServerError
	}
	return http.StatusNotFound
}

// addConflicts adds the stored instances to 409 results, for the sender to take over. It leaves out an instance that
// was removed meanwhile, perhaps by a later item.
func (e *Eureka) addConflicts(ctx context.Context, items []eureka.Item, responses []eureka.ItemResult) error {
	var v web.FreshView
	for i := range responses {
		if responses[i].Status != http.StatusConflict {
			continue
		}
		if v.View == nil {
			var err error
			if v, err = e.Newest(ctx); err != nil {
				return err
			}
		}
		if lease, ok := v.Lease(registry.NewKey(items[i].App, items[i].ID)); ok {
			responses[i].Lease, responses[i].Renewed = lease, v.LastRenewal(lease)
		}
	}
	return nil
}
