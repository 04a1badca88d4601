package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// App is one application and its instances.
type App struct {
	Name   string // upper case
	Leases []*registry.Lease
}

// Apps returns the applications and their instances, in the order of the server, which is by name
// and id. Of a lease the instance and the times that the protocol shows are set. Each call asks a server;
// StartDiscovery keeps the list in memory.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	a, err := c.readEureka(ctx, "apps")
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	if refusal := a.refusal(); refusal != nil {
		return nil, fmt.Errorf("read the registry: %w", refusal)
	}
	document, err := eureka.DecodeApplications(a.body)
	if err != nil {
		return nil, fmt.Errorf("registry as %s shows it: %w", a.server, err)
	}
	return group(document.Leases), nil
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

// Instances returns the instances of one application, sorted by id; none if there is no such
// application. Of a lease the instance and the times that the protocol shows are set.
func (c *Client) Instances(ctx context.Context, app string) ([]*registry.Lease, error) {
	a, err := c.readEureka(ctx, appPath(app)...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", app, err)
	}
	if a.status == http.StatusNotFound {
		return nil, nil
	}
	if refusal := a.refusal(); refusal != nil {
		return nil, fmt.Errorf("read %s: %w", app, refusal)
	}
	leases, err := eureka.DecodeApplication(a.body)
	if err != nil {
		return nil, fmt.Errorf("%s as %s shows it: %w", app, a.server, err)
	}
	return leases, nil
}

// readEureka gets one of Eureka's documents at the client's consistency.
func (c *Client) readEureka(ctx context.Context, path ...string) (answer, error) {
	return c.get(ctx, call{eureka: true, path: path})
}

// read gets a document of Rollcall's own API at the client's consistency.
func (c *Client) read(ctx context.Context, path ...string) (answer, error) {
	return c.get(ctx, call{path: path})
}

// query is read with parameters.
func (c *Client) query(ctx context.Context, parameters url.Values, path ...string) (answer, error) {
	return c.get(ctx, call{path: path, query: parameters})
}

// get makes a call a read at the client's consistency.
func (c *Client) get(ctx context.Context, q call) (answer, error) {
	q.method = http.MethodGet
	if c.consistency != "" {
		if q.query == nil {
			q.query = make(url.Values)
		}
		q.query.Set("consistency", c.consistency)
	}
	return c.do(ctx, q)
}
