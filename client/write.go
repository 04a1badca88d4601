package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Register adds an instance or replaces it, and starts its lease. StartRegistration does that, and keeps
// the lease alive.
func (c *Client) Register(ctx context.Context, instance *registry.Instance) error {
	_, err := c.register(ctx, instance)
	return err
}

// register is Register with the answer, which says more than that it was done; also of a refusal.
func (c *Client) register(ctx context.Context, instance *registry.Instance) (answer, error) {
	body := registration(instance)
	a, err := c.do(ctx, call{method: http.MethodPost, eureka: true, path: appPath(instance.App), body: body, write: true})
	if err != nil {
		return a, fmt.Errorf("register %s: %w", instance.Key(), err)
	}
	if refusal := a.refusal(); refusal != nil {
		return a, fmt.Errorf("register %s: %w", instance.Key(), refusal)
	}
	return a, nil
}

// registration is the body that registers an instance: the document of a lease that has no times yet.
func registration(i *registry.Instance) []byte {
	interval, duration, _ := registry.ClampLease(i.RenewalInterval, i.Duration)
	lease := &registry.Lease{Instance: i, Interval: interval, Duration: duration}
	return eureka.AppendInstanceDocument(nil, eureka.Format{}, lease, registry.Stamp{})
}

// Renew is a heartbeat: it gives the instance's lease its whole duration again. lastDirty is the
// lastDirtyTimestamp of the registered instance, in ms since the epoch; 0 means not given.
// ErrNotRegistered: the cluster does not know the instance, or an older state of it; register it.
func (c *Client) Renew(ctx context.Context, key registry.Key, lastDirty int64) error {
	q := call{method: http.MethodPut, eureka: true, path: instancePath(key), write: true}
	if lastDirty > 0 {
		q.query = url.Values{"lastDirtyTimestamp": {strconv.FormatInt(lastDirty, 10)}}
	}
	a, err := c.do(ctx, q)
	return failed("renew", key, a, err)
}

// Cancel removes an instance. ErrNotRegistered: there was none.
func (c *Client) Cancel(ctx context.Context, key registry.Key) error {
	a, err := c.do(ctx, call{method: http.MethodDelete, eureka: true, path: instancePath(key), write: true})
	if err == nil && a.status == http.StatusNotFound && a.repeated {
		return nil // an earlier try did it, as far as anybody can tell, and it is gone
	}
	return failed("cancel", key, a, err)
}

// SetStatus overrides an instance's status until DeleteStatus, whatever its heartbeats say. What an
// instance says of itself is changed by Registration.SetStatus.
func (c *Client) SetStatus(ctx context.Context, key registry.Key, status registry.Status) error {
	q := call{method: http.MethodPut, eureka: true, path: append(instancePath(key), "status"), write: true}
	q.query = url.Values{"value": {status.String()}}
	a, err := c.do(ctx, q)
	return failed("set the status of", key, a, err)
}

// DeleteStatus ends an override. The instance is UNKNOWN until it registers again, which its next
// heartbeat makes it do.
func (c *Client) DeleteStatus(ctx context.Context, key registry.Key) error {
	a, err := c.do(ctx, call{method: http.MethodDelete, eureka: true, path: append(instancePath(key), "status"), write: true})
	return failed("delete the status of", key, a, err)
}

// failed names the operation that an error or an answer ended; nil after a success.
func failed(operation string, key registry.Key, a answer, err error) error {
	if err == nil {
		err = a.want()
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, key, err)
}

func appPath(app string) []string { return []string{"apps", app} }

func instancePath(key registry.Key) []string { return append(appPath(key.App), key.ID) }
