package localcluster

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// claimant is the argument by which this test's own program claims ports, says which, and lives until its
// standard input ends.
const claimant = "claim"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == claimant {
		n, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		got, err := ClaimPorts(n)
		if err != nil {
			panic(err)
		}
		for _, p := range got {
			fmt.Println(p)
		}
		bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		t.Errorf("a claimed port: %v", err)
		return nil
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Children that start meanwhile have copies of what is open in this process.
func TestClaimPortsReturnsPortsToListenOnAtOnceWhileChildrenStart(t *testing.T) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					t.Errorf("start a child: %v", err)
					return
				}
			}
		})
	}
	var mu sync.Mutex
	given := make(map[int]bool)
	var claiming sync.WaitGroup
	for range 8 {
		claiming.Go(func() {
			for range 10 {
				got, err := ClaimPorts(2)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range got {
					listen(t, p)
					mu.Lock()
					expect.That(t, !given[p], "port %d was given twice", p)
					given[p] = true
					mu.Unlock()
				}
			}
		})
	}
	claiming.Wait()
	close(stop)
	wg.Wait()
}

func TestClaimRefusesAPortOnWhichAProcessListens(t *testing.T) {
	got := need.Got(ClaimPorts(1))(t)
	listen(t, got[0])
	claims.Lock()
	defer claims.Unlock()
	release(got[0]) // so that what remains in the way is the listener
	if held, err := claim(got[0]); err == nil {
		held.Close()
		t.Errorf("port %d was claimed although a process listens on it", got[0])
	}
}

// release gives a claim back. The caller has locked claims.
func release(port int) {
	claims.held[port].Close()
	delete(claims.held, port)
}

func TestClaimPortClaimsPortsAtDistancesTogether(t *testing.T) {
	first := need.Got(ClaimPort(1, 2, 3, -1000, 0))(t)
	claims.Lock()
	defer claims.Unlock()
	for _, d := range []int{0, 1, 2, 3, -1000} {
		expect.That(t, claims.held[first+d] != nil, "port %d is not claimed", first+d)
	}
	release(first + 3)
	before := len(claims.held)
	expect.That(t, !claimAll(first+3, []int{-1}), "ports %d and %d: claimed, though the second is taken", first+3, first+2)
	expect.That(t, claims.held[first+3] == nil && len(claims.held) == before, "what could be claimed of a group was kept, though the group could not")
}

func TestClaimPortFailsOutsideTheRange(t *testing.T) {
	p, err := ClaimPort(highest)
	expect.That(t, err != nil, "got port %d beside one above %d", p, highest)
}
