package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// PruneOptions say what Prune removes.
type PruneOptions struct {
	Service string // of one service only; "": of all
	DryRun  bool   // remove nothing, say what would be removed
}

// Prune removes the instances that are not passing, which are those whose status is not UP, and returns
// them. Those in quarantine stay: an operator decided what becomes of them.
func (c *Client) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	q := url.Values{"not-passing": {""}}
	if o.Service != "" {
		q.Set("service", o.Service)
	}
	if o.DryRun {
		q.Set("dry-run", "")
	}
	var all []Pruned
	a, err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "rollcall", "prune"}, query: q, write: !o.DryRun})
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	return all, nil
}
