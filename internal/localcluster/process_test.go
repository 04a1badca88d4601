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
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := need.Got(Start(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", script))(t)
	t.Cleanup(p.Kill)
	return p
}

func TestProcessIsStoppedByClosingItsInput(t *testing.T) {
	p := shell(t, "cat >/dev/null")
	expect.That(t, !p.Ended(), "it has ended before it was stopped")
	p.Stop()
	err := p.Err()
	expect.That(t, err == nil, "it ended with %v, want it to end by itself", err)
}

func TestProcessThatIsPausedResumesOrIsKilled(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*Process) error
		want string // part of the error; "" if there is none
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

func TestProcessThatHasEndedHasAnObituary(t *testing.T) {
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

func TestUntilParentEndsOnlyIfTheEnvironmentSaysSo(t *testing.T) {
	set := func(string) (string, bool) { return "1", true }
	unset := func(string) (string, bool) { return "", false }

	r, w := io.Pipe()
	ctx, cancel := UntilParentEnds(t.Context(), set, r)
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended while its parent lives")
	w.Close()
	<-ctx.Done()

	ctx, cancel = UntilParentEnds(t.Context(), unset, strings.NewReader(""))
	defer cancel()
	expect.That(t, ctx.Err() == nil, "it ended with its input although the environment does not say so")
}

func echoServer(t *testing.T) (addr string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", Address(0)))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go echo(conn)
		}
	}()
	return l.Addr().String()
}

func echo(conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 1)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

func dialTest(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echoed sends a byte and waits up to patience for its return.
func echoed(t *testing.T, conn net.Conn, patience time.Duration) error {
	t.Helper()
	need.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestProxyCarriesNothingFromCutToHeal(t *testing.T) {
	const (
		patience = 10 * time.Second
		silence  = 50 * time.Millisecond
	)
	p := need.Got(StartProxy(echoServer(t)))(t)
	defer p.Stop()
	before := dialTest(t, p.Addr())
	need.OKf(t, echoed(t, before, patience), "before the cut")
	counted := func() bool { return p.Carried(There) == 1 && p.Carried(Back) == 1 }
	for end := time.Now().Add(patience); !counted() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // it counts after it has delivered
	}
	p.Cut()
	during := dialTest(t, p.Addr())
	for name, conn := range map[string]net.Conn{"connection from before": before, "new connection": during} {
		err := echoed(t, conn, silence)
		expect.That(t, errors.Is(err, os.ErrDeadlineExceeded), "%s in the cut: got %v, want nothing for %v", name, err, silence)
	}
	expect.That(t, counted(), "it has carried %d bytes there and %d back, want the one from before the cut", p.Carried(There), p.Carried(Back))
	p.Heal()
	if err := echoed(t, before, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection from before the cut: got %v, want that it was closed", err)
	}
	expect.OKf(t, echoed(t, dialTest(t, p.Addr()), patience), "after the cut")
}

func TestProxyClosesItsConnectionsWhenItStops(t *testing.T) {
	p := need.Got(StartProxy(echoServer(t)))(t)
	conn := dialTest(t, p.Addr())
	need.OK(t, echoed(t, conn, 10*time.Second))
	p.Stop() // returns when both ends are closed
	err := echoed(t, conn, 10*time.Second)
	expect.That(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "got %v, want that the connection was closed", err)
}

func linkedNodes(t *testing.T) ([]*Node, Links) {
	t.Helper()
	nodes := []*Node{
		{Name: "node1", Datacenter: "dc1", Mode: CP, HTTP: "h1", Cluster: "c1"},
		{Name: "node2", Datacenter: "dc1", Mode: CP, HTTP: "h2", Cluster: "c2"},
		{Name: "node3", Datacenter: "dc2", Mode: CP, HTTP: "h3", Cluster: "c3"},
	}
	links, err := StartLinks(nodes, func(from, to *Node) bool { return true })
	t.Cleanup(links.Stop)
	need.OK(t, err)
	return nodes, links
}

func TestLinksIntroduceTheOthersByProxiesAndTheNodeItselfDirectly(t *testing.T) {
	nodes, links := linkedNodes(t)
	links.Introduce(nodes)
	for _, tc := range []struct {
		node      int
		key, want string
	}{
		{node: 1, key: "cluster.join", want: links[1][0].Addr() + ",c2"},
		{node: 1, key: "test.dial", want: "node1=" + links[1][0].Addr()},
		{node: 1, key: "cluster.bootstrap-expect", want: "2"},
		{node: 1, key: "replication.datacenters", want: "dc2=http://" + links[1][2].Addr()},
		{node: 2, key: "test.dial", want: ""}, // it is the only node of its datacenter
		{node: 2, key: "replication.datacenters", want: "dc1=http://" + links[2][0].Addr() + " http://" + links[2][1].Addr()},
	} {
		expect.Equal(t, nodes[tc.node].Settings[tc.key], tc.want, "%s: %s is", nodes[tc.node].Name, tc.key)
	}
}

func TestLinksCountRequestsAndResponsesOfANode(t *testing.T) {
	_, links := linkedNodes(t)
	links[0][1].carried[There].Store(1)
	links[0][1].carried[Back].Store(10)
	links[0][2].carried[There].Store(100)
	links[1][0].carried[Back].Store(1000)
	links[1][2].carried[There].Store(10_000)
	for node, want := range []int64{1101, 10_010, 0} {
		expect.Equal(t, links.Sent(node), want, "node %d: got", node+1)
	}
}

// claimant is the argument with which this test's own program claims ports, prints them, and lives until its standard
// input ends.
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
	release(got[0]) // so that only the listener remains in the way
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
