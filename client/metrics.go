package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the client's numbers. They count whether or not anybody reads them.
type metrics struct {
	registerer    prometheus.Registerer // nil: nobody reads them
	client        *Client
	requests      *prometheus.HistogramVec // seconds, by operation and outcome
	quarantined   prometheus.GaugeFunc
	heartbeats    *prometheus.CounterVec // by outcome: ok, not_found, failed
	registrations *prometheus.CounterVec // by reason (first, not_found, changed) and outcome (ok, failed)
	limited       prometheus.Counter     // on-demand updates that had to wait for a token
	refreshes     *prometheus.CounterVec // by kind (full, delta, watch) and outcome (ok, failed, mismatch)
	guarded       prometheus.Counter     // lists that the guard did not take at their word
	lost          *prometheus.CounterVec // sessions, locks and permits that ended without being released, by kind
}

// gauger is a part that has gauges.
type gauger interface {
	gauges(emit func(d *prometheus.Desc, value float64, labels ...string))
}

// Gauges that are read when they are asked for.
var (
	heartbeatAge = prometheus.NewDesc("rollcall_client_last_heartbeat_age_seconds",
		"Seconds since the last heartbeat that the cluster took; since the start if it took none.", []string{"app", "id"}, nil)
	listAge = prometheus.NewDesc("rollcall_client_list_age_seconds",
		"Seconds since the list of instances was known to be up to date.", []string{"app"}, nil)
	listInstances = prometheus.NewDesc("rollcall_client_list_instances",
		"Instances in the list, whatever their status.", []string{"app"}, nil)
	listHeld = prometheus.NewDesc("rollcall_client_list_held_instances",
		"Instances that the guard keeps in the list although the last full answer did not have them.", []string{"app"}, nil)
)

func newMetrics(r prometheus.Registerer, c *Client) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_client_" + name, Help: help}, labels)
	}
	m := &metrics{
		registerer: r,
		client:     c,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_client_request_duration_seconds", Help: "Time that one try at one server took, by operation and outcome.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"operation", "outcome"}),
		quarantined: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollcall_client_servers_quarantined", Help: "Servers that are asked last because they gave no answer.",
		}, func() float64 { return float64(c.servers.quarantined()) }),
		heartbeats:    counter("heartbeats_total", "Renewals sent, by outcome.", "outcome"),
		registrations: counter("registrations_total", "Registrations sent, by reason and outcome.", "reason", "outcome"),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_limited_updates_total", Help: "On-demand updates that had to wait for a token.",
		}),
		refreshes: counter("refreshes_total", "Refreshes of the list of instances, by kind and outcome.", "kind", "outcome"),
		guarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_guarded_lists_total", Help: "Full answers that lacked too many instances to be taken at their word.",
		}),
		lost: counter("lost_total", "Sessions, locks and permits that were lost, by kind.", "kind"),
	}
	m.begin()
	if r == nil {
		return m, nil
	}
	if err := r.Register(m); err != nil {
		return nil, fmt.Errorf("register the metrics: %w; clients of one process need prometheus.WrapRegistererWith, each with its value of one label", err)
	}
	return m, nil
}

// begin shows what may happen as 0: of what begins with 1 no rate tells the first.
func (m *metrics) begin() {
	for _, outcome := range []string{"ok", "not_found", "failed"} {
		m.heartbeats.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"ok", "failed"} {
		for _, reason := range []string{whyFirst, whyNotFound, whyChanged} {
			m.registrations.WithLabelValues(reason, outcome)
		}
		for _, kind := range []string{"full", "delta", "watch"} {
			m.refreshes.WithLabelValues(kind, outcome)
		}
	}
	m.refreshes.WithLabelValues("delta", "mismatch")
	for _, kind := range []string{"session", "lock", "semaphore"} {
		m.lost.WithLabelValues(kind)
	}
}

// request counts one try at one server.
func (m *metrics) request(operation, outcome string, took time.Duration) {
	m.requests.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

func (m *metrics) close() {
	if m.registerer != nil {
		m.registerer.Unregister(m)
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.quarantined, m.heartbeats, m.registrations, m.limited, m.refreshes, m.guarded, m.lost}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{heartbeatAge, listAge, listInstances, listHeld} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
	for of, r := range m.readings() {
		to <- prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, r.value, r.labels...)
	}
}

// series names a gauge of given labels.
type series struct {
	desc   *prometheus.Desc
	labels string
}

type reading struct {
	labels []string
	value  float64
}

// readings asks all parts for their gauges. Of two that are of one series (two lists of one application)
// the greater value is shown. With both the whole scrape would fail, as it would with what is no text.
func (m *metrics) readings() map[series]reading {
	all := make(map[series]reading)
	for _, g := range m.client.gaugers() {
		g.gauges(func(d *prometheus.Desc, value float64, labels ...string) {
			for i, l := range labels {
				labels[i] = strings.ToValidUTF8(l, "\ufffd")
			}
			of := series{d, strings.Join(labels, "\xff")}
			if known, ok := all[of]; !ok || value > known.value {
				all[of] = reading{labels, value}
			}
		})
	}
	return all
}

// gaugers returns the parts that have gauges at this moment. They are asked without the client's lock,
// for which they may be waiting with a lock of their own.
func (l *lifecycle) gaugers() []gauger {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []gauger
	for p := range l.parts {
		if g, ok := p.(gauger); ok {
			all = append(all, g)
		}
	}
	return all
}

// operation is what a call does, for the metrics: one of few values, none of which is a name.
func (q *call) operation() string {
	switch {
	case q.eureka:
		return q.eurekaOperation()
	case len(q.path) > 2 && q.path[1] == "rollcall":
		return q.ownOperation()
	case len(q.path) > 1:
		return q.path[1] // of Consul's API
	}
	return "other"
}

func (q *call) eurekaOperation() string {
	switch at := q.path[0]; {
	case at == "vips" || at == "svips":
		return "vip"
	case at != "apps" || len(q.path) == 3 && q.method == http.MethodGet:
		return "instance"
	case len(q.path) > 3:
		return q.path[3] // status or metadata
	}
	switch {
	case q.method == http.MethodPost:
		return "register"
	case q.method == http.MethodPut:
		return "renew"
	case q.method == http.MethodDelete:
		return "cancel"
	case len(q.path) == 1:
		return "apps"
	case q.path[1] == "delta":
		return "delta"
	}
	return "app"
}

// ownOperation is the resource, where that does not mean something else in Eureka's API.
func (q *call) ownOperation() string {
	switch resource := q.path[2]; resource {
	case "sessions":
		return "session"
	case "locks":
		return "lock"
	case "semaphores":
		return "semaphore"
	case "status":
		return "cluster"
	case "apps":
		if len(q.path) > 5 {
			return q.path[5] // what is done to an instance
		}
		return "instances"
	default:
		return resource
	}
}

// outcomeOf is what came of a try, for the metrics; status is that of an answer.
func outcomeOf(status int, err error) string {
	var of *StatusError
	switch {
	case err == nil:
		return class(status)
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown"
	case errors.As(err, &of):
		return class(of.Status)
	case errors.Is(err, ErrNeedsRollcall):
		return "4xx"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case isTimeout(err):
		return "timeout"
	}
	return "unreachable"
}

func class(status int) string { return fmt.Sprintf("%dxx", status/100) }

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
