package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var key = registry.NewKey("orders", "orders-1")

func TestCallThatNeedsRollcallSaysSoAtOnce(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"status":  func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err },
		"verify":  func(ctx context.Context, c *Client) error { _, err := c.Verify(ctx); return err },
		"explain": func(ctx context.Context, c *Client) error { _, err := c.Explain(ctx, key); return err },
		"key":     func(ctx context.Context, c *Client) error { _, err := c.KV().Get(ctx, "a"); return err },
		"put":     func(ctx context.Context, c *Client) error { return c.KV().Put(ctx, "a", nil) },
		"session": func(ctx context.Context, c *Client) error { return c.DestroySession(ctx, "s1") },
		"member":  func(ctx context.Context, c *Client) error { return c.RemoveMember(ctx, "n1", registry.Act{}) },
		"lock": func(ctx context.Context, c *Client) error {
			_, err := c.AcquireLock(ctx, LockOptions{Name: "a"})
			return err
		},
		"watched key": func(ctx context.Context, c *Client) error {
			return c.KV().Watch(ctx, "a", func(*Pair) error { return nil })
		},
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			c := clientOf(t, fake.Servers{"a": fake.Always(404, `{"status":404,"error":"Not Found","path":"/v1/rollcall/status"}`), "b": fake.Always(404, "<!doctype html>")}, "a", "b")
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
		s := fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			got = r.Header.Get("Authorization")
			return fake.Respond(200, "")
		}}
		c := need.Got(New(Config{Servers: []string{"http://u:p@a"}, HTTPClient: &http.Client{Transport: s}, Auth: tc.auth}))(t)
		need.OK(t, c.Renew(t.Context(), key, 0))
		expect.Equal(t, got, tc.want, "%s: signed with", name)
	}
}

func TestSetServersTakesEffectWithTheNextCall(t *testing.T) {
	j := fake.NewJournal()
	c := clientOf(t, fake.Servers{"a": fake.Unreachable, "b": j.Around(fake.Always(200, ""))}, "a")
	need.OK(t, c.SetServers([]string{"http://b"}))
	err := c.Renew(t.Context(), key, 0)
	expect.That(t, err == nil && len(j.Times()) == 1, "Renew: %v after %d requests of the new server", err, len(j.Times()))
	err = c.SetServers([]string{"nonsense", "ftp://u:secret@x"})
	expect.That(t, err != nil && strings.Contains(err.Error(), "nonsense") && strings.Contains(err.Error(), "ftp") && !strings.Contains(err.Error(), "secret"),
		"got %v, want both mistakes and no password", err)
}
