package client

import (
	"context"
	"strings"

	"github.com/seed-20419f34/rollcall/client/internal/list"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// WatchConfig says what to watch. The zero WatchConfig watches everything from now on.
type WatchConfig struct {
	App string // one application, in any case; "" means all
	// Index is where to resume: the Index of the last WatchEvent that was handled. "" means from now.
	Index string
}

// Watch calls each with every change, in order, until ctx ends or each returns an error. It stays with one server
// while that one responds, turns to the next otherwise, and resumes where it was: it misses no change and reports
// none twice, except that changes of one instance in quick succession may be reported as the last of them. When a
// server no longer knows what happened since, each gets a WatchReset.
//
// It returns nil when ctx has ended, ErrClosed when the client was closed, the error of each unchanged, and an error
// if a server refuses the watch (a malformed index; ErrNeedsRollcall) or sends what cannot be read. While no server
// can be reached it keeps trying. StartDiscovery keeps a whole list up to date.
func (c *Client) Watch(ctx context.Context, config WatchConfig, each func(WatchEvent) error) error {
	return list.Follow(ctx, list.StreamConfig{
		Cluster: c.cluster, Log: c.log, App: strings.ToUpper(config.App), Index: config.Index,
		Each: func(e list.Event) error {
			switch e := e.(type) {
			case list.Start:
				return each(WatchStart(e))
			case list.Reset:
				return each(WatchReset(e))
			}
			return each(WatchChange(e.(list.Change)))
		},
	})
}

// WatchEvent is what a Watch reports: a WatchStart, WatchChange or WatchReset.
type WatchEvent interface{ isWatchEvent() }

// WatchStart means that a server accepted the watch, at first and after each failover.
type WatchStart struct {
	Index  string // changes after it follow
	Server string // base URL
}

// WatchChange is one change of one instance.
type WatchChange struct {
	Index  string // of the change
	Action string // ADDED, MODIFIED or DELETED, as in Eureka's delta
	Why    string // registered, changed, canceled, evicted or quarantined
	App    string // upper case
	ID     string
	Status string // afterwards; for a deleted instance, before
	// Instance is the instance as Eureka's documents show it, or nil if only its removal record is left.
	Instance *registry.Lease
}

// WatchReset means that changes may have been missed: fetch everything (Apps) before going on. The changes after
// Index follow.
type WatchReset struct {
	Index  string
	Reason string // a sentence
}

func (WatchStart) isWatchEvent()  {}
func (WatchChange) isWatchEvent() {}
func (WatchReset) isWatchEvent()  {}

// Key names the instance that changed.
func (c WatchChange) Key() registry.Key { return registry.Key{App: c.App, ID: c.ID} }
