package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports that tests use lie below the range from which the system takes ports for outgoing
// connections: a killed node's port would otherwise be taken by some client before its restart. And they
// lie below those from which rollcall's own benchmarks take theirs (cmd/rollcall/bench_ports.go), whose
// tests run beside these.
const (
	lowestPort  = 10_000
	highestPort = 20_000
)

// ports remembers what this process gave out, so that two tests never get the same port between the
// check that it is free and its use.
var ports = struct {
	sync.Mutex
	given map[int]bool
}{given: map[int]bool{}}

// FreePort returns a port of 127.0.0.1 on which nobody listens, and which nobody in this test
// process will get again.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if claim(port) {
			return port
		}
	}
	t.Fatalf("no free port between %d and %d", lowestPort, highestPort)
	return 0
}

// FreeAddr is FreePort as an address to listen on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

// claim dials, to find out whether somebody listens. A listener of its own would do as well, but a child
// process that another test starts at that moment has a copy of it until it runs its program, so that the
// port would be in use for a while after the listener was closed.
func claim(port int) bool {
	ports.Lock()
	defer ports.Unlock()
	if ports.given[port] {
		return false
	}
	if conn, err := net.Dial("tcp", loopback(port)); err == nil {
		conn.Close()
		return false
	}
	ports.given[port] = true
	return true
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
