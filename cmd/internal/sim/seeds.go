package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Tally counts what drawn runs did.
type Tally struct {
	Runs    int
	Virtual time.Duration
	Faults  map[string]int            // by act
	Writes  map[string]map[string]int // by kind and outcome
}

func (t *Tally) add(other Tally) {
	t.Runs, t.Virtual = t.Runs+other.Runs, t.Virtual+other.Virtual
	if t.Faults == nil {
		t.Faults, t.Writes = map[string]int{}, map[string]map[string]int{}
	}
	for act, n := range other.Faults {
		t.Faults[act] += n
	}
	for kind, outcomes := range other.Writes {
		if t.Writes[kind] == nil {
			t.Writes[kind] = map[string]int{}
		}
		for o, n := range outcomes {
			t.Writes[kind][o] += n
		}
	}
}

// String returns a table in words.
func (t Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %.1f virtual hours\nfaults:", t.Runs, t.Virtual.Hours())
	for _, act := range slices.Sorted(maps.Keys(t.Faults)) {
		fmt.Fprintf(&b, " %s %d,", act, t.Faults[act])
	}
	for _, kind := range slices.Sorted(maps.Keys(t.Writes)) {
		fmt.Fprintf(&b, "\n%s:", kind)
		for _, o := range slices.Sorted(maps.Keys(t.Writes[kind])) {
			fmt.Fprintf(&b, " %s %d,", o, t.Writes[kind][o])
		}
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), ","), ",\n", "\n")
}

// Less returns the figures that are below four fifths of those kept from other runs, in proportion to the number of
// runs. On top it allows small numbers their chance, four times their root: refusals come in bursts, so they vary by
// twice what single events would.
func (t Tally) Less(kept Tally) (less []string) {
	compare := func(name string, got, want float64) {
		want *= float64(t.Runs) / float64(kept.Runs)
		if least := 0.8*want - 4*math.Sqrt(want); got < least {
			less = append(less, fmt.Sprintf("%s: %.0f, want %.0f at least", name, got, least))
		}
	}
	compare("virtual minutes", t.Virtual.Minutes(), kept.Virtual.Minutes())
	for act, n := range kept.Faults {
		compare("fault "+act, float64(t.Faults[act]), float64(n))
	}
	for kind, outcomes := range kept.Writes {
		for o, n := range outcomes {
			compare(kind+" "+o, float64(t.Writes[kind][o]), float64(n))
		}
	}
	slices.Sort(less)
	return less
}

// RunSchedule runs a schedule with clients drawn by a seed, waits a minute after its last event, and judges the
// cluster.
func RunSchedule(t *testing.T, s Schedule, seed uint64) Tally {
	t.Helper()
	d := &drawn{
		always: slices.Contains(s.Settings, "always"), mayBeOld: slices.Contains(s.Settings, "oldlevel"), ended: map[string][]time.Time{},
		away: map[string]time.Time{}, present: map[string]bool{}, limbo: map[string]bool{}, keeps: keptFor(s.Settings),
	}
	var err error
	d.learners, err = learnersAmong(s.Nodes, s.Settings)
	need.OK(t, err)
	if slices.Contains(s.Settings, "auth") && (s.Mode == config.AP || s.Datacenters > 1) {
		d.permits.file = newPermitFile(t, s.Cluster)
		d.permits.file.write(t, wideRules, "")
	}
	if slices.Contains(s.Settings, "preserve") {
		d.herd = &herd{bounded: slices.Contains(s.Settings, "bounded")}
	}
	s.Configure = d.configure(s)
	tally, check := Tally{Runs: 1, Faults: map[string]int{}, Writes: map[string]map[string]int{}}, newChecker()
	defer close(check.ask)
	Run(t, s.Cluster, func(w *World) {
		w.drawn, d.w = d, w
		l := newLoad(w, d, seed)
		d.load = l
		if slices.Contains(s.Settings, "auth") {
			d.permits.begin(l)
		}
		d.began = time.Now()
		goroutines := runtime.NumGoroutine()
		memory := w.heapInUse()
		l.start()
		for _, e := range s.Steps {
			time.Sleep(time.Until(d.began.Add(e.At)))
			d.perform(e)
			tally.Faults[e.Do]++
		}
		w.repair()
		d.herd.awaken()
		calm := time.Now()
		time.Sleep(untilTasksEnd)
		l.endTasks()
		steady := calm.Add(calmLasts - steadyFor)
		l.judgeDead(calm, steady)
		time.Sleep(time.Until(steady))
		l.judgeSteady()
		l.judge(calm, check)
		l.d.statuses.judge(check)
		l.judgeGoroutines(goroutines)
		l.judgeMemory(memory)
		tally.Virtual = time.Since(began)
		for kind, outcomes := range l.counts {
			tally.Writes[kind] = map[string]int{}
			for o, n := range outcomes {
				tally.Writes[kind][o.String()] = n
			}
		}
	})
	return tally
}

// untilTasksEnd is how long clients keep working after all faults have ended.
const untilTasksEnd = 15 * time.Second

// untilBrokenEnd is the longest that a node keeps running after it has noticed that its disk hangs.
const untilBrokenEnd = 2 * time.Second

// repair ends all faults.
func (w *World) repair() {
	w.drawn.beside.Wait()
	w.drawn.mu.Lock()
	w.drawn.disturbed = time.Now()
	w.drawn.mu.Unlock()
	w.Heal()
	for _, n := range w.nodes {
		n.disk.mend()
	}
	time.Sleep(untilBrokenEnd)
	for _, n := range w.nodes {
		w.drawn.start(n)
	}
	calm := time.Now()
	for _, n := range w.nodes {
		w.Await(ReadyWithin, n.Name+" is a member again or none", func() bool {
			if w.drawn.inLimbo(n) {
				if time.Since(calm) > ReadyWithin/2 {
					// If it had been removed, the others would have a leader by now: it is one of two voters, and
					// still a member.
					w.drawn.setLimbo(n, false)
				}
				w.drawn.start(n)
			}
			return !w.drawn.inLimbo(n)
		})
		n.broken.Store(false)
	}
}

