package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// drainPoll is how often the nodes of a cluster are asked whether they show a drain.
const drainPoll = 200 * time.Millisecond

// Drain takes an instance out of service until it starts again, whichever process keeps it registered. (A service
// that wants to stop calls Registration.Drain.) It overrides the status with OUT_OF_SERVICE, waits until every node
// of the cluster has applied that, and then for the time that polling clients need to fetch it (settle; stock clients
// fetch every 30 s). by is as for Override.
//
// It waits for a node that cannot be reached until ctx ends; the error then names the node. The override stays in any
// case. It ends with EndOverride, or when the instance's own client registers it after a removal or with a newer
// lastDirtyTimestamp. In a cluster below level 3 of the formats only EndOverride and a removal end it.
func (c *Client) Drain(ctx context.Context, key registry.Key, settle time.Duration, by registry.Act) error {
	q := ownInstance(http.MethodPut, key, "override").With("value", registry.OutOfService.String(), "drain", "true")
	index, err := c.act(ctx, "drain", key, signed(q, by, 0))
	if err != nil {
		return err
	}
	err = awaitAll(ctx, func(ctx context.Context) error { return c.behind(ctx, key, index) })
	if err != nil {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE, but not everywhere yet: %w", key, err)
	}
	return awaitFetches(ctx, key, settle)
}

// awaitAll calls ask until it names no server that still shows an instance in service.
func awaitAll(ctx context.Context, ask func(context.Context) error) error {
	var late error
	for {
		behind := ask(ctx)
		if behind == nil || refused(behind) {
			return behind
		}
		if late == nil || ctx.Err() == nil {
			late = behind // otherwise the error may only say that ctx cut the question off
		}
		if !wait.For(ctx, drainPoll) {
			return fmt.Errorf("%w: %w", late, context.Cause(ctx))
		}
	}
}

// awaitFetches waits until clients have had time to fetch that an instance is out of service.
func awaitFetches(ctx context.Context, key registry.Key, settle time.Duration) error {
	if !wait.For(ctx, settle) {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE everywhere, but clients may not have fetched it yet: %w", key, context.Cause(ctx))
	}
	return nil
}

// behind returns an error that names the nodes that have not yet applied the change at an index, or nil.
func (c *Client) behind(ctx context.Context, key registry.Key, index string) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var late []string
	for _, n := range status.Nodes {
		switch {
		case status.Mode == "ap": // each node counts its own changes
			// The status alone does not tell: an instance that reports DOWN stays so.
			i, err := c.shownAt(ctx, n, key)
			if i != nil && i.Overridden != registry.OutOfService.String() {
				err = fmt.Errorf("shows it as %s", i.Status)
			}
			if err != nil {
				late = append(late, lateNode(n, err))
			}
		case n.Index == "":
			late = append(late, fmt.Sprintf("%s (%s) is %s", n.ID, cmp.Or(n.HTTP, n.Cluster), n.Role))
		case !reached(n.Index, index):
			late = append(late, fmt.Sprintf("%s (%s) is at %s, before %s", n.ID, n.HTTP, n.Index, index))
		}
	}
	return lagging(late, len(status.Nodes))
}

// lateNode names a node that it waits for, and why.
func lateNode(n NodeStatus, err error) string {
	return fmt.Sprintf("%s (%s): %v", n.ID, cmp.Or(n.HTTP, n.Cluster), err)
}

// shownAt returns an instance as a node itself shows it, or nil if the node does not list it.
func (c *Client) shownAt(ctx context.Context, n NodeStatus, key registry.Key) (*Instance, error) {
	if n.HTTP == "" { // the node that was asked could not reach it
		return nil, errors.New("it is " + n.Role)
	}
	q := transport.Own(http.MethodGet, "apps").With("app", key.App, "consistency", "stale")
	shown, err := transport.AskAt[[]Instance](ctx, c.cluster, c.cluster.Sibling(n.HTTP), q)
	if err != nil {
		return nil, err
	}
	for _, i := range shown {
		if i.ID == key.ID {
			return &i, nil
		}
	}
	return nil, nil
}

