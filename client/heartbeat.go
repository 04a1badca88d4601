package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// cancelTimeout bounds the farewell of a Heartbeat, all servers together.
const cancelTimeout = 10 * time.Second

// Heartbeat keeps an instance registered until ctx ends: it registers it, renews its lease once per
// renewal interval, registers it again whenever the cluster does not know it, and cancels it at the
// end. What fails is tried again, ten times as often as it would be renewed.
//
// It returns nil after a cancel, an error if the cancel failed, and, without a cancel, an error if
// the cluster refuses the first registration as malformed or forbidden.
func (c *Client) Heartbeat(ctx context.Context, instance *registry.Instance) error {
	b := newHeartbeat(c, instance)
	if err := b.run(ctx); err != nil {
		return err
	}
	farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := c.Cancel(farewell, b.instance.Key()); err != nil && !errors.Is(err, ErrNotRegistered) {
		return err
	}
	return nil
}

// heartbeat is the state of one Heartbeat. It belongs to the goroutine that called it.
type heartbeat struct {
	client     *Client
	instance   *registry.Instance
	interval   time.Duration
	registered bool
	welcome    bool // it was registered at least once
	failing    bool
}

func newHeartbeat(c *Client, instance *registry.Instance) *heartbeat {
	seconds, _, _ := registry.ClampLease(instance.RenewalInterval, instance.Duration)
	b := &heartbeat{client: c, instance: instance, interval: time.Duration(seconds) * time.Second}
	if instance.LastDirty == 0 {
		b.touch()
	}
	return b
}

// touch says that this is a new state of the instance, so that the cluster prefers it to what it has.
// Instances are immutable: it takes a copy.
func (b *heartbeat) touch() {
	changed := *b.instance
	changed.LastDirty = max(time.Now().UnixMilli(), b.instance.LastDirty+1)
	b.instance = &changed
}

// run returns nil when ctx has ended.
func (b *heartbeat) run(ctx context.Context) error {
	for {
		err := b.beat(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !b.welcome && refused(err) {
			return err
		}
		b.report(err)
		if !wait(ctx, b.pause(err)) {
			return nil
		}
	}
}

// beat does what is due: a registration or a renewal.
func (b *heartbeat) beat(ctx context.Context) error {
	if b.registered {
		err := b.client.Renew(ctx, b.instance.Key(), b.instance.LastDirty)
		if !errors.Is(err, ErrNotRegistered) {
			return err
		}
		b.client.log.Info("the cluster does not know the instance, registering it again", "instance", b.instance.Key().String())
		b.registered = false
		b.touch()
	}
	err := b.client.Register(ctx, b.instance)
	if err != nil {
		return err
	}
	b.registered, b.welcome = true, true
	b.client.log.Info("registered", "instance", b.instance.Key().String(), "renewed_every", b.interval)
	return nil
}

func (b *heartbeat) pause(err error) time.Duration {
	if err != nil {
		return b.interval / 10
	}
	return b.interval
}

// report logs changes between success and failure, not each failure.
func (b *heartbeat) report(err error) {
	switch failing := err != nil; {
	case failing && !b.failing:
		b.client.log.Warn("heartbeat failed, trying again", "instance", b.instance.Key().String(), "err", err)
	case !failing && b.failing:
		b.client.log.Info("heartbeat works again", "instance", b.instance.Key().String())
	}
	b.failing = err != nil
}

// refused says that trying again would bring the same answer.
func refused(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	return status.Status >= 400 && status.Status < 500 && status.Status != http.StatusTooManyRequests
}

// wait returns false if ctx ended before d had passed.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
