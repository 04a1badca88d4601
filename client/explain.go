package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Explain says what is known of an instance, also after it is gone. ErrNotRegistered: nothing is
// remembered of it.
func (c *Client) Explain(ctx context.Context, key registry.Key) (Explanation, error) {
	var e Explanation
	err := c.readJSON(ctx, &e, ownPath(key, "explain")...)
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		err = fmt.Errorf("%w, and nothing is remembered of it", ErrNotRegistered)
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", key, err)
	}
	return e, nil
}
