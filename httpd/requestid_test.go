package httpd_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRequestIDIsTheCallersIfItIsPrintable(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	for name, tc := range map[string]struct {
		given string
		kept  bool
	}{
		"none": {"", false}, "a word": {"order-17/a.b:c", true}, "with a space": {"a b", false}, "too long": {strings.Repeat("x", 129), false},
		"as long as can be": {strings.Repeat("x", 128), true}, "no ASCII": {"ä", false},
	} {
		for _, path := range []string{"/eureka/apps", "/v1/rollcall/status", "/v1/kv/a", "/healthz"} {
			got := n.send(t, request("GET", path, "", "X-Request-Id: "+tc.given)).header.Get("X-Request-Id")
			expect.That(t, (got == tc.given) == tc.kept && got != "", "%s: GET %s: the response is called %q", name, path, got)
		}
	}
	got := n.send(t, request("PUT", "/eureka/apps/ORDERS/i1", "", "X-Request-Id: beat-1"))
	expect.Equal(t, got.header.Get("X-Request-Id"), "beat-1", "a heartbeat is called")
}

func TestFailedAndSlowCallsAreLoggedOnce(t *testing.T) {
	var said bytes.Buffer
	n := newNode(t, httpd.Config{Log: slog.New(slog.NewTextHandler(&said, nil))}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	n.Set(func(m *registrytest.Memory) { m.ViewErr = registry.ErrNoLeader })
	for _, path := range []string{"/eureka/apps", "/v1/rollcall/apps"} {
		said.Reset()
		got := n.send(t, request("GET", path, "", "X-Request-Id: q-1"))
		expect.That(t, got.status == 503 && strings.HasPrefix(path, "/v1") == strings.Contains(got.body, `"request":"q-1"`), "GET %s: %d %s", path, got.status, got.body)
		for _, want := range []string{"a call failed", "request=q-1", "method=GET", "path=" + path, "remote=", "status=503", "took=", "no leader"} {
			expect.That(t, strings.Count(said.String(), "\n") == 1 && strings.Contains(said.String(), want), "GET %s: the log says %q, want one line with %q", path, &said, want)
		}
	}
	n.Set(func(m *registrytest.Memory) { m.ViewErr, m.ApplyErr = nil, registry.ErrNoLeader })
	said.Reset()
	n.send(t, request("PUT", "/eureka/apps/ORDERS/i1", ""))
	expect.That(t, strings.Count(said.String(), "a call failed") == 1 && strings.Contains(said.String(), "{base}/apps/{app}/{id}"), "a heartbeat that failed: the log says %q", &said)
	said.Reset()
	n.send(t, request("GET", "/eureka/apps/NOTHING", ""))
	expect.Equal(t, said.String(), "", "a call that found nothing is logged")
}

// lateService takes two seconds for a view.
type lateService struct{ *registrytest.Memory }

// View implements registry.Service.
func (s lateService) View(ctx context.Context, c registry.Consistency) (*registry.View, error) {
	if c != registry.Stale {
		time.Sleep(2 * time.Second)
	}
	return s.Memory.View(ctx, c)
}

func TestCallsAreSlowUnlessTheyWaitForAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var said bytes.Buffer
		h := need.Got(httpd.New(httpd.Config{Service: lateService{registrytest.New()}, Log: slog.New(slog.NewTextHandler(&said, nil))}))(t)
		for path, want := range map[string]int{
			"/eureka/apps": 1, "/eureka/apps?consistency=stale": 0, "/v1/rollcall/watch?wait=30s&consistency=stale": 0,
		} {
			said.Reset()
			begun := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			expect.That(t, w.Code == 200 && strings.Count(said.String(), "a call was slow") == want, "GET %s: %d after %v, and the log says %q, want %d lines of slow calls", path, w.Code, time.Since(begun), &said, want)
		}
	})
}
