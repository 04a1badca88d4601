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
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// drainPoll is the time between two questions to the cluster's nodes.
const drainPoll = 200 * time.Millisecond

// Drain takes an instance out of service until it starts again, whichever process keeps it registered (a service that wants
// to end calls Registration.Drain): it overrides its status with OUT_OF_SERVICE,
// waits until every node of the cluster has applied that, and then for the time that polling clients
// need to fetch it (settle; stock clients fetch every 30 s). by is as of Override.
//
// A node that cannot be reached keeps it waiting until ctx ends; the error then names it. The
// override stays in any case, until EndOverride, or until the instance's own client registers it after a removal or with a
// newer lastDirtyTimestamp. At a cluster below level 3 of the formats only EndOverride and a removal end it.
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

// awaitAll waits until ask names no server that does not show yet that an instance is out of service.
func awaitAll(ctx context.Context, ask func(context.Context) error) error {
	var late error
	for {
		behind := ask(ctx)
		if behind == nil || refused(behind) {
			return behind
		}
		if late == nil || ctx.Err() == nil {
			late = behind // not that the question itself was cut off
		}
		if !wait.For(ctx, drainPoll) {
			return fmt.Errorf("%w: %w", late, context.Cause(ctx))
		}
	}
}

// awaitFetches waits for the time that clients need to fetch that an instance is out of service.
func awaitFetches(ctx context.Context, key registry.Key, settle time.Duration) error {
	if !wait.For(ctx, settle) {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE everywhere, but clients may not have fetched it yet: %w", key, context.Cause(ctx))
	}
	return nil
}

// behind names the nodes that have not applied the change of an index yet; nil if all have.
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

// lateNode names a node that is waited for, and says why.
func lateNode(n NodeStatus, err error) string {
	return fmt.Sprintf("%s (%s): %v", n.ID, cmp.Or(n.HTTP, n.Cluster), err)
}

// drained is nil if a node knows of an instance's override, or does not show the instance at all. The
// status itself says less: an instance that reports DOWN stays so.
func (c *Client) drained(ctx context.Context, n NodeStatus, key registry.Key) error {
	i, err := c.shownAt(ctx, n, key)
	if err == nil && i != nil && i.Overridden != registry.OutOfService.String() {
		err = fmt.Errorf("shows it as %s", i.Status)
	}
	return err
}

// shownAt returns an instance as a node itself shows it; nil: the node does not list it.
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

// Drain takes the instance out of service before its end: it reports OUT_OF_SERVICE, waits until every
// server shows that, and then for the time that clients need to fetch it (settle; stock clients fetch
// every 30 s, watching ones know at once). Heartbeats go on, and Health is not asked any more. It does
// not cancel: Deregister or Client.Close does, afterwards.
//
// Every node of a Rollcall cluster is asked; of stock Eureka servers those that the client was given. A
// server that does not answer keeps it waiting until ctx ends; the error then names it. The instance
// stays OUT_OF_SERVICE in any case. A server that does not list it, or shows a status that an operator
// forced upon it, is not waited for: it shows nothing that a report could change.
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

// sendDrained registers the instance as it is now, without a token, and tries again until ctx ends.
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

// showing is an error that names the servers that still show an instance in service; nil if none does.
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
		if err := c.shownDrained(ctx, n, key); err != nil {
			late = append(late, lateNode(n, err))
		}
	}
	return lagging(late, len(status.Nodes))
}

// shownDrained is nil if a node of Rollcall itself does not show an instance in service.
func (c *Client) shownDrained(ctx context.Context, n NodeStatus, key registry.Key) error {
	i, err := c.shownAt(ctx, n, key)
	if err != nil || i == nil {
		return err
	}
	return inService(i.Status, i.Overridden)
}

// showingEureka is showing for stock Eureka servers, which cannot be asked for each other.
func (c *Client) showingEureka(ctx context.Context, key registry.Key) error {
	servers := c.cluster.Known()
	var late []string
	for _, s := range servers {
		if err := c.shownDrainedEureka(ctx, s, key); err != nil {
			late = append(late, fmt.Sprintf("%s: %v", s.URL, err))
		}
	}
	return lagging(late, len(servers))
}

func (c *Client) shownDrainedEureka(ctx context.Context, s *transport.Server, key registry.Key) error {
	a, err := c.cluster.PerformAt(ctx, s, ofInstance(http.MethodGet, key))
	switch {
	case errors.Is(err, ErrNotRegistered):
		return nil
	case err != nil:
		return err
	}
	lease, err := eureka.DecodeInstance(a.Body, eureka.Format{})
	if err != nil {
		return err
	}
	forced := ""
	if o := lease.Instance.Overridden; o != registry.Unknown {
		forced = o.String()
	}
	return inService(lease.Instance.Status.String(), forced)
}

// inService is an error if a status is not OUT_OF_SERVICE, unless an operator forced another one ("": none).
func inService(status, forced string) error {
	if status == registry.OutOfService.String() || forced != "" && forced != registry.OutOfService.String() {
		return nil
	}
	return fmt.Errorf("shows it as %s", status)
}

// lagging joins the reports of late servers; nil if there are none.
func lagging(late []string, servers int) error {
	switch {
	case len(late) > 0:
		return errors.New(strings.Join(late, ", "))
	case servers == 0:
		return errors.New("the cluster names no nodes")
	}
	return nil
}
