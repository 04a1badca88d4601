package integration

import (
	"net"
	"sync"
	"testing"
	"time"
)

// TestIdleConnectionsToTheNodePortsDoNotDelayAFailover opens 600 connections without a certificate to each
// node-to-node port, and each anew when it is dropped.
func TestIdleConnectionsToTheNodePortsDoNotDelayAFailover(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, tlsCluster(t, NewCertificates(t)))
	without := failover(t, c)
	var crowd sync.WaitGroup
	done := make(chan struct{})
	defer crowd.Wait()
	defer close(done)
	for _, n := range c.Nodes {
		for range 600 {
			crowd.Go(func() { idleConnection(n.Cluster, done) })
		}
	}
	Pass(t, 3*time.Second) // most of them have had to make room by then
	with := failover(t, c)
	t.Logf("a write was taken %v after the leader was killed, and %v with 600 idle connections at each node port", without, with)
}

// failover kills the leader, and returns how long it took until the others took writes. It then starts the
// node again.
func failover(t *testing.T, c *Cluster) time.Duration {
	t.Helper()
	dead := c.Leader()
	others := c.Others(dead)
	began := time.Now()
	dead.Kill()
	mustRegisterSoon(t, others[0], Instance{App: "AFTER", ID: "i"})
	took := time.Since(began)
	mustRegisterSoon(t, others[1], Instance{App: "AFTER", ID: "j"})
	began = time.Now()
	dead.Start(t)
	dead.WaitReady(t)
	t.Logf("%s is ready %v after its start", dead.Name, time.Since(began))
	return took
}

// idleConnection says nothing, and is there again as soon as it was closed, until done is closed.
func idleConnection(address string, done <-chan struct{}) {
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil { // the node is down
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-done:
				return
			}
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = conn.Read(make([]byte, 1)) // until it is closed, by either side
		}()
		select {
		case <-closed:
			conn.Close()
		case <-done:
			conn.Close()
			<-closed
			return
		}
	}
}
