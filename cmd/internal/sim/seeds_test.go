package sim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// gateSeeds is how many seeds the gate runs. Two cores run them in one to two minutes; make sim runs others.
const gateSeeds = 40

// shortened is how many failing seeds are shortened, which takes many runs.
const shortened = 3

// figures has the tally of runs of these seeds. An act whose figures fall below it has stopped doing anything.
const figures = "testdata/figures.json"

// It runs drawn schedules: gateSeeds, or as many as ROLLCALL_SIM_TO says, from ROLLCALL_SIM_FROM on. With
// ROLLCALL_SIM_FOR, such as 30m, it goes on for that long. A failing one is shortened, and shown as text for
// testdata/found. With ROLLCALL_SIM_FIGURES=write it keeps its tally.
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
		expect.Equal(t, need.Got(sim.ParseSchedule(text))(t).String(), text, "schedule of seed %d", seed)
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
		"schedule 1\ncluster cp 3 1 1ms fast":     `there is no setting "fast"; there are always, auth, bounded, expire, keepfor, learner, learners, oldlevel, preserve, skew, snapshots, wal`,
		"schedule 1\ncluster ap 3 1 1ms wal":      `setting "wal" is for mode cp`,
		"schedule 1\ncluster cp 4 1 1ms learners": "2 of 4 nodes without a vote: more than half must vote",
		"schedule 1\ncluster cp three":            "want cluster MODE NODES DATACENTERS LATENCY",
		head + "1s kill n4":                       `there is no node "n4"; the nodes are n1, n2, n3`,
		head + "1s murder n1":                     `there is no act "murder"; there are bury, cut, cutbut, cutdc, cutoneway`,
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
		expect.ErrorSays(t, expect.Err(sim.ParseSchedule(text)), says, "%q:", text)
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

// action is what a client of a history did to one instance.
type action int

const (
	register action = iota
	cancel
	read
)

// call is the input of an operation: on one key, an instance that holds a number.
type call struct {
	action action
	key    string
	value  int // to register; never 0
}

// reply is its output.
type reply struct {
	outcome sim.Outcome
	value   int // value read; 0 if not registered
}

// instanceModel is an instance as a register: 0 while it is not registered. Operations of unknown outcome have no end
// in the history, so that they may take effect at any time or never.
var instanceModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(call).key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		c, r, stored := input.(call), output.(reply), state.(int)
		switch c.action {
		case register:
			return true, c.value
		case cancel:
			found := stored != 0
			return r.outcome == sim.Unknown || found == (r.outcome == sim.Done), 0
		default:
			return r.value == stored, stored
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
}

// history is what clients did, with the times of their calls.
type history struct {
	w     *sim.World
	began time.Time
	next  atomic.Int64 // numbers to register, each once
	nodes atomic.Pointer[[]string]

	mu         sync.Mutex
	operations []porcupine.Operation
}

// The checker decides histories of this many clients and operations within seconds.
const (
	historyClients = 8
	historyKeys    = 4
	historyPause   = 50 * time.Millisecond
)

// run is one client: it works on random keys through random nodes until the channel is closed.
func (h *history) run(client int, ended <-chan struct{}) {
	tick := time.NewTicker(historyPause)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		nodes := *h.nodes.Load()
		c := call{action: action(rand.IntN(3)), key: fmt.Sprintf("key-%d", rand.IntN(historyKeys)), value: int(h.next.Add(1))}
		began := time.Since(h.began)
		r := c.perform(h.w, nodes[rand.IntN(len(nodes))])
		h.add(client, c, r, began, time.Since(h.began))
	}
}

// add keeps an operation, unless it certainly changed nothing and returned nothing.
func (h *history) add(client int, c call, r reply, began, ended time.Duration) {
	if r.outcome == sim.Refused || c.action == read && r.outcome == sim.Unknown {
		return
	}
	if r.outcome == sim.Unknown {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: c, Output: r, Call: int64(began), Return: int64(ended),
	})
}

func (c call) perform(w *sim.World, node string) reply {
	path := "/eureka/apps/LINEAR/" + c.key
	switch c.action {
	case register:
		document := sim.Registration("LINEAR", c.key, 24*time.Hour, map[string]string{"n": strconv.Itoa(c.value)})
		return reply{outcome: w.Call(node, "POST", "/eureka/apps/LINEAR", document).Outcome()}
	case cancel:
		return reply{outcome: w.Call(node, "DELETE", path, "").Outcome()}
	}
	r := w.Call(node, "GET", path, "")
	if r.Status != http.StatusOK {
		return reply{outcome: r.Outcome()}
	}
	value, err := sim.NumberOf(r)
	if err != nil {
		value = -1 // never registered, so the check fails
	}
	return reply{value: value}
}

// checkHistory records what clients see through the responding nodes while faults happen, and checks that some order
// of the operations explains it.
func checkHistory(w *sim.World, faults func(h *history)) {
	w.Helper()
	h := &history{w: w, began: time.Now()}
	h.use(w.Names()...)
	w.SlowDisk(w.Names()[0], 60*time.Millisecond) // so that it often has not applied what others have acknowledged
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for i := range historyClients {
		clients.Go(func() { h.run(i, ended) })
	}
	faults(h)
	close(ended)
	clients.Wait()
	result, info := porcupine.CheckOperationsVerbose(instanceModel, h.operations, time.Hour)
	w.Logf("%d operations checked: %s", len(h.operations), result)
	if result != porcupine.Ok {
		w.Errorf("the history is not linearizable: %s: %s", result, visualize(info))
	}
}

func (h *history) use(nodes ...string) { h.nodes.Store(&nodes) }

// visualize writes a history as a page for people, and returns its path.
func visualize(info porcupine.LinearizationInfo) string {
	file, err := os.CreateTemp("", "rollcall-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := porcupine.Visualize(instanceModel, info, file); err != nil {
		return err.Error()
	}
	return "open " + file.Name()
}

func TestHistoriesUnderKillsAreLinearizable(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		checkHistory(w, func(h *history) {
			for range 6 {
				w.Wait(time.Second)
				n := w.Names()[rand.IntN(3)]
				w.Kill(n)
				h.use(w.Others(n)...)
				w.Leader()
				w.Wait(time.Second)
				w.Start(n)
				w.ReadyBy(n, caughtUpWithin)
				h.use(w.Names()...)
			}
		})
	})
}

// Nodes are cut off while their clients keep using them.
func TestHistoriesUnderCutsAreLinearizable(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		checkHistory(w, func(*history) {
			for range 6 {
				w.Wait(time.Second)
				w.Isolate(w.Names()[rand.IntN(3)])
				w.Wait(electedWithin)
				w.Heal()
			}
			w.Wait(time.Second)
		})
	})
}

func TestLinearizabilityModelFindsAStaleRead(t *testing.T) {
	stale := []porcupine.Operation{
		{ClientId: 1, Input: call{action: register, key: "k", value: 1}, Output: reply{}, Call: 0, Return: 1},
		{ClientId: 1, Input: call{action: cancel, key: "k"}, Output: reply{}, Call: 2, Return: 3},
		{ClientId: 2, Input: call{action: read, key: "k"}, Output: reply{value: 1}, Call: 4, Return: 5},
	}
	expect.That(t, !porcupine.CheckOperations(instanceModel, stale), "a read of a cancelled instance passes the check")
	stale[1].Output, stale[1].Return = reply{outcome: sim.Unknown}, math.MaxInt64
	expect.That(t, porcupine.CheckOperations(instanceModel, stale),
		"the same read is refused though the cancel's outcome is unknown")
}
