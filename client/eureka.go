package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Register adds an instance or replaces it, and starts its lease. StartRegistration does that, and keeps the lease
// alive.
func (c *Client) Register(ctx context.Context, instance *registry.Instance) error {
	_, err := c.register(ctx, instance)
	return err
}

// register is Register, but returns the response, which says more than that it was done; even for a refusal.
func (c *Client) register(ctx context.Context, instance *registry.Instance) (transport.Response, error) {
	q := transport.Eureka(http.MethodPost, "apps", instance.App)
	q.Body = registration(instance)
	return c.cluster.Perform(ctx, q, "register %s", instance.Key())
}

// registration returns the body that registers an instance: the document of a lease that has no times yet.
func registration(i *registry.Instance) []byte {
	interval, duration, _ := registry.ClampLease(i.RenewalInterval, i.Duration)
	lease := &registry.Lease{Instance: i, Interval: interval, Duration: duration}
	return eureka.AppendInstanceDocument(nil, eureka.Format{}, lease, registry.Stamp{})
}

// Renew is a heartbeat: it gives the instance's lease its whole duration again. lastDirty is the lastDirtyTimestamp
// of the registered instance, in ms since the Unix epoch; 0 means not given. It returns ErrNotRegistered if the
// cluster does not know the instance, or only an older state of it: register it then.
func (c *Client) Renew(ctx context.Context, key registry.Key, lastDirty int64) error {
	q := ofInstance(http.MethodPut, key)
	if lastDirty > 0 {
		q = q.With("lastDirtyTimestamp", strconv.FormatInt(lastDirty, 10))
	}
	_, err := c.cluster.Perform(ctx, q, "renew %s", key)
	return err
}

// Cancel removes an instance, or returns ErrNotRegistered if there was none.
func (c *Client) Cancel(ctx context.Context, key registry.Key) error {
	q := ofInstance(http.MethodDelete, key)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "cancel %s", key)
	return err
}

// SetStatus overrides an instance's status until DeleteStatus, whatever its heartbeats say. To change what an
// instance says of itself, use Registration.SetStatus.
func (c *Client) SetStatus(ctx context.Context, key registry.Key, status registry.Status) error {
	_, err := c.cluster.Perform(ctx, ofInstance(http.MethodPut, key, "status").With("value", status.String()), "set the status of %s", key)
	return err
}

// DeleteStatus ends an override. The instance is UNKNOWN until it registers again, which its next heartbeat makes it
// do.
func (c *Client) DeleteStatus(ctx context.Context, key registry.Key) error {
	_, err := c.cluster.Perform(ctx, ofInstance(http.MethodDelete, key, "status"), "delete the status of %s", key)
	return err
}

// App is one application and its instances.
type App struct {
	Name   string // upper case
	Leases []*registry.Lease
}

// Apps returns the applications and their instances, in the order of the server, which is by name and id. In each
// lease only the instance and the times that the protocol shows are set. Each call asks a server; StartDiscovery
// keeps the list in memory.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	_, leases, err := fetchAll(ctx, c.cluster)
	var apps []App
	for _, l := range leases {
		if n := len(apps); n == 0 || apps[n-1].Name != l.Instance.App {
			apps = append(apps, App{Name: l.Instance.App})
		}
		last := &apps[len(apps)-1]
		last.Leases = append(last.Leases, l)
	}
	return apps, err
}

// Instances returns the instances of one application, sorted by id; none if the application does not exist. In each
// lease only the instance and the times that the protocol shows are set.
func (c *Client) Instances(ctx context.Context, app string) ([]*registry.Lease, error) {
	_, leases, err := fetchApp(ctx, c.cluster, app)
	return leases, err
}

// ofInstance returns a call of Eureka's API about one instance.
func ofInstance(method string, key registry.Key, resource ...string) *transport.Call {
	return transport.EurekaInstance(method, key, resource...).Or(ErrNotRegistered)
}

// fetchAll fetches the instances of all applications.
func fetchAll(ctx context.Context, c *transport.Cluster) (transport.Response, []*registry.Lease, error) {
	resp, err := c.Perform(ctx, c.Reading(transport.Eureka(http.MethodGet, "apps")), "read the registry")
	if err != nil {
		return resp, nil, err
	}
	document, err := eureka.DecodeApplications(resp.Body)
	if err != nil {
		return resp, nil, fmt.Errorf("registry as %s shows it: %w", resp.Server, err)
	}
	return resp, document.Leases, nil
}

// fetchApp fetches the instances of one application. It returns none if the application does not exist.
func fetchApp(ctx context.Context, c *transport.Cluster, app string) (transport.Response, []*registry.Lease, error) {
	resp, err := c.Perform(ctx, c.Reading(transport.Eureka(http.MethodGet, "apps", app)), "read %s", app)
	switch {
	case resp.Status == http.StatusNotFound:
		return resp, nil, nil
	case err != nil:
		return resp, nil, err
	}
	leases, err := eureka.DecodeApplication(resp.Body)
	if err != nil {
		return resp, nil, fmt.Errorf("%s as %s shows it: %w", app, resp.Server, err)
	}
	return resp, leases, nil
}
