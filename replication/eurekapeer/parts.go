package eurekapeer

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// part is an item of a batch, or a call, and the task that it is a part of.
type part struct {
	eureka.Item
	task link.Task
}

// fact is the word of the status for what an item says.
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

// partsOf is what the server is to get of an instance, in order: its present state as far as the task asks
// for it. Of one that was removed there is nothing; its removal is a task of its own. An instance in
// quarantine is canceled at the server, which knows no such thing, and comes back by the 404 to the next
// heartbeat after it.
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

// registeredParts is what a client says of itself. The override that the server has for the name
// outlives a registration, so it is sent after it where it may be another one: that of an earlier
// life, or one that was changed. An override that the client's own DOWN or STARTING is stronger than
// is shown only if the instance registers after it.
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
		beat := itemOf(eureka.Heartbeat, t, l) // says whether the registration was taken: see registerAbove
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

// overrideOf is the override, or that there is none and what the status is instead.
func overrideOf(l *registry.Lease, t link.Task) part {
	if l.Instance.Overridden == registry.Unknown {
		return itemOf(eureka.DeleteStatusOverride, t, l)
	}
	set := itemOf(eureka.StatusUpdate, t, l)
	set.Status = l.Instance.Overridden
	return set
}

// instancePath is an instance's resource below the service URL.
func instancePath(key registry.Key) string {
	return "/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
}

// callOf is the call of a client that an item stands for.
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
