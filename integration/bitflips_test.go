package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// flipBit flips a bit of a file at an offset.
func flipBit(t *testing.T, file string, at int64, bit int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	need.OK(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	need.OK(t, err)
	b[0] ^= 1 << bit
	_, err = f.WriteAt(b, at)
	need.OK(t, err)
}

func logFile(n *Node) string { return filepath.Join(n.Dir, "raft", "log.db") }

// TestFlippedBitInTheLogIsRefused flips a bit of a value in the log of a follower that was killed.
func TestFlippedBitInTheLogIsRefused(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Others(c.Leader())[0]
	need.That(t, n.says(t, "/v1/kv/price", "a price of 1000"), "the key was not written")
	if got, _, err := n.keys("price"); err != nil || len(got) != 1 { // so that it has the key in its log
		t.Fatalf("it has %+v, %v, want the key", got, err)
	}
	n.Kill()
	content, err := os.ReadFile(logFile(n))
	need.OK(t, err)
	value := []byte("a price of 1000")
	found := 0
	for at := 0; ; at++ {
		i := bytes.Index(content[at:], value)
		if i < 0 {
			break
		}
		at += i
		flipBit(t, logFile(n), int64(at+len("a price of ")), 3) // '1' becomes '9'
		found++
	}
	need.That(t, found != 0, "the value is not in the log")
	mustRefuseToStart(t, n, "log.db", "differs from its checksum", "empty data directory")
	expect.Equal(t, n.ExitCode(t, ReadyLimit), 1, "exit code")
}

// bitFlipsRound flips one random bit in the used part of the log of a follower that was killed, many times.
// Each time the node refuses its directory in words, and gets an empty one; or it has what all have.
func bitFlipsRound(t *testing.T) {
	c := StartCluster(t, Config{})
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	refused, served := 0, 0
	for i := range 6 {
		leader := c.Leader()
		n := c.Others(leader)[rng.IntN(2)]
		for k := range 20 {
			need.That(t, leader.says(t, fmt.Sprintf("/v1/kv/key%d", k), fmt.Sprintf("value %d of round %d", k, i)), "a key was not written")
		}
		n.Kill()
		content, err := os.ReadFile(logFile(n))
		need.OK(t, err)
		at := rng.IntN(len(content))
		for content[at] == 0 { // most of the file is not in use
			at = rng.IntN(len(content))
		}
		bit := rng.IntN(8)
		flipBit(t, logFile(n), int64(at), bit)
		t.Logf("round %d: bit %d of byte %d of %s", i, bit, at, n.Name)
		need.OK(t, os.WriteFile(n.LogFile, nil, 0o600))
		n.Start(t)
		if ended := startedOrEnded(t, n); ended {
			refused++
			said := n.Output(t)
			code := n.ExitCode(t, ReadyLimit)
			need.That(t, code == 1 && strings.Contains(said, "log.db") && !strings.Contains(said, "goroutine "),
				"exit code %d, want 1, the name of the file and no stack:\n%s", code, said)
			need.OK(t, os.WriteFile(logFile(n), content, 0o600)) // the bit flips back: the node has what it acknowledged
			n.Start(t)
			n.WaitReady(t)
		} else {
			served++
		}
		for k := range 20 {
			for _, node := range c.Nodes {
				got, _, err := node.keys(fmt.Sprintf("key%d", k))
				need.OK(t, err)
				want := fmt.Sprintf("value %d of round %d", k, i)
				need.That(t, len(got) == 1 && string(got[0].Value) == want, "%s has %+v, want %q", node.Name, got, want)
			}
		}
	}
	t.Logf("%d refused, %d served", refused, served)
}

// startedOrEnded waits until a node is ready or has ended by itself.
func startedOrEnded(t *testing.T, n *Node) (ended bool) {
	t.Helper()
	Eventually(t, ReadyLimit, n.Name+" is ready, or has ended", func() error {
		if ended = !n.Running(); ended {
			return nil
		}
		return n.Ready()
	})
	return ended
}
