package integration

import (
	"os"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// soakRounds are the faults of a soak, each a whole test on a cluster of its own. A round fails its test
// when a promise does not hold.
var soakRounds = []struct {
	name  string
	round func(*testing.T)
}{
	{"leader killed", leaderKilledRound},
	{"delayed answers", delayedAnswersRound},
	{"bit flips", bitFlipsRound},
	{"two removals at once", twoRemovalsRound},
	{"all nodes paused, slow disks", allPausedRound},
	{"blocked log", blockedLogRound},
	{"ap nodes come back with old leases", restartedOldLeasesRound},
	{"memory is given back", memoryGivenBackRound},
}

// TestSoak goes through all rounds, and again, until ROLLCALL_SOAK has passed: each round once at least.
func TestSoak(t *testing.T) {
	text := os.Getenv("ROLLCALL_SOAK")
	if text == "" {
		t.Skip("set ROLLCALL_SOAK to a duration, such as 1h")
	}
	soak, err := time.ParseDuration(text)
	need.OKf(t, err, "ROLLCALL_SOAK")
	end := time.Now().Add(soak)
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		for _, r := range soakRounds {
			if n > 0 && !time.Now().Before(end) {
				return
			}
			if !t.Run(r.name, r.round) {
				return
			}
		}
	}
}

func leaderKilledRound(t *testing.T) {
	c := StartCluster(t, Config{})
	l := startLoad(t, 10, 40, 8, c.Others(c.Leader()))
	for range 5 {
		killLeader(t, c, l)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}
