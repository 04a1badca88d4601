package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Answers of stock servers to paths that they do not know, and to methods.
const (
	springAnswer   = `{"timestamp":"2026-01-02T03:04:05.678+00:00","status":404,"error":"Not Found","path":"/v1/rollcall/status"}`
	springRefusal  = `{"timestamp":"2026-01-02T03:04:05.678+00:00","status":405,"error":"Method Not Allowed","path":"/v1/rollcall/sessions"}`
	springProblem  = `{"type":"about:blank","title":"Not Found","status":404,"detail":"No static resource v1/rollcall/status.","instance":"/v1/rollcall/status"}`
	netflixAnswer  = `<!doctype html><html lang="en"><head><title>HTTP Status 404 – Not Found</title></head><body></body></html>`
	rollcallAnswer = `{"error":"no such session"}`
)

func TestAServerThatIsNotRollcallIsToldFromOneThatLacksTheThing(t *testing.T) {
	status, keys := own(http.MethodGet, "status"), ofKey(http.MethodGet, "a")
	eureka := call{method: http.MethodGet, eureka: true, path: []string{"apps", "A"}}
	for _, tc := range []struct {
		name   string
		call   call
		status int
		body   string
		header []string
		want   bool // it is not
	}{
		{name: "Spring", call: status, status: 404, body: springAnswer, want: true},
		{name: "Spring with problem details", call: status, status: 404, body: springProblem, want: true},
		{name: "Spring, by method", call: status, status: 405, body: springRefusal, want: true},
		{name: "Netflix", call: status, status: 404, body: netflixAnswer, want: true},
		{name: "Netflix asked for a key", call: keys, status: 404, body: netflixAnswer, want: true},
		{name: "nothing at all", call: status, status: 404, want: true},
		{name: "nothing at all for a key", call: keys, status: 404, want: true},
		{name: "JSON of others", call: status, status: 404, body: `{"error":{"code":404}}`, want: true},
		{name: "no object", call: status, status: 404, body: `"error"`, want: true},
		{name: "Rollcall lacks it", call: status, status: 404, body: rollcallAnswer},
		{name: "Rollcall, by method", call: status, status: 405, body: `{"error":"Method Not Allowed"}`},
		{name: "Rollcall has no such key", call: keys, status: 404, header: []string{"X-Consul-Index", "7"}},
		{name: "Eureka's own resources", call: eureka, status: 404, body: springAnswer},
		{name: "a server that refuses everybody", call: status, status: 403, body: springAnswer},
		{name: "a server that works", call: status, status: 200, body: `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := servers{"a": always(tc.status, tc.body, tc.header...)}.client(t, "a")
			a, err := c.do(t.Context(), tc.call)
			if got := errors.Is(err, ErrNeedsRollcall); got != tc.want || !tc.want && (err != nil || a.status != tc.status) {
				t.Errorf("got status %d and %v, want that it is not Rollcall: %v", a.status, err, tc.want)
			}
		})
	}
}

func TestWhatNeedsRollcallSaysSoAtOnce(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"status":  func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err },
		"explain": func(ctx context.Context, c *Client) error { _, err := c.Explain(ctx, key); return err },
		"key":     func(ctx context.Context, c *Client) error { _, err := c.KV().Get(ctx, "a"); return err },
		"put":     func(ctx context.Context, c *Client) error { return c.KV().Put(ctx, "a", nil) },
		"session": func(ctx context.Context, c *Client) error { return c.DestroySession(ctx, "s1") },
		"member":  func(ctx context.Context, c *Client) error { return c.RemoveMember(ctx, "n1") },
		"lock": func(ctx context.Context, c *Client) error {
			_, err := c.AcquireLock(ctx, LockOptions{Name: "a"})
			return err
		},
		"watched key": func(ctx context.Context, c *Client) error {
			return c.KV().Watch(ctx, "a", func(*Entry) error { return nil })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := servers{"a": always(404, springAnswer), "b": always(404, netflixAnswer)}.client(t, "a", "b")
			start := time.Now()
			err := do(t.Context(), c)
			expect.That(t, errors.Is(err, ErrNeedsRollcall) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotRegistered) && !errors.Is(err, ErrNoKey),
				"got %v, want that it needs Rollcall, and nothing else", err)
			if took := time.Since(start); took != 0 || c.servers.quarantined() != 0 {
				t.Errorf("took %v, with %d servers in quarantine afterwards, want neither", took, c.servers.quarantined())
			}
		})
	}
}

func TestAmongServersOfBothKindsRollcallIsFoundOnce(t *testing.T) {
	j := newJournal()
	c := servers{"a": j.around(always(404, springAnswer)), "b": always(200, `{}`)}.client(t, "a", "b")
	for range 3 {
		need.Got(c.Status(t.Context()))(t)
	}
	got := len(j.lines)
	expect.That(t, got == 1, "the server that is not Rollcall was asked %d times, want once", got)
}

// TestOneServerThatIsNotRollcallProvesNothing: the others may answer the next time.
func TestOneServerThatIsNotRollcallProvesNothing(t *testing.T) {
	c := servers{"a": always(404, "<html>"), "b": unreachable}.client(t, "a", "b")
	_, err := c.Status(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrNeedsRollcall) && strings.Contains(err.Error(), "http://a"),
		"Status: %v, want an error that names both servers and is not ErrNeedsRollcall", err)
}
