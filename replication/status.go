package replication

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// PeerStatus is what is known of one peer, as GET /v1/rollcall/peers shows it. Times are ms since the
// epoch, spans ms.
type PeerStatus struct {
	Name  string   `json:"name"`
	Kind  string   `json:"kind"` // node, datacenter or eureka
	URLs  []string `json:"urls"` // without user info
	URL   string   `json:"url"`  // the one in use
	State string   `json:"state"`
	// Reason says in a sentence why the state is what it is; empty: there is nothing to say.
	Reason string `json:"reason,omitempty"`

	Cursor     string `json:"cursor,omitempty"` // everything up to it is known to the peer
	LagChanges uint64 `json:"lag_changes"`      // changes that the peer does not know yet
	LagMillis  int64  `json:"lag_ms"`           // age of the oldest of them
	Pending    int    `json:"pending"`          // tasks queued
	InFlight   int    `json:"in_flight"`

	LastSuccess int64      `json:"last_success,omitempty"`
	LastError   *PeerError `json:"last_error,omitempty"`

	Sent    map[string]uint64 `json:"sent"`    // by fact: register, heartbeat, cancel, override
	Dropped map[string]uint64 `json:"dropped"` // by reason: expired, overflow, permanent, stopped
	Repairs map[string]uint64 `json:"repairs"` // by reason: first, too-old, digest, asked
	Repair  *RepairStatus     `json:"last_repair,omitempty"`

	Incoming *Incoming `json:"incoming,omitempty"` // of another datacenter or Eureka server
}

// The states of a peer.
const (
	StateOK      = "ok"
	StateFailing = "failing" // the last transmission failed
	StatePaused  = "paused"
	StateIdle    = "idle" // another node sends
)

// PeerError is a transmission that failed.
type PeerError struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// RepairStatus is the last repair that found something.
type RepairStatus struct {
	At      int64  `json:"at"`
	Reason  string `json:"reason"`
	Sent    int    `json:"sent"`    // instances that the peer lacked or had older
	Removed int    `json:"removed"` // instances that the peer had and should not have
}

// Incoming is what comes from a datacenter.
type Incoming struct {
	Instances int    `json:"instances"`          // that belong to it
	Heard     *int64 `json:"heard_ms,omitempty"` // ms of lease clock since it was heard; nil: never
	Cut       bool   `json:"cut"`                // its link counts as cut
	OnCut     string `json:"on_cut"`             // keep, keep for …, expire
	Kept      int    `json:"kept,omitempty"`     // of Instances, those whose time has passed
}

// Diff is what differs between this side and a peer.
type Diff struct {
	Apps    int          `json:"apps"`    // applications with a difference
	Missing int          `json:"missing"` // instances that the peer lacks or has older
	Extra   int          `json:"extra"`   // instances that the peer has and should not have
	Items   []DiffedItem `json:"items"`   // at most 1000
}

// DiffedItem is one instance that differs.
type DiffedItem struct {
	App  string `json:"app"`
	ID   string `json:"id"`
	What string `json:"what"` // missing, older, newer, different or extra: what the peer's copy is
}

const (
	lagCounted = 10_000          // changes that a status counts at most, of those that were not read
	lagTold    = 5 * time.Second // what waits no longer needs no reason
)

// Status is the state of every peer, in the order of the configuration.
func (r *Replicator) Status() []PeerStatus {
	v := newest(r.config.Service)
	now := r.config.Service.Health().Clock
	belonging := r.belonging(v, now)
	statuses := make([]PeerStatus, len(r.peers))
	for i, p := range r.peers {
		statuses[i] = p.status(v, now)
		statuses[i].Incoming = p.incoming(v, now, belonging[p.Name])
	}
	return statuses
}

