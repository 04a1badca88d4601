package sim_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestSeeds runs drawn schedules: 20, or as many as ROLLCALL_SIM_TO says, from ROLLCALL_SIM_FROM on. With ROLLCALL_SIM_FOR, such as
// 30m, it goes on for so long. A failing one is shortened, and shown as the text that testdata/found takes.
func TestSeeds(t *testing.T) {
	if sim.Child(t) {
		return
	}
	from, to := uint64(1), uint64(20)
	for name, number := range map[string]*uint64{"ROLLCALL_SIM_FROM": &from, "ROLLCALL_SIM_TO": &to} {
		if text := os.Getenv(name); text != "" {
			*number = need.Got(strconv.ParseUint(text, 10, 64))(t)
		}
	}
	var until time.Time
	if text := os.Getenv("ROLLCALL_SIM_FOR"); text != "" {
		until, to = time.Now().Add(need.Got(time.ParseDuration(text))(t)), 1<<62
	}
	tally, found := sim.Explore(t, "TestSeeds", from, to, until)
	t.Log(tally)
	for _, f := range found {
		short, often := sim.Shorten(t, "TestSeeds", f.Schedule)
		t.Errorf("seed %d failed; shortened, it fails %d times of 5:\n%s\n%s", f.Seed, often, short, f.Output)
	}
}

func TestScheduleIsReadAsItWasWritten(t *testing.T) {
	for seed := range uint64(200) {
		s := sim.Generate(seed)
		text := s.String()
		read := need.Got(sim.ParseSchedule(text))(t)
		expect.Equal(t, read.String(), text, "schedule of seed %d", seed)
	}
}
