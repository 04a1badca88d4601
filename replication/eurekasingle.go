package replication

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

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
			l.env.failed(err)
			if resultOf(err) != batcher.PermanentError {
				return resultOf(err)
			}
			result = batcher.PermanentError
			continue
		}
		l.env.succeeded()
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
	target = instancePath(t.task.key)
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
