package own

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// prunedTogether is how many instances are checked again and removed together.
const prunedTogether = 100

// prune is POST /v1/rollcall/prune?not-passing: it removes the instances whose status is not UP, of all services or of
// one, and names them. It leaves quarantined instances alone: an operator has decided about them.
func (c call) prune() (any, error) {
	if !c.Present("not-passing") {
		c.Refuse("what is to be removed must be said: not-passing, the instances whose status is not UP")
	}
	dry, service := c.Present("dry-run"), strings.ToUpper(c.Text("service"))
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.Err
	}
	v, err := c.Newest(c.R.Context())
	if err == nil {
		err = c.StillAllowed()
	}
	if err != nil {
		return nil, err
	}
	pruned := []api.Pruned{} // shown as an empty list, not as null
	var keys []registry.Key
	for l := range web.LeasesOf(v.View, service) {
		switch {
		case l.Instance.Status == registry.Up:
		case dry:
			pruned = append(pruned, prunedOf(v.View, l))
		default:
			keys = append(keys, l.Key())
		}
	}
	for batch := range slices.Chunk(keys, prunedTogether) {
		removed, err := c.pruneBatch(c.R.Context(), batch)
		if err != nil {
			return nil, err
		}
		pruned = append(pruned, removed...)
	}
	return pruned, nil
}

// pruneNeeds returns the need to override the application that is pruned, or all.
func pruneNeeds(c *web.Call) []access.Need {
	return []access.Need{{Resource: access.App, Name: strings.ToUpper(c.Text("service")), Verb: access.Override}}
}

// pruneBatch removes instances that are still not passing: one may have recovered while others were removed. It may
// even recover between this check and the removal.
func (o *Own) pruneBatch(ctx context.Context, keys []registry.Key) ([]api.Pruned, error) {
	v, err := o.Newest(ctx)
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
	results, err := registry.Unrevoked(o.PerformAllowed(ctx, ops...)) // the need is pruneNeeds, not to cancel each
	if err != nil {
		return nil, web.WriteError(err)
	}
	var removed []api.Pruned
	for i, result := range results {
		o.CountOperation(ops[i], registry.FromClient, web.OutcomeNames[result.Outcome])
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
