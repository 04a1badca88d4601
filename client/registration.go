package client

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Defaults of a Registration, which are upstream's (eureka.appinfo.replicate.interval,
// eureka.appinfo.initial.replicate.time, com.netflix.discovery.InstanceInfoReplicator).
const (
	DefaultReplicationInterval = 30 * time.Second
	DefaultReplicationDelay    = 40 * time.Second
	DefaultReplicationBurst    = 2
)

// RegistrationConfig says what to register. Instance is required; every other field has a default.
type RegistrationConfig struct {
	// Instance is what is registered. Its RenewalInterval is the time between two heartbeats, its
	// Duration how long it lives after the last one. NewInstance makes one.
	Instance *registry.Instance
	// Health is asked for the status before each check of the replicator; current is the one that was
	// reported last. It is not asked while the instance drains. It may take its time, and a panic
	// counts as DOWN. Nil: the status changes by SetStatus only.
	Health func(ctx context.Context, current registry.Status) registry.Status
	// ReplicationDelay is the time until the replicator's first check, ReplicationInterval the time
	// between two. 0: DefaultReplicationDelay, DefaultReplicationInterval.
	ReplicationDelay, ReplicationInterval time.Duration
	// ReplicationBurst is how many changes are told at once rather than at the next check, before they
	// have to wait: so many come free in each ReplicationInterval. 0: DefaultReplicationBurst.
	ReplicationBurst int
	// Stay leaves the instance registered when the Registration ends; its lease expires then (upstream's
	// eureka.shouldUnregisterOnShutdown=false).
	Stay bool
}

// Registration keeps an instance registered: it registers it at once, renews its lease once per renewal
// interval, registers it again whenever the cluster does not know it or knows an older state of it, and
// tells the cluster what changes. It works against Rollcall and against stock Eureka servers. Safe for
// concurrent use.
//
// Heartbeats and changes go their own ways, as upstream: a timer renews; the replicator (a check every
// ReplicationInterval, and on demand after each change, as far as its token bucket admits) registers
// anew what has changed. Either repairs what the other missed: a renewal says which state it is of, and
// is answered 404 if the cluster has an older one.
type Registration struct {
	client *Client
	config RegistrationConfig
}

// StartRegistration starts to keep an instance registered, until Deregister or Client.Close. It does not
// wait: Registered does. The error joins every mistake of the configuration.
func (c *Client) StartRegistration(config RegistrationConfig) (*Registration, error) {
	panic("not written")
}

// Registered waits until the cluster has taken the instance for the first time. The error is what keeps
// it from doing so if no other try would change it (a *StatusError of 400, 401 or 403 for example; it is
// tried again all the same), ErrClosed, or why ctx ended together with what failed last.
func (r *Registration) Registered(ctx context.Context) error { panic("not written") }

// Instance is the instance as it is to be known, with the changes that may not have been told yet.
func (r *Registration) Instance() *registry.Instance { panic("not written") }

// Interval is the time between two heartbeats: the instance's, unless the server clamped it.
func (r *Registration) Interval() time.Duration { panic("not written") }

// SetStatus changes the status, and ends a Drain. It says whether the cluster is told at once: if not,
// the token bucket is empty, and it is told with whatever else changes meanwhile when a token comes
// free.
func (r *Registration) SetStatus(s registry.Status) (atOnce bool) { panic("not written") }

// SetMetadata adds or replaces entries of the metadata. It returns what SetStatus returns.
func (r *Registration) SetMetadata(entries ...registry.Pair) (atOnce bool) { panic("not written") }

// DeleteMetadata removes entries of the metadata. It returns what SetStatus returns.
func (r *Registration) DeleteMetadata(keys ...string) (atOnce bool) { panic("not written") }

// LastHeartbeat is when the last heartbeat that the cluster took was sent, a registration included; the
// zero Time if there was none.
func (r *Registration) LastHeartbeat() time.Time { panic("not written") }

// Healthy is nil while the cluster has heard of the instance within its lease's duration, and then says
// for how long it has not, and why. It is meant for a liveness or readiness probe that wants to know of
// it; a service that nobody hears of may serve all the same.
func (r *Registration) Healthy() error { panic("not written") }

// Drain takes the instance out of service before its end: it reports OUT_OF_SERVICE, waits until every
// server shows that, and then for the time that clients need to fetch it (settle; stock clients fetch
// every 30 s, watching ones know at once). Heartbeats go on, and Health is not asked any more. It does
// not cancel: Deregister or Client.Close does, afterwards.
//
// Every node of a Rollcall cluster is asked; of stock Eureka servers those that the client was given. A
// server that does not answer keeps it waiting until ctx ends; the error then names it. The instance
// stays OUT_OF_SERVICE in any case.
func (r *Registration) Drain(ctx context.Context, settle time.Duration) error { panic("not written") }

// Deregister ends the Registration: it stops the timers and cancels the instance, unless it was never
// registered or is to Stay. Later calls return what the first returned. An instance that is not
// registered any more is no error.
func (r *Registration) Deregister(ctx context.Context) error { panic("not written") }
