package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// SelfPreservation returns whether evictions are withheld, and why.
func (c *Client) SelfPreservation(ctx context.Context) (SelfPreservation, error) {
	var p SelfPreservation
	err := c.readJSON(ctx, &p, preservationPath()...)
	return p, err
}

// ReleaseSelfPreservation lets evictions go on although too few leases are fresh, until that was not
// so once. A StatusError of 409: it is off or released already.
func (c *Client) ReleaseSelfPreservation(ctx context.Context, by registry.Act) (SelfPreservation, error) {
	return c.preserve(ctx, "release", by, 0)
}

// HoldSelfPreservation withholds every eviction for a time (1 s to 168 h), whatever the numbers say.
func (c *Client) HoldSelfPreservation(ctx context.Context, by registry.Act, d time.Duration) (SelfPreservation, error) {
	return c.preserve(ctx, "hold", by, d)
}

// preserve performs an operator's act and returns what holds afterwards.
func (c *Client) preserve(ctx context.Context, act string, by registry.Act, d time.Duration) (SelfPreservation, error) {
	var p SelfPreservation
	a, err := c.do(ctx, call{method: http.MethodPost, path: append(preservationPath(), act), query: actQuery(by, d), write: true})
	if err == nil && a.status == http.StatusConflict && a.repeated {
		return c.SelfPreservation(ctx) // an earlier try did it, as far as anybody can tell
	}
	if err == nil {
		err = a.decode(&p)
	}
	if err != nil {
		return SelfPreservation{}, fmt.Errorf("%s self-preservation: %w", act, err)
	}
	return p, nil
}

func preservationPath() []string { return []string{"v1", "rollcall", "self-preservation"} }
