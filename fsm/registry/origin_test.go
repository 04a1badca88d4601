package registry

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestRenewalsOfAConnectionMayWaitForATenthOfItsTime(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	type step struct {
		name string
		at   time.Duration
		want bool
		took time.Duration // if it may wait
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"long waits", []step{
			{"the first", 0, true, 100 * time.Millisecond},
			{"the next one after the response", 100 * time.Millisecond, false, 0},
			{"one that came a moment before a second has passed", time.Second - 1, false, 0},
			{"one after a second", time.Second, true, 100 * time.Millisecond},
			{"the one after that", time.Second + time.Millisecond, false, 0},
		}},
		{"short waits", []step{
			{"the first", 0, true, 10 * time.Millisecond},
			{"one that came a moment before ten times as long has passed", 100*time.Millisecond - 1, false, 0},
			{"one after that", 100 * time.Millisecond, true, 0},
			{"one after no wait at all", 101 * time.Millisecond, true, 0},
		}},
		{"one without a leader for long", []step{
			{"the first", 0, true, 4 * time.Second},
			{"the next one after the response", 4 * time.Second, false, 0},
			{"one some time after that", 10 * time.Second, true, 0},
		}},
		{"a clock that is set back", []step{
			{"the first", 0, true, 100 * time.Millisecond},
			{"one after that", -time.Hour, true, 0},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := LineOf(OnLine(t.Context()))
			for _, s := range tt.steps {
				came := start.Add(s.at)
				may := l.MayWait(came)
				expect.Equal(t, may, s.want, s.name+" may wait:")
				if may {
					expect.Equal(t, l.MayWait(came), false, "another one, while "+s.name+" waits, may wait:")
					l.Waited(came, came.Add(s.took))
				}
			}
		})
	}
	one, other := LineOf(OnLine(t.Context())), LineOf(OnLine(t.Context()))
	expect.That(t, one.MayWait(start) && other.MayWait(start), "those of two connections may not both wait")
	expect.Equal(t, LineOf(t.Context()).MayWait(start), false, "one of no connection may wait:")
}
