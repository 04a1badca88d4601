package eurekapeer

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// Bounds of one replication document.
const (
	maxItems = 250 // upstream's own servers never send more
	// maxDocument is far below what our own servers accept (8 MiB), even with one more instance.
	maxDocument = 4 << 20
)

// Process implements batcher.Processor.
func (l *Link) Process(ctx context.Context, t link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{t})
}

// ProcessBatch implements batcher.Processor. If a part fails the whole batch is sent again: every item can be
// repeated.
func (l *Link) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
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
func (l *Link) Compare(_ context.Context, repair bool) (api.PeerDiff, []link.Task, error) {
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
func (l *Link) call(ctx context.Context, t part) (eureka.ItemResult, error) {
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
func (l *Link) sendBatch(ctx context.Context, all []part) batcher.Result {
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

func (l *Link) exchangeBatch(ctx context.Context, body []byte) ([]eureka.ItemResult, error) {
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
