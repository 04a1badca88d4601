package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// indexHeader is the version of the registry that an answer of a Rollcall server shows. A watch from there
// misses nothing, however old the answer is.
const indexHeader = "X-Rollcall-Index"

// fetch gets everything.
func (r *refresher) fetch(ctx context.Context) (answer, []*registry.Instance, error) {
	if r.config.App != "" {
		return r.fetchApp(ctx)
	}
	a, err := r.client.readEureka(ctx, "apps")
	if err != nil {
		return a, nil, fmt.Errorf("fetch the registry: %w", err)
	}
	if refusal := a.refusal(); refusal != nil {
		return a, nil, fmt.Errorf("fetch the registry: %w", refusal)
	}
	document, err := eureka.DecodeApplications(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("registry as %s shows it: %w", a.server, err)
	}
	return a, instancesOf(document.Leases), nil
}

// fetchApp gets one application. That it is not there means that it has no instances.
func (r *refresher) fetchApp(ctx context.Context) (answer, []*registry.Instance, error) {
	a, err := r.client.readEureka(ctx, appPath(r.config.App)...)
	if err != nil {
		return a, nil, fmt.Errorf("fetch %s: %w", r.config.App, err)
	}
	if a.status == http.StatusNotFound {
		return a, nil, nil
	}
	if refusal := a.refusal(); refusal != nil {
		return a, nil, fmt.Errorf("fetch %s: %w", r.config.App, refusal)
	}
	leases, err := eureka.DecodeApplication(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("%s as %s shows it: %w", r.config.App, a.server, err)
	}
	return a, instancesOf(leases), nil
}

func instancesOf(leases []*registry.Lease) []*registry.Instance {
	instances := make([]*registry.Instance, len(leases))
	for i, l := range leases {
		instances[i] = l.Instance
	}
	return instances
}

// serverOf is who gave an answer; nil: it is not one of the client's servers any more.
func (c *Client) serverOf(a answer) *server {
	for _, s := range c.servers.order() {
		if s.url == a.server {
			return s
		}
	}
	return nil
}
