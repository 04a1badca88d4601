package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestPauseOfTheWholeClusterIsNotMistakenForAHungDisk pauses all machines at once, as a snapshot of a host or
// a frozen storage does, for longer than a disk may hang. Each node, with a slow disk, must go on as if nothing had happened, and
// no lease may end.
func TestPauseOfTheWholeClusterIsNotMistakenForAHungDisk(t *testing.T) {
	t.Parallel()
	const pause = 7 * time.Second
	c := StartCluster(t, Config{Settings: map[string]string{"test.sync-delay": "20ms"}})
	l := startLoad(t, 10, 20, 8, c.Nodes)
	for range 2 {
		for _, n := range c.Nodes {
			n.Pause(t)
		}
		Pass(t, pause)
		for _, n := range c.Nodes {
			n.Resume(t)
		}
		l.awaitProgress(t)
		for _, n := range c.Nodes {
			if !n.Running() {
				t.Errorf("%s ended after a pause, with code %d:\n%s", n.Name, n.ExitCode(t, StopLimit), n.LastWords(5))
			}
		}
		if t.Failed() {
			return
		}
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// TestNodeWhoseDiskHangsEndsWithCodeThree makes the next write of a node to its disk take longer than servers wait for one.
func TestNodeWhoseDiskHangsEndsWithCodeThree(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{Nodes: 1})
	n := c.Nodes[0]
	n.Settings["config"] = filepath.Join(t.TempDir(), "rollcall.yaml")
	writeSettings(t, n, "0s")
	c.Start()
	writeSettings(t, n, "10s")
	n.Signal(t, syscall.SIGHUP)
	Eventually(t, ReadyLimit, "the disk hangs", func() error {
		if response := n.Register(Instance{App: "HUNG", ID: "hung"}); response.Outcome() == Done {
			return errors.New("it was answered")
		}
		return nil
	})
	expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, "the node whose disk hangs ended with code")
	expect.That(t, strings.Contains(n.Output(t), "the disk hangs"), "the log of %s does not say that its disk hangs:\n%s", n.Name, n.LastWords(10))
}

// writeSettings writes the file of settings of a node that has one.
func writeSettings(t *testing.T, n *Node, syncDelay string) {
	t.Helper()
	need.OK(t, os.WriteFile(n.Settings["config"], []byte("test: {sync-delay: "+syncDelay+"}\n"), 0o600))
}

// The woken node is read by this many clients for at most wakeWindow, or until it has answered enough reads.
const (
	readers    = 16
	wakeWindow = 2 * time.Second
	enough     = 300
)

func TestPausedLeaderServesNoStaleReadWhenItWakes(t *testing.T) {
	t.Parallel()
	const stops, wanted = 20, 1000
	c := StartCluster(t, Config{})
	mustRegister(t, c.Nodes[0], Instance{App: "WITNESS", ID: "w"})
	answered := 0
	// A busy machine answers fewer of them, and so gets more stops.
	for stop := 1; stop <= stops || answered < wanted && stop <= 3*stops; stop++ {
		woken := c.Leader()
		woken.Pause(t)
		writeMetadata(t, c.Others(woken), stop)

		var reads readLog
		reads.startAt(woken, stop) // calls are waiting in its sockets when it wakes
		woken.Resume(t)
		reads.finish(time.Now().Add(wakeWindow))
		answered += reads.answered
		if len(reads.stale) > 0 {
			t.Errorf("stop %d: %s, paused while the others acknowledged %d, answered stale %d times, such as %s",
				stop, woken.Name, stop, len(reads.stale), reads.stale[0])
		}
	}
	t.Logf("%d reads answered within %v of waking, over %d stops or more", answered, wakeWindow, stops)
	expect.That(t, answered >= wanted, "%d reads were answered within %v of waking, want at least %d", answered, wakeWindow, wanted)
}

// writeMetadata writes n=value until it is acknowledged by one of the nodes.
func writeMetadata(t *testing.T, nodes []*Node, value int) {
	t.Helper()
	Eventually(t, ReadyLimit, "the others write", func() error {
		return nodes[value%len(nodes)].Do(Request{Method: http.MethodPut, Path: path("WITNESS", "w") + "/metadata?n=" + strconv.Itoa(value)}).is(200)
	})
}

// readLog reads one node from many clients and counts its responses.
type readLog struct {
	readers sync.WaitGroup
	done    chan struct{}

	mu       sync.Mutex
	ended    bool
	answered int
	stale    []string
}

// startAt starts the readers; every response must show the value want.
func (r *readLog) startAt(n *Node, want int) {
	r.done = make(chan struct{})
	for i := range readers {
		r.readers.Go(func() {
			for r.reading() {
				r.count(readMetadata(n, i%2 == 0, want))
			}
		})
	}
}

// finish waits until enough responses have come or the deadline has, and ends the readers. Later responses do not count.
func (r *readLog) finish(deadline time.Time) {
	select {
	case <-r.done:
	case <-time.After(time.Until(deadline)):
	}
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.readers.Wait()
}

func (r *readLog) reading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended
}

// count counts one response; a stale one is kept whenever it comes.
func (r *readLog) count(answered bool, stale string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stale != "" {
		r.stale = append(r.stale, stale)
	}
	if !answered || r.ended {
		return
	}
	if r.answered++; r.answered == enough {
		close(r.done)
	}
}

// readMetadata reads the witness, alone or within the list, linearizably. A refusal is no response.
func readMetadata(n *Node, alone bool, want int) (answered bool, stale string) {
	resource := "/eureka/apps?consistency=linearizable"
	if alone {
		resource = path("WITNESS", "w") + "?consistency=linearizable"
	}
	response := n.Get(resource)
	if response.Status == 0 || response.Status == http.StatusServiceUnavailable {
		return false, ""
	}
	found, err := witness(response, alone)
	if err != nil || found != strconv.Itoa(want) {
		return true, fmt.Sprintf("%q (%v) to %s", found, err, resource)
	}
	return true, ""
}

func witness(response Response, alone bool) (string, error) {
	if err := response.is(200); err != nil {
		return "", err
	}
	if alone {
		instance, err := ParseInstance(response.Body)
		return instance.Metadata["n"], err
	}
	listing, err := ParseListing(response.Body)
	return listing["w"].Metadata["n"], err
}
