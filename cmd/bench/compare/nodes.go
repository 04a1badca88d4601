package compare

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

const (
	// retryEvery is the pause before a node that does not respond is asked again for its stream of changes: package
	// client, which spares the servers, would notice a node that is back only after seconds.
	retryEvery = 50 * time.Millisecond
	// longPause is longer than a trial goes on after a node was lost.
	longPause = time.Hour
	// leaderEvery is how often a node is asked for its leader.
	leaderEvery = 100 * time.Millisecond
	// streamFetch is how many bytes of a stream are read at once.
	streamFetch = 4 << 10
)

// watch follows a node's stream of changes, and resumes after every interruption.
func (o *observer) watch(ctx context.Context, node int) {
	if !o.config.Column.Streams() {
		return
	}
	index := ""
	repeat(ctx, retryEvery, func() time.Duration {
		if o.isDropped(node) {
			return longPause
		}
		o.stream(ctx, node, &index)
		return 0
	})
}

// change is an event of a stream of changes.
type change struct{ ID, Why string }

// stream reads a node's stream of changes since an index until it ends, and moves the index on.
func (o *observer) stream(ctx context.Context, number int, index *string) {
	target := "http://" + o.config.Nodes[number] + "/v1/rollcall/watch"
	if *index != "" {
		target += "?index=" + url.QueryEscape(*index)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return
	}
	resp, err := o.http.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	begun := time.Now()
	defer o.of(number, func(n *view) { n.watched += time.Since(begun) })
	for events := api.NewEventReader(resp.Body, streamFetch); ; {
		e, err := events.Next()
		if err != nil {
			return
		}
		if len(e.ID) > 0 {
			*index = string(e.ID)
		}
		var c change
		if json.Unmarshal(e.Data, &c) == nil {
			o.changed(number, string(e.Name), c, time.Now())
		}
	}
}

// changed records an event of a node's stream.
func (o *observer) changed(node int, name string, c change, at time.Time) {
	o.sightings.watches[node].changed(name, c.ID, at)
	if name == "change" && c.Why == "evicted" {
		alive := o.config.Book.Alive(c.ID)
		o.add(func(t *trial.Trial) {
			t.Evictions = append(t.Evictions, trial.Eviction{At: o.at(at), Node: node, ID: c.ID, Alive: alive})
		})
	}
}

// leaders asks a node for its leader, and records every change. A node that does not respond, or is lost, knows no
// leader.
func (o *observer) leaders(ctx context.Context, number int) {
	if !o.config.Column.Leads() {
		return
	}
	asker := o.asker(number)
	last := trial.Leader{Node: -1}
	repeat(ctx, leaderEvery, func() time.Duration {
		l := trial.Leader{At: o.at(time.Now()), Node: number, Leader: -1}
		var said client.Status
		if !o.isDropped(number) {
			said = askStatus(ctx, asker)
			l.Leader, l.Term = slices.Index(o.config.Names, said.Leader), said.Term
		}
		o.of(number, func(n *view) { n.status = said })
		if ctx.Err() == nil && (last.Node < 0 || last.Leader != l.Leader || last.Term != l.Term) {
			last = l
			o.add(func(t *trial.Trial) { t.Leaders = append(t.Leaders, l) })
		}
		return 0
	})
}

// askStatus asks a node for its status, and returns the zero value if it does not respond.
func askStatus(ctx context.Context, a *asker) (status client.Status) {
	resp, err := a.find(ctx, "/v1/rollcall/status")
	if err != nil || json.Unmarshal(resp.body, &status) != nil {
		return client.Status{}
	}
	return status
}

// leader returns the leader of the newest term that any of the first nodes knew when it was last asked, or -1. A
// former leader that is cut off may still believe that it leads.
func (o *observer) leader(nodes int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var newest client.Status
	for _, n := range o.nodes[:nodes] {
		if n.status.Quorum && n.status.Leader != "" && n.status.Term >= newest.Term {
			newest = n.status
		}
	}
	return slices.Index(o.config.Names, newest.Leader)
}

// usage records every second what a node's process has used, with the heartbeats answered until then.
func (o *observer) usage(ctx context.Context, node int) {
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

// machine records every second what the machine did. A failed look is left out, and the judge of the trial will miss
// it.
func (o *observer) machine(ctx context.Context) {
	if o.config.Machine == nil {
		return
	}
	repeat(ctx, time.Second, func() time.Duration {
		h, err := o.config.Machine()
		h.At = o.at(time.Now())
		if err == nil {
			o.add(func(t *trial.Trial) { t.Machine = append(t.Machine, h) })
		}
		return 0
	})
}
