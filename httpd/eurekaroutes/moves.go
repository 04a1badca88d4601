package eurekaroutes

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Bounds of moves.
const (
	movesKept = 1000
	movedFor  = time.Hour // how long a move is remembered
)

// moves remembers instances that clients registered at another address while they had a lease at the one before: mostly two
// programs with one id: only the last to register is listed. The first move of an instance is logged. Safe for
// concurrent use.
type moves struct {
	world *world.World
	log   *slog.Logger
	total prometheus.Counter

	mu sync.Mutex
	of map[registry.Key]move
}

type move struct {
	from, to string
	at       time.Time
	times    int
}

func newMoves(w *world.World, log *slog.Logger, reg prometheus.Registerer) *moves {
	m := &moves{world: w, log: log, of: make(map[registry.Key]move), total: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_http_moved_registrations_total", Help: "Registrations at another address than the living instance of their id has.",
	})}
	reg.MustRegister(m.total)
	return m
}

// record counts a client's registration, if it has another address than before, the instance of its id that has a lease.
func (m *moves) record(before, now *registry.Instance) {
	from, to := servedAt(before), servedAt(now)
	if from == to {
		return
	}
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
		m.log.Warn("an instance was registered at another address while it had a lease: if two programs run, they need two ids",
			"app", key.App, "id", key.ID, "address", to, "before", from)
	}
	m.of[key] = move{from, to, time.Now(), times}
}

// Moved says how an instance moved within the last hour; "": it did not, as far as this node knows.
func (e *Eureka) Moved(key registry.Key) string { return e.moves.sentence(key) }

func (m *moves) sentence(key registry.Key) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	of, ok := m.of[key]
	if !ok || time.Since(of.at) > movedFor {
		return ""
	}
	return fmt.Sprintf("It was registered at %s while it had a lease at %s, at %s (%d such registrations at this node): if two programs run, they need two ids.",
		of.to, of.from, m.world.Wall(of.at).UTC().Format(time.RFC3339), of.times)
}

// servedAt is where an instance serves.
func servedAt(i *registry.Instance) string {
	return net.JoinHostPort(cmp.Or(i.IPAddr, i.HostName), strconv.Itoa(int(cmp.Or(i.Port.Open(), i.SecurePort.Open()))))
}
