package httpd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
