package observe

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

const (
	// retryEvery is the pause before a node that does not answer is asked again for its stream of changes.
	retryEvery = 50 * time.Millisecond
	// streamPatience is longer than a client's longest pause between two tries: after so long a try it begins anew with
	// its shortest.
	streamPatience = 10 * time.Second
)

// watch follows a node's stream of changes, and goes on after every interruption.
func (o *Observer) watch(ctx context.Context, node int) {
	c := newClient(&http.Client{Transport: insistent{o.http.Transport}}, streamPatience, "http://"+o.config.Nodes[node])
	repeat(ctx, retryEvery, func() time.Duration {
		_ = c.Watch(ctx, client.WatchConfig{}, func(e client.WatchEvent) error { // its end is the node's, and it begins anew
			o.changed(node, e, time.Now())
			return nil
		})
		return 0
	})
}

// changed notes what a node's stream told.
func (o *Observer) changed(node int, e client.WatchEvent, at time.Time) {
	switch e := e.(type) {
	case client.WatchStart:
		o.sightings.watched(node)
	case client.WatchReset:
		o.sightings.skip(node)
	case client.WatchChange:
		o.sightings.tell(node, e.ID, at)
		if e.Why == "evicted" {
			alive := o.config.Book.Alive(e.ID)
			o.note(func(t *trial.Trial) {
				t.Evictions = append(t.Evictions, trial.Eviction{At: o.at(at), Node: node, ID: e.ID, Alive: alive})
			})
		}
	}
}

// insistent asks again at once where a node does not answer: a client that is kind to servers waits for seconds
// until it sees that one is back.
type insistent struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i insistent) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		resp, err := i.RoundTripper.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			return resp, nil
		}
		if err == nil {
			resp.Body.Close()
		}
		if !wait(req.Context(), retryEvery) {
			return nil, context.Cause(req.Context())
		}
	}
}
