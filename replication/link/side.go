package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Side is this side of all links: this node, its datacenter and its peers.
type Side struct {
	World      *world.World // nil means the real machine
	Service    registry.Service
	Datacenter string // this node's
	Node       string // this node's name
	// HTTP is this node's address for clients, host:port, as shown to Eureka servers.
	HTTP string
	// Sender names the owner of the lease clock in Health.Clock: a cluster's id (CP), or the node's server id (AP).
	Sender func() string
	// Consensus is set if one node sends for the whole datacenter, and decides its evictions, which are replicated.
	// Otherwise every node sends what its own clients said, and evicts for itself.
	Consensus bool
	// Levels returns which levels of the formats this node reads, and which it writes. If it is nil, the node writes
	// the newest, and does not announce any.
	Levels func() codec.Reads
	// AuthFile returns the digest of this node's file of roles and tokens, which should equal that of the other nodes
	// in its datacenter, or NoAuthFile. If it is nil, nothing is compared.
	AuthFile func() string
	// AuthMode returns the word for the mode of access control in force. Nil means off.
	AuthMode func() string
	Peers    []PeerConfig // at the start
	// Now holds the current peers, shared by all parts of this side. Nil means those of the start. replication.New
	// sets it.
	Now *atomic.Pointer[[]PeerConfig]
	Log *slog.Logger // nil discards
	// Incarnation is this sender's; replication.New draws it.
	Incarnation *Incarnation
	// Refusals remembers the items of other servers that this node refuses; replication.New creates it.
	Refusals *Refusals
}

// AuthFileHeader carries, in responses to peers' messages, the digest of the file of roles and tokens, or NoAuthFile.
const AuthFileHeader, NoAuthFile = "X-Rollcall-Auth-File", "none"

// AuthModeHeader carries, in responses to peers' messages, the mode of access control.
const AuthModeHeader = "X-Rollcall-Auth-Mode"

// Validate reports every mistake at once.
func (s *Side) Validate() error {
	var errs []error
	if s.Service == nil {
		errs = append(errs, errors.New("no Service is given"))
	}
	if s.Datacenter == "" {
		errs = append(errs, errors.New("this datacenter must have a name (Datacenter)"))
	}
	if s.Node == "" {
		errs = append(errs, errors.New("this node must have a name (Node)"))
	}
	if s.Sender == nil {
		errs = append(errs, errors.New("no Sender is given"))
	}
	names := make(map[string]bool)
	for i, p := range s.Peers {
		for _, err := range p.mistakes(s.Datacenter, s.Consensus) {
			errs = append(errs, fmt.Errorf("peer %s: %w", p.label(i), err))
		}
		if p.Name != "" && names[p.Name] {
			errs = append(errs, fmt.Errorf("peer %s: another peer has this name", p.label(i)))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

// AsksMore reports whether this side authenticates callers while the peer's mode of access control does not. It is
// false while the peer's mode is not known ("").
func (s *Side) AsksMore(mode string) bool { return mode == authOff && s.Asks() }

// Asks reports whether callers are authenticated here.
func (s *Side) Asks() bool { return s.AuthMode != nil && s.AuthMode() != authOff }

// authOff is the mode of access control without authentication.
const authOff = "off"

// Present returns the current peers.
func (s *Side) Present() []PeerConfig {
	if s.Now == nil {
		return s.Peers
	}
	return *s.Now.Load()
}

// Writes returns the level of the formats that this node writes.
func (s *Side) Writes() byte {
	if s.Levels == nil {
		return codec.Newest
	}
	return s.Levels().Writes
}

// View returns the newest state of this node; a stale read never fails.
func (s *Side) View() *registry.View {
	v, err := s.Service.View(context.Background(), registry.Stale)
	if err != nil {
		panic("replication: a stale view was refused: " + err.Error())
	}
	return v
}

// Clock returns the lease clock, ms.
func (s *Side) Clock() int64 { return s.Service.Health().Clock }

// Remote returns the peer with this name that is a datacenter or a Eureka server, or nil.
func (s *Side) Remote(dc string) *PeerConfig {
	peers := s.Present()
	for i := range peers {
		if p := &peers[i]; p.Kind != Node && p.Name == dc {
			return p
		}
	}
	return nil
}

// Cut returns how long a datacenter or Eureka server may be silent before its link counts as cut.
func (s *Side) Cut(dc string) time.Duration {
	if p := s.Remote(dc); p != nil {
		return p.CutAfter()
	}
	return eurekaCut
}

// Incarnation is the number that lets receivers tell what this sender says now from what it said before its clock may
// have gone back: with its process, its leadership, or an older copy of its data.
type Incarnation struct{ number atomic.Uint64 }

// NewIncarnation draws the first one.
func NewIncarnation() *Incarnation {
	i := new(Incarnation)
	i.Draw()
	return i
}

// Now returns the current number.
func (i *Incarnation) Now() uint64 { return i.number.Load() }

// Draw starts another incarnation.
func (i *Incarnation) Draw() { i.number.Store(rand.Uint64() | 1) }
