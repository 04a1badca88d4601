package sim_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// truthClient is our own client, as commands use it.
func truthClient(w *sim.World, nodes ...string) *client.Client {
	w.Helper()
	var servers []string
	for _, n := range nodes {
		servers = append(servers, w.URL(n))
	}
	return need.Got(client.New(client.Config{Servers: servers, HTTPClient: w.Client("127.0.9.2"), InOrder: true}))(w)
}

// truthLeaderless leaves one node of three running, which has lost its leader.
func truthLeaderless(w *sim.World) (node string) {
	w.Helper()
	node = w.Others(w.Leader())[0]
	for _, other := range w.Others(node) {
		w.Kill(other)
	}
	w.Wait(5 * time.Second)
	return node
}

// TestTruthWriteWithoutALeaderIsRefused has our own client write where there is no leader. In 0.1.0 it gave the server up
// after 5 s of its 7 s, and called the outcome unknown.
func TestTruthWriteWithoutALeaderIsRefused(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		cl := truthClient(w, truthLeaderless(w))
		defer cl.Close(w.Context())
		writes := map[string]func() error{
			"a key":      func() error { return cl.KV().Put(w.Context(), "k", []byte("v")) },
			"a session":  func() error { _, err := cl.CreateSession(w.Context(), client.SessionOptions{}); return err },
			"a cancel":   func() error { return cl.Cancel(w.Context(), registry.Key{App: "A", ID: "i"}) },
			"a deletion": func() error { return cl.KV().Delete(w.Context(), "k") },
		}
		for what, write := range writes {
			began := time.Now()
			err := write()
			expect.That(w, err != nil && !errors.Is(err, client.ErrUnknownOutcome) && time.Since(began) < 1200*time.Millisecond,
				"%s: %v after %v", what, err, time.Since(began))
		}
		expect.That(w, !strings.Contains(w.Log(), registry.ErrUnknownOutcome.Error()), "nothing was proposed, and the log says:\n%s", w.Log())
	})
}

// TestTruthClientThatGivesUpBeforeAnythingIsProposedIsNotUnknown has stock clients leave while a node waits for a leader.
func TestTruthClientThatGivesUpBeforeAnythingIsProposedIsNotUnknown(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		node := truthLeaderless(w)
		stock := w.Client("127.0.9.3")
		for _, call := range [][2]string{{"PUT", "/v1/kv/k"}, {"PUT", "/v1/session/create"}, {"PUT", "/v1/session/renew/none"},
			{"PUT", "/v1/agent/service/deregister/x"}, {"DELETE", "/eureka/apps/A/i"}, {"PUT", "/eureka/apps/A/i"}, {"POST", "/v1/rollcall/sessions"}} {
			for _, patience := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
				ctx, cancel := context.WithTimeout(w.Context(), patience)
				req := need.Got(http.NewRequestWithContext(ctx, call[0], w.URL(node)+call[1], strings.NewReader("")))(w)
				if resp, err := stock.Do(req); err == nil {
					resp.Body.Close()
				}
				cancel()
				w.Wait(2 * time.Second)
			}
		}
		log := w.Log()
		expect.That(w, strings.Contains(log, registry.ErrGivenUp.Error()), "no call was given up")
		for line := range strings.Lines(log) {
			expect.That(w, !strings.Contains(line, registry.ErrUnknownOutcome.Error()), "nothing was proposed, and the log says: %s", line)
		}
	})
}

// TestTruthFullRegistryRefuses registers where there is no room.
func TestTruthFullRegistryRefuses(t *testing.T) {
	full := func(c *config.Config) { c.HTTPD.Limits.InstancesTotal = 1 }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: full}, func(w *sim.World) {
		w.Register("ORDERS/first", time.Hour)
		w.Wait(time.Second) // every node knows of it
		cl := truthClient(w, w.Names()...)
		defer cl.Close(w.Context())
		err := cl.Register(w.Context(), &registry.Instance{App: "ORDERS", InstanceID: "second", HostName: "h", IPAddr: "10.1.1.1", Status: registry.Up,
			DataCenter: registry.DataCenter{Name: registry.MyOwn}})
		expect.That(w, err != nil && !errors.Is(err, client.ErrUnknownOutcome) && strings.Contains(err.Error(), "full"), "register: %v", err)
	})
}
