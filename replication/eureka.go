package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// eurekaLink transmits to one Eureka server. The server gets what a server of its own kind would send it (upstream:
// PeerEurekaNode, ReplicationTaskProcessor): the same documents, and nothing beyond them, because it drops a whole
// batch over one key that it does not know. It is safe for concurrent use.
type eurekaLink struct {
	env     link.Env
	service *url.URL // without user info and trailing slash
	user    *url.Userinfo
	client  *http.Client
	behind  atomic.Bool // newer instances of the server could not be taken over, which was logged
}

func newEurekaLink(env link.Env) link.Link {
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

// maxResponse bounds how much of a Eureka server's response is read: 250 instances at their largest.
const maxResponse = 64 << 20

// response is a Eureka server's response.
type response struct {
	status int
	body   []byte
}

func (r response) ok() bool { return r.status/100 == 2 }

// ask makes one call below the service URL and reads the whole response. Its error is a link.CallError that
// names the URL without user info.
func (l *eurekaLink) ask(ctx context.Context, replicated bool, method, target string, body []byte) (response, error) {
	p := l.env.Peer
	ctx, cancel := context.WithTimeout(ctx, p.ConnectTimeout+p.ReadTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, method, l.URL()+target, bytes.NewReader(body))
	if err != nil {
		return response{}, link.Failed(batcher.PermanentError, err)
	}
	r.Header.Set("Accept", "application/json")
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("DiscoveryIdentity-Name", "DefaultServer")
	r.Header.Set("DiscoveryIdentity-Version", "1.0")
	if host, _, err := net.SplitHostPort(l.env.HTTP); err == nil {
		r.Header.Set("DiscoveryIdentity-Id", host)
	}
	if replicated {
		r.Header.Set("X-Netflix-Discovery-Replication", "true")
	}
	if l.user != nil {
		password, _ := l.user.Password()
		r.SetBasicAuth(l.user.Username(), password)
	}
	resp, err := l.exchange(r)
	if err != nil {
		return response{}, link.Failed(link.FailureOf(err, connected.Load()), err)
	}
	return resp, nil
}

func (l *eurekaLink) exchange(r *http.Request) (response, error) {
	resp, err := l.client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return response{}, fmt.Errorf("%s %s: the response was cut off: %w", r.Method, r.URL, err)
	}
	if len(body) > maxResponse {
		return response{}, fmt.Errorf("%s %s: %w", r.Method, r.URL, link.ErrResponseTooLarge)
	}
	return response{resp.StatusCode, body}, nil
}

// refusedCall returns the error of a response that is not a success.
func refusedCall(method, target string, r response) error {
	result := batcher.PermanentError
	if r.status == http.StatusServiceUnavailable {
		result = batcher.Congestion
	}
	return link.Failed(result, &statusError{method, target, r.status})
}

// statusError is the error of a response with a status that is not a success.
type statusError struct {
	method, target string
	status         int
}

// Error names the call and the status.
func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s was answered %d %s", e.method, e.target, e.status, http.StatusText(e.status))
}

// refuseAlone records an item that the server refuses by the status of a call that had only that item. The dispatcher
// arranges for that: it tries the items of a refused batch one by one.
func (l *eurekaLink) refuseAlone(all []part, err error) {
	answer, ok := errors.AsType[*statusError](err)
	if ok && (answer.status == http.StatusBadRequest || answer.status == http.StatusRequestEntityTooLarge) && all[0].task.Key == all[len(all)-1].task.Key {
		l.env.Refused(all[0].task.Key, all[0].fact(), err.Error())
	}
}

// Bounds of one replication document.
const (
	maxItems = 250 // upstream's own servers never send more
	// maxDocument is far below what our own servers accept (8 MiB), even with one more instance.
	maxDocument = 4 << 20
)

// Process implements batcher.Processor.
func (l *eurekaLink) Process(ctx context.Context, t link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{t})
}

