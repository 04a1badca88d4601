package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

var (
	// errMismatch: after a delta the list is not what the server has.
	errMismatch = errors.New("the list does not have the delta's hash")
	// errNoDelta: there is none to apply.
	errNoDelta = errors.New("no delta")
)

// delta fetches what changed lately, and everything where that does not lead to what the server has.
// Source: com.netflix.discovery.DiscoveryClient.getAndUpdateDelta, reconcileAndLogDifference.
func (r *refresher) delta(ctx context.Context) step {
	a, document, err := r.fetchDelta(ctx)
	if err == nil {
		err = r.takeDelta(a, document)
	}
	if ctx.Err() != nil {
		return nil
	}
	r.count("delta", err)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errNoDelta):
		return r.full
	case err != nil:
		r.failed(err)
		return after(ctx, r.pause(), r.delta)
	}
	r.succeeded()
	if r.config.Mode == RefreshAuto && a.header.Get(indexHeader) != "" && a.server != r.unable {
		return r.full // another server, which may be watched
	}
	return r.poll(ctx)
}

// fetchDelta gets the document. The error is errNoDelta if there is none: upstream refuses it where it is
// disabled.
func (r *refresher) fetchDelta(ctx context.Context) (answer, *eureka.Applications, error) {
	a, err := r.client.readEureka(ctx, "apps", "delta")
	if err != nil {
		return a, nil, fmt.Errorf("fetch the delta: %w", err)
	}
	if a.status == http.StatusForbidden || a.status == http.StatusNotFound {
		return a, nil, fmt.Errorf("%w: %w", errNoDelta, a.refusal())
	}
	if refusal := a.refusal(); refusal != nil {
		return a, nil, fmt.Errorf("fetch the delta: %w", refusal)
	}
	document, err := eureka.DecodeApplications(a.body)
	if err != nil {
		return a, nil, fmt.Errorf("%w: delta as %s shows it: %w", errNoDelta, a.server, err)
	}
	if document.Version == "" {
		return a, nil, fmt.Errorf("%w: that of %s has no version", errNoDelta, a.server)
	}
	return a, document, nil
}

// takeDelta applies a delta to the list. What it tells is believed, also when there is more to know
// (errMismatch).
func (r *refresher) takeDelta(a answer, document *eureka.Applications) error {
	next := applyDelta(r.list.Load(), document.Leases, r.guard.told)
	hash := next.HashCode()
	fits := hash == document.HashCode
	if r.index = ""; fits {
		r.index = a.header.Get(indexHeader)
	}
	r.publish(next)
	if !fits {
		return fmt.Errorf("%w: it is %q, that of %s %q", errMismatch, hash, a.server, document.HashCode)
	}
	r.listed = a.server
	r.came(SourceFetch, a.server, a.sent)
	return nil
}

// applyDelta returns the list after a delta, and tells of each instance in it. What was applied before
// changes nothing: a server repeats it for three minutes.
func applyDelta(list *Snapshot, entries []*registry.Lease, told func(registry.Key)) *Snapshot {
	edit := list.edit()
	for _, l := range entries {
		key := l.Instance.Key()
		switch l.Action {
		case registry.ActionAdded, registry.ActionModified:
			edit.put(l.Instance)
		case registry.ActionDeleted:
			edit.remove(key)
		default:
			continue // it does not say what happened; the hash will tell whether anything did
		}
		told(key)
	}
	return edit.snapshot()
}
