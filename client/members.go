package client

import (
	"context"
	"fmt"
	"net/http"
)

// RemoveMember takes a node out of the cluster for good: its data directory is of no use any more,
// its name is free for a node with an empty one. ErrUnknownMember: there is none of that name.
func (c *Client) RemoveMember(ctx context.Context, name string) error {
	a, err := c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "rollcall", "members", name}, write: true})
	if err == nil {
		err = removal(a)
	}
	if err != nil {
		return fmt.Errorf("remove node %q: %w", name, err)
	}
	return nil
}

func removal(a answer) error {
	switch {
	case a.status == http.StatusNotFound && a.repeated:
		return nil // an earlier try did it, as far as anybody can tell, and it is gone
	case a.status == http.StatusNotFound:
		return ErrUnknownMember
	}
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	return nil
}
