package registry

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestOneRenewalOfAConnectionMayWaitInASecond(t *testing.T) {
	ctx, other := OnLine(t.Context()), OnLine(t.Context())
	start := time.Unix(1_700_000_000, 0)
	steps := []struct {
		name string
		at   time.Duration
		want bool
	}{
		{"the first", 0, true},
		{"the next one after the response", 100 * time.Millisecond, false},
		{"one that came a moment before a second has passed", waitOnceIn - 1, false},
		{"one after a second", waitOnceIn, true},
		{"the one after that", waitOnceIn + time.Millisecond, false},
		{"one after the clock was set back", -time.Hour, true},
	}
	for _, s := range steps {
		expect.Equal(t, MayWait(ctx, start.Add(s.at)), s.want, s.name+" may wait:")
	}
	expect.Equal(t, MayWait(other, start), true, "one of another connection may wait:")
	expect.Equal(t, MayWait(t.Context(), start), false, "one of no connection may wait:")
}
