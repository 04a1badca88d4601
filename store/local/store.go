package local

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// levels is the level of the formats at which a node without consensus writes, and what raises it.
type levels struct {
	writes atomic.Uint32 // written with the store's mutex held

	mu   sync.Mutex
	rise codec.LevelRise
}

// level returns the level at which this node writes.
func (s *Store) level() byte { return byte(s.levels.writes.Load()) }

// Store is the registry in AP mode: the same state machine without consensus. Operations are performed where they
// arrive, and answered at once; the disk follows. It implements registry.Service.
type Store struct {
	cfg     store.Config
	log     *slog.Logger
	metrics *localMetrics
	id      *disk.Identity
	disk    *registryFile
	clock   expiry.Clock

	view     atomic.Pointer[registry.View] // the newest
	changes  *store.ChangeCounter          // guarded by mu; nil while the store is being opened
	watchers registry.Watchers             // waiting for changes
	reign    atomic.Pointer[expiry.Reign]  // of this node over itself, since its start or since it became ready
	ready    atomic.Bool
	levels   levels

	started chan struct{}   // closed when Run begins
	closing context.Context // ends when the node stops
	stop    context.CancelFunc
	wake    chan struct{} // holds a token while something must be written at once
	asked   chan struct{} // questions whether the loop that writes to the disk still runs
	fatal   chan error

	mu       sync.Mutex // guards the fields below
	registry *registry.Registry
	serving  bool           // between the beginning and the end of Run
	next     *flush         // will contain what is changed now
	dirty    bool           // there is something to write
	rewrite  bool           // everything must be written
	flushed  registry.Index // index that the disk has
	written  int64          // lease clock that the disk has or is being given, ms
	broken   bool           // the registry has half of an operation, and could not be rebuilt
	refusals map[string]*Refusal
	doubted  time.Duration // what the lease clock had lost when renewals were last marked unconfirmed
}