// Names of environment variables that tell a child process of Explore what to run.
const (
	seedsEnv    = "ROLLCALL_SIM_SEEDS"    // FROM-TO
	scheduleEnv = "ROLLCALL_SIM_SCHEDULE" // a file, run as often as repeatEnv says
	repeatEnv   = "ROLLCALL_SIM_REPEAT"
)

// tallyMark begins the line that reports what a child did.
const tallyMark = "tally "

// Child runs what the environment names, in the process of a test that Explore has started. It returns false if the
// environment names nothing.
func Child(t *testing.T) bool {
	seeds, file := os.Getenv(seedsEnv), os.Getenv(scheduleEnv)
	if seeds == "" && file == "" {
		return false
	}
	// As many children run as there are processors. With one processor each, no thread wakes another, and the order of
	// goroutines differs less from run to run.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	var tally Tally
	switch {
	case seeds != "":
		var from, to uint64
		_, err := fmt.Sscanf(seeds, "%d-%d", &from, &to)
		need.OKf(t, err, "%s is %q, want FROM-TO", seedsEnv, seeds)
		for seed := from; seed <= to; seed++ {
			t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) { tally.add(RunSchedule(t, Generate(seed), seed)) })
		}
	case file != "":
		s, err := ParseSchedule(string(need.Got(os.ReadFile(file))(t)))
		need.OK(t, err)
		times, _ := strconv.Atoi(os.Getenv(repeatEnv))
		for i := range max(times, 1) {
			t.Run(fmt.Sprint("seed-", i), func(t *testing.T) { tally.add(RunSchedule(t, s, uint64(i))) })
		}
	}
	fmt.Println(tallyMark + string(need.Got(json.Marshal(tally))(t)))
	return true
}

// Finding is a run that failed.
type Finding struct {
	Seed     uint64
	Schedule Schedule
	Output   string // of the child
}

// batch is how many seeds a child runs, one after the other; as many children run at a time as there are processors.
const batch = 10

// Explore runs seeds in child processes of a test that calls Child, until all have run or the time is over. A
// failure, a panic, an exit and silence are findings.
func Explore(t *testing.T, test string, from, to uint64, until time.Time) (all Tally, found []Finding) {
	t.Helper()
	var mu sync.Mutex // guards all and found
	var children errgroup.Group
	children.SetLimit(runtime.GOMAXPROCS(0))
	for at := from; at <= to && (until.IsZero() || time.Now().Before(until)); at += batch {
		children.Go(func() error {
			output, tally, failed, err := runChild(t, test, seedsEnv+"="+fmt.Sprintf("%d-%d", at, min(at+batch-1, to)))
			mu.Lock()
			defer mu.Unlock()
			all.add(tally)
			for _, seed := range failed {
				found = append(found, Finding{seed, Generate(seed), output})
			}
			return err
		})
	}
	need.OK(t, children.Wait())
	return all, found
}

// childLimit is how long one child may take.
const childLimit = 10 * time.Minute

var (
	begunRun  = regexp.MustCompile(`(?m)^=== RUN\s+\S+/seed-(\d+)$`)
	failedRun = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+/seed-(\d+) `)
)

// runChild runs this test binary again. It returns the seeds that failed: those that the child names, or the last one
// that it started.
func runChild(t *testing.T, test string, env ...string) (output string, tally Tally, failed []uint64, err error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.timeout="+childLimit.String())
	c.Env = append(os.Environ(), env...)
	b, err := c.CombinedOutput()
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), tallyMark); is {
			_ = json.Unmarshal([]byte(text), &tally)
		}
	}
	if err == nil {
		return string(b), tally, nil, nil
	}
	marks := failedRun.FindAllSubmatch(b, -1)
	if begun := begunRun.FindAllSubmatch(b, -1); marks == nil && begun != nil {
		marks = begun[len(begun)-1:]
	}
	for _, m := range marks {
		seed, _ := strconv.ParseUint(string(m[1]), 10, 64)
		failed = append(failed, seed)
	}
	if failed == nil {
		return "", tally, nil, fmt.Errorf("a child ran no seed: %w\n%s", err, b)
	}
	return string(b), tally, failed, nil
}

// tries is how often a schedule is run to see whether it fails, because the order of goroutines differs.
const tries = 5

// Shorten leaves events out of a schedule as long as it still fails. It returns the shortest one that failed, and in
// how many tries it did.
func Shorten(t *testing.T, test string, s Schedule) (Schedule, int) {
	t.Helper()
	fails := func(s Schedule) int {
		file := filepath.Join(t.TempDir(), "schedule")
		need.OK(t, os.WriteFile(file, []byte(s.String()), 0o600))
		_, _, failed, err := runChild(t, test, scheduleEnv+"="+file, fmt.Sprintf("%s=%d", repeatEnv, tries))
		need.OK(t, err)
		return len(failed)
	}
	often := fails(s)
	if often == 0 {
		return s, 0
	}
	for part := len(s.Steps) / 2; part >= 1; part /= 2 {
		for from := 0; from+part <= len(s.Steps); {
			shorter := s
			shorter.Steps = slices.Delete(slices.Clone(s.Steps), from, from+part)
			if n := fails(shorter); n > 0 {
				s, often = shorter, n
			} else {
				from += part
			}
		}
	}
	return s, often
}
