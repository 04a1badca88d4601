package httpd_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestWatchSendsASlowReaderAResetAsItsLastEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		s := n.watch(t, "")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(4 * time.Second) // not too slow yet
		s.want("change")
		n.Perform(t, registry.Register{Instance: newInstance("A", "2")})
		time.Sleep(6 * time.Second)
		n.Perform(t, registry.Register{Instance: newInstance("A", "3")})
		e := s.want("change")
		expect.That(t, e.id == "test-2", "got %s, want what it was slow to read", e.text)
		e = s.want("reset")
		expect.That(t, e.id == "test-3" && strings.Contains(e.data.Reason, "too slowly"), "got %s %s", e.id, e.text)
		if e, ok := s.next(); ok {
			t.Errorf("got %+v after the reset, want the end", e)
		}
		got := gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "slow"})
		expect.That(t, got == 1, "%v slow watchers are counted", got)
		got = gathered(t, metrics, "rollcall_http_watch_events_total", nil)
		expect.That(t, got == 2, "%v events are counted, want 2", got)
	})
}

func TestWatchWithoutAReaderIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		resp := need.Got(n.openRequest(t, request("GET", "/v1/rollcall/watch", "")))(t)
		newEvents(t, resp.Body).want("start")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(31 * time.Second)
		rest, err := io.ReadAll(resp.Body)
		expect.That(t, err != nil, "the stream ended in order, after %q", rest)
		got := gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "cut"})
		expect.That(t, got == 1, "%v cut watchers are counted", got)
		got = gathered(t, metrics, "rollcall_http_watchers", nil)
		expect.That(t, got == 0, "%v watchers are left", got)
	})
}

func TestWatchSendsALargeChangeWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		s := n.watch(t, "")
		for _, size := range []int{31 << 10, 32 << 10, 64 << 10, 65 << 10, 250 << 10} {
			n.Perform(t, registry.Register{Instance: largeInstance("A", fmt.Sprint(size), size)})
			e := s.want("change")
			got := len(e.data.Instance["metadata"].(map[string]any)["large"].(string))
			expect.That(t, got == size, "%d bytes of %d arrived", got, size)
		}
	})
}

func largeInstance(app, id string, size int) *registry.Instance {
	i := newInstance(app, id)
	i.Metadata = []registry.Pair{{Key: "large", Value: strings.Repeat("x", size)}}
	return i
}

// slowService holds writes back while hold is set, until release is closed.
type slowService struct {
	*registrytest.Memory
	hold           atomic.Bool
	begun, release chan struct{}
}

// Apply implements registry.Service.
func (s *slowService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if s.hold.Load() {
		close(s.begun)
		<-s.release
	}
	return s.Memory.Apply(ctx, origin, ops...)
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(liveness); !holds(); {
		need.That(t, !time.Now().After(end), "waited %v until %s", liveness, what)
		time.Sleep(time.Millisecond)
	}
}
