package integration

import (
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// devLine is what dev prints for a node.
var devLine = regexp.MustCompile(`(?m)^node=(\d+) dc=dc(\d+) http=(\S+) pid=(\d+)$`)

// devPorts claims the ports that dev uses for so many datacenters, and returns the first. dev serves HTTP at three ports in a
// row, its nodes talk at the three that are 1000 lower, and each further datacenter uses those that are 100 higher.
func devPorts(t *testing.T, dcs int) int {
	t.Helper()
	var distances []int
	for dc := range dcs {
		for i := range 3 {
			distances = append(distances, 100*dc+i, 100*dc+i-1000)
		}
	}
	return need.Got(localcluster.ClaimPort(distances...))(t)
}

// startDev runs dev, which starts a cluster of three nodes per datacenter, and waits until dev prints that they are ready.
func startDev(t *testing.T, port int, data string, ap bool, dcs int) (*Process, []*Node) {
	t.Helper()
	mode := map[bool]string{false: "cp", true: "ap"}[ap]
	dev, err := Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil,
		"dev", "--nodes", "3", "--mode", mode, "--dcs", strconv.Itoa(dcs), "--http-port", strconv.Itoa(port), "--data", data)
	need.OK(t, err)
	Eventually(t, ReadyLimit, "dev says ready", func() error {
		need.That(t, dev.Running(), "dev has ended: %s", dev.Output(t))
		out := dev.Output(t)
		return unless(strings.HasSuffix(out, "\nready\n"), "it says %q", out)
	})
	var nodes []*Node
	for i, line := range devLine.FindAllStringSubmatch(dev.Output(t), -1) {
		want := []string{strconv.Itoa(i%3 + 1), strconv.Itoa(i/3 + 1), localcluster.Address(port + 100*(i/3) + i%3)}
		expect.That(t, slices.Equal(line[1:4], want), "line %q, want node %s of datacenter %s at %s", line[0], want[0], want[1], want[2])
		mustLive(t, line[4])
		n := serverAt(line[3])
		n.Name, n.Mode = "node"+line[1], mode
		nodes = append(nodes, n)
	}
	need.That(t, len(nodes) == 3*dcs, "dev names %d nodes, want %d: %s", len(nodes), 3*dcs, dev.Output(t))
	return dev, nodes
}

// mustLive expects that a process exists.
func mustLive(t *testing.T, pid string) {
	t.Helper()
	expect.OKf(t, syscall.Kill(need.Got(strconv.Atoi(pid))(t), 0), "pid %s, which dev names", pid)
}

// interrupt sends dev what Ctrl-C sends, and waits until dev and its nodes have ended.
func interrupt(t *testing.T, dev *Process, nodes []*Node) {
	t.Helper()
	dev.Signal(t, syscall.SIGINT)
	dev.mustEndWell(t, StopLimit, "dev, after Ctrl-C")
	for _, n := range nodes {
		expect.OKf(t, n.Get("/healthz").is(0), "%s still answers after dev ended", n.Name)
	}
}

func TestDevClusterFindsItsDataAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		port, data := devPorts(t, 1), filepath.Join(t.TempDir(), "data")
		dev, nodes := startDev(t, port, data, ap, 1)
		mustRegister(t, nodes[1], Instance{App: "KEPT", ID: "kept"})
		for _, n := range nodes {
			awaitListed(t, n, wantListed("kept"))
		}
		interrupt(t, dev, nodes)

		dev, nodes = startDev(t, port, data, ap, 1)
		for _, n := range nodes {
			Eventually(t, ReadyLimit, n.Name+" has the data of the first run", func() error {
				listing, err := n.Listing()
				if err != nil {
					return err
				}
				return wantListed("kept")(listing)
			})
		}
		interrupt(t, dev, nodes)
	})
}

func TestDevNamesThePortInUse(t *testing.T) {
	t.Parallel()
	port := devPorts(t, 1)
	// The second node's port for HTTP, and the third one's for the other nodes.
	for _, taken := range []string{localcluster.Address(port + 1), localcluster.Address(port - 998)} {
		t.Run(taken, func(t *testing.T) {
			l := need.Got(net.Listen("tcp", taken))(t)
			defer l.Close()
			data := filepath.Join(t.TempDir(), "data")
			dev := need.Got(Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil, "dev", "--http-port", strconv.Itoa(port), "--data", data))(t)
			expect.That(t, dev.ExitCode(t, StopLimit) != 0, "exit code 0, want an error")
			out := dev.Output(t)
			expect.That(t, strings.Contains(out, taken), "it does not name %s: %s", taken, out)
		})
	}
}
