package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// drainPoll is the time between two looks at the cluster's nodes.
const drainPoll = 200 * time.Millisecond

// Drain takes an instance out of service for good: it overrides its status with OUT_OF_SERVICE,
// waits until every node of the cluster has applied that, and then for the time that polling clients
// need to fetch it (settle; stock clients fetch every 30 s). by is as of Override.
//
// A node that cannot be reached keeps it waiting until ctx ends; the error then names it. The
// override stays in any case.
func (c *Client) Drain(ctx context.Context, key registry.Key, settle time.Duration, by registry.Act) error {
	index, err := c.Override(ctx, key, registry.OutOfService, by, 0)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if err := c.awaitNodes(ctx, index); err != nil {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE, but not everywhere yet: %w", key, err)
	}
	if !wait(ctx, settle) {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE everywhere, but clients may not have fetched it yet: %w", key, context.Cause(ctx))
	}
	return nil
}

// awaitNodes waits until every node has applied the change of an index.
func (c *Client) awaitNodes(ctx context.Context, index string) error {
	var late error
	for {
		behind := c.behind(ctx, index)
		if behind == nil || refused(behind) {
			return behind
		}
		if late == nil || ctx.Err() == nil {
			late = behind // not that the question itself was cut off
		}
		if !wait(ctx, drainPoll) {
			return fmt.Errorf("%w: %w", late, context.Cause(ctx))
		}
	}
}

// behind names the nodes that have not applied the change of an index; nil if all have.
func (c *Client) behind(ctx context.Context, index string) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var late []string
	for _, n := range status.Nodes {
		switch {
		case n.Index == "":
			late = append(late, fmt.Sprintf("%s (%s) is %s", n.ID, cmp.Or(n.HTTP, n.Cluster), n.Role))
		case !reached(n.Index, index):
			late = append(late, fmt.Sprintf("%s (%s) is at %s, before %s", n.ID, n.HTTP, n.Index, index))
		}
	}
	switch {
	case len(late) > 0:
		return errors.New(strings.Join(late, ", "))
	case len(status.Nodes) == 0:
		return errors.New("the cluster names no nodes")
	}
	return nil
}

// reached says whether a node at one index has applied the change of another. Indexes of two epochs
// cannot be compared.
func reached(node, want string) bool {
	epoch, at, ok := parseIndex(node)
	wantEpoch, wantAt, wantOK := parseIndex(want)
	return ok && wantOK && epoch == wantEpoch && at >= wantAt
}

// parseIndex splits epoch-index.
func parseIndex(text string) (epoch string, index uint64, ok bool) {
	i := strings.LastIndexByte(text, '-')
	if i < 0 {
		return "", 0, false
	}
	index, err := strconv.ParseUint(text[i+1:], 10, 64)
	return text[:i], index, err == nil
}
