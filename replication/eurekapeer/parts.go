package eurekapeer

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// part is an item of a batch, or a call, with its task.
type part struct {
	eureka.Item
	task link.Task
}

// fact returns the word that the status has for an item.
func (t part) fact() string {
	switch t.Action {
	case eureka.Register:
		return "register"
	case eureka.Heartbeat:
		return "heartbeat"
	case eureka.Cancel:
		return "cancel"
	}
	return "override"
}

// partsOf returns what the server must be told of an instance, in order: its current state, to the extent that the
// task asks for it. For a removed instance that is nothing; its removal is a task of its own. The server knows no
// quarantine, so an instance in quarantine is canceled there, and comes back by the 404 to its next heartbeat
// afterwards.
func partsOf(v *registry.View, t link.Task) []part {
	if t.Facts&link.Canceled != 0 {
		return []part{cancelOf(t)}
	}
	l, ok := v.Find(t.Key)
	switch {
	case !ok:
		return nil
	case l.Quarantine != nil && t.Facts&(link.Registered|link.Overridden) == 0:
		return nil
	case l.Quarantine != nil:
		return []part{cancelOf(t)}
	case t.Facts&link.Registered != 0:
		return registeredParts(v, l, t)
	case t.Facts&link.Overridden != 0:
		return []part{overrideOf(l, t)}
	}
	beat := itemOf(eureka.Heartbeat, t, l)
	beat.Overridden = l.Instance.Overridden
	return []part{beat}
}

// registeredParts returns what a client says of itself. The server's override for a name outlives a registration, so
// ours is sent after the registration if it may differ: the server's may be from an earlier life, or ours has
// changed. The server shows the client's own DOWN or STARTING, which is stronger than an override, only if the
// instance registers after the override.
func registeredParts(v *registry.View, l *registry.Lease, t link.Task) []part {
	register := itemOf(eureka.Register, t, l)
	shown := *l
	shown.RenewedAt = v.LastRenewal(l)
	if t.Above >= l.Instance.LastDirty {
		above := *l.Instance
		above.LastDirty = max(t.Above, t.Above+1) // the last timestamp itself: a server keeps only what is newer
		shown.Instance, register.LastDirty = &above, above.LastDirty
	}
	register.Lease = &shown
	all := []part{register}
	if t.NewLife || t.Facts&link.Overridden != 0 {
		all = append(all, overrideOf(l, t))
		if i := l.Instance; i.Overridden != registry.Unknown && i.Status != i.Overridden {
			all = append(all, register)
		}
	}
	if t.Tries > 0 {
		// its result tells whether the registration was accepted, see registerAbove
		beat := itemOf(eureka.Heartbeat, t, l)
		beat.LastDirty = register.LastDirty
		all = append(all, beat)
	}
	return all
}

func itemOf(action eureka.ItemAction, t link.Task, l *registry.Lease) part {
	i := l.Instance
	return part{task: t, Item: eureka.Item{
		Action: action, App: t.Key.App, ID: t.Key.ID, LastDirty: i.LastDirty, Status: i.Status, HasStatus: true,
	}}
}

func cancelOf(t link.Task) part {
	return part{task: t, Item: eureka.Item{Action: eureka.Cancel, App: t.Key.App, ID: t.Key.ID}}
}

// overrideOf sends the override, or deletes it and sends the status that applies instead.
func overrideOf(l *registry.Lease, t link.Task) part {
	if l.Instance.Overridden == registry.Unknown {
		return itemOf(eureka.DeleteStatusOverride, t, l)
	}
	set := itemOf(eureka.StatusUpdate, t, l)
	set.Status = l.Instance.Overridden
	return set
}

// instancePath returns an instance's resource below the service URL.
func instancePath(key registry.Key) string {
	return "/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
}

// callOf returns the client's call that an item stands for.
func callOf(t part) (method, target string, body []byte) {
	target = instancePath(t.task.Key)
	dirty := strconv.FormatInt(t.LastDirty, 10)
	switch t.Action {
	case eureka.Register:
		body = eureka.AppendInstanceDocument(nil, eureka.Format{}, t.Lease, t.Lease.RenewedAt)
		return http.MethodPost, "/apps/" + url.PathEscape(t.App), body
	case eureka.Cancel:
		return http.MethodDelete, target, nil
	case eureka.Heartbeat:
		query := url.Values{"status": {t.Status.String()}, "lastDirtyTimestamp": {dirty}}
		if t.Overridden != registry.Unknown {
			query.Set("overriddenstatus", t.Overridden.String())
		}
		return http.MethodPut, target + "?" + query.Encode(), nil
	}
	method = http.MethodPut
	if t.Action == eureka.DeleteStatusOverride {
		method = http.MethodDelete
	}
	query := url.Values{"value": {t.Status.String()}, "lastDirtyTimestamp": {dirty}}
	return method, target + "/status?" + query.Encode(), nil
}
