package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Deregister ends the Registration: it stops the timers and cancels the instance, unless it was never
// registered or is to Stay. Later calls return what the first returned. An instance that is not
// registered any more is no error.
func (r *Registration) Deregister(ctx context.Context) error {
	defer r.client.drop(r)
	return errors.Join(r.stop(ctx), r.leave(ctx))
}

// stop ends both loops, which cuts off what they are waiting for, and waits for them.
func (r *Registration) stop(ctx context.Context) error {
	r.end(ErrClosed)
	return wait.Until(ctx, r.stopped, "wait for the heartbeats of %s to end", r.key)
}

// leave says farewell once, for whoever comes first; the others wait for that.
func (r *Registration) leave(ctx context.Context) error {
	return r.ending.do(ctx, fmt.Sprintf("wait until %s is canceled", r.key), func() error {
		return errors.Join(r.unregister(ctx), r.awaitHealth(ctx))
	})
}

// unregister cancels the instance if it may be there. It keeps the turn of registrations, so that none
// comes after it.
func (r *Registration) unregister(ctx context.Context) error {
	if err := r.turn.take(ctx); err != nil {
		return fmt.Errorf("cancel %s: %w", r.key, err)
	}
	if r.config.Stay || r.state.facts().gone {
		return nil
	}
	if err := r.client.Cancel(ctx, r.key); err != nil && !errors.Is(err, ErrNotRegistered) {
		return err
	}
	r.log.Info("canceled")
	return nil
}

// awaitHealth waits for the callback. It comes last, so that one which hangs does not keep the instance
// registered.
func (r *Registration) awaitHealth(ctx context.Context) error {
	if r.asking.try() {
		return nil
	}
	if err := r.asking.take(ctx); err != nil {
		return fmt.Errorf("wait for the health callback of %s to return: %w", r.key, err)
	}
	return nil
}

// errStatusSet ends a Drain.
var errStatusSet = errors.New("the status was set meanwhile")

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
	if err := r.tellDrained(ctx); err != nil {
		return fmt.Errorf("drain %s: the cluster does not know that it is OUT_OF_SERVICE: %w", r.key, err)
	}
	err := awaitAll(ctx, func(ctx context.Context) error { return r.client.showing(ctx, r.key) })
	if err != nil {
		return fmt.Errorf("drain %s: it is OUT_OF_SERVICE, but not everywhere yet: %w", r.key, err)
	}
	return settleDown(ctx, r.key, settle)
}

// tellDrained registers the instance as it is now, without a token, and tries again until ctx ends.
func (r *Registration) tellDrained(ctx context.Context) error {
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

// showing names the servers that still show an instance in service; nil if none does.
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

// shownDrained asks a node of Rollcall what it shows by itself.
func (c *Client) shownDrained(ctx context.Context, n NodeStatus, key registry.Key) error {
	i, err := c.shownAt(ctx, n, key)
	if err != nil || i == nil {
		return err
	}
	return inService(i.Status, i.Overridden)
}

// showingEureka is showing for stock Eureka servers, which know nothing of each other that could be asked.
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

// inService says that a status is not OUT_OF_SERVICE, unless an operator forced another one ("": none).
func inService(status, forced string) error {
	if status == registry.OutOfService.String() || forced != "" && forced != registry.OutOfService.String() {
		return nil
	}
	return fmt.Errorf("shows it as %s", status)
}

// lagging joins what servers say that are not as far as they should be; nil if there are none.
func lagging(late []string, servers int) error {
	switch {
	case len(late) > 0:
		return errors.New(strings.Join(late, ", "))
	case servers == 0:
		return errors.New("the cluster names no nodes")
	}
	return nil
}
