package client

import (
	"context"
	"fmt"
	"net/url"
)

// List returns the listed instances of one application, in any case, or with "" of all, sorted by
// application and id. Unlike Apps and Instances it says whose they are and when they were last
// renewed, and is not kept waiting by a rate limit.
func (c *Client) List(ctx context.Context, app string) ([]Instance, error) {
	parameters := make(url.Values)
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Instance
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	return all, nil
}
