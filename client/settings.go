package client

import (
	"context"
	"fmt"
)

// Settings returns what the present leader brought (GET /v1/rollcall/settings), which may differ from
// a node's own configuration.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	if err := c.readJSON(ctx, &s, "v1", "rollcall", "settings"); err != nil {
		return nil, fmt.Errorf("read the cluster's settings: %w", err)
	}
	return s, nil
}
