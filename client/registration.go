package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
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
	// Instance is what is registered. Its RenewalInterval is the time between two heartbeats, its Duration how long
	// it lives after the last one. NewInstance makes one.
	Instance *registry.Instance
	// Health is asked for the status before each check of the replicator, but not before on-demand updates (upstream
	// asks there too); current is the status that was last reported. It is not asked while the instance drains. It
	// may take its time: the check follows when it has returned, and nothing else waits for it. A panic counts as
	// DOWN. ctx ends with the Registration. If Health is nil, only SetStatus changes the status.
	Health func(ctx context.Context, current registry.Status) registry.Status
	// ReplicationDelay is the time until the replicator's first check, ReplicationInterval the time between two. 0
	// means DefaultReplicationDelay and DefaultReplicationInterval.
	ReplicationDelay, ReplicationInterval time.Duration
	// ReplicationBurst is how many changes are sent at once, rather than at the next check, before they have to wait;
	// that many become available in each ReplicationInterval. 0 means DefaultReplicationBurst.
	ReplicationBurst int
	// Stay leaves the instance registered when the Registration ends; its lease expires then (upstream's
	// eureka.shouldUnregisterOnShutdown=false).
	Stay bool
}

// Registration keeps an instance registered: it registers it at once, renews its lease once per renewal interval,
// registers it again whenever the cluster does not know it or knows an older state of it, and tells the cluster what
// changes. It works against Rollcall and against stock Eureka servers. Safe for concurrent use.
//
// Heartbeats and changes are separate, as upstream: a timer renews; the replicator (a check every
// ReplicationInterval, and on demand after each change, if its token bucket admits that) registers anew what has
// changed. Either repairs what the other missed: a renewal says which state it belongs to, and gets 404 if the
// cluster has an older one.
//
// What fails is tried again soon, several times within a lease, with growing pauses of random length.
//
// Servers keep an instance UP that registers itself as OUT_OF_SERVICE, and the other way round, unless it had another
// status in between (upstream's LeaseExistsRule). So such a change is sent as two registrations, the first one as
// STARTING. And after its first registration the instance is looked up once, because a former process with the same
// id may have left it OUT_OF_SERVICE.
type Registration struct {
	client *Client
	config RegistrationConfig // with defaults
	key    registry.Key
	log    *slog.Logger
	bucket *eureka.Bucket // of updates on demand
	rate   int64          // its tokens per minute
	state  *registrationState

	life       context.Context // of the loops; its cause is ErrClosed
	cancel     context.CancelCauseFunc
	stopped    chan struct{}        // closed when the loops have ended
	wake       chan struct{}        // the replicator has an update on demand
	reported   chan registry.Status // from Health
	turn       turn                 // held by the registration in progress
	healthTurn turn                 // held by the call of Health in progress
	left       once                 // the cancel at the end
}

// StartRegistration starts to keep an instance registered, until Deregister or Client.Close. It does not wait:
// Registered does. The error joins every mistake in the configuration, or is ErrClosed.
func (c *Client) StartRegistration(config RegistrationConfig) (*Registration, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("start a registration: %w", err)
	}
	bucket, err := eureka.NewBucket(time.Minute)
	if err != nil {
		return nil, err
	}
	r := newRegistration(c, config.withDefaults(), bucket)
	if err := c.adopt(r); err != nil {
		r.cancel(err)
		return nil, fmt.Errorf("start a registration: %w", err)
	}
	var loops sync.WaitGroup
	loops.Go(r.heartbeats)
	loops.Go(r.replicate)
	go func() {
		loops.Wait()
		close(r.stopped)
	}()
	return r, nil
}

func newRegistration(c *Client, config RegistrationConfig, bucket *eureka.Bucket) *Registration {
	key := config.Instance.Key()
	r := &Registration{
		client: c, config: config, key: key,
		log:    c.log.With("instance", key.String()),
		bucket: bucket, rate: config.rate(),
		state:   newRegistrationState(config.Instance),
		stopped: make(chan struct{}), wake: make(chan struct{}, 1), reported: make(chan registry.Status),
		turn: make(turn, 1), healthTurn: make(turn, 1),
	}
	r.life, r.cancel = context.WithCancelCause(c.cluster.Life())
	return r
}

// Registered waits until the cluster has accepted the instance for the first time. It returns a refusal that no other
// try would change (for example a *StatusError of 400, 401 or 403; the client keeps trying all the same), ErrClosed,
// or the reason why ctx ended together with the last failure.
func (r *Registration) Registered(ctx context.Context) error {
	for {
		done, next, failure := r.state.outcome()
		switch {
		case done:
			return nil
		case r.life.Err() != nil:
			return fmt.Errorf("wait until %s is registered: %w", r.key, context.Cause(r.life))
		case refused(failure):
			return failure
		}
		select {
		case <-next:
		case <-r.life.Done():
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is registered: %w", r.key, errors.Join(context.Cause(ctx), failure))
		}
	}
}

