package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	if err := c.awaitNodes(ctx, key, index); err != nil {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE, but not everywhere yet: %w", key, err)
	}
	if !wait(ctx, settle) {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE everywhere, but clients may not have fetched it yet: %w", key, context.Cause(ctx))
	}
	return nil
}

// awaitNodes waits until every node shows that an instance is out of service, which was done by the
// change of an index.
func (c *Client) awaitNodes(ctx context.Context, key registry.Key, index string) error {
	var late error
	for {
		behind := c.behind(ctx, key, index)
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

// behind names the nodes that do not show yet what awaitNodes waits for; nil if all do.
func (c *Client) behind(ctx context.Context, key registry.Key, index string) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var late []string
	for _, n := range status.Nodes {
		switch {
		case status.Mode == "ap": // each node counts its own changes
			if err := c.drained(ctx, n, key); err != nil {
				late = append(late, fmt.Sprintf("%s (%s): %v", n.ID, n.HTTP, err))
			}
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

// drained asks a node whether it knows of an instance's override, or does not show it at all. The
// status itself says less: an instance that reports DOWN stays so.
func (c *Client) drained(ctx context.Context, n NodeStatus, key registry.Key) error {
	scheme, _, _ := strings.Cut(c.servers.order()[0].url, "://") // all nodes have the same
	q := call{method: http.MethodGet, path: []string{"v1", "rollcall", "apps"}, query: url.Values{"app": {key.App}}}
	a, err := c.try(ctx, &server{url: scheme + "://" + n.HTTP}, q)
	var shown []Instance
	if err == nil {
		err = a.decode(&shown)
	}
	if err != nil {
		return err
	}
	for _, i := range shown {
		if i.ID == key.ID && i.Overridden != registry.OutOfService.String() {
			return fmt.Errorf("shows it as %s", i.Status)
		}
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
