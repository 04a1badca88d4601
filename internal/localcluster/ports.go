package localcluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Claimed ports are in [lowest, highest). From 32,768 on Linux uses ports for outgoing connections. Those from 10,000
// to there belong to Consul's tests, which run beside ours: Consul's package freeport tries ports by listening on
// them.
const (
	lowest  = 2_000
	highest = 10_000
)

// attempts is how many ports are tried for each one needed.
const attempts = 1000

// claims holds the claims of this process, by port. A claim is a UDP socket with the same number: no server uses it,
// the system gives it to one process only, and frees it when that process ends, however it ends.
var claims = struct {
	sync.Mutex
	held map[int]net.PacketConn
}{held: make(map[int]net.PacketConn)}

// ClaimPorts returns n ports of 127.0.0.1 for the caller alone: no other call, in this or another process, returns
// them before this process ends.
//
// It is not enough that a port was seen free. Another process may see it free, too; an outgoing connection may use it
// between two starts of the server; and a test by listening may itself block the port, because a child process that
// is started at that moment has a copy of the listener until it runs its program. So ports are claimed for as long as
// the process lives, lie below the range from which the system takes ports for outgoing connections, and are tested
// by dialling.
func ClaimPorts(n int) ([]int, error) {
	var all []int
	for range n {
		p, err := ClaimPort()
		if err != nil {
			return nil, fmt.Errorf("port %d of %d: %w", len(all)+1, n, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// ClaimPort claims a port and those at the given distances from it, for a server that derives its ports from one. It
// returns the first port.
func ClaimPort(distances ...int) (int, error) {
	claims.Lock()
	defer claims.Unlock()
	for range attempts {
		first := lowest + rand.IntN(highest-lowest)
		if claimAll(first, distances) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no free port of %s between %d and %d in %d attempts", loopback, lowest, highest, attempts)
}

const loopback = "127.0.0.1"

// claimAll claims a port and those at the given distances, or none.
func claimAll(first int, distances []int) bool {
	claimed := make(map[int]net.PacketConn)
	for _, d := range append([]int{0}, distances...) {
		port := first + d
		if _, again := claimed[port]; again {
			continue
		}
		held, err := claim(port)
		if err != nil {
			for _, c := range claimed {
				c.Close()
			}
			return false
		}
		claimed[port] = held
	}
	for port, c := range claimed {
		claims.held[port] = c
	}
	return true
}

// claim claims a port on which no process listens.
func claim(port int) (net.PacketConn, error) {
	if port < lowest || port >= highest {
		return nil, fmt.Errorf("port %d is not between %d and %d", port, lowest, highest)
	}
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	held, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
		held.Close()
		return nil, fmt.Errorf("port %d is in use", port)
	}
	return held, nil
}