// ProcessBatch implements batcher.Processor. If a part fails the whole batch is sent again: every item can be
// repeated.
func (l *eurekaLink) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	v := l.env.View()
	var all []part
	for _, t := range tasks {
		all = append(all, partsOf(v, t)...)
	}
	if l.env.Peer.Single {
		// One call per item, a client's call with the mark of replication, for servers that accept no batches. A refusal
		// is final if the server says nothing more about it.
		result := batcher.Success
		for n := range all {
			itemResult, err := l.call(ctx, all[n])
			if err != nil {
				l.env.Failed(err)
				l.refuseAlone(all[n:n+1], err)
				if link.ResultOf(err) != batcher.PermanentError {
					return link.ResultOf(err)
				}
				result = batcher.PermanentError
				continue
			}
			l.env.Succeeded()
			l.follow(ctx, all[n:n+1], []eureka.ItemResult{itemResult})
		}
		return result
	}
	for some := range slices.Chunk(all, maxItems) {
		if result := l.sendBatch(ctx, some); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// Compare returns everything, because the server cannot be compared with: what is here and belongs to this
// datacenter, and what was removed here.
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

// call makes the call of one item, and returns the response as the result that the item would have in a batch.
func (l *eurekaLink) call(ctx context.Context, t part) (eureka.ItemResult, error) {
	method, target, body := callOf(t)
	resp, err := l.ask(ctx, true, method, target, body)
	if err != nil {
		return eureka.ItemResult{}, err
	}
	switch {
	case resp.ok(), resp.status == http.StatusNotFound && t.Action != eureka.Register:
		return eureka.ItemResult{Status: resp.status}, nil
	case resp.status == http.StatusConflict && t.Action == eureka.Heartbeat:
		// If the response shows no readable instance, the server is asked for it.
		theirs, _ := eureka.DecodeInstance(resp.body, eureka.Format{})
		return eureka.ItemResult{Status: resp.status, Lease: theirs}, nil
	}
	return eureka.ItemResult{}, refusedCall(method, target, resp)
}

// batchPath ends in a slash, as upstream's own servers write it.
const batchPath = "/peerreplication/batch/"

// sendBatch sends one document, split where it would get too large, and does what the response asks for.
func (l *eurekaLink) sendBatch(ctx context.Context, all []part) batcher.Result {
	items := make([]eureka.Item, len(all))
	for n := range all {
		items[n] = all[n].Item
	}
	body := eureka.AppendBatch(nil, items)
	if half := len(all) / 2; half > 0 && len(body) > maxDocument {
		if result := l.sendBatch(ctx, all[:half]); result != batcher.Success {
			return result
		}
		return l.sendBatch(ctx, all[half:])
	}
	results, err := l.exchangeBatch(ctx, body)
	if err != nil {
		l.env.Failed(err)
		l.refuseAlone(all, err)
		return link.ResultOf(err)
	}
	if len(results) != len(all) {
		// Nobody knows which result belongs to which item. The next heartbeats will show what is missing.
		l.env.Failed(fmt.Errorf("%d items were answered by %d results", len(all), len(results)))
		return batcher.Success
	}
	l.env.Succeeded()
	l.follow(ctx, all, results)
	return batcher.Success
}

func (l *eurekaLink) exchangeBatch(ctx context.Context, body []byte) ([]eureka.ItemResult, error) {
	resp, err := l.ask(ctx, true, http.MethodPost, batchPath, body)
	if err != nil {
		return nil, err
	}
	if !resp.ok() {
		return nil, refusedCall(http.MethodPost, batchPath, resp)
	}
	results, err := eureka.DecodeBatchResponse(resp.body)
	if err != nil {
		return nil, fmt.Errorf("the response to a batch cannot be read: %w", err)
	}
	return results, nil
}

// follow does what the results of items ask for: it registers what the server does not know there, and registers here
// what the server has newer (upstream: InstanceReplicationTask.handleFailure).
func (l *eurekaLink) follow(ctx context.Context, all []part, results []eureka.ItemResult) {
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
func (l *eurekaLink) registerAgain(t link.Task) bool {
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
func (l *eurekaLink) registerAbove(ctx context.Context, t part) bool {
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
func (l *eurekaLink) newer(ctx context.Context, t part, r eureka.ItemResult) ([]*registry.Instance, error) {
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
func (l *eurekaLink) fetch(ctx context.Context, key registry.Key) (*registry.Lease, error) {
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
func (l *eurekaLink) registerNewer(ctx context.Context, newer []*registry.Instance) error {
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
