package eurekapeer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// maxEurekaAnswer bounds what is read of a Eureka server's answer: 250 instances at their largest.
const maxEurekaAnswer = 64 << 20

// eurekaAnswer is what a Eureka server answers.
type eurekaAnswer struct {
	status int
	body   []byte
}

func (a eurekaAnswer) ok() bool { return a.status/100 == 2 }

// ask makes one call below the service URL and reads the whole answer. Its error is a *callError that
// names the URL without user info.
func (l *eurekaLink) ask(ctx context.Context, replicated bool, method, target string, body []byte) (eurekaAnswer, error) {
	p := l.env.Peer
	ctx, cancel := context.WithTimeout(ctx, p.ConnectTimeout+p.ReadTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, method, l.URL()+target, bytes.NewReader(body))
	if err != nil {
		return eurekaAnswer{}, link.Failed(batcher.PermanentError, err)
	}
	l.identify(r, replicated, len(body) > 0)
	answer, err := l.exchange(r)
	if err != nil {
		return eurekaAnswer{}, link.Failed(link.FailureOf(err, connected.Load()), err)
	}
	return answer, nil
}

// identify sets the header fields by which Eureka servers know one another.
func (l *eurekaLink) identify(r *http.Request, replicated, body bool) {
	r.Header.Set("Accept", "application/json")
	if body {
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
}

func (l *eurekaLink) exchange(r *http.Request) (eurekaAnswer, error) {
	resp, err := l.client.Do(r)
	if err != nil {
		return eurekaAnswer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxEurekaAnswer+1))
	if err != nil {
		return eurekaAnswer{}, fmt.Errorf("%s %s: the answer broke off: %w", r.Method, r.URL, err)
	}
	if len(body) > maxEurekaAnswer {
		return eurekaAnswer{}, fmt.Errorf("%s %s: %w", r.Method, r.URL, link.ErrAnswerTooLarge)
	}
	return eurekaAnswer{resp.StatusCode, body}, nil
}

// refusedCall is an answer that is not one of success.
func refusedCall(method, target string, a eurekaAnswer) error {
	result := batcher.PermanentError
	if a.status == http.StatusServiceUnavailable {
		result = batcher.Congestion
	}
	return link.Failed(result, fmt.Errorf("%s %s was answered %d %s", method, target, a.status, http.StatusText(a.status)))
}

// batchPath ends in a slash, as upstream's own servers write it.
const batchPath = "/peerreplication/batch/"

// sendBatch sends one document, in parts where it would get too large, and does what the answer asks
// for.
func (l *eurekaLink) sendBatch(ctx context.Context, all []eurekaPart) batcher.Result {
	items := make([]eureka.Item, len(all))
	for n := range all {
		items[n] = all[n].Item
	}
	body := eureka.AppendBatch(nil, items)
	if half := len(all) / 2; half > 0 && len(body) > maxEurekaDocument {
		if result := l.sendBatch(ctx, all[:half]); result != batcher.Success {
			return result
		}
		return l.sendBatch(ctx, all[half:])
	}
	results, err := l.exchangeBatch(ctx, body)
	if err != nil {
		l.env.Failed(err)
		return link.ResultOf(err)
	}
	if len(results) != len(all) {
		// Nobody can tell which answer belongs to which item. The next heartbeats will show what is missing.
		l.env.Failed(fmt.Errorf("%d items were answered by %d results", len(all), len(results)))
		return batcher.Success
	}
	l.env.Succeeded()
	l.analyse(ctx, all, results)
	return batcher.Success
}

func (l *eurekaLink) exchangeBatch(ctx context.Context, body []byte) ([]eureka.ItemResult, error) {
	answer, err := l.ask(ctx, true, http.MethodPost, batchPath, body)
	if err != nil {
		return nil, err
	}
	if !answer.ok() {
		return nil, refusedCall(http.MethodPost, batchPath, answer)
	}
	results, err := eureka.DecodeBatchResponse(answer.body)
	if err != nil {
		return nil, fmt.Errorf("the answer to a batch cannot be read: %w", err)
	}
	return results, nil
}

