package store

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// givenPorts are those that freePort has returned.
var givenPorts sync.Map

// freePort is an address of 127.0.0.1 on which nobody listens, and which nobody in this process gets again.
// It lies below those from which the system takes ports for outgoing connections: one of these would take
// the port of a node that is not opened yet, or is opened again. And it lies below those of the integration
// tests and the benchmarks.
func freePort(t testing.TB) string {
	t.Helper()
	const lowest, highest = 3_000, 7_000
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest)))
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			continue
		}
		if _, given := givenPorts.LoadOrStore(addr, true); !given {
			return addr
		}
	}
	t.Fatalf("no free port between %d and %d", lowest, highest)
	return ""
}