// Instance returns the instance as it should be known, including changes that may not have been sent yet. It must not
// be changed.
func (r *Registration) Instance() *registry.Instance { return r.state.facts().instance }

// Interval returns the time between two heartbeats: the instance's, unless the server clamped it.
func (r *Registration) Interval() time.Duration { return r.state.facts().lease.interval }

// LastHeartbeat returns when the last heartbeat that the cluster accepted was sent, or the zero Time if there was
// none. A registration counts as one.
func (r *Registration) LastHeartbeat() time.Time { return r.state.facts().lastHeartbeat }

// Healthy returns nil while the cluster has heard from the instance within its lease's duration. Otherwise the error
// says for how long it has not, and why. It is meant for a liveness or readiness probe that wants to know; a service
// that the cluster does not hear from may serve all the same.
func (r *Registration) Healthy() error { return r.state.health() }

// gauges implements gauger.
func (r *Registration) gauges(emit func(d *prometheus.Desc, value float64, labels ...string)) {
	emit(heartbeatAge, r.state.silence().Seconds(), r.key.App, r.key.ID)
}

// validate reports every mistake at once.
func (c RegistrationConfig) validate() error {
	errs := []error{checkInstance(c.Instance)}
	if c.ReplicationDelay < 0 {
		errs = append(errs, fmt.Errorf("ReplicationDelay %v is negative", c.ReplicationDelay))
	}
	if c.ReplicationInterval != 0 && c.ReplicationInterval < time.Second {
		errs = append(errs, fmt.Errorf("ReplicationInterval %v is less than a second", c.ReplicationInterval))
	}
	if c.ReplicationBurst < 0 {
		errs = append(errs, fmt.Errorf("ReplicationBurst %d is negative; give 1 or more", c.ReplicationBurst))
	}
	return errors.Join(errs...)
}

// checkInstance finds what every server refuses, and a lease that cannot be kept.
func checkInstance(i *registry.Instance) error {
	if i == nil {
		return errors.New("no Instance is given; NewInstance makes one")
	}
	var errs []error
	for _, f := range []struct{ name, value string }{
		{"App", i.App}, {"HostName", i.HostName}, {"IPAddr", i.IPAddr}, {"DataCenter.Name", i.DataCenter.Name}, {"InstanceID", i.ID()},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("the Instance has no %s", f.name))
		}
	}
	if lease := leaseOf(i, ""); lease.interval >= lease.duration {
		errs = append(errs, fmt.Errorf("the Instance's RenewalInterval (%v) is not shorter than its Duration (%v): its lease would end between two heartbeats", lease.interval, lease.duration))
	}
	return errors.Join(errs...)
}

// withDefaults also copies the instance, with the application's name in the registry's form.
func (c RegistrationConfig) withDefaults() RegistrationConfig {
	instance := *c.Instance
	instance.App = strings.ToUpper(instance.App)
	c.Instance = &instance
	c.ReplicationDelay = cmp.Or(c.ReplicationDelay, DefaultReplicationDelay)
	c.ReplicationInterval = cmp.Or(c.ReplicationInterval, DefaultReplicationInterval)
	c.ReplicationBurst = cmp.Or(c.ReplicationBurst, DefaultReplicationBurst)
	return c
}

// rate returns how many tokens become available in a minute: upstream's 60 * burst / interval in seconds, which makes
// one burst per interval. In upstream's integers it is 0 for an interval longer than burst minutes, and 0 limits
// nothing; here it is at least 1.
func (c RegistrationConfig) rate() int64 {
	return max(1, int64(time.Minute.Seconds()*float64(c.ReplicationBurst)/c.ReplicationInterval.Seconds()))
}

// register sends what due returns, if there is anything. Registrations go one after the other, and each asks what is
// due when its turn has come: the later one always carries the newest state.
func (r *Registration) register(ctx context.Context, why string, due func() []*registry.Instance) error {
	if err := r.turn.acquire(ctx); err != nil {
		return err
	}
	defer r.turn.release()
	if r.life.Err() != nil { // ctx may learn of it later
		return context.Cause(r.life)
	}
	for _, i := range due() {
		if err := r.send(ctx, i, why); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registration) send(ctx context.Context, i *registry.Instance, why string) error {
	sent := time.Now()
	a, err := r.client.register(ctx, i)
	if err != nil {
		r.client.metrics.registrations.WithLabelValues(why, "failed").Inc()
		r.state.registrationFailed(i, err, a.Repeated || errors.Is(err, ErrUnknownOutcome))
		return err
	}
	r.client.metrics.registrations.WithLabelValues(why, "ok").Inc()
	lease := leaseOf(i, a.Header.Get(clampedHeader))
	r.state.registered(i, sent, lease)
	r.log.Info("registered", "why", why, "status", i.Status.String(), "renewed_every", lease.interval)
	return nil
}