// analyse does what the answers to items ask for: what the server does not know it is told as a
// registration, and what it has newer is taken over here (upstream: InstanceReplicationTask.handleFailure).
func (l *eurekaLink) analyse(ctx context.Context, all []eurekaPart, results []eureka.ItemResult) {
	var refused error
	var newer []*registry.Instance
	for n := range all {
		t, r := all[n], results[n]
		switch {
		case r.Status/100 == 2, r.Status == http.StatusNotFound && t.Action == eureka.Cancel:
			l.env.Sent(t.fact())
			continue
		case r.Status == http.StatusNotFound && t.Action != eureka.Register:
			if l.tellAgain(t.task) {
				continue
			}
		case r.Status == http.StatusConflict && t.Action == eureka.Heartbeat:
			theirs, err := l.newer(ctx, t, r)
			if err == nil {
				newer = append(newer, theirs...)
				continue
			}
			refused = err
			continue
		}
		refused = fmt.Errorf("%s of %s was answered %d %s", t.Action, t.task.Key, r.Status, http.StatusText(r.Status))
	}
	if err := l.takeOver(ctx, newer); err != nil {
		refused = err
	}
	l.noteRefused(refused)
}

// tellAgain has the server told the whole instance. It is false if that was tried too often.
func (l *eurekaLink) tellAgain(t link.Task) bool {
	if t.Tries >= link.MaxTries {
		return false
	}
	t.Tries++
	t.Facts = link.Registered // it brings an override along, and a server that forgot the instance forgot its override
	l.env.Submit(t)
	return true
}

// noteRefused logs what was refused, once per change of state. Whatever it was, it is not sent again; the
// call itself was answered.
func (l *eurekaLink) noteRefused(err error) {
	if before := l.refuses.Swap(err != nil); !before && err != nil {
		l.env.Log.Warn("a Eureka server refuses an item", "peer", l.env.Peer.Name, "err", err)
	}
}

// newer returns the server's instance if it is newer than the one here. A server that says so without
// showing its own is asked for it; one whose own is not newer is told ours.
func (l *eurekaLink) newer(ctx context.Context, t eurekaPart, r eureka.ItemResult) ([]*registry.Instance, error) {
	theirs := r.Lease
	if theirs == nil {
		var err error
		if theirs, err = l.fetch(ctx, t.task.Key); err != nil {
			return nil, err
		}
		if theirs == nil || theirs.Instance.LastDirty <= t.LastDirty {
			l.tellAgain(t.task)
			return nil, nil
		}
	}
	i, err := registrable(t.task.Key, theirs)
	if err != nil {
		return nil, err
	}
	return []*registry.Instance{i}, nil
}

// fetch asks for one instance; nil: the server has none.
func (l *eurekaLink) fetch(ctx context.Context, key registry.Key) (*registry.Lease, error) {
	target := instancePath(key)
	answer, err := l.ask(ctx, true, http.MethodGet, target, nil)
	switch {
	case err != nil:
		return nil, err
	case answer.status == http.StatusNotFound:
		return nil, nil
	case !answer.ok():
		return nil, refusedCall(http.MethodGet, target, answer)
	}
	theirs, err := eureka.DecodeInstance(answer.body, eureka.Format{})
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", target, err)
	}
	return theirs, nil
}

// registrable checks what a server shows of an instance as if it registered here.
func registrable(key registry.Key, theirs *registry.Lease) (*registry.Instance, error) {
	document := eureka.AppendInstanceDocument(nil, eureka.Format{}, theirs, theirs.RenewedAt)
	i, err := eureka.DecodeRegistration(document, eureka.Format{}, key.App)
	if err == nil && i.Key() != key {
		err = fmt.Errorf("it is %s", i.Key())
	}
	if err != nil {
		return nil, fmt.Errorf("a newer %s cannot be taken over: %w", key, err)
	}
	return i, nil
}

// takeOver registers instances here that the server has newer, with the overrides that it has for them.
func (l *eurekaLink) takeOver(ctx context.Context, newer []*registry.Instance) error {
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