// reached reports whether a node at one index has applied the change at another. Indexes of different epochs
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

// Drain takes the instance out of service before it stops: it reports OUT_OF_SERVICE, waits until every server
// shows that, and then for the time that clients need to fetch it (settle; stock clients fetch every 30 s,
// watching ones know at once). Heartbeats go on, but Health is not asked any longer. Drain does not cancel: call
// Deregister or Client.Close afterwards.
//
// It asks every node of a Rollcall cluster, and of stock Eureka servers those that the client was given. It
// waits for a server that does not answer until ctx ends; the error then names the server. The instance stays
// OUT_OF_SERVICE in any case. A server that does not list it, or shows a status that an operator forced upon
// it, is not waited for: no report could change what it shows.
func (r *Registration) Drain(ctx context.Context, settle time.Duration) error {
	ctx, cancel := wait.Either(ctx, r.state.startDraining(r.life))
	defer cancel()
	if err := r.sendDrained(ctx); err != nil {
		return fmt.Errorf("drain %s: the cluster does not know that it is OUT_OF_SERVICE: %w", r.key, err)
	}
	err := awaitAll(ctx, func(ctx context.Context) error { return r.client.showing(ctx, r.key) })
	if err != nil {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE, but not everywhere yet: %w", r.key, err)
	}
	return awaitFetches(ctx, r.key, settle)
}

// sendDrained registers the instance as it is now, without taking a token, and tries again until ctx ends.
func (r *Registration) sendDrained(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := r.register(ctx, whyChanged, r.state.changed)
		if err == nil || refused(err) {
			return err
		}
		if !wait.For(ctx, wait.Retry(failures)) {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// showing returns an error that names the servers that still show an instance in service, or nil.
func (c *Client) showing(ctx context.Context, key registry.Key) error {
	status, err := c.Status(ctx)
	if errors.Is(err, ErrNeedsRollcall) {
		return c.showingEureka(ctx, key)
	}
	if err != nil {
		return err
	}
	var late []string
	for _, n := range status.Nodes {
		i, err := c.shownAt(ctx, n, key)
		if i != nil {
			err = inService(i.Status, i.Overridden)
		}
		if err != nil {
			late = append(late, lateNode(n, err))
		}
	}
	return lagging(late, len(status.Nodes))
}

// showingEureka is showing for stock Eureka servers, which do not know of each other.
func (c *Client) showingEureka(ctx context.Context, key registry.Key) error {
	servers := c.cluster.Known()
	var late []string
	for _, s := range servers {
		a, err := c.cluster.PerformAt(ctx, s, ofInstance(http.MethodGet, key))
		if errors.Is(err, ErrNotRegistered) {
			continue
		}
		var lease *registry.Lease
		if err == nil {
			lease, err = eureka.DecodeInstance(a.Body, eureka.Format{})
		}
		if err == nil {
			forced := ""
			if o := lease.Instance.Overridden; o != registry.Unknown {
				forced = o.String()
			}
			err = inService(lease.Instance.Status.String(), forced)
		}
		if err != nil {
			late = append(late, fmt.Sprintf("%s: %v", s.URL, err))
		}
	}
	return lagging(late, len(servers))
}

// inService returns an error if a status is not OUT_OF_SERVICE, unless an operator has forced another one.
func inService(status, forced string) error {
	if status == registry.OutOfService.String() || forced != "" && forced != registry.OutOfService.String() {
		return nil
	}
	return fmt.Errorf("shows it as %s", status)
}

// lagging joins the reports of late servers. It returns nil if no server is late.
func lagging(late []string, servers int) error {
	switch {
	case len(late) > 0:
		return errors.New(strings.Join(late, ", "))
	case servers == 0:
		return errors.New("the cluster names no nodes")
	}
	return nil
}
