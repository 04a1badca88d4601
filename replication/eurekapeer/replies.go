package eurekapeer

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// follow does what the results of items ask for: it registers what the server does not know there, and registers here
// what the server has newer (upstream: InstanceReplicationTask.handleFailure).
func (l *Link) follow(ctx context.Context, all []part, results []eureka.ItemResult) {
	var newer []*registry.Instance
	for n := range all {
		t, r := all[n], results[n]
		switch {
		case r.Status/100 == 2, r.Status == http.StatusNotFound && t.Action == eureka.Cancel:
			l.env.Sent(t.fact())
			l.env.Refused(t.task.Key, t.fact(), "")
			continue
		case r.Status == http.StatusNotFound && t.Action != eureka.Register:
			if l.registerAbove(ctx, t) || l.registerAgain(t.task) {
				continue
			}
		case r.Status == http.StatusConflict && t.Action == eureka.Heartbeat:
			theirs, err := l.newer(ctx, t, r)
			if err == nil {
				newer = append(newer, theirs...)
				continue
			}
			l.env.Refusals.Record(t.task.Key, "register", l.env.Peer.Name, err.Error())
			continue
		}
		// The call itself succeeded, so the item is not sent again.
		l.env.GaveUp()
		l.env.Refused(t.task.Key, t.fact(), fmt.Sprintf("%s was answered %d %s", t.Action, r.Status, http.StatusText(r.Status)))
	}
	err := l.registerNewer(ctx, newer)
	if before := l.behind.Swap(err != nil); !before && err != nil {
		l.env.Log.Warn("newer instances of a Eureka server cannot be taken over", "peer", l.env.Peer.Name, "err", err)
	}
}

// registerAgain sends the server the whole instance. It returns false if that was tried too often.
func (l *Link) registerAgain(t link.Task) bool {
	if t.Tries >= link.MaxTries {
		return false
	}
	t.Tries++
	t.Facts = link.Registered // it includes the override, and a server that forgot the instance forgot its override
	l.env.Submit(t)
	return true
}

// registerAbove sends the server the whole instance with a timestamp above the server's own, if the server refuses a
// heartbeat right after the registration. That means it keeps an older registration with status UNKNOWN, left there
// by the end of an override, whose timestamp is higher than the client's because a change of metadata here had raised
// it.
func (l *Link) registerAbove(ctx context.Context, t part) bool {
	if t.Action != eureka.Heartbeat || t.task.Tries == 0 || t.task.Above != 0 {
		return false
	}
	theirs, err := l.fetch(ctx, t.task.Key)
	if err != nil {
		l.env.Failed(err)
		return false
	}
	if theirs == nil || theirs.Instance.Status != registry.Unknown || theirs.Instance.LastDirty <= t.LastDirty {
		return false
	}
	t.task.Above = theirs.Instance.LastDirty
	return l.registerAgain(t.task)
}

// newer returns the server's instance if it is newer than the one here. If the server says so without showing its
// own, newer asks for it; a server whose own is not newer gets ours. The error says why the server's instance cannot
// be registered here.
func (l *Link) newer(ctx context.Context, t part, r eureka.ItemResult) ([]*registry.Instance, error) {
	theirs := r.Lease
	if theirs == nil {
		var err error
		if theirs, err = l.fetch(ctx, t.task.Key); err != nil {
			l.env.Failed(err)
			return nil, nil
		}
		if theirs == nil || theirs.Instance.LastDirty <= t.LastDirty {
			l.registerAgain(t.task)
			return nil, nil
		}
	}
	if ours, ok := l.env.View().Find(t.task.Key); ok && ours.HasReplaced(theirs.Instance.LastDirty) {
		t.task.Above = theirs.Instance.LastDirty // the server keeps what the client has replaced here
		l.registerAgain(t.task)
		return nil, nil
	}
	// It is checked as if it were registered here.
	document := eureka.AppendInstanceDocument(nil, eureka.Format{}, theirs, theirs.RenewedAt)
	i, err := eureka.DecodeRegistration(document, eureka.Format{}, t.task.Key.App)
	if err == nil && i.Key() != t.task.Key {
		err = fmt.Errorf("it is %s", i.Key())
	}
	if err != nil {
		return nil, fmt.Errorf("a newer %s cannot be taken over: %w", t.task.Key, err)
	}
	return []*registry.Instance{i}, nil
}

// fetch asks for one instance. It returns nil if the server does not have it.
func (l *Link) fetch(ctx context.Context, key registry.Key) (*registry.Lease, error) {
	target := instancePath(key)
	resp, err := l.ask(ctx, true, http.MethodGet, target, nil)
	switch {
	case err != nil:
		return nil, err
	case resp.status == http.StatusNotFound:
		return nil, nil
	case !resp.ok():
		return nil, refusedCall(http.MethodGet, target, resp)
	}
	theirs, err := eureka.DecodeInstance(resp.body, eureka.Format{})
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", target, err)
	}
	return theirs, nil
}

// registerNewer registers the newer instances of the server here, with the overrides that the server has for them.
func (l *Link) registerNewer(ctx context.Context, newer []*registry.Instance) error {
	if len(newer) == 0 {
		return nil
	}
	v := l.env.View()
	var ops []registry.Op
	for _, i := range newer {
		if ours, ok := v.Find(i.Key()); ok && i.Overridden != registry.Unknown && i.Overridden != ours.Instance.Overridden {
			ops = append(ops, registry.SetOverride{Key: i.Key(), Status: i.Overridden})
		}
		ops = append(ops, registry.Register{Instance: i})
	}
	if _, err := l.env.Service.Apply(ctx, l.env.Origin, ops...); err != nil {
		return fmt.Errorf("take over %d newer instances: %w", len(newer), err)
	}
	return nil
}
