package consensus

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

func TestSettingsThatDifferAreNamedByTheirKeys(t *testing.T) {
	tests := []struct {
		name   string
		change func(*registry.Settings)
		want   string
	}{
		{"none", func(*registry.Settings) {}, ""},
		{"enabled", func(s *registry.Settings) { s.SelfPreservation = false }, "self-preservation.enabled is true in the cluster and false here"},
		{"threshold", func(s *registry.Settings) { s.Threshold = 500_000 }, "self-preservation.renewal-percent-threshold is 0.85 in the cluster and 0.5 here"},
		{"bound", func(s *registry.Settings) { s.Bound = 0 }, "self-preservation.max-duration is 1h0m0s in the cluster and 0s here"},
		{"a cut", func(s *registry.Settings) { s.OnCut = "dc2=expire" }, "replication.on-cut is keep in the cluster and dc2=expire here"},
		{"two", func(s *registry.Settings) { s.Expectation, s.DoubledLease = true, true },
			"eureka-compat.expectation is false in the cluster and true here; eureka-compat.doubled-lease is false in the cluster and true here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own := registry.DefaultSettings()
			tt.change(&own)
			expect.Equal(t, differences(registry.DefaultSettings(), own), tt.want, "got")
		})
	}
}

func TestSettingsThatDifferAreLoggedOncePerChange(t *testing.T) {
	var log bytes.Buffer
	state := registry.DefaultSettings()
	w := settingsWatch{own: state, state: func() registry.Settings { return state }, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, population := range []uint32{10, 10, 3, 3, 3, 10, 3} {
		state.Population = population
		w.compare()
	}
	if warned, calmed := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO"); warned != 2 || calmed != 1 {
		t.Errorf("%d warnings and %d all-clears, want 2 and 1:\n%s", warned, calmed, log.String())
	}
}

// sharedLog is a log that several nodes write.
type sharedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *sharedLog) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.b.String()) {
		if containsAll(line, words) {
			n++
		}
	}
	return n
}

func containsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

func TestSettingsOfTheLeaderHoldAndTheOthersSaySo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log sharedLog
		c := startCluster(t, 3, func(cfg *store.Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil)).With("on", cfg.Node)
			if cfg.Node == "n1" {
				cfg.Settings = registry.DefaultSettings()
				cfg.Settings.Population = 3
			}
		})
		warnings := func(node string) int {
			return log.count("level=WARN", "on="+node+" ", "self-preservation.min-instances is")
		}
		leadBy := func(i int) {
			eventually(t, c.nodes[i].cfg.Node+" leads", func() bool {
				if at := c.leader(); at != i {
					to := c.nodes[i]
					future := c.nodes[at].raft.LeadershipTransferToServer(raft.ServerID(to.serverID()), raft.ServerAddress(to.net.Addr().String()))
					if err := raftio.Wait(context.Background(), future, limit); err != nil {
						t.Logf("transfer: %v", err)
					}
				}
				return c.nodes[i].Health().Leads
			})
		}
		leadBy(0)
		for _, n := range c.nodes {
			eventually(t, n.cfg.Node+" has the settings of n1", func() bool {
				return n.read(t, registry.Stale).Settings().Population == 3
			})
		}
		eventually(t, "the others say so", func() bool { return warnings("n2") > 0 && warnings("n3") > 0 })
		before := [...]int{warnings("n1"), warnings("n2"), warnings("n3")}
		leadBy(1)
		eventually(t, "n1 says so", func() bool { return warnings("n1") == before[0]+1 })
		expect.Equal(t, c.nodes[0].read(t, registry.Linearizable).Settings(), registry.DefaultSettings(), "settings under n2:")
		if warnings("n2") != before[1] || warnings("n3") != before[2] {
			t.Errorf("n2 and n3 warned of their own settings:\n%s", log.b.String())
		}
	})
}
