package localcluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
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
func TestClaimedPortsCanBeListenedOnAtOnceWhileChildrenStart(t *testing.T) {
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

func TestProcessesHavePortsOfTheirOwn(t *testing.T) {
	const processes, each = 4, 500
	given := make(map[int]bool)
	for range processes {
		c := exec.Command(os.Args[0], claimant, strconv.Itoa(each))
		c.Stderr = t.Output()
		in := need.Got(c.StdinPipe())(t)
		out := need.Got(c.StdoutPipe())(t)
		need.OK(t, c.Start())
		t.Cleanup(func() {
			expect.OKf(t, c.Wait(), "a claiming process")
		})
		defer in.Close()
		lines := bufio.NewScanner(out)
		for range each {
			need.That(t, lines.Scan(), "a claiming process ended early: %v", lines.Err())
			expect.That(t, !given[mustPort(t, lines.Text())], "port %s was given to two processes", lines.Text())
			given[mustPort(t, lines.Text())] = true
		}
	}
}

func mustPort(t *testing.T, text string) int {
	t.Helper()
	p, err := strconv.Atoi(text)
	need.That(t, err == nil && p >= lowest && p < highest, "%q is no port between %d and %d", text, lowest, highest)
	return p
}

func TestAPortOnWhichSomebodyListensIsNotClaimed(t *testing.T) {
	got := need.Got(ClaimPorts(1))(t)
	listen(t, got[0])
	claims.Lock()
	defer claims.Unlock()
	release(got[0]) // so that what remains in the way is the listener
	if held, err := claim(got[0]); err == nil {
		held.Close()
		t.Errorf("port %d was claimed although somebody listens on it", got[0])
	}
}

// release gives a claim back. The caller has locked claims.
func release(port int) {
	claims.held[port].Close()
	delete(claims.held, port)
}

func TestPortsAroundOneAreClaimedTogether(t *testing.T) {
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

func TestPortsThatCannotBeHadAreAnError(t *testing.T) {
	p, err := ClaimPort(highest)
	expect.That(t, err != nil, "got port %d beside one above %d", p, highest)
}

// shell starts a process that is a shell script.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := need.Got(Start(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", script))(t)
	t.Cleanup(p.Kill)
	return p
}

func TestAProcessIsStoppedByEndingItsInput(t *testing.T) {
	p := shell(t, "cat >/dev/null")
	expect.That(t, !p.Ended(), "it has ended before it was told to")
	p.Stop()
	err := p.Err()
	expect.That(t, err == nil, "it ended with %v, want it to end by itself", err)
}

func TestAPausedProcessGoesOnOrIsKilled(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*Process) error
		want string // of the error; "": none
	}{
		{name: "resumed and stopped", end: func(p *Process) error { defer p.Stop(); return p.Resume() }},
		{name: "killed", end: func(p *Process) error { p.Kill(); return nil }, want: "ended: signal: killed"},
	} {
		p := shell(t, "cat >/dev/null")
		need.OKf(t, errors.Join(p.Pause(), tc.end(p)), "%s", tc.name)
		if err := p.Err(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestAProcessThatHasEndedSaysHowAndWhatItPrintedLast(t *testing.T) {
	p := shell(t, "echo first; echo last words; exit 7")
	const want = "ended: exit status 7; the end of "
	if err := p.Err(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "  last words") {
		t.Errorf("got %v, want %q and the last words", err, want)
	}
	for name, err := range map[string]error{"signal": p.Signal(syscall.SIGTERM), "pause": p.Pause()} {
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want how it ended", name, err)
	}
}

func TestLastLinesOfALongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	need.OK(t, os.WriteFile(path, []byte(strings.Repeat("x\n", 100_000)+"a\nb\n"), 0o600))
	expect.Equal(t, LastLines(path, 3), "  x\n  a\n  b", "got")
}

func TestAProgramEndsWithItsParentOnlyIfAsked(t *testing.T) {
	asked := func(string) (string, bool) { return "1", true }
	notAsked := func(string) (string, bool) { return "", false }

	r, w := io.Pipe()
	ctx, cancel := UntilParentEnds(t.Context(), asked, r)
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended while its parent lives")
	w.Close()
	<-ctx.Done()

	ctx, cancel = UntilParentEnds(t.Context(), notAsked, strings.NewReader(""))
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended with its input although nobody asked for that")
}
