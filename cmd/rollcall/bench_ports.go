package main

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// freePorts finds ports of 127.0.0.1 on which nobody listens. They lie below the range from which the
// system takes ports for outgoing connections: a thousand of the bench's own would otherwise take the
// port of a node that restarts.
// What lies below them is for the integration tests (integration/ports.go).
func freePorts(n int) ([]int, error) {
	const lowest, highest = 20_000, 32_000
	var ports []int
	taken := make(map[int]bool)
	for range 100 * n {
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", localhost(port))
		if err != nil {
			continue
		}
		l.Close()
		if !taken[port] {
			taken[port] = true
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found %d of %d free ports between %d and %d", len(ports), n, lowest, highest)
}
