package sim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// gateSeeds is how many seeds the gate runs. Two cores run them in a minute.
const gateSeeds = 100

// shortened is how many failing seeds are shortened, which takes many runs.
const shortened = 3

// figures has the tally of runs of these seeds. What falls behind it has become idle.
const figures = "testdata/figures.json"

// TestSeeds runs drawn schedules: gateSeeds, or as many as ROLLCALL_SIM_TO says, from ROLLCALL_SIM_FROM on. With ROLLCALL_SIM_FOR,
// such as 30m, it goes on for so long. A failing one is shortened, and shown as the text that testdata/found takes. With
// ROLLCALL_SIM_FIGURES=write it keeps its tally.
func TestSeeds(t *testing.T) {
	if sim.Child(t) {
		return
	}
	from, to := uint64(1), uint64(gateSeeds)
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
	for i, f := range found {
		if i == shortened {
			t.Errorf("more seeds failed: %d", len(found)-i)
			break
		}
		short, often := sim.Shorten(t, "TestSeeds", f.Schedule)
		t.Errorf("seed %d failed; shortened, it fails %d times of 5:\n%s\n%s", f.Seed, often, short, f.Output)
	}
	if os.Getenv("ROLLCALL_SIM_FIGURES") == "write" {
		need.OK(t, os.WriteFile(figures, need.Got(json.MarshalIndent(tally, "", "\t"))(t), 0o644))
	}
	if kept := need.Got(keptFigures())(t); len(found) == 0 {
		expect.Slice(t, tally.Less(kept), nil, "the generator has become idle; with ROLLCALL_SIM_FIGURES=write new figures are kept")
	}
}

func keptFigures() (kept sim.Tally, err error) {
	b, err := os.ReadFile(figures)
	if err != nil {
		return kept, err
	}
	return kept, json.Unmarshal(b, &kept)
}

func TestTallyThatFellIsFound(t *testing.T) {
	kept := need.Got(keptFigures())(t)
	need.That(t, kept.Runs > 0 && len(kept.Less(kept)) == 0, "the figures of %d runs: %q", kept.Runs, kept.Less(kept))
	fewer := need.Got(keptFigures())(t)
	fewer.Virtual, fewer.Faults["kill"], fewer.Writes["register"]["done"] = 0, 0, 0
	expect.Equal(t, len(fewer.Less(kept)), 3, "what fell in %q is", fewer.Less(kept))
}

func TestScheduleIsReadAsItWasWritten(t *testing.T) {
	for seed := range uint64(200) {
		s := sim.Generate(seed)
		text := s.String()
		read := need.Got(sim.ParseSchedule(text))(t)
		expect.Equal(t, read.String(), text, "schedule of seed %d", seed)
	}
}

// TestFoundSchedulesStayGreen runs every schedule that once failed.
func TestFoundSchedulesStayGreen(t *testing.T) {
	files := need.Got(filepath.Glob("testdata/found/*"))(t)
	need.That(t, len(files) > 0, "testdata/found is empty")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			sim.RunSchedule(t, need.Got(sim.ParseSchedule(string(need.Got(os.ReadFile(file))(t))))(t), 1)
		})
	}
}

func TestMistakesOfASchedule(t *testing.T) {
	const head = "schedule 1\ncluster cp 3 1 1ms\n"
	for text, says := range map[string]string{
		"":                                        `no line "schedule 1"`,
		"schedule 0\ncluster cp 3 1 1ms":          `line 1 is "schedule 0", want "schedule 1"`,
		"schedule 1\ncluster cp 8 1 1ms":          "a cluster of 8 nodes: it must have 1 to 7",
		"schedule 1\ncluster cp 0 1 1ms":          "a cluster of 0 nodes: it must have 1 to 7",
		"schedule 1\ncluster cp 3 4 1ms":          "4 datacenters: there must be 1 to 3",
		"schedule 1\ncluster xp 3 1 1ms":          `mode "xp": it must be cp or ap`,
		"schedule 1\ncluster cp 3 1 1ms fast":     `there is no setting "fast"; there are always, auth, learner, learners, oldlevel, skew, snapshots, wal`,
		"schedule 1\ncluster ap 3 1 1ms wal":      `setting "wal" is for mode cp`,
		"schedule 1\ncluster cp 4 1 1ms learners": "2 of 4 nodes without a vote: more than half must vote",
		"schedule 1\ncluster cp three":            "want cluster MODE NODES DATACENTERS LATENCY",
		head + "1s kill n4":                       `there is no node "n4"; the nodes are n1, n2, n3`,
		head + "1s murder n1":                     `there is no act "murder"; there are cut, cutdc, cutoneway`,
		head + "1s cut n1":                        "cut takes 2 nodes and 0 durations",
		head + "1s remove":                        "remove takes 1 nodes and 0 durations",
		head + "1s killbefore n9":                 `there is no node "n9"`,
		head + "1s jitter n1 n2":                  "jitter takes 2 nodes and 1 durations",
		head + "1s jitter n1 n2 fast":             `time: invalid duration "fast"`,
		head + "1s restore n1":                    "restore takes 0 nodes and 0 durations",
		head + "1s slowdisk n1 soon":              `time: invalid duration "soon"`,
		head + "soon heal":                        `time: invalid duration "soon"`,
		head + "1s":                               "has no act",
	} {
		_, err := sim.ParseSchedule(text)
		expect.ErrorSays(t, err, says, "%q:", text)
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add(sim.Generate(1).String())
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sim.ParseSchedule(text)
		if err != nil {
			return
		}
		again, err := sim.ParseSchedule(s.String())
		expect.That(t, err == nil && again.String() == s.String(), "%q is written as %q and read as %q (%v)", text, s, again, err)
	})
}
