package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// tries are the operations and outcomes that a registry has counted, such as "renew 2xx 1".
func tries(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families := need.Got(r.Gather())(t)
	var all []string
	for _, f := range families {
		if f.GetName() != "rollcall_client_request_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			all = append(all, fmt.Sprintf("%s %s %d", labels["operation"], labels["outcome"], m.GetHistogram().GetSampleCount()))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// counting returns a client whose tries are counted.
func counting(t *testing.T, network servers, hosts ...string) (*Client, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	c := need.Got(New(Config{Servers: urlsOf(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: network}, Registerer: r}))(t)
	return c, r
}

func TestTriesAreCountedByWhatTheyDo(t *testing.T) {
	by := registry.Act{Author: "ann", Reason: "test"}
	for want, do := range map[string]func(context.Context, *Client){
		"register":          func(ctx context.Context, c *Client) { _ = c.Register(ctx, &registry.Instance{App: "A"}) },
		"renew":             func(ctx context.Context, c *Client) { _ = c.Renew(ctx, key, 0) },
		"cancel":            func(ctx context.Context, c *Client) { _ = c.Cancel(ctx, key) },
		"status":            func(ctx context.Context, c *Client) { _ = c.SetStatus(ctx, key, registry.Up) },
		"apps":              func(ctx context.Context, c *Client) { _, _ = c.Apps(ctx) },
		"app":               func(ctx context.Context, c *Client) { _, _ = c.Instances(ctx, "A") },
		"cluster":           func(ctx context.Context, c *Client) { _, _ = c.Status(ctx) },
		"events":            func(ctx context.Context, c *Client) { _, _ = c.Events(ctx) },
		"settings":          func(ctx context.Context, c *Client) { _, _ = c.Settings(ctx) },
		"self-preservation": func(ctx context.Context, c *Client) { _, _ = c.SelfPreservation(ctx) },
		"explain":           func(ctx context.Context, c *Client) { _, _ = c.Explain(ctx, key) },
		"override":          func(ctx context.Context, c *Client) { _, _ = c.Override(ctx, key, registry.Up, by, 0) },
		"quarantine":        func(ctx context.Context, c *Client) { _, _ = c.Quarantine(ctx, key, by, time.Hour) },
		"members":           func(ctx context.Context, c *Client) { _ = c.RemoveMember(ctx, "n1") },
		"peers":             func(ctx context.Context, c *Client) { _, _ = c.Peers(ctx) },
		"kv":                func(ctx context.Context, c *Client) { _, _ = c.KV().Get(ctx, "a/b") },
		"session":           func(ctx context.Context, c *Client) { _ = c.DestroySession(ctx, "s1") },
		"watch": func(ctx context.Context, c *Client) {
			_, _, _ = c.send(ctx, serverAt("a"), own(http.MethodGet, "watch"))
		},
		"delta": func(ctx context.Context, c *Client) { _, _ = c.do(ctx, ofEureka(http.MethodGet, "apps", "delta")) },
		"vip":   func(ctx context.Context, c *Client) { _, _ = c.do(ctx, ofEureka(http.MethodGet, "svips", "orders")) },
		"instance": func(ctx context.Context, c *Client) {
			_, _ = c.do(ctx, ofEureka(http.MethodGet, "apps", "delta", "orders-1"))
		},
		"metadata":  func(ctx context.Context, c *Client) { _, _ = c.do(ctx, ofInstance(http.MethodPut, key, "metadata")) },
		"lock":      func(ctx context.Context, c *Client) { _, _ = c.do(ctx, own(http.MethodPut, "locks", "a")) },
		"semaphore": func(ctx context.Context, c *Client) { _, _ = c.do(ctx, own(http.MethodPut, "semaphores", "a")) },
		"instances": func(ctx context.Context, c *Client) { _, _ = c.List(ctx, "") },
	} {
		c, r := counting(t, servers{"a": always(400, "")}, "a")
		do(t.Context(), c)
		expect.Equal(t, tries(t, r), want+" 4xx 1", "counted")
	}
}

func TestTriesAreCountedByWhatBecomesOfThem(t *testing.T) {
	unauthorized := func(*http.Request) (*http.Response, error) { return nil, errors.New("x509: certificate") }
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		within time.Duration // of the caller; 0: it goes away
		want   string
	}{
		{name: "done", server: always(204, ""), within: time.Minute, want: "renew 2xx 1"},
		{name: "moved", server: always(307, ""), within: time.Minute, want: "renew 3xx 1"},
		{name: "no such instance", server: always(404, ""), within: time.Minute, want: "renew 4xx 1"},
		{name: "no leader", server: always(503, ""), within: time.Minute, want: "renew 5xx 1"},
		{name: "unknown", server: always(504, "", outcomeHeader, "unknown"), within: time.Minute, want: "renew unknown 1"},
		{name: "nobody there", server: unreachable, within: time.Minute, want: "renew unreachable 1"},
		{name: "cut off", server: cutOff, within: time.Minute, want: "renew unreachable 1"},
		{name: "no trust", server: unauthorized, within: time.Minute, want: "renew unreachable 1"},
		{name: "silent", server: silent, within: time.Minute, want: "renew timeout 1"},
		{name: "it stops", server: endless, within: time.Minute, want: "renew timeout 1"},
		{name: "the caller has no time", server: silent, within: time.Second, want: "renew timeout 1"},
		{name: "the caller goes away", server: silent, want: "renew canceled 1"},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			c, r := counting(t, servers{"a": tc.server}, "a")
			ctx, cancel := contextWithin(t, tc.within)
			defer cancel()
			_ = c.Renew(ctx, key, 0)
			expect.Equal(t, tries(t, r), tc.want, "counted")
		})
	}
}

func TestATryThatCloseCutsOffIsCountedAsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := counting(t, servers{"a": silent}, "a")
		kept := prometheus.NewRegistry()
		kept.MustRegister(c.metrics.requests)
		ended := make(chan error)
		go func() { ended <- c.Renew(t.Context(), key, 0) }()
		synctest.Wait()
		need.OK(t, c.Close(t.Context()))
		<-ended
		expect.Equal(t, tries(t, kept), "renew closed 1", "counted")
	})
}
