package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

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
	value   int // that was read; 0: not registered
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

// The checker decides histories of so many clients and operations within seconds.
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

// checkHistory records what clients see through the nodes that answer while faults happen, and expects an order of
// the operations that explains it.
func checkHistory(w *sim.World, faults func(h *history)) {
	w.Helper()
	h := &history{w: w, began: time.Now()}
	h.use(w.Names()...)
	w.SlowDisk(w.Names()[0], 60*time.Millisecond) // so that it has often not applied what others have acknowledged
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

// TestHistoriesUnderCutsAreLinearizable cuts nodes off whose clients go on to use them.
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
