package eurekapeer

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// A Eureka server is told what it would be told by a server of its own kind (upstream:
// PeerEurekaNode, ReplicationTaskProcessor): the same documents, and nothing beyond them, because it
// drops a whole batch over one key that it does not know.

// Bounds of one replication document.
const (
	maxEurekaItems = 250 // upstream's own servers never send more
	// maxEurekaDocument is far below what servers of our own kind accept (8 MiB), also with one instance more.
	maxEurekaDocument = 4 << 20
)

// eurekaLink transmits to one Eureka server. Safe for concurrent use.
type eurekaLink struct {
	env     link.Env
	service *url.URL // without user info and without a slash at the end
	user    *url.Userinfo
	client  *http.Client
	refuses atomic.Bool // the last answers refused something: it was logged
}

func New(env link.Env) link.Link {
	service, err := url.Parse(env.Peer.URLs[0])
	if err != nil {
		panic("replication: a peer's URL was not checked: " + err.Error())
	}
	l := &eurekaLink{env: env, user: service.User, client: link.NewClient(env.Peer)}
	service.User = nil
	l.service = service
	return l
}

func (l *eurekaLink) URL() string { return l.service.String() }

// Process implements batcher.Processor.
func (l *eurekaLink) Process(ctx context.Context, t link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{t})
}

// ProcessBatch implements batcher.Processor. Where a part fails the whole is sent again: every item
// can be repeated.
func (l *eurekaLink) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	v := l.env.View()
	var all []eurekaPart
	for _, t := range tasks {
		all = append(all, partsOf(v, t)...)
	}
	if l.env.Peer.Single {
		return l.sendOneByOne(ctx, all)
	}
	for some := range slices.Chunk(all, maxEurekaItems) {
		if result := l.sendBatch(ctx, some); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// eurekaPart is an item of a batch, or a call, and the task that it is a part of.
type eurekaPart struct {
	eureka.Item
	task link.Task
}

// fact is the word of the status for what an item tells.
func (t eurekaPart) fact() string {
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

// partsOf is what the server is to be told of an instance, in order: its present state as far as the task
// asks for it. Of one that is gone there is nothing to tell; its removal is a task of its own. What is
// in quarantine is taken from a server that knows no such thing, and comes back by the 404 that
// answers the next heartbeat after it.
func partsOf(v *registry.View, t link.Task) []eurekaPart {
	if t.Facts&link.Canceled != 0 {
		return []eurekaPart{cancelOf(t)}
	}
	l, ok := v.Find(t.Key)
	switch {
	case !ok:
		return nil
	case l.Quarantine != nil && t.Facts&(link.Registered|link.Overridden) == 0:
		return nil
	case l.Quarantine != nil:
		return []eurekaPart{cancelOf(t)}
	case t.Facts&link.Registered != 0:
		return registeredParts(v, l, t)
	case t.Facts&link.Overridden != 0:
		return []eurekaPart{overrideOf(l, t)}
	}
	beat := eurekaItem(eureka.Heartbeat, t, l)
	beat.Overridden = l.Instance.Overridden
	return []eurekaPart{beat}
}

// registeredParts tells what a client says of itself. The override that the server has for the name
// outlives a registration, so it is told after it where it may be another one: that of an earlier
// life, or one that was changed. An override that the client's own DOWN or STARTING is stronger than
// is shown only if the instance registers after it.
func registeredParts(v *registry.View, l *registry.Lease, t link.Task) []eurekaPart {
	register := eurekaItem(eureka.Register, t, l)
	shown := *l
	shown.RenewedAt = v.LastRenewal(l)
	register.Lease = &shown
	if !t.NewLife && t.Facts&link.Overridden == 0 {
		return []eurekaPart{register}
	}
	all := []eurekaPart{register, overrideOf(l, t)}
	if i := l.Instance; i.Overridden != registry.Unknown && i.Status != i.Overridden {
		all = append(all, register)
	}
	return all
}

func eurekaItem(action eureka.ItemAction, t link.Task, l *registry.Lease) eurekaPart {
	i := l.Instance
	return eurekaPart{task: t, Item: eureka.Item{
		Action: action, App: t.Key.App, ID: t.Key.ID, LastDirty: i.LastDirty, Status: i.Status, HasStatus: true,
	}}
}

func cancelOf(t link.Task) eurekaPart {
	return eurekaPart{task: t, Item: eureka.Item{Action: eureka.Cancel, App: t.Key.App, ID: t.Key.ID}}
}

// overrideOf tells the override, or that there is none and what the status is instead.
func overrideOf(l *registry.Lease, t link.Task) eurekaPart {
	if l.Instance.Overridden == registry.Unknown {
		return eurekaItem(eureka.DeleteStatusOverride, t, l)
	}
	set := eurekaItem(eureka.StatusUpdate, t, l)
	set.Status = l.Instance.Overridden
	return set
}

// Compare tells everything, for a server that cannot be compared with: what is here and belongs to
// this datacenter, and what was removed here.
func (l *eurekaLink) Compare(_ context.Context, repair bool) (api.PeerDiff, []link.Task, error) {
	if !repair {
		return api.PeerDiff{}, nil, link.ErrNoDigests
	}
	v := l.env.View()
	var all []link.Task
	for lease := range v.All() {
		if lease.Local() {
			all = append(all, link.Task{Key: lease.Key(), Facts: link.Registered, NewLife: true})
		}
	}
	now := l.env.Clock()
	for rec := range v.Removals() {
		if rec.Lease.Local() && rec.Lease.Origin != l.env.Origin {
			all = append(all, link.Task{Key: rec.Lease.Key(), Facts: link.Canceled, Remove: v.RemoveOf(rec, now)})
		}
	}
	return api.PeerDiff{}, all, link.ErrNoDigests
}

// instancePath is an instance's resource below the service URL.
func instancePath(key registry.Key) string {
	return "/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
}

// sendOneByOne makes one call per item, those of clients with the mark of replication, for servers that
// take no batches. A refusal is final where the server will not tell more about it.
func (l *eurekaLink) sendOneByOne(ctx context.Context, all []eurekaPart) batcher.Result {
	result := batcher.Success
	for n := range all {
		answer, err := l.call(ctx, all[n])
		if err != nil {
			l.env.Failed(err)
			if link.ResultOf(err) != batcher.PermanentError {
				return link.ResultOf(err)
			}
			result = batcher.PermanentError
			continue
		}
		l.env.Succeeded()
		l.analyse(ctx, all[n:n+1], []eureka.ItemResult{answer})
	}
	return result
}

// call makes the call of one item. What is answered as to an item of a batch comes back as such.
func (l *eurekaLink) call(ctx context.Context, t eurekaPart) (eureka.ItemResult, error) {
	method, target, body := callOf(t)
	answer, err := l.ask(ctx, true, method, target, body)
	if err != nil {
		return eureka.ItemResult{}, err
	}
	switch {
	case answer.ok(), answer.status == http.StatusNotFound && t.Action != eureka.Register:
		return eureka.ItemResult{Status: answer.status}, nil
	case answer.status == http.StatusConflict && t.Action == eureka.Heartbeat:
		// Without an instance that can be read the server is asked for it.
		theirs, _ := eureka.DecodeInstance(answer.body, eureka.Format{})
		return eureka.ItemResult{Status: answer.status, Lease: theirs}, nil
	}
	return eureka.ItemResult{}, refusedCall(method, target, answer)
}

// callOf is the call of a client that an item stands for.
func callOf(t eurekaPart) (method, target string, body []byte) {
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
