package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// journal is a cluster, its clients and their links, which note what is done to them and when.
type journal struct {
	began  time.Time
	nodes  []Node
	starts time.Duration    // how long a start takes
	broken map[string]error // what fails, as in "kill 1"

	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s %s", time.Since(j.began), what))
	return j.broken[what]
}

// noted are the lines; those of one moment in alphabetical order, for what is done at once has none.
func (j *journal) noted() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := func(line string) time.Duration {
		var moment, rest string
		fmt.Sscan(line, &moment, &rest)
		d, _ := time.ParseDuration(moment)
		return d
	}
	lines := slices.Clone(j.lines)
	slices.SortStableFunc(lines, func(a, b string) int {
		if d := at(a) - at(b); d != 0 {
			return int(d)
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	return lines
}

func (j *journal) Nodes() []Node                          { return j.nodes }
func (j *journal) Kill(node int) error                    { return j.note("kill %d", node) }
func (j *journal) Stop(_ context.Context, node int) error { return j.note("stop %d", node) }

func (j *journal) Start(ctx context.Context, node int) error {
	err := j.note("start %d", node)
	if !until(ctx, time.Now().Add(j.starts)) {
		return context.Cause(ctx)
	}
	return err
}

func (j *journal) Pause(node int) error  { return j.note("pause %d", node) }
func (j *journal) Resume(node int) error { return j.note("resume %d", node) }
func (j *journal) Cut(a, b int)          { j.note("cut %d %d", min(a, b), max(a, b)) }
func (j *journal) Heal()                 { j.note("heal") }

func (j *journal) SlowDisk(node int, delay time.Duration) error {
	return j.note("slow %d %s", node, delay)
}

func (j *journal) Usage(int) (trial.Usage, error) { return trial.Usage{}, errors.New("not asked for") }
func (j *journal) Close() error                   { return j.note("close") }

func (j *journal) SetRates(rates map[string]float64) { j.note("rates %v", rates) }
func (j *journal) Die(which string) (int, error)     { return 30, j.note("die %s", which) }

func (j *journal) Silence(which string) (int, func(), error) {
	return 300, func() { j.note("restart clients") }, j.note("silence %s", which)
}

func (j *journal) Flap(which string) (int, func(), error) {
	return 30, func() { j.note("end flapping") }, j.note("flap %s", which)
}

func (j *journal) Split(nodes []int) { j.note("split %v", nodes) }
func (j *journal) Join()             { j.note("join") }
func (j *journal) mark()             { j.note("mark") }

// scenarioOf parses what follows its name.
func scenarioOf(t *testing.T, text string) scenario.Scenario {
	t.Helper()
	s := need.Got(scenario.Parse("test.yaml", []byte("name: test\n"+text)))(t)
	return s
}

// injectorOf injects into a journal; node 1 leads, unless leader says otherwise.
func injectorOf(j *journal, s scenario.Scenario, length time.Duration) *injector {
	places := scenario.Places(s.Datacenters)
	for _, p := range places {
		j.nodes = append(j.nodes, Node{Name: p.Name, Datacenter: p.Datacenter})
	}
	j.began = time.Now()
	return &injector{
		scenario: s, cluster: j, clients: j, links: j, nodes: places, mark: func() { j.mark() },
		leader: func(context.Context) (int, error) { return 1, nil },
		began:  j.began, length: length,
	}
}
