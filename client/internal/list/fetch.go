package list

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// indexHeader is the version of the registry that a response of a Rollcall server shows. A watch from there
// misses nothing, however old the response is.
const indexHeader = "X-Rollcall-Index"

// FetchAll gets everything.
func FetchAll(ctx context.Context, c *transport.Cluster) (transport.Response, []*registry.Lease, error) {
	a, err := c.Perform(ctx, c.Reading(transport.Eureka(http.MethodGet, "apps")), "read the registry")
	if err != nil {
		return a, nil, err
	}
	document, err := eureka.DecodeApplications(a.Body)
	if err != nil {
		return a, nil, fmt.Errorf("registry as %s shows it: %w", a.Server, err)
	}
	return a, document.Leases, nil
}

// FetchApp gets one application. One that does not exist has no instances.
func FetchApp(ctx context.Context, c *transport.Cluster, app string) (transport.Response, []*registry.Lease, error) {
	a, err := c.Perform(ctx, c.Reading(transport.Eureka(http.MethodGet, "apps", app)), "read %s", app)
	switch {
	case a.Status == http.StatusNotFound:
		return a, nil, nil
	case err != nil:
		return a, nil, err
	}
	leases, err := eureka.DecodeApplication(a.Body)
	if err != nil {
		return a, nil, fmt.Errorf("%s as %s shows it: %w", app, a.Server, err)
	}
	return a, leases, nil
}

// fetch gets everything, or what there is of the application that is configured.
func (r *refresher) fetch(ctx context.Context) (a transport.Response, _ []*registry.Instance, err error) {
	var leases []*registry.Lease
	if r.config.App != "" {
		a, leases, err = FetchApp(ctx, r.config.Cluster, r.config.App)
	} else {
		a, leases, err = FetchAll(ctx, r.config.Cluster)
	}
	return a, instancesOf(leases), err
}

func instancesOf(leases []*registry.Lease) []*registry.Instance {
	instances := make([]*registry.Instance, len(leases))
	for i, l := range leases {
		instances[i] = l.Instance
	}
	return instances
}

var (
	// errMismatch: after a delta the list is not the server's.
	errMismatch = errors.New("the list does not have the delta's hash")
	// errNoDelta: there is no delta to apply.
	errNoDelta = errors.New("no delta")
)

// fetchDelta fetches what changed lately, and everything where that does not lead to the server's list.
// Source: com.netflix.discovery.DiscoveryClient.getAndUpdateDelta, reconcileAndLogDifference.
func (r *refresher) fetchDelta(ctx context.Context) step {
	a, document, err := r.getDelta(ctx)
	if err == nil {
		err = r.applyDelta(a, document)
	}
	if ctx.Err() != nil {
		return nil
	}
	r.count("delta", err)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errNoDelta):
		return r.fetchFull
	case err != nil:
		r.failed(err)
		return after(ctx, r.pause(), r.fetchDelta)
	}
	r.succeeded()
	if r.config.Watch && a.Header.Get(indexHeader) != "" && a.Server != r.unable {
		return r.fetchFull // another server, which may be watched
	}
	return r.poll(ctx)
}

// getDelta gets the document. The error is errNoDelta if there is none: upstream refuses it where it is
// disabled.
func (r *refresher) getDelta(ctx context.Context) (transport.Response, *eureka.Applications, error) {
	a, err := r.config.Cluster.Perform(ctx, r.config.Cluster.Reading(transport.Eureka(http.MethodGet, "apps", "delta")), "fetch the delta")
	if a.Status == http.StatusForbidden || a.Status == http.StatusNotFound {
		return a, nil, fmt.Errorf("%w: %w", errNoDelta, a.Refusal())
	}
	if err != nil {
		return a, nil, err
	}
	document, err := eureka.DecodeApplications(a.Body)
	if err != nil {
		return a, nil, fmt.Errorf("%w: delta as %s shows it: %w", errNoDelta, a.Server, err)
	}
	if document.Version == "" {
		return a, nil, fmt.Errorf("%w: that of %s has no version", errNoDelta, a.Server)
	}
	return a, document, nil
}

// applyDelta applies a delta to the list. Its changes are believed, also when others are missing from it
// (errMismatch).
func (r *refresher) applyDelta(a transport.Response, document *eureka.Applications) error {
	next := withDelta(r.list.Load(), document.Leases, r.guard.release)
	hash := next.HashCode()
	fits := hash == document.HashCode
	if r.index = ""; fits {
		r.index = a.Header.Get(indexHeader)
	}
	r.publish(next)
	if !fits {
		return fmt.Errorf("%w: it is %q, that of %s %q", errMismatch, hash, a.Server, document.HashCode)
	}
	r.listed = a.Server
	r.date(Fetch, a.Server, a.Sent)
	return nil
}

// withDelta returns the list after a delta, and calls named with each instance in it. What was applied before
// changes nothing: a server repeats it for three minutes.
func withDelta(list *List, changes []*registry.Lease, named func(registry.Key)) *List {
	edit := list.edit()
	for _, l := range changes {
		key := l.Instance.Key()
		switch l.Action {
		case registry.ActionAdded, registry.ActionModified:
			edit.set(l.Instance)
		case registry.ActionDeleted:
			edit.remove(key)
		default:
			continue // it does not say what happened; the hash shows whether anything did
		}
		named(key)
	}
	return edit.list()
}
