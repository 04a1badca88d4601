package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the client's numbers. They count whether or not they are read.
type metrics struct {
	registerer    prometheus.Registerer  // nil if they are not read
	tries         []prometheus.Collector // of the transport
	refreshes     *prometheus.CounterVec // of lists, by kind (full, delta, watch) and outcome (ok, failed, mismatch)
	guarded       prometheus.Counter     // full responses that the guard did not believe
	gaugers       func() []gauger        // returns the parts that currently have gauges
	heartbeats    *prometheus.CounterVec // by outcome: ok, not_found, failed
	registrations *prometheus.CounterVec // by reason (first, not_found, changed) and outcome (ok, failed)
	limited       prometheus.Counter     // on-demand updates that had to wait for a token
	lost          *prometheus.CounterVec // sessions, locks and permits that ended without being released, by kind
}

// gauger is a part that has gauges.
type gauger interface {
	gauges(emit func(d *prometheus.Desc, value float64, labels ...string))
}

// Gauges that are read on demand.
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

func newMetrics(r prometheus.Registerer, tries []prometheus.Collector, gaugers func() []gauger) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_client_" + name, Help: help}, labels)
	}
	m := &metrics{
		registerer: r,
		tries:      tries,
		refreshes:  counter("refreshes_total", "Refreshes of the list of instances, by kind and outcome.", "kind", "outcome"),
		guarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_guarded_lists_total", Help: "Full answers that lacked too many instances to be taken at their word.",
		}),
		gaugers:       gaugers,
		heartbeats:    counter("heartbeats_total", "Renewals sent, by outcome.", "outcome"),
		registrations: counter("registrations_total", "Registrations sent, by reason and outcome.", "reason", "outcome"),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_limited_updates_total", Help: "On-demand updates that had to wait for a token.",
		}),
		lost: counter("lost_total", "Sessions, locks and permits that were lost, by kind.", "kind"),
	}
	// Possible events show as 0: a counter that first appears with 1 has no rate for that event.
	for _, outcome := range []string{"ok", "not_found", "failed"} {
		m.heartbeats.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"ok", "failed"} {
		for _, reason := range []string{whyFirst, whyNotFound, whyChanged} {
			m.registrations.WithLabelValues(reason, outcome)
		}
	}
	for _, kind := range []string{"full", "delta", "watch"} {
		m.refreshes.WithLabelValues(kind, "ok")
		m.refreshes.WithLabelValues(kind, "failed")
	}
	m.refreshes.WithLabelValues("delta", "mismatch")
	for _, kind := range []string{"session", "lock", "semaphore"} {
		m.lost.WithLabelValues(kind)
	}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m); err != nil {
		return nil, fmt.Errorf("register the metrics: %w; clients of one process need prometheus.WrapRegistererWith, each with its value of one label", err)
	}
	return m, nil
}

func (m *metrics) close() {
	if m.registerer != nil {
		m.registerer.Unregister(m)
	}
}

func (m *metrics) all() []prometheus.Collector {
	own := []prometheus.Collector{m.heartbeats, m.registrations, m.limited, m.lost, m.refreshes, m.guarded}
	return slices.Concat(own, m.tries)
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

// readings asks all parts for their gauges. If two have the same series (two lists of one application) the greater
// value is shown: with both, or with a label that is not valid UTF-8, the whole scrape would fail.
func (m *metrics) readings() map[series]reading {
	all := make(map[series]reading)
	for _, g := range m.gaugers() {
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

// Why an instance is registered, as named in the metrics.
const (
	whyFirst    = "first"
	whyNotFound = "not_found"
	whyChanged  = "changed"
)
