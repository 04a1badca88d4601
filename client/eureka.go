package client

import (
	"context"
	"fmt"
	"net/http"
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
	q := ofEureka(http.MethodPost, "apps", instance.App)
	q.body = registration(instance)
	return c.tell(ctx, q, "register %s", instance.Key())
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
	q := ofInstance(http.MethodPut, key)
	if lastDirty > 0 {
		q = q.with("lastDirtyTimestamp", strconv.FormatInt(lastDirty, 10))
	}
	_, err := c.tell(ctx, q, "renew %s", key)
	return err
}

// Cancel removes an instance. ErrNotRegistered: there was none.
func (c *Client) Cancel(ctx context.Context, key registry.Key) error {
	q := ofInstance(http.MethodDelete, key)
	q.removes = true
	_, err := c.tell(ctx, q, "cancel %s", key)
	return err
}

// SetStatus overrides an instance's status until DeleteStatus, whatever its heartbeats say. What an
// instance says of itself is changed by Registration.SetStatus.
func (c *Client) SetStatus(ctx context.Context, key registry.Key, status registry.Status) error {
	_, err := c.tell(ctx, ofInstance(http.MethodPut, key, "status").with("value", status.String()), "set the status of %s", key)
	return err
}

// DeleteStatus ends an override. The instance is UNKNOWN until it registers again, which its next
// heartbeat makes it do.
func (c *Client) DeleteStatus(ctx context.Context, key registry.Key) error {
	_, err := c.tell(ctx, ofInstance(http.MethodDelete, key, "status"), "delete the status of %s", key)
	return err
}

// App is one application and its instances.
type App struct {
	Name   string // upper case
	Leases []*registry.Lease
}

// Apps returns the applications and their instances, in the order of the server, which is by name
// and id. Of a lease the instance and the times that the protocol shows are set. Each call asks a server;
// StartDiscovery keeps the list in memory.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	_, leases, err := c.leases(ctx)
	return group(leases), err
}

// group splits leases, which stand by application, into applications.
func group(leases []*registry.Lease) []App {
	var apps []App
	for _, l := range leases {
		if n := len(apps); n == 0 || apps[n-1].Name != l.Instance.App {
			apps = append(apps, App{Name: l.Instance.App})
		}
		last := &apps[len(apps)-1]
		last.Leases = append(last.Leases, l)
	}
	return apps
}

// leases gets everything.
func (c *Client) leases(ctx context.Context) (answer, []*registry.Lease, error) {
	a, err := c.tell(ctx, c.reading(ofEureka(http.MethodGet, "apps")), "read the registry")
	if err != nil {
		return a, nil, err
	}
	document, err := eureka.DecodeApplications(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("registry as %s shows it: %w", a.server, err)
	}
	return a, document.Leases, nil
}

// Instances returns the instances of one application, sorted by id; none if there is no such
// application. Of a lease the instance and the times that the protocol shows are set.
func (c *Client) Instances(ctx context.Context, app string) ([]*registry.Lease, error) {
	_, leases, err := c.leasesOf(ctx, app)
	return leases, err
}

// leasesOf gets one application. That it is not there means that it has no instances.
func (c *Client) leasesOf(ctx context.Context, app string) (answer, []*registry.Lease, error) {
	a, err := c.tell(ctx, c.reading(ofEureka(http.MethodGet, "apps", app)), "read %s", app)
	switch {
	case a.status == http.StatusNotFound:
		return a, nil, nil
	case err != nil:
		return a, nil, err
	}
	leases, err := eureka.DecodeApplication(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("%s as %s shows it: %w", app, a.server, err)
	}
	return a, leases, nil
}
