package integration

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// devLine is what dev prints for a node.
var devLine = regexp.MustCompile(`(?m)^node=(\d+) dc=dc1 http=(\S+) pid=(\d+)$`)

// devPorts finds a first HTTP port for dev: it needs three in a row, and three a thousand below.
func devPorts(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := FreePort(t)
		free := true
		for _, p := range []int{port + 1, port + 2, port - 1000, port - 999, port - 998} {
			free = free && claim(p)
		}
		if free {
			return port
		}
	}
	t.Fatal("no six free ports for dev")
	return 0
}

// startDev runs a local cluster of three and waits until it says that it is ready.
func startDev(t *testing.T, port int, data string) (*Process, []*Node) {
	t.Helper()
	dev, err := Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil, "dev", "--nodes", "3", "--http-port", strconv.Itoa(port), "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, ReadyLimit, "dev says ready", func() error {
		if !dev.Running() {
			t.Fatalf("dev has ended: %s", dev.Output(t))
		}
		if said := dev.Output(t); !strings.HasSuffix(said, "\nready\n") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	var nodes []*Node
	for i, line := range devLine.FindAllStringSubmatch(dev.Output(t), -1) {
		want := []string{strconv.Itoa(i + 1), loopback(port + i)}
		if line[1] != want[0] || line[2] != want[1] {
			t.Errorf("line %q, want node %s at %s", line[0], want[0], want[1])
		}
		mustLive(t, line[3])
		nodes = append(nodes, &Node{Name: "node" + line[1], HTTP: line[2]})
	}
	if len(nodes) != 3 {
		t.Fatalf("dev names %d nodes, want 3: %s", len(nodes), dev.Output(t))
	}
	return dev, nodes
}

func mustLive(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, 0); err != nil {
		t.Errorf("pid %s, which dev names: %v", pid, err)
	}
}

// interrupt presses Ctrl-C and waits until dev and its nodes have ended.
func interrupt(t *testing.T, dev *Process, nodes []*Node) {
	t.Helper()
	dev.Signal(t, syscall.SIGINT)
	if code := dev.ExitCode(t, StopLimit); code != 0 {
		t.Errorf("dev's exit code is %d after Ctrl-C, want 0: %s", code, dev.Output(t))
	}
	for _, n := range nodes {
		if answer := n.Get("/healthz"); answer.Status != 0 {
			t.Errorf("%s still answers after dev ended: %v", n.Name, answer)
		}
	}
}

func TestDevClusterFindsItsDataAgain(t *testing.T) {
	t.Parallel()
	port, data := devPorts(t), filepath.Join(t.TempDir(), "data")
	dev, nodes := startDev(t, port, data)
	mustRegister(t, nodes[1], Instance{App: "KEPT", ID: "kept"})
	interrupt(t, dev, nodes)

	dev, nodes = startDev(t, port, data)
	for _, n := range nodes {
		Eventually(t, ReadyLimit, n.Name+" has the data of the first run", func() error {
			listing, err := n.Listing()
			if _, listed := listing["kept"]; err == nil && !listed {
				err = errors.New("the instance is not listed")
			}
			return err
		})
	}
	interrupt(t, dev, nodes)
}

func TestDevNamesThePortInUse(t *testing.T) {
	t.Parallel()
	port := devPorts(t)
	for _, taken := range []string{loopback(port + 1), loopback(port - 998)} {
		t.Run(taken, func(t *testing.T) {
			l, err := net.Listen("tcp", taken)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			data := filepath.Join(t.TempDir(), "data")
			dev, err := Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil, "dev", "--http-port", strconv.Itoa(port), "--data", data)
			if err != nil {
				t.Fatal(err)
			}
			if code := dev.ExitCode(t, StopLimit); code == 0 {
				t.Error("exit code 0, want an error")
			}
			if said := dev.Output(t); !strings.Contains(said, taken) {
				t.Errorf("it does not name %s: %s", taken, said)
			}
		})
	}
}
