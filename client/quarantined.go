package client

import (
	"context"
	"fmt"
	"net/url"
	"slices"
)

// Quarantined returns the instances in quarantine, of one application or, with "", of all, sorted by
// application and id. Explain says who put one there, and why.
func (c *Client) Quarantined(ctx context.Context, app string) ([]Instance, error) {
	parameters := url.Values{"quarantined": {"true"}}
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Instance
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the quarantined instances: %w", err)
	}
	return slices.DeleteFunc(all, func(i Instance) bool { return i.QuarantinedUntil == 0 }), nil
}
