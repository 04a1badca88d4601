package eurekaroutes

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of moves.
const (
	movesKept = 1000
	movedFor  = time.Hour // how long a move is remembered
)

// moves remembers instances that a client registered at another address while they still had a lease. Mostly these are
// two programs with one id, and only the last to register is listed.
type moves struct {
	total prometheus.Counter

	mu sync.Mutex
	of map[registry.Key]move
}

type move struct {
	from, to string
	at       time.Time
	times    int
}

// recordMove notes that a client registered now over before, the instance of the same id with a lease, if the addresses
// differ. It logs the first move of an instance.
func (e *Eureka) recordMove(before, now *registry.Instance) {
	from, to := servedAt(before), servedAt(now)
	if from == to {
		return
	}
	m := &e.moves
	m.total.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(_ registry.Key, of move) bool { return time.Since(of.at) > movedFor })
	key := now.Key()
	times := m.of[key].times + 1
	if times == 1 && len(m.of) >= movesKept {
		return
	}
	if times == 1 {
		e.Log.Warn("an instance was registered at another address while it had a lease; two programs need two ids",
			"app", key.App, "id", key.ID, "address", to, "before", from)
	}
	m.of[key] = move{from, to, time.Now(), times}
}

// Moved says how an instance moved within the last hour, or returns "" if this node knows of no move.
func (e *Eureka) Moved(key registry.Key) string {
	m := &e.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	of, ok := m.of[key]
	if !ok || time.Since(of.at) > movedFor {
		return ""
	}
	return fmt.Sprintf("It was registered with the address %s while it had a lease with %s, at %s (%d such registrations at this node). Two programs need two ids.",
		of.to, of.from, e.World.Wall(of.at).UTC().Format(time.RFC3339), of.times)
}

// servedAt returns the address at which an instance serves.
func servedAt(i *registry.Instance) string {
	return net.JoinHostPort(cmp.Or(i.IPAddr, i.HostName), strconv.Itoa(int(cmp.Or(i.Port.Open(), i.SecurePort.Open()))))
}
