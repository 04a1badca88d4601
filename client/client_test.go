package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var key = registry.NewKey("orders", "orders-1")

func TestCallThatNeedsRollcallSaysSoAtOnce(t *testing.T) {
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
			return c.KV().Watch(ctx, "a", func(*Pair) error { return nil })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := servers{"a": always(404, `{"status":404,"error":"Not Found","path":"/v1/rollcall/status"}`), "b": always(404, "<!doctype html>")}.client(t, "a", "b")
			start := time.Now()
			err := do(t.Context(), c)
			expect.That(t, errors.Is(err, ErrNeedsRollcall) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotRegistered) && !errors.Is(err, ErrNoKey),
				"got %v, want that it needs Rollcall, and nothing else", err)
			if took := time.Since(start); took != 0 || c.cluster.Quarantined() != 0 {
				t.Errorf("took %v, with %d servers in quarantine afterwards, want neither", took, c.cluster.Quarantined())
			}
		})
	}
}

func TestConfigReportsEveryMistake(t *testing.T) {
	_, err := New(Config{Servers: []string{"127.0.0.1:8761", "ftp://a"}, Timeout: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	expect.That(t, ok && len(joined.Unwrap()) == 3, "got %v, want three mistakes", err)
	expect.That(t, expect.Err(New(Config{})) != nil, "no error without servers")
}

func TestAuthOfTheConfigurationOverridesTheURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		auth Auth
		want string
	}{
		"of the URL": {nil, "Basic dTpw"},
		"basic":      {BasicAuth("v", "q"), "Basic djpx"},
		"bearer":     {BearerAuth(func(context.Context) (string, error) { return "t0ken", nil }), "Bearer t0ken"},
	} {
		var got string
		s := servers{"a": func(r *http.Request) (*http.Response, error) {
			got = r.Header.Get("Authorization")
			return responded(200, "")
		}}
		c := need.Got(New(Config{Servers: []string{"http://u:p@a"}, HTTPClient: &http.Client{Transport: s}, Auth: tc.auth}))(t)
		need.OK(t, c.Renew(t.Context(), key, 0))
		expect.Equal(t, got, tc.want, "%s: signed with", name)
	}
}

func TestSetServersTakesEffectWithTheNextCall(t *testing.T) {
	j := newJournal()
	c := servers{"a": unreachable, "b": j.around(always(200, ""))}.client(t, "a")
	need.OK(t, c.SetServers([]string{"http://b"}))
	err := c.Renew(t.Context(), key, 0)
	expect.That(t, err == nil && len(j.lines) == 1, "Renew: %v after %d requests of the new server", err, len(j.lines))
	err = c.SetServers([]string{"nonsense", "ftp://u:secret@x"})
	expect.That(t, err != nil && strings.Contains(err.Error(), "nonsense") && strings.Contains(err.Error(), "ftp") && !strings.Contains(err.Error(), "secret"),
		"got %v, want both mistakes and no password", err)
}