func (p *peer) status(v *registry.View, now int64) PeerStatus {
	lag, since := p.lag(v, now)
	stats := p.stats()
	status := PeerStatus{
		Name: p.Name, Kind: p.Kind.String(), URL: p.link.url(),
		Cursor:     p.shownCursor(v),
		LagChanges: lag,
		Pending:    stats.AcceptorQueueSize + stats.ReprocessQueueSize + stats.QueueSize,
		InFlight:   stats.InFlight,
	}
	if lag > 0 && since > 0 {
		status.LagMillis = max(0, now-since)
	}
	for _, u := range p.URLs {
		status.URLs = append(status.URLs, withoutUser(u))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	status.Sent, status.Dropped, status.Repairs = maps.Clone(p.record.sent), maps.Clone(p.record.dropped), maps.Clone(p.record.repairs)
	if !p.record.success.IsZero() {
		status.LastSuccess = p.record.success.UnixMilli()
	}
	if p.record.failure != nil {
		failure := *p.record.failure
		status.LastError = &failure
	}
	if p.record.repair != nil {
		repair := *p.record.repair
		status.Repair = &repair
	}
	status.State, status.Reason = p.state(v.Peer(p.Name), status)
	return status
}

// state is the state in a word and a sentence. p.mu is held.
func (p *peer) state(kept registry.PeerState, s PeerStatus) (word, reason string) {
	switch {
	case kept.Paused:
		return StatePaused, sentence(pausedBy(kept.By), waitingSince(s))
	case p.session == nil:
		return StateIdle, "another node of this datacenter sends, or none"
	case p.record.failing:
		return StateFailing, sentence(s.LastError.Text, waitingSince(s))
	case p.session.lost():
		return StateOK, "everything is compared, because what the peer knows cannot be told from the change list"
	case s.LagMillis >= lagTold.Milliseconds():
		return StateOK, waitingSince(s)
	}
	return StateOK, ""
}

func sentence(parts ...string) string {
	var told []string
	for _, part := range parts {
		if part != "" {
			told = append(told, part)
		}
	}
	return strings.Join(told, "; ")
}

func pausedBy(by registry.Act) string {
	text := "paused"
	if by.Author != "" {
		text += " by " + by.Author
	}
	if by.Reason != "" {
		text += ": " + by.Reason
	}
	return text
}

func waitingSince(s PeerStatus) string {
	if s.LagChanges == 0 {
		return ""
	}
	waited := (time.Duration(s.LagMillis) * time.Millisecond).Round(time.Second)
	if s.LagChanges == 1 {
		return fmt.Sprintf("1 change is waiting since %v", waited)
	}
	return fmt.Sprintf("%d changes are waiting since %v", s.LagChanges, waited)
}

// shownCursor is the cursor in the form of X-Rollcall-Index; empty: it is not known.
func (p *peer) shownCursor(v *registry.View) string {
	at := max(p.cursor(), v.Peer(p.Name).Cursor)
	if at == 0 {
		return ""
	}
	return v.Epoch() + "-" + strconv.FormatUint(uint64(at), 10)
}

// lag is how many changes the peer does not know yet, at least, and the lease clock (ms) of the oldest.
// Where another node sends there is nothing to say.
func (p *peer) lag(v *registry.View, now int64) (changes uint64, since int64) {
	kept := v.Peer(p.Name)
	from, known, queued := place{after: kept.Cursor, upto: kept.Cursor}, kept.Known, 0
	s := p.sending()
	switch {
	case s != nil:
		from, known = s.cursor.reading()
		queued, since = s.cursor.queued()
	case !kept.Paused:
		return 0, 0
	}
	if !known {
		return uint64(v.Total()), since
	}
	unread, oldest := p.unread(v, from, now)
	if since == 0 || oldest != 0 && oldest < since {
		since = oldest
	}
	return uint64(queued + unread), since
}

// unread is how many changes are to be told that were not read yet, and the lease clock (ms) of the
// oldest. If the list does not tell any more, it is everything.
func (p *peer) unread(v *registry.View, from place, now int64) (changes int, since int64) {
	list, err := v.Changes(from.upto, lagCounted)
	if err != nil {
		return v.Total(), 0
	}
	for _, c := range list {
		if _, ok := p.tell(v, c, from, now); !ok {
			continue
		}
		if changes == 0 {
			since = c.Lease.ChangedLease
		}
		changes++
	}
	return changes, since
}

// lost says that the session does not know yet what the peer lacks.
func (s *session) lost() bool {
	_, known := s.cursor.reading()
	return !known
}
