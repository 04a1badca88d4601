package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Override forces an instance's status, whatever its heartbeats say (DOWN and STARTING that it
// reports win), for a time or, with 0, until EndOverride; then it has the status that it reported
// last. by says who and why: an author of at most 128 bytes and a reason of at most 512.
// It returns the index of the change. ErrNotRegistered: the cluster has no such instance.
func (c *Client) Override(ctx context.Context, key registry.Key, status registry.Status, by registry.Act, d time.Duration) (index string, err error) {
	q := actQuery(by, d)
	q.Set("value", status.String())
	return c.act(ctx, "override", key, call{method: http.MethodPut, path: ownPath(key, "override"), query: q})
}

// EndOverride ends an override; where there is none it does nothing. The instance is UNKNOWN until it
// registers again, which its next heartbeat makes it do. It returns the index of the change.
// ErrNotRegistered: the cluster has no such instance.
func (c *Client) EndOverride(ctx context.Context, key registry.Key, by registry.Act) (index string, err error) {
	return c.act(ctx, "end the override of", key, call{method: http.MethodDelete, path: ownPath(key, "override"), query: actQuery(by, 0)})
}

// Quarantine hides an instance from every list for a time (1 s to 168 h), while its heartbeats are
// accepted. It survives a cancel and registration. by is as of Override. It returns the index of the
// change. ErrNotRegistered: the cluster has no such instance.
func (c *Client) Quarantine(ctx context.Context, key registry.Key, by registry.Act, d time.Duration) (index string, err error) {
	return c.act(ctx, "quarantine", key, call{method: http.MethodPut, path: ownPath(key, "quarantine"), query: actQuery(by, d)})
}

// EndQuarantine lists an instance again. It returns the index of the change. ErrNotRegistered: the
// cluster has no such instance.
func (c *Client) EndQuarantine(ctx context.Context, key registry.Key, by registry.Act) (index string, err error) {
	return c.act(ctx, "end the quarantine of", key, call{method: http.MethodDelete, path: ownPath(key, "quarantine"), query: actQuery(by, 0)})
}

// act performs an operator's act on one instance.
func (c *Client) act(ctx context.Context, operation string, key registry.Key, q call) (index string, err error) {
	q.write = true
	a, err := c.do(ctx, q)
	if err := failed(operation, key, a, err); err != nil {
		return "", err
	}
	var doc api.Acted
	if err := json.Unmarshal(a.body, &doc); err != nil {
		return "", fmt.Errorf("%s %s: done, but the answer of %s cannot be read: %w", operation, key, a.server, err)
	}
	return doc.Index, nil
}

// actQuery is who, why and for how long; what is not given is left out.
func actQuery(by registry.Act, d time.Duration) url.Values {
	q := make(url.Values)
	if by.Author != "" {
		q.Set("author", by.Author)
	}
	if by.Reason != "" {
		q.Set("reason", by.Reason)
	}
	if d != 0 {
		q.Set("for", d.String())
	}
	return q
}

// ownPath is a resource of an instance in Rollcall's own API.
func ownPath(key registry.Key, resource string) []string {
	return []string{"v1", "rollcall", "apps", key.App, key.ID, resource}
}
