package client

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestAWaiterTurnsAwayFromAServerThatFellSilent(t *testing.T) {
	coordinated(t, "", func(t *testing.T, s *coordinator, _ *Client) {
		var down atomic.Bool
		a := func(r *http.Request) (*http.Response, error) {
			if down.Load() {
				return silent(r)
			}
			resp, err := s.answer(r)
			if down.Load() {
				return silent(r)
			}
			return resp, err
		}
		first := lockOf(t, servers{"b": s.answer}.client(t, "b"))
		time.AfterFunc(time.Second, func() { down.Store(true) })
		time.AfterFunc(30*time.Second, func() { first.Release(context.Background()) })
		start := time.Now()
		second := lockOf(t, servers{"a": a, "b": s.answer}.client(t, "a", "b"))
		waited := time.Since(start)
		expect.That(t, waited <= 31*time.Second, "waited %v, want as long as the first held it", waited)
		second.Release(t.Context())
	})
}
