package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// Status asks one node about the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.readJSON(ctx, &s, "v1", "rollcall", "status")
	return s, err
}

// Events returns what happened lately.
func (c *Client) Events(ctx context.Context) (Events, error) {
	var e Events
	err := c.readJSON(ctx, &e, "v1", "rollcall", "events")
	return e, err
}

// readJSON reads one document of Rollcall's own API.
func (c *Client) readJSON(ctx context.Context, into any, path ...string) error {
	a, err := c.read(ctx, path...)
	if err != nil {
		return err
	}
	return a.decode(into)
}

// decode reads a document of Rollcall's own API, or says why there is none.
func (a answer) decode(into any) error {
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", a.server, err)
	}
	return nil
}
