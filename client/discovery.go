package client

import (
	"context"
	"time"
)

// DefaultRefreshInterval is the time between two fetches (upstream's
// eureka.client.registryFetchIntervalSeconds).
const DefaultRefreshInterval = 30 * time.Second

// Ways to keep a list up to date.
const (
	// RefreshAuto watches where the server is Rollcall, and fetches deltas where it is not. It finds out
	// by itself, and again after each failover.
	RefreshAuto RefreshMode = iota
	// RefreshDelta fetches everything once, then deltas, whose hash it checks; everything again where
	// the hash does not fit or the server has no deltas.
	RefreshDelta
	// RefreshFull fetches everything each time (upstream's eureka.client.disableDelta).
	RefreshFull
)

// RefreshMode is a way to keep a list up to date.
type RefreshMode uint8

// DiscoveryConfig says what to discover and how. The zero DiscoveryConfig has a default for each field.
type DiscoveryConfig struct {
	App string // of one application, in any case, which is cheaper than all; "": all
	// Mode is how the list is kept up to date.
	Mode RefreshMode
	// Interval is the time between two fetches. Failures double it, with jitter, up to ten times that
	// (upstream's cacheRefreshExecutorExponentialBackOffBound), but another server is tried at once.
	// 0: DefaultRefreshInterval.
	Interval time.Duration
	// Guard keeps a suddenly empty answer from emptying the list.
	Guard Guard
	// File keeps the last list on disk, so that a process that starts while no server answers begins
	// with it. "": it is not kept.
	File string
	// OnChange is OnChange's function, from the first list on.
	OnChange func(old, new *Snapshot)
}

// Discovery is a list of instances that is kept up to date in the background: what is asked of it is
// answered from memory, also while no server can be reached. Safe for concurrent use.
type Discovery struct {
	client *Client
	config DiscoveryConfig
}

// StartDiscovery starts to keep a list, until Discovery.Close or Client.Close. It does not wait: Ready
// does. The error joins every mistake of the configuration.
func (c *Client) StartDiscovery(config DiscoveryConfig) (*Discovery, error) { panic("not written") }

// Ready waits until there is a list, of a server or from DiscoveryConfig.File. The error is ErrClosed,
// or why ctx ended together with what failed last.
func (d *Discovery) Ready(ctx context.Context) error { panic("not written") }

// Snapshot returns the present list, which is empty until Ready.
func (d *Discovery) Snapshot() *Snapshot { panic("not written") }

// OnChange calls each after every change of the list, with the list before and after it, in order, from
// one goroutine; changes in short order may be told as one. It should return soon: until it has, the list
// stays as it told, but nothing else waits. stop ends that, and waits for a call under way unless it is
// called from within each.
func (d *Discovery) OnChange(each func(old, new *Snapshot)) (stop func()) { panic("not written") }

// Age is for how long the list has not been known to be up to date: since the last good fetch was sent,
// or, while a server is watched, since it was heard of last (it says something every 15 s). A list from
// DiscoveryConfig.File is as old as that. 0 until Ready.
func (d *Discovery) Age() time.Duration { panic("not written") }

// Sources of a list.
const (
	SourceNone  = "none" // there is no list yet
	SourceFile  = "file" // DiscoveryConfig.File
	SourceFetch = "fetch"
	SourceWatch = "watch"
)

// DiscoveryStatus is what a Discovery does at present.
type DiscoveryStatus struct {
	Source string        // of the list: one of the Sources
	Server string        // URL of the server that it came from; "": of none
	Index  string        // the version of a Rollcall server's registry, as X-Rollcall-Index; "": not known
	Age    time.Duration // as Age
	Held   int           // instances that the Guard keeps
	Err    error         // why the last refresh failed; nil: it did not
}

// Status returns what it does at present.
func (d *Discovery) Status() DiscoveryStatus { panic("not written") }

// Close ends the Discovery. Its list can be asked for afterwards, and stays as it is.
func (d *Discovery) Close(ctx context.Context) error { panic("not written") }
