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

// indexHeader is the header of a Rollcall server's response with the index of the registry that it shows; stock
// Eureka does not send it. A watch from that index misses nothing, however old the response is.
const indexHeader = "X-Rollcall-Index"

// FetchAll fetches the instances of all applications.
func FetchAll(ctx context.Context, c *transport.Cluster) (transport.Response, []*registry.Lease, error) {
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

// FetchApp fetches the instances of one application. It returns none if the application does not exist.
func FetchApp(ctx context.Context, c *transport.Cluster, app string) (transport.Response, []*registry.Lease, error) {
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

// fetch fetches the instances of all applications, or of Config.App.
func (r *refresher) fetch(ctx context.Context) (resp transport.Response, instances []*registry.Instance, err error) {
	var leases []*registry.Lease
	if r.config.App != "" {
		resp, leases, err = FetchApp(ctx, r.config.Cluster, r.config.App)
	} else {
		resp, leases, err = FetchAll(ctx, r.config.Cluster)
	}
	instances = make([]*registry.Instance, len(leases))
	for i, l := range leases {
		instances[i] = l.Instance
	}
	return resp, instances, err
}

var (
	// errMismatch means that the list, after a delta, differs from the server's.
	errMismatch = errors.New("the list does not have the delta's hash")
	// errNoDelta means that the server returned no delta that could be applied.
	errNoDelta = errors.New("no delta")
)

// fetchDelta fetches the delta and applies it. If the list then differs from the server's, or deltas are unavailable,
// it fetches everything at once. Source: com.netflix.discovery.DiscoveryClient.getAndUpdateDelta,
// reconcileAndLogDifference.
func (r *refresher) fetchDelta(ctx context.Context) step {
	resp, document, err := r.getDelta(ctx)
	if err == nil {
		err = r.applyDelta(resp, document)
	}
	if ctx.Err() != nil {
		return nil
	}
	r.count("delta", err)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errNoDelta):
		return r.fetchFull
	case err != nil:
		r.report(err)
		return after(ctx, r.failurePause(), r.fetchDelta)
	}
	r.report(nil)
	if r.config.Watch && resp.Header.Get(indexHeader) != "" && resp.Server != r.unwatchable {
		return r.fetchFull // a Rollcall server not known to refuse watches: fetchFull finds out
	}
	return r.poll(ctx)
}

// getDelta fetches the document of the delta. It returns errNoDelta if the server offers none: upstream responds with
// 403 where deltas are disabled.
func (r *refresher) getDelta(ctx context.Context) (transport.Response, *eureka.Applications, error) {
	resp, err := r.config.Cluster.Perform(ctx, r.config.Cluster.Reading(transport.Eureka(http.MethodGet, "apps", "delta")), "fetch the delta")
	if resp.Status == http.StatusForbidden || resp.Status == http.StatusNotFound {
		return resp, nil, fmt.Errorf("%w: %w", errNoDelta, resp.Refusal())
	}
	if err != nil {
		return resp, nil, err
	}
	document, err := eureka.DecodeApplications(resp.Body)
	if err != nil {
		return resp, nil, fmt.Errorf("%w: delta as %s shows it: %w", errNoDelta, resp.Server, err)
	}
	if document.Version == "" {
		return resp, nil, fmt.Errorf("%w: that of %s has no version", errNoDelta, resp.Server)
	}
	return resp, document, nil
}

// applyDelta applies a delta to the list, and publishes the list. If the hash does not match then (errMismatch), the
// delta lacks changes; those that it has are applied all the same.
func (r *refresher) applyDelta(resp transport.Response, document *eureka.Applications) error {
	next := withDelta(r.list.Load(), document.Leases, r.guard.release)
	hash := next.HashCode()
	fits := hash == document.HashCode
	if r.index = ""; fits {
		r.index = resp.Header.Get(indexHeader)
	}
	r.publish(next)
	if !fits {
		return fmt.Errorf("%w: it is %q, that of %s %q", errMismatch, hash, resp.Server, document.HashCode)
	}
	r.listedBy = resp.Server
	r.recordSource(Fetch, resp.Server, resp.Sent)
	return nil
}

// withDelta returns the list after the changes of a delta, and calls changed with the key of each. A change that was
// applied before changes nothing: servers repeat each for three minutes.
func withDelta(list *List, changes []*registry.Lease, changed func(registry.Key)) *List {
	edit := list.edit()
	for _, l := range changes {
		key := l.Instance.Key()
		switch l.Action {
		case registry.ActionAdded, registry.ActionModified:
			edit.set(l.Instance)
		case registry.ActionDeleted:
			edit.remove(key)
		default:
			continue // an unknown action; the hash shows whether the list lacks a change
		}
		changed(key)
	}
	return edit.list()
}
