package store

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// TestStallsInEachSecondEndWhatIsSilentAndNobodyElse gives the process a processor for a part of each second.
func TestStallsInEachSecondEndWhatIsSilentAndNobodyElse(t *testing.T) {
	tests := []struct {
		name         string
		stall, awake time.Duration
	}{
		{name: "600 ms", stall: 600 * time.Millisecond, awake: 400 * time.Millisecond},
		{name: "900 ms", stall: 900 * time.Millisecond, awake: 200 * time.Millisecond},
		{name: "5 s", stall: 5 * time.Second, awake: 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				live := g.registerMany(20, 1, 5)
				g.pass(11 * time.Second)
				silent := g.register("silent", 1, 5, 0)
				held := g.session(1, 10*time.Second, 0, time.Second)
				mute := g.session(2, 10*time.Second, 0, 0)
				for range 60 {
					g.pass(tt.awake)
					time.Sleep(tt.stall)
				}
				if _, gone := g.gone[silent]; !gone {
					t.Errorf("the silent instance is still there after %v", time.Since(g.begun))
				}
				if g.sessions[mute].ended == 0 {
					t.Errorf("the silent session is still there after %v", time.Since(g.begun))
				}
				for _, key := range live {
					at, gone := g.gone[key]
					expect.That(t, !gone, "%v, which was renewed whenever the node ran, went after %v", key, at)
				}
				g.wantLive(held)
			})
		})
	}
}
