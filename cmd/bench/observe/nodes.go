package observe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	// retryEvery is the pause before a node that does not respond is asked again for its stream of changes.
	retryEvery = 50 * time.Millisecond
	// streamPatience is longer than a client's longest pause between two tries: after such a long try the client
	// begins anew with its shortest.
	streamPatience = 10 * time.Second
)

// watch follows a node's stream of changes, and resumes after every interruption.
func (o *Observer) watch(ctx context.Context, node int) {
	if !o.config.Column.Streams() {
		return
	}
	i := insistent{
		RoundTripper: o.http.Transport,
		lost:         func() bool { return o.isDropped(node) },
		read:         func(length time.Duration) { o.addWatched(node, length) },
	}
	c := newClient(&http.Client{Transport: i}, streamPatience, "http://"+o.config.Nodes[node])
	repeat(ctx, retryEvery, func() time.Duration {
		if o.isDropped(node) {
			return longPause
		}
		// the node ends it, and repeat begins it anew
		_ = c.Watch(ctx, client.WatchConfig{}, func(e client.WatchEvent) error {
			o.changed(node, e, time.Now())
			return nil
		})
		return 0
	})
}

// longPause is longer than a trial goes on after a node was lost.
const longPause = time.Hour

func (o *Observer) addWatched(node int, read time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched[node] += read
}

// changed records an event of a node's stream.
func (o *Observer) changed(node int, e client.WatchEvent, at time.Time) {
	switch e := e.(type) {
	case client.WatchStart:
		o.sightings.watches[node].begun()
	case client.WatchReset:
		o.sightings.watches[node].skip()
	case client.WatchChange:
		o.sightings.watches[node].shown(e.ID, at)
		if e.Why == "evicted" {
			alive := o.config.Book.Alive(e.ID)
			o.add(func(t *trial.Trial) {
				t.Evictions = append(t.Evictions, trial.Eviction{At: o.at(at), Node: node, ID: e.ID, Alive: alive})
			})
		}
	}
}

// insistent repeats a request at once if a node does not respond: package client, which spares the servers, would
// notice a node that is back only after seconds.
type insistent struct {
	http.RoundTripper
	lost func() bool                // the node is no longer asked
	read func(length time.Duration) // is told, at the end of each stream, how long it was read
}

var errLost = errors.New("the node is lost")

// RoundTrip implements http.RoundTripper.
func (i insistent) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		if i.lost() {
			return nil, errLost
		}
		resp, err := i.RoundTripper.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			if resp.StatusCode == http.StatusOK {
				begun := time.Now()
				resp.Body = &stream{resp.Body, sync.OnceFunc(func() { i.read(time.Since(begun)) })}
			}
			return resp, nil
		}
		if err == nil {
			resp.Body.Close()
		}
		if !wire.Pause(req.Context(), retryEvery) {
			return nil, context.Cause(req.Context())
		}
	}
}

// stream is the body of a response, with a callback at its end.
type stream struct {
	io.ReadCloser
	ended func()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		s.ended()
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.ended()
	return s.ReadCloser.Close()
}

// leaderEvery is how often a node is asked for its leader.
const leaderEvery = 100 * time.Millisecond

// leaders asks a node for its leader, and records every change. A node that does not respond, or is lost, knows no
// leader.
func (o *Observer) leaders(ctx context.Context, node int) {
	if !o.config.Column.Leads() {
		return
	}
	asker := o.asker(node)
	var last *trial.Leader
	repeat(ctx, leaderEvery, func() time.Duration {
		l := trial.Leader{At: o.at(time.Now()), Node: node, Leader: -1}
		var said client.Status
		if !o.isDropped(node) {
			said = o.askStatus(ctx, asker)
			l.Leader, l.Term = slices.Index(o.config.Names, said.Leader), said.Term
		}
		o.mu.Lock()
		o.statuses[node] = said
		o.mu.Unlock()
		if ctx.Err() != nil || last != nil && last.Leader == l.Leader && last.Term == l.Term {
			return 0
		}
		last = &l
		o.add(func(t *trial.Trial) { t.Leaders = append(t.Leaders, l) })
		return 0
	})
}

// askStatus asks a node for its status, and returns the zero value if it does not respond.
func (o *Observer) askStatus(ctx context.Context, a *asker) (status client.Status) {
	resp, err := a.find(ctx, "/v1/rollcall/status")
	if err != nil || json.Unmarshal(resp.body, &status) != nil {
		return client.Status{}
	}
	return status
}

// Leader returns the leader of the newest term that any of the first nodes knew when it was last asked, or -1. A
// former leader that is cut off may still believe that it leads.
func (o *Observer) Leader(nodes int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var newest client.Status
	for _, s := range o.statuses[:nodes] {
		if s.Quorum && s.Leader != "" && s.Term >= newest.Term {
			newest = s
		}
	}
	return slices.Index(o.config.Names, newest.Leader)
}

// usage records every second what a node's process has used, with the heartbeats answered until then.
func (o *Observer) usage(ctx context.Context, node int) {
	if o.config.Usage == nil {
		return
	}
	repeat(ctx, time.Second, func() time.Duration {
		at := time.Now()
		u, err := o.config.Usage(node)
		if err != nil {
			return 0 // no process: between two of them
		}
		u.At, u.Node, u.Instances = o.at(at), node, o.config.Book.Expected()
		if o.config.Renewals != nil {
			u.Renewals = o.config.Renewals()
		}
		o.add(func(t *trial.Trial) { t.Usage = append(t.Usage, u) })
		return 0
	})
}
