package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// action is what a client of the history did to one instance.
type action int

const (
	register action = iota
	cancel
	read
)

// call is the input of one operation of a history: on one key, an instance that holds a number.
type call struct {
	action action
	key    string
	value  int // to register; never 0
}

// reply is its output. A read's value, 0 for 404, is in value.
type reply struct {
	outcome Outcome
	value   int
}

// instanceModel is one instance as a register: 0 while it is not registered. Operations of unknown
// outcome have no end in the history, so that they may take effect at any time or never.
var instanceModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(call).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
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
			return r.outcome == Unknown || found == (r.outcome == Done), 0
		default:
			return r.value == stored, stored
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
}

// history is what several clients did, with the times of their calls.
type history struct {
	began time.Time
	next  atomic.Int64 // numbers to register, each once

	mu         sync.Mutex
	operations []porcupine.Operation
}

// clients, keys and the pause between two calls keep the check within seconds: fewer than ten
// clients, and fewer than two thousand operations on a key.
const (
	historyClients = 8
	historyKeys    = 8
	historyPause   = 30 * time.Millisecond
)

// run is one client: it works on random keys through random nodes until ctx ends.
func (h *history) run(ctx context.Context, client int, nodes []*Node) {
	for pause(ctx, historyPause) {
		c := call{action: action(rand.IntN(3)), key: fmt.Sprintf("key-%d", rand.IntN(historyKeys)), value: int(h.next.Add(1))}
		began := time.Since(h.began)
		r := c.perform(nodes[rand.IntN(len(nodes))])
		h.add(client, c, r, began, time.Since(h.began))
	}
}

// add keeps an operation, unless it certainly changed nothing and returned nothing.
func (h *history) add(client int, c call, r reply, began, ended time.Duration) {
	if r.outcome == Refused || c.action == read && r.outcome == Unknown {
		return
	}
	if r.outcome == Unknown {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: c, Output: r, Call: int64(began), Return: int64(ended),
	})
}

func (h *history) length() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.operations)
}

// awaitProgress waits until the history is longer by some hundred operations.
func (h *history) awaitProgress(t *testing.T) {
	t.Helper()
	goal := h.length() + 300
	Eventually(t, ReadyLimit, "the history goes on", func() error { return notYet(h.length(), goal) })
}

func (c call) perform(n *Node) reply {
	switch c.action {
	case register:
		i := Instance{App: "LINEAR", ID: c.key, Duration: 24 * 3600, Metadata: map[string]string{"n": strconv.Itoa(c.value)}}
		return reply{outcome: n.Register(i).Outcome()}
	case cancel:
		return reply{outcome: n.Cancel("LINEAR", c.key).Outcome()}
	default:
		instance, err := n.Lookup("LINEAR", c.key)
		if err != nil {
			return reply{outcome: Unknown}
		}
		if instance == nil {
			return reply{outcome: NotFound}
		}
		value, err := strconv.Atoi(instance.Metadata["n"])
		if err != nil {
			value = -1 // never registered, so the check fails
		}
		return reply{outcome: Done, value: value}
	}
}

// TestHistoriesUnderKillsAreLinearizable records what clients see through all nodes while nodes are
// killed, and looks for an order of the operations that explains it.
func TestHistoriesUnderKillsAreLinearizable(t *testing.T) {
	t.Parallel()
	const kills = 6
	c := StartCluster(t, Config{})
	h := &history{began: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range historyClients {
		clients.Go(func() { h.run(ctx, i, c.Nodes) })
	}
	t.Cleanup(clients.Wait)
	t.Cleanup(stop)
	for range kills {
		h.awaitProgress(t)
		n := c.Nodes[rand.IntN(len(c.Nodes))]
		n.Kill()
		c.Leader(c.Others(n)...)
		n.Start(t)
		n.WaitReady(t)
	}
	h.awaitProgress(t)
	stop()
	clients.Wait()

	result, info := porcupine.CheckOperationsVerbose(instanceModel, h.operations, time.Minute)
	t.Logf("%d operations checked: %s", len(h.operations), result)
	if result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", visualizeAs(t, instanceModel, info))
	}
}

// visualizeAs writes the history as a page for people, and returns its path.
func visualizeAs(t *testing.T, model porcupine.Model, info porcupine.LinearizationInfo) string {
	t.Helper()
	file, err := os.CreateTemp("", "rollcall-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := porcupine.Visualize(model, info, file); err != nil {
		return err.Error()
	}
	return "open " + file.Name()
}

func TestLinearizabilityModelFindsAStaleRead(t *testing.T) {
	stale := []porcupine.Operation{
		{ClientId: 1, Input: call{action: register, key: "k", value: 1}, Output: reply{}, Call: 0, Return: 1},
		{ClientId: 1, Input: call{action: cancel, key: "k"}, Output: reply{}, Call: 2, Return: 3},
		{ClientId: 2, Input: call{action: read, key: "k"}, Output: reply{value: 1}, Call: 4, Return: 5},
	}
	expect.That(t, !porcupine.CheckOperations(instanceModel, stale), "a read of a cancelled instance passes the check")
	stale[1].Output, stale[1].Return = reply{outcome: Unknown}, math.MaxInt64
	expect.That(t, porcupine.CheckOperations(instanceModel, stale), "the same read is refused though the cancel's outcome is unknown")
}
