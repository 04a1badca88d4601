package observe

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"
)

// New lays the observation out. Nothing is asked yet.
func New(c Config) *Observer { return newObserver(c, newHTTP()) }

func newObserver(c Config, h *http.Client) *Observer {
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	o := &Observer{config: c, http: h, lists: make([]lastList, len(c.Nodes))}
	o.sightings = newSightings(o)
	return o
}

// Run observes until ctx ends. Nodes that do not answer are asked again; none of that is an error.
func (o *Observer) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for node := range o.config.Nodes {
		for _, part := range []func(context.Context, int){o.follow, o.watch, o.leaders, o.replicator, o.usage} {
			parts.Go(func() { part(ctx, node) })
		}
	}
	parts.Go(func() { o.sightings.run(ctx) })
	parts.Wait()
	o.http.CloseIdleConnections()
}
