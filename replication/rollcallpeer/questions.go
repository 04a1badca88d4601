package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// Compare implements link.Link. Datacenters compare this datacenter's instances, nodes compare all. The peer lists
// the applications that differ part by part, so that neither side ever holds more than one part.
func (l *Link) Compare(ctx context.Context, repair bool) (api.PeerDiff, []link.Task, error) {
	s := scope{view: l.env.View(), now: l.env.Clock(), all: l.env.Peer.Kind == link.Node}
	c := comparison{scope: s, consensus: l.env.Consensus, contested: l.contested}
	if !s.all && l.env.Datacenter < l.env.Peer.Name {
		c.cedesTo = l.env.Peer.Name
	}
	digests := s.digests()
	apps := slices.Sorted(maps.Keys(digests))
	for q, more := l.question(apps, digests, ""), true; more; {
		a, err := l.ask(ctx, q)
		if err != nil {
			l.env.Failed(err)
			return api.PeerDiff{}, nil, err
		}
		c.add(a.Apps)
		after := q.Until
		if a.More {
			after = slices.Max(slices.Collect(maps.Keys(a.Apps)))
		}
		more = after != ""
		q = l.question(apps, digests, after)
	}
	l.env.Succeeded()
	if !repair {
		c.tasks = nil
	}
	return c.diff, c.tasks, nil
}

// question asks about the applications after one: as many of ours as fit into a message.
func (l *Link) question(apps []string, digests map[string]registry.Digest, after string) *Digests {
	q := &Digests{
		Datacenter: l.env.Datacenter, Node: l.env.Node, After: after, Apps: make(map[string]registry.Digest),
	}
	if l.env.Peer.Kind == link.Datacenter {
		q.Owner = l.env.Datacenter
	}
	first, found := slices.BinarySearch(apps, after)
	if found {
		first++
	}
	last := min(first+maxApps, len(apps))
	for _, app := range apps[first:last] {
		q.Apps[app] = digests[app]
	}
	if last < len(apps) {
		q.Until = apps[last-1]
	}
	return q
}

// digestPatience is how many times longer the reply to digests may take than the reply to a message: no delivery
// waits for it, and a busy peer must go through everything it has.
const digestPatience = 6

// ask sends a question. The reply says nothing about applications that were not asked about, so the questions that
// follow come to an end.
func (l *Link) ask(ctx context.Context, q *Digests) (*differences, error) {
	text, err := l.calls.post(ctx, call{digestPath, Encode(l.level(), q), maxCompared, digestPatience})
	if err != nil {
		return nil, err
	}
	var a differences
	if err := Decode(text, &a); err != nil {
		return nil, link.Failed(batcher.PermanentError, fmt.Errorf("the response to digests cannot be read: %w", err))
	}
	for app := range a.Apps {
		if !q.covers(app) {
			return nil, link.Failed(batcher.PermanentError, fmt.Errorf("the response to digests names %q, which the request did not", clip(app)))
		}
	}
	if a.More && len(a.Apps) == 0 {
		return nil, link.Failed(batcher.PermanentError, errors.New("the response to digests announces more, but is empty itself"))
	}
	return &a, nil
}
